"""Outcomes as text: one experiment, a list of them, the scoreboard of all.

Claims of papers are counted together if their band is 10 % or follows from the paper's words. Four
other kinds are counted separately: claims with a wider band, claims to which something was fitted,
arithmetic, and our own claims.
"""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagewalk import text
from pagewalk.reproduce.claims import KINDS, MISSED, REACHED, UNMEASURED, UNSTABLE, Verdict
from pagewalk.reproduce.outcome import Outcome
from pagewalk.reproduce.table import Table

WORDS = {REACHED: "reached", MISSED: "MISSED", UNSTABLE: "UNSTABLE", UNMEASURED: "no number"}
COLUMNS_MAX = 10


@dataclass
class Score:
    """The numbers of claims of one kind, by verdict."""

    verdicts: Counter[str] = field(default_factory=Counter)

    @property
    def all(self) -> int:
        """The number of claims."""
        return self.verdicts.total()

    @property
    def reached(self) -> int:
        """The number of claims that are reached."""
        return self.verdicts[REACHED]

    def __str__(self) -> str:
        rest = [f"{self.verdicts[verdict]} {verdict}" for verdict in (UNSTABLE, UNMEASURED)
                if self.verdicts[verdict]]  # fmt: skip
        return ", ".join([f"{self.reached} of {self.all}", *rest])


def scores(verdicts: Iterable[tuple[str, str]]) -> dict[str, Score]:
    """The score of each kind of claim, computed from the kinds and verdicts of claims."""
    made = {kind: Score() for kind in KINDS}
    for kind, verdict in verdicts:
        made[kind].verdicts[verdict] += 1
    return made


def apart(counted: Mapping[str, Score]) -> str:
    """The scores of the kinds of claims that are counted separately."""
    return "; ".join(f"{kind} {counted[kind]}" for kind in KINDS[1:] if counted[kind].all)


def sentence(counted: Mapping[str, Score]) -> str:
    """All counts in words."""
    paper = counted["paper"].verdicts
    said = (
        f"{counted['paper'].all} claims of the papers: {paper[REACHED]} reached, {paper[MISSED]} "
        f"missed, {paper[UNSTABLE]} unstable, {paper[UNMEASURED]} not measured."
    )
    rest = apart(counted)
    return f"{said} Claims reached of the kinds that are counted apart: {rest}." if rest else said


def outcome(made: Outcome) -> str:
    """One experiment as text: the paper's numbers, our numbers, and the claims."""
    experiment = made.experiment
    unit = f", {made.table.unit}" if made.table.unit else ""
    parts = [f"{experiment.name}: {experiment.title} ({experiment.source}{unit})"]
    if made.smoke:
        parts.append("  Small sizes: the numbers mean nothing, and no claim is judged.")
    if experiment.notes:
        parts.append(_paragraph(experiment.notes))
    parts.append(side_by_side(experiment.published, made.table))
    if made.agreement:
        parts.append(_paragraph(str(made.agreement)))
    if len(made.tables) > 1:
        words = f"Medians of {len(made.tables)} placements; claims show least and most too."
        parts.append(_paragraph(words))
    parts += [_verdict(verdict) for verdict in made.verdicts]
    return "\n".join(parts)


def side_by_side(paper: Table | None, ours: Table) -> str:
    """Both tables as one. For each name, it has the paper's row and then our row."""
    columns, rows = merged(paper, ours)
    shown = _thinned(columns)
    form = formatter(rows)
    lines = [
        [name, *(form(cells[columns.index(column)]) for column in shown)] for name, cells in rows
    ]
    return text.table(["", *shown], lines)


def merged(
    paper: Table | None, ours: Table
) -> tuple[list[str], list[tuple[str, list[float | None]]]]:
    """The columns of both tables, and their rows.

    For each name there is the paper's row and then our row.
    """
    columns = list(dict.fromkeys([*ours.columns, *(paper.columns if paper else [])]))
    rows = []
    for name in dict.fromkeys([*(paper.rows if paper else []), *ours.rows]):
        for table, whose in ((paper, "paper"), (ours, "ours")):
            if table is not None and name in table.rows:
                cells = [table.value((name, column)) for column in columns]
                rows.append((f"{name}, {whose}" if paper else name, cells))
    return columns, rows


def listing(experiments: Sequence[tuple[str, str, Mapping[str, Any] | None, str]]) -> str:
    """Names and titles. Below each are the saved verdicts and, if they do not count, the reason."""
    lines = []
    width = _width(name for name, *_ in experiments)
    for name, title, last, complaint in experiments:
        lines.append(text.paragraph(f"{name:{width}}  {title}", hang=" " * (width + 2)))
        if not last:
            lines.append(f"{'':{width}}  not measured yet")
            continue
        counted = scores((claim["kind"], claim["verdict"]) for claim in last["claims"])
        paper = f"claims reached: {counted['paper']}" if counted["paper"].all else ""
        said = "; ".join(part for part in (paper, apart(counted)) if part) or "no claims"
        lines.append(text.paragraph(said, " " * (width + 2)))
        if complaint:
            words = f"does not count: {complaint}"
            lines.append(text.paragraph(words, " " * (width + 2), "  "))
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome], failures: Mapping[str, str]) -> str:
    """The scoreboard as text."""
    rows = []
    missed = []
    width = _width([*(made.experiment.name for made in outcomes), *failures])
    for made in outcomes:
        name = made.experiment.name
        counted = counts([made])
        count = [str(counted["paper"]), apart(counted)] if not made.smoke else ["small sizes", ""]
        rows.append([f"{name:{width}}  {text.shorten(made.experiment.title, 84)}", *count])
        missed += [(name, verdict) for verdict in made.verdicts if not verdict.reached]
    rows += [
        [f"{name:{width}}  not measured: {text.shorten(why, 76)}", "-", ""]
        for name, why in failures.items()
    ]
    parts = ["Scoreboard", text.table(["", "claims reached", "apart"], rows)]
    if missed:
        parts.append("\nNot reached")
        parts += [f"  {name}: {_named(verdict)}" for name, verdict in missed]
    counted = counts(outcomes)
    if any(score.all for score in counted.values()):
        parts.append(f"\n{sentence(counted)}")
    return "\n".join(parts)


def counts(outcomes: Iterable[Outcome]) -> dict[str, Score]:
    """The score of each kind of claim in all of `outcomes`."""
    return scores((verdict.kind, verdict.verdict) for made in outcomes
                   for verdict in made.verdicts)  # fmt: skip


def formatter(rows: Sequence[tuple[str, list[float | None]]]) -> Callable[[float | None], str]:
    """A function that shows the numbers of a table. It shows no decimals if no number has any."""
    known = [value for _, values in rows for value in values if value is not None]
    return _whole if all(value == int(value) for value in known) else _number


def _whole(value: float | None) -> str:
    return "-" if value is None else text.count(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return text.count(value)
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def _verdict(verdict: Verdict) -> str:
    first = f"  {WORDS[verdict.verdict]:9}  {_named(verdict)}"
    lines = [first, f"             ours: {verdict.ours}; paper: {verdict.paper}"]
    lines += [_paragraph(f"{what}: {words}", " " * 13)
              for what, words in (("band", verdict.remark), ("why", verdict.reason))
              if words]  # fmt: skip
    return "\n".join(lines)


def _named(verdict: Verdict) -> str:
    return verdict.says if verdict.kind == "paper" else f"({verdict.kind}) {verdict.says}"


def _width(names: Iterable[str]) -> int:
    return max(map(len, names), default=0)


def _paragraph(words: str, indent: str = "  ") -> str:
    return textwrap.fill(words, 100, initial_indent=indent, subsequent_indent=indent)


def _thinned(columns: list[str]) -> list[str]:
    """The columns of a figure over sizes, at most as many as fit on a terminal.

    The last one is included.
    """
    if len(columns) <= 2 * COLUMNS_MAX:
        return columns
    step = -(-len(columns) // COLUMNS_MAX)
    return [*columns[: len(columns) - 1 : step], columns[-1]]
