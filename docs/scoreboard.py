"""Writes the scoreboard of `docs/experiments.md` from the `last.json` of each experiment.

```
 experiments/*/*/experiment.toml  title ---+
 experiments/*/*/last.json  claims, cells -+--> docs/experiments.md, from "## The scoreboard"
                                                up to "## What was learnt"
```

Run it as `make scoreboard` after `pagewalk reproduce --save`. A test compares what this writes
with what is there.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pagewalk.reproduce import find
from pagewalk.reproduce.experiment import Experiment
from pagewalk.reproduce.scoreboard import apart, scores, sentence

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "experiments.md"
BEGIN, END = "## The scoreboard\n", "## What was learnt\n"


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())


def page() -> str:
    """The whole page with the scoreboard as it should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    return before + BEGIN + "\n" + "\n".join(_scoreboard()) + "\n" + END + after


def _scoreboard() -> Iterator[str]:
    known = [(experiment, experiment.last()) for experiment in find(ROOT / "experiments")]
    every = [claim for _, last in known if last for claim in last["claims"]]
    counted = sentence(scores((claim["kind"], claim["verdict"]) for claim in every))
    yield textwrap.fill(
        f"{counted} The numbers, their commit and the digests of what they ran through are in "
        "`last.json` beside each experiment.",
        104,
        break_on_hyphens=False,
    )
    yield "\n| experiment | what | claims reached | counted apart |\n|---|---|---|---|"
    yield from (_row(experiment, last) for experiment, last in known)
    yield """
### Cell by cell

Averages can agree although no cell does. This table compares the cells that a paper's table and
ours have in common, without rows that are averages: their number, the mean of the paper's cells,
the mean absolute difference of our cells to the paper's, and the rank correlation of the two.

| experiment | cells | paper's mean | mean difference | rank correlation |
|---|---|---|---|---|"""
    yield from (_cells(experiment.name, last["cells"]) for experiment, last in known
                if last and last["cells"])  # fmt: skip
    yield "\n### Not reached\n"
    for experiment, last in known:
        # A reason is found after the number, so the experiment's file has it before `last.json`.
        reasons = {claim.says: claim.reason for claim in experiment.claims}
        for claim in last["claims"] if last else []:
            if claim["kind"] == "paper" and claim["verdict"] != "reached":
                yield _missed(experiment.name, claim, reasons.get(claim["says"]))
    yield ""


def _row(experiment: Experiment, last: dict[str, Any] | None) -> str:
    said = "not measured yet | "
    if last is not None:
        counted = scores((claim["kind"], claim["verdict"]) for claim in last["claims"])
        said = f"{counted['paper']} | {apart(counted)}"
    link = f"[{experiment.name}](../experiments/{experiment.name}/experiment.toml)"
    title = experiment.title.replace("|", "\\|")
    return f"| {link} | {title} | {said} |"


def _cells(name: str, cells: dict[str, Any]) -> str:
    correlation = cells["correlation"]
    shown = "" if correlation is None else f"{correlation:.2f}"
    numbers = f"{cells['cells']} | {cells['paper_mean']:.3g} | {cells['error']:.3g} | {shown}"
    return f"| {name} | {numbers} |"


def _missed(name: str, claim: dict[str, Any], reason: str | None) -> str:
    verdict = claim["verdict"].capitalize()
    why = f" {reason or claim['reason']}".rstrip()
    said = f"{verdict}. Ours: {claim['ours']}. Paper: {claim['paper']}.{why}"
    return f"* **{name}**: {claim['says']}. {said}"


if __name__ == "__main__":
    main()
