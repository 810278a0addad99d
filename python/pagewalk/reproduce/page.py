"""Outcomes as one HTML page: the scoreboard, and then each experiment with its plot and claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pagewalk import _native
from pagewalk.report.charts import Chart, sized
from pagewalk.report.model import Cell, Figure, Table, Value
from pagewalk.report.page import poured
from pagewalk.reproduce.claims import Verdict
from pagewalk.reproduce.outcome import Outcome
from pagewalk.reproduce.scoreboard import (
    apart,
    counts,
    formatter,
    merged,
    sentence,
)
from pagewalk.reproduce.table import Table as Numbers

COLOURS = 4
"""The number of colours in the pages' palette."""


@dataclass(frozen=True)
class Part:
    """One experiment on the page."""

    anchor: str
    name: str
    title: str
    source: str
    notes: str
    figure: Figure
    agreement: str
    claims: list[Verdict]
    used: list[tuple[str, str]]
    drawings: list[tuple[str, str]]


@dataclass(frozen=True)
class Board:
    """The page's data."""

    title: str
    subtitle: str
    headline: str
    scoreboard: Table
    parts: list[Part]
    version: str


def render(outcomes: Sequence[Outcome], failures: Mapping[str, str]) -> str:
    """The page, as the text of an HTML file that needs no network."""
    whole = board(outcomes, failures)
    charts = {
        f"chart-{part.anchor}": chart(made, part.figure).to_dict()
        for made, part in zip(outcomes, whole.parts, strict=True)
        if part.figure.rows
    }
    return poured("outcomes.html", whole, charts, [made.document() for made in outcomes])


def board(outcomes: Sequence[Outcome], failures: Mapping[str, str]) -> Board:
    """The page's data."""
    rows: list[list[Cell]] = [
        [made.experiment.name, made.experiment.title, *_score(made)] for made in outcomes
    ]
    rows += [[name, f"not measured: {why}", "-", ""] for name, why in failures.items()]
    counted = counts(outcomes)
    return Board(
        title="The papers' experiments, run anew",
        subtitle="What the papers claim, and what our numbers say of it",
        headline=sentence(counted)
        if any(score.all for score in counted.values())
        else "Small sizes: the numbers mean nothing, and no claim is judged.",
        scoreboard=Table(
            "Claims that our numbers bear out",
            ["", "Experiment", "Claims reached", "Counted apart"],
            rows,
            [False, False, True, False],
        ),
        parts=[_part(made) for made in outcomes],
        version=_native.version(),
    )


def chart(made: Outcome, figure: Figure) -> Chart:
    """The experiment's plot: lines over sizes, or bars."""
    plot = made.experiment.plot
    scale = alt.Scale(type="log") if plot.get("log") else alt.Scale()
    y = alt.Y("value:Q").title(made.table.unit or None).scale(scale).axis(tickCount=5)
    tooltip = [
        alt.Tooltip("row:N", title="row"),
        alt.Tooltip("column:N", title=plot.get("x", "column")),
        alt.Tooltip("value:Q", format=".4g"),
    ]
    if plot.get("kind") == "lines":
        names = list(dict.fromkeys(row["row"] for row in figure.rows))
        x = alt.Scale(type="log", base=2, nice=False) if plot.get("logx") else alt.Scale(nice=False)
        return sized(
            alt.Chart(alt.InlineData(values=figure.rows))
            .mark_line(strokeWidth=1.75, point=alt.OverlayMarkDef(size=18))
            .encode(
                x=alt.X("x:Q").title(plot.get("x", "")).scale(x).axis(_axis(figure, plot)),
                y=y,
                color=alt.Color("row:N")
                .scale(domain=names, scheme="tableau10")
                .title(None)
                .legend(orient="right", symbolType="stroke"),
                tooltip=tooltip,
            ),
            340,
        )
    whose = list(dict.fromkeys(row["row"] for row in figure.rows))
    bars = alt.Chart(alt.InlineData(values=figure.rows))
    # Bars cannot begin at zero on a logarithmic scale.
    bars = bars.mark_point(filled=True, size=70) if plot.get("log") else bars.mark_bar()
    names = list(dict.fromkeys(row["name"] for row in figure.rows))
    if len(names) > 1 and len(whose) > len(names):
        # A row has one colour, which is pale for the paper's numbers.
        bars = bars.encode(
            opacity=alt.Opacity("whose:N")
            .scale(domain=["paper", "ours"], range=[0.45, 1])
            .title(None)
            .legend(orient="top", symbolType="square")
        )
    else:
        names = whose
    colours = alt.Scale(domain=names)
    if len(names) > COLOURS:
        colours = alt.Scale(domain=names, scheme="tableau10")
    return sized(
        bars.encode(
            x=alt.X("column:N")
            .title(None)
            .sort([row["column"] for row in figure.rows])
            .axis(labelAngle=-40, labelOverlap=False),
            xOffset=alt.XOffset("row:N").sort(whose),
            y=y,
            color=alt.Color("row:N" if names is whose else "name:N")
            .scale(colours)
            .title(None)
            .legend(orient="top", direction="horizontal"),
            tooltip=tooltip,
        ),
        300,
    )


def _axis(figure: Figure, plot: dict[str, Any]) -> alt.Axis:
    """The axis of a figure over sizes. If they are sizes in bytes, each has a label."""
    if not plot.get("bytes"):
        return alt.Axis(grid=False, format="~s", labelOverlap=True)
    words = "datum.value < 1048576 ? datum.value / 1024 + ' KB' : datum.value / 1048576 + ' MB'"
    values = sorted({row["x"] for row in figure.rows})
    return alt.Axis(grid=False, values=values, labelExpr=words, labelOverlap=True)


def _part(made: Outcome) -> Part:
    experiment = made.experiment
    return Part(
        anchor=experiment.name.replace("/", "-").replace(".", "-"),
        name=experiment.name,
        title=experiment.title,
        source=experiment.source,
        notes=experiment.notes,
        figure=_figure(made),
        agreement=str(made.agreement or ""),
        claims=made.verdicts,
        used=list(made.used.items()),
        drawings=list(made.table.drawings.items()),
    )


def _figure(made: Outcome) -> Figure:
    experiment, plot = made.experiment, made.experiment.plot
    rows = _points(made.table, plot, "ours" if experiment.published else "")
    if experiment.published is not None:
        rows = _points(experiment.published, plot, "paper") + rows
    return Figure(
        "Numbers" if made.smoke else "Our numbers",
        f"{experiment.title}{', ' + made.table.unit if made.table.unit else ''}.",
        rows,
        _numbers(experiment.published, made.table),
    )


def _points(table: Numbers, plot: dict[str, Any], whose: str) -> list[dict[str, Any]]:
    """The points of a table in a plot, one list per row. Empty if no plot is requested."""
    if not plot:
        return []
    wanted = plot.get("rows") or list(table.rows)
    columns = plot.get("columns") or table.columns
    lines = plot.get("kind") == "lines"
    points = []
    for name in wanted:
        for column, value in zip(table.columns, table.rows.get(name, []), strict=False):
            if value is None or column not in columns or (plot.get("log") and value <= 0):
                continue
            label = ", ".join(part for part in (name if len(wanted) > 1 else "", whose) if part)
            point: dict[str, Any] = {"row": label or name, "column": column, "value": value}
            point |= {"name": name, "whose": whose}
            points.append({**point, "x": float(column)} if lines else point)
    return points


def _numbers(paper: Numbers | None, ours: Numbers) -> Table:
    columns, named = merged(paper, ours)
    form = formatter(named)
    rows: list[list[Cell]] = [
        [name, *(Value(form(value), value) for value in values)] for name, values in named
    ]
    unit = f", {ours.unit}" if ours.unit else ""
    return Table(f"All numbers{unit}", ["", *columns], rows, [False] + [True] * len(columns))


def _score(made: Outcome) -> list[str]:
    if made.smoke:
        return ["small sizes", ""]
    counted = counts([made])
    return [str(counted["paper"]), apart(counted)]
