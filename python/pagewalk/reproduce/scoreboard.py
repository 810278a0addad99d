"""Outcomes as text: one experiment, a list of them, the scoreboard of all."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pagewalk import text
from pagewalk.reproduce.claims import Verdict
from pagewalk.reproduce.outcome import Outcome
from pagewalk.reproduce.table import Table

WORDS = {True: "reached", False: "MISSED", None: "no number"}
COLUMNS_MAX = 10


def outcome(made: Outcome) -> str:
    """The paper's numbers, ours, and the claims."""
    experiment = made.experiment
    unit = f", {made.table.unit}" if made.table.unit else ""
    parts = [f"{experiment.name}: {experiment.title} ({experiment.source}{unit})"]
    if made.smoke:
        parts.append("  Small sizes: the numbers mean nothing, and no claim is judged.")
    if experiment.notes:
        parts.append(_paragraph(experiment.notes))
    parts.append(side_by_side(experiment.published, made.table))
    parts += [_verdict(verdict) for verdict in made.verdicts]
    return "\n".join(parts)


def side_by_side(paper: Table | None, ours: Table) -> str:
    """Both tables in one: under each name the paper's row, then ours."""
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
    """The columns of both tables, and their rows: under each name the paper's, then ours."""
    columns = list(dict.fromkeys([*ours.columns, *(paper.columns if paper else [])]))
    rows = []
    for name in dict.fromkeys([*(paper.rows if paper else []), *ours.rows]):
        for table, whose in ((paper, "paper"), (ours, "ours")):
            if table is not None and name in table.rows:
                cells = [table.value((name, column)) for column in columns]
                rows.append((f"{name}, {whose}" if paper else name, cells))
    return columns, rows


def listing(experiments: Sequence[tuple[str, str, Mapping[str, Any] | None]]) -> str:
    """Names, titles, and what the last numbers said."""
    rows = []
    width = _width(name for name, _, _ in experiments)
    for name, title, last in experiments:
        claims = last["claims"] if last else []
        reached = sum(claim["reached"] is True for claim in claims)
        state = f"{reached} of {len(claims)}" if last else "-"
        rows.append([f"{name:{width}}  {text.shorten(title, 84)}", state])
    return text.table(["", "claims reached"], rows, indent="")


def summary(outcomes: Sequence[Outcome], failures: Mapping[str, str]) -> str:
    """The scoreboard."""
    rows = []
    missed = []
    width = _width([*(made.experiment.name for made in outcomes), *failures])
    for made in outcomes:
        name = made.experiment.name
        count = f"{made.reached} of {len(made.verdicts)}" if not made.smoke else "small sizes"
        rows.append([f"{name:{width}}  {text.shorten(made.experiment.title, 84)}", count])
        missed += [(name, verdict) for verdict in made.verdicts if verdict.reached is not True]
    rows += [
        [f"{name:{width}}  not measured: {text.shorten(why, 76)}", "-"]
        for name, why in failures.items()
    ]
    parts = ["Scoreboard", text.table(["", "claims reached"], rows)]
    if missed:
        parts.append("\nMissed")
        parts += [f"  {name}: {verdict.says}" for name, verdict in missed]
    reached, all_ = sum(made.reached for made in outcomes), sum(len(m.verdicts) for m in outcomes)
    if all_:
        parts.append(f"\n{reached} of {all_} claims reached.")
    return "\n".join(parts)


def formatter(rows: Sequence[tuple[str, list[float | None]]]) -> Callable[[float | None], str]:
    """How the numbers of a table are shown: without decimals if none has any."""
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
    first = f"  {WORDS[verdict.reached]:9}  {verdict.says}"
    lines = [first, f"             ours: {verdict.ours}; paper: {verdict.paper}"]
    if verdict.reason:
        lines.append(_paragraph(f"why: {verdict.reason}", " " * 13))
    return "\n".join(lines)


def _width(names: Iterable[str]) -> int:
    return max(map(len, names), default=0)


def _paragraph(words: str, indent: str = "  ") -> str:
    return textwrap.fill(words, 100, initial_indent=indent, subsequent_indent=indent)


def _thinned(columns: list[str]) -> list[str]:
    """Of the columns of a figure over sizes, as many as a terminal shows; the last among them."""
    if len(columns) <= 2 * COLUMNS_MAX:
        return columns
    step = -(-len(columns) // COLUMNS_MAX)
    return [*columns[: len(columns) - 1 : step], columns[-1]]
