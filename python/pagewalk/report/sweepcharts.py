"""The charts of a sweep: a measure over the values of one key.

Each of several traces is a facet.
"""

import textwrap
from typing import Any

import altair as alt

from pagewalk import text
from pagewalk.report.charts import Chart, distinct, inline, legend, named, sized
from pagewalk.report.model import Figure
from pagewalk.report.scales import Scale

Rows = list[dict[str, Any]]

COLUMNS = 3
"""The number of adjacent facets in a picture for a screen. A page has as many as fit."""

FACET_POINTS = 118
"""The minimum width of a facet on paper, in points. Two fit side by side in a paper's column."""
BESIDE_POINTS = 56
"""The points to the left and right of a facet on paper, for labels, a title, and a gap."""
POINTS_PER_LETTER = 4
"""The width in points of a letter of a facet's title on paper."""


def page(figure: Figure, axis: Scale, shared: bool) -> list[Chart]:
    """The chart of a figure, or one for each of its facets.

    Args:
        figure: Its rows have `at`, `value`, `series`, and `facet` if there are facets.
        axis: The key that makes the x axis.
        shared: Whether all facets have the same y scale. Otherwise each has its own.
    """
    return [sized(chart, 280) for chart in _facets(figure, axis, shared)]


def picture(figure: Figure, axis: Scale, shared: bool, points: int | None = None) -> Chart:
    """The figure as one chart, for a file.

    Args:
        figure: As for `page`.
        axis: As for `page`.
        shared: As for `page`.
        points: Its width on paper in points. If absent, it is for a screen.
    """
    drawn = _facets(figure, axis, shared, points)
    if len(drawn) == 1:
        return sized(drawn[0], 280 if points is None else 2 * points // 5)
    columns, width, height = COLUMNS, 300, 200
    if points is not None:
        columns = max(1, min(len(drawn), points // FACET_POINTS))
        width = points // columns - BESIDE_POINTS
        drawn = [
            chart.properties(title=text.shorten(facet, width // POINTS_PER_LETTER + 6))
            for chart, facet in zip(drawn, figure.facets, strict=True)
        ]
        height = max(2 * width // 3, 64)
    several: alt.ConcatChart = alt.concat(
        *(chart.properties(width=width, height=height) for chart in drawn), columns=columns
    )
    return several if points is None else several.properties(spacing=8)


def _facets(
    figure: Figure, axis: Scale, shared: bool, points: int | None = None
) -> list[alt.Chart | alt.LayerChart]:
    if not figure.facets:
        return [_chart(figure, figure.rows, axis, None, points)]
    most = max(row["value"] for row in figure.rows) if shared else None
    drawn = []
    for facet in figure.facets:
        rows = [row for row in figure.rows if row["facet"] == facet]
        drawn.append(_chart(figure, rows, axis, most, points).properties(title=facet))
    return drawn


def _chart(
    figure: Figure, rows: Rows, axis: Scale, most: float | None, points: int | None
) -> alt.Chart | alt.LayerChart:
    """A line per series if the values have a scale. Otherwise a bar per design."""
    series = list(dict.fromkeys(row["series"] for row in figure.rows))
    number = ".3~%" if figure.share else ".4g"
    tooltip = [
        alt.Tooltip("series:N", title="design"),
        alt.Tooltip("at:O", title=axis.title),
        alt.Tooltip("value:Q", title=figure.title, format=number),
    ]
    letters = 32 if points is None else 16 if figure.facets else 24
    y = alt.Y("value:Q").title(textwrap.wrap(figure.title, letters))
    form = "~%" if figure.share else alt.Undefined
    extent, ticks = (44, alt.Undefined) if points is None else (20, 4)
    y = y.axis(labelOverlap=True, minExtent=extent, format=form, tickCount=ticks)
    if most is not None:
        y = y.scale(domain=[0, most])
    encoding: dict[str, Any] = {"y": y, "tooltip": tooltip if len(series) > 1 else tooltip[1:]}
    if len(series) > 1:
        # The page's own colours are used if there are enough of them.
        apart: Any = {"range": "category"} if len(series) < 9 else {"scheme": "tableau20"}
        above = legend(series, columns=2 if figure.facets else 4)
        if points is not None:
            above.columns, above.labelLimit = 2, points // 2 - 20
        encoding["color"] = (
            alt.Color("series:N")
            .scale(domain=series, **apart)
            .sort(series)
            .title(None)
            .legend(above)
        )
    if axis.kind == "ordinal":
        across = alt.X("at:O").title(axis.title).sort(axis.values).scale(domain=axis.values)
        encoding["x"] = across.axis(labelAngle=0 if len(axis.values) <= 8 else -40, labelLimit=160)
        if len(series) > 1:
            encoding["xOffset"] = alt.XOffset("series:N").sort(series)
        # Bars are wide enough to be seen. A single bar is not as wide as the page.
        bars = alt.Chart(inline(rows)).mark_bar(width=alt.RelativeBandSize(0.8))
        drawn: alt.Chart = bars.encode(**encoding)
        return drawn
    if len(series) > 1:
        encoding |= distinct("series", series)
    encoding["x"] = _scaled(axis)
    data = [{**row, "x": axis.numbers[row["at"]]} for row in rows]
    size, stroke = (36, 1.75) if points is None else (14, 1)
    point = alt.OverlayMarkDef(size=size) if len(axis.values) <= 24 else False
    lines = alt.Chart(inline(data)).mark_line(strokeWidth=stroke, point=point)
    # The pointer need not hit a point exactly: it hits a larger, invisible point.
    near = alt.Chart(inline(data)).mark_point(filled=True, size=400, opacity=0)
    places = {name: encoding[name] for name in ("x", "y", "tooltip")}
    both: alt.LayerChart = alt.LayerChart(layer=[lines.encode(**encoding), near.encode(**places)])
    return both


def _scaled(axis: Scale) -> alt.X:
    line = alt.X("x:Q").title(axis.title)
    line = (
        line.scale(type="log", base=2, nice=False)
        if axis.kind == "logarithmic"
        else line.scale(nice=False, zero=False)
    )
    marks = axis.marks
    if not marks:
        return line.axis(format="d", grid=False, labelOverlap=True)
    words = named(list(marks), list(marks.values()))
    return line.axis(values=list(marks), labelExpr=words, grid=False, labelOverlap=True)
