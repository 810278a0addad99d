"""Writes the scoreboard of the handbook from the `last.json` of each experiment.

```
 experiments/*/*/experiment.toml  title ---+--> docs/method/scoreboard.md        all papers
 experiments/*/*/last.json  claims, cells -+--> docs/method/scoreboard/E99.md    a page a paper,
                                                .../E99-missed-1.md              and what it missed
```

Run it as `make scoreboard` after `pagewalk reproduce --save`. A test compares the output with the
files.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from pagewalk.reproduce import find
from pagewalk.reproduce.claims import Claim
from pagewalk.reproduce.experiment import Experiment
from pagewalk.reproduce.scoreboard import apart, scores, sentence

sys.path.insert(0, str(Path(__file__).parent))
import labels

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "method"
WORDS_MAX = 2000
"""More claims than these words have room for are divided among several pages."""

KINDS = textwrap.fill(
    "A claim is *reached* if our number lies in the claim's range, *missed* if it does not, and "
    "*unstable* if this depends on where frames or sparse addresses are placed. Five kinds of "
    "claims are counted apart from the papers' claims. A *wide* claim has a range wider than 10 % "
    "to either side of a printed number. For a *fitted* claim, a parameter of ours was chosen so "
    "that the paper's number results. An *arithmetic* claim holds by construction of the model. A "
    "*goal* is set by a paper, which did not measure it. An *own* claim is ours: no paper makes "
    "it.",
    104,
    break_on_hyphens=False,
)
NUMBERS = (
    "*Ours* is our number. The brackets before the number say what it measures, and the brackets "
    "after the number give its smallest and largest value over several runs. *Paper* is the "
    "paper's number, and the brackets after it give the range in which our number counts as "
    "reached. If the paper has only words, *Paper* is a range or an order that stands for these "
    "words."
)

Known = list[tuple[Experiment, dict[str, Any] | None]]


def main() -> None:
    """Writes the pages, and removes those of before."""
    written = made()
    for path in (FOLDER / "scoreboard").glob("*.md"):
        if path not in written:
            path.unlink()
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def made() -> dict[Path, str]:
    """The pages and what should be in them."""
    known = [(experiment, experiment.last()) for experiment in find(ROOT / "experiments")]
    papers = {name: list(of) for name, of in groupby(known, lambda one: _paper(one[0]))}
    pages = {"scoreboard.md": _all(known, papers)}
    for paper, experiments in papers.items():
        pages |= {f"scoreboard/{name}": text for name, text in _of_paper(paper, experiments)}
    return {FOLDER / name: text for name, text in pages.items()}


def _paper(experiment: Experiment) -> str:
    return experiment.name.partition("/")[0]


def _claims(known: Known) -> list[dict[str, Any]]:
    return [claim for _, last in known if last for claim in last["claims"]]


def _counted(known: Known) -> str:
    claims = ((claim["kind"], claim["verdict"]) for claim in _claims(known))
    return textwrap.fill(
        f"{sentence(scores(claims))} The numbers, their commit, and the digests of the "
        "programs and traces behind them are in `last.json` beside each experiment.",
        104,
        break_on_hyphens=False,
    )


def _all(known: Known, papers: dict[str, Known]) -> str:
    lines = [
        "# The scoreboard",
        "",
        _counted(known),
        "",
        KINDS,
        "",
        "[Experiments](experiments.md) says what is run and how a claim is judged. The papers are "
        "listed in the [glossary](../reference/glossary.md).",
        "",
        "| paper | experiments | claims reached | counted apart |",
        "|---|---|---|---|",
    ]
    for paper, experiments in papers.items():
        counted = scores((claim["kind"], claim["verdict"]) for claim in _claims(experiments))
        row = [f"[{paper}](scoreboard/{paper}.md)", str(len(experiments))]
        lines.append(f"| {' | '.join([*row, str(counted['paper']), apart(counted)])} |")
    return "\n".join(lines) + "\n"


def _of_paper(paper: str, known: Known) -> Iterator[tuple[str, str]]:
    """The page of a paper, and pages of its missed claims if one page cannot have both."""
    head = ["| experiment | what | claims reached | counted apart |", "|---|---|---|---|"]
    head += [_row(experiment, last) for experiment, last in known]
    cells = [_cells(experiment.name, last["cells"]) for experiment, last in known
             if last and last["cells"]]  # fmt: skip
    if cells:
        head += [CELLS, *cells]
    missed = {
        experiment.name: text
        for experiment, last in known
        if (text := _not_reached(experiment, last))
    }
    if not missed:
        yield f"{paper}.md", _page(paper, known, head)
        return
    head += ["", "## Not reached", ""]
    if sum(map(_words, [*head, *missed.values()])) <= WORDS_MAX:
        yield f"{paper}.md", _page(paper, known, [*head, NUMBERS, "", *missed.values()])
        return
    parts: list[list[str]] = [[]]
    for name, text in missed.items():
        if sum(_words(missed[one]) for one in parts[-1]) + _words(text) > WORDS_MAX:
            parts.append([])
        parts[-1].append(name)
    for number, names in enumerate(parts, 1):
        first, last_one = (name.partition("/")[2] for name in (names[0], names[-1]))
        span = first if first == last_one else f"{first} to {last_one}"
        title = f"{paper}, not reached: {span}"
        page = f"{paper}-missed-{number}.md"
        head.append(f"* [{title}]({page})")
        back = f"[Scoreboard: {paper}]({paper}.md)"
        reasons = [missed[one] for one in names]
        used = labels.of(paper, "\n".join(reasons))
        yield page, "\n".join([f"# {title}", "", back, "", NUMBERS, "", *used, *reasons]) + "\n"
    yield f"{paper}.md", _page(paper, known, head)


def _page(paper: str, known: Known, rest: list[str]) -> str:
    """The main page of a paper, whose tables and claims are `rest`."""
    used = labels.of(paper, "\n".join(rest))
    head = [f"# Scoreboard: {paper}", "", _counted(known), "", KINDS, ""]
    more = "[Experiments](../experiments.md) says more about claims."
    return "\n".join([*head, more, "", *used, *rest]) + "\n"


CELLS = """
## Cell by cell

Two tables can have equal averages although no cell of one is equal to that of the other. For each
experiment, this table compares the cells that the paper's table and ours have in common, without
rows that are averages. A row has the number of these cells, the mean of the paper's cells, the mean
absolute difference between our cells and the paper's, and the rank correlation of the two tables.

| experiment | cells | paper's mean | mean difference | rank correlation |
|---|---|---|---|---|"""


def _words(text: str) -> int:
    return len(text.split())


def _not_reached(experiment: Experiment, last: dict[str, Any] | None) -> str:
    # A reason is found after the number, so the experiment's file has it before `last.json`.
    stated = {claim.says: claim for claim in experiment.claims}
    unit = last["ours"]["unit"] if last else ""
    return "\n".join(
        _missed(experiment.name, claim, stated.get(claim["says"]), unit)
        for claim in (last["claims"] if last else [])
        if claim["kind"] == "paper" and claim["verdict"] != "reached"
    )


def _row(experiment: Experiment, last: dict[str, Any] | None) -> str:
    said = "not measured yet | "
    if last is not None:
        counted = scores((claim["kind"], claim["verdict"]) for claim in last["claims"])
        said = f"{counted['paper']} | {apart(counted)}"
    link = f"[{experiment.name}](../../../experiments/{experiment.name}/experiment.toml)"
    title = experiment.title.replace("|", "\\|")
    return f"| {link} | {title} | {said} |"


def _cells(name: str, cells: dict[str, Any]) -> str:
    correlation = cells["correlation"]
    shown = "" if correlation is None else f"{correlation:.2f}"
    numbers = f"{cells['cells']} | {cells['paper_mean']:.3g} | {cells['error']:.3g} | {shown}"
    return f"| {name} | {numbers} |"


def _missed(name: str, claim: dict[str, Any], stated: Claim | None, unit: str) -> str:
    verdict = claim["verdict"].capitalize()
    why = f" {(stated and stated.reason) or claim['reason']}".rstrip()
    quantity = stated.quantity(unit) if stated else ""
    ours = f"Ours ({quantity})" if quantity else "Ours"
    numbers, paper = _order(claim["ours"], claim["paper"])
    said = f"{verdict}. {ours}: {numbers}. Paper: {paper}.{why}"
    return f"* **{name}**: {claim['says']}. {said}"


def _order(ours: str, paper: str) -> tuple[str, str]:
    """Both texts, with a colon after each name if the claim is about an order of numbers."""
    names = re.split(" [<≤] ", paper)
    extreme = re.fullmatch("(.+) is (least|greatest) of (.+)", paper)
    if extreme:
        first, which, others = extreme.groups()
        names = [first, *others.split(", ")]
        paper = f"{first} is {'smaller' if which == 'least' else 'larger'} than {others}"
    elif len(names) > 1:
        paper = f"the order {paper}"
    else:
        return ours, paper
    name = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"(^|, )({name}) (?=-?[0-9])", r"\1\2: ", ours), paper


if __name__ == "__main__":
    main()
