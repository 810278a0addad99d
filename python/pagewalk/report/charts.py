"""The charts: Vega-Lite specifications over the report's plain data.

Colours come from a theme's configuration, never from a chart, so that a page can draw one
specification light or dark.
"""

from typing import Any, Literal

import altair as alt

from pagewalk.report.model import Figure, Report, Run

Chart = alt.Chart | alt.LayerChart | alt.FacetChart

_ACCESSES = (
    alt.X("start:Q")
    .title("accesses")
    .axis(labelExpr="format(datum.value, '~s')", grid=False, tickCount=6, labelOverlap=True)
    .scale(nice=False)
)

NEAR_PLACES = ("l1d", "l2", "l3")
PLACES = {*NEAR_PLACES, "memory"}
"""What usually serves a walk reference: each has the same colour in every report."""


def charts(run: Run) -> dict[str, Chart]:
    """The charts of one run for which it has data, by their names."""
    makers = {
        "l1": (run.timeline, l1_timeline),
        "timeline": (run.timeline, timeline),
        "memory": (run.memory, memory),
        "page-sizes": (run.page_sizes, memory),
        "free": (run.free, free),
        "kernel": (run.kernel, kernel),
        "map": (run.map, miss_map),
        "serving": (run.serving, serving),
    }
    return {name: make(figure) for name, (figure, make) in makers.items() if figure is not None}


def shared_charts(report: Report) -> dict[str, Chart]:
    """The charts over all runs: `together`."""
    return {} if report.together is None else {"together": together(report.together)}


def l1_timeline(figure: Figure) -> Chart:
    """L1 misses per 1000 accesses over time."""
    rows = [{"start": row["start"], "misses": row["l1"]} for row in _closed(figure.rows)]
    return sized(
        alt.Chart(_data(rows))
        .mark_area(interpolate="step-after", style="quiet")
        .encode(
            x=_ACCESSES,
            y=alt.Y("misses:Q")
            .title(["L1 misses per", "1000 accesses"])
            .axis(tickCount=3, minExtent=44),
            tooltip=[
                alt.Tooltip("start:Q", title="from access", format=",d"),
                alt.Tooltip("misses:Q", title="L1 misses per 1000 accesses", format=".3g"),
            ],
        ),
        96,
    )


def timeline(figure: Figure) -> Chart:
    """Misses of every TLB per 1000 accesses over time, first touches apart."""
    kinds = {"touched before": "again", "first touch": "cold"}
    rows = [
        {"start": row["start"], "kind": kind, "order": order, "misses": row[key]}
        for row in _closed(figure.rows)
        for order, (kind, key) in enumerate(kinds.items())
    ]
    return sized(
        alt.Chart(_data(rows))
        .mark_area(interpolate="step-after")
        .encode(
            x=_ACCESSES,
            y=alt.Y("misses:Q")
            .title(["misses per", "1000 accesses"])
            .axis(tickCount=4, minExtent=44)
            .stack("zero"),
            opacity=alt.Opacity("kind:O")
            .scale(domain=list(kinds), range=[1, 0.4])
            .title(None)
            .legend(orient="top", direction="horizontal"),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("start:Q", title="from access", format=",d"),
                alt.Tooltip("kind:N", title="misses"),
                alt.Tooltip("misses:Q", title="per 1000 accesses", format=".3g"),
            ],
        ),
        140,
    )


def memory(figure: Figure) -> Chart:
    """Frames in use by what is in them or how large their pages are, over time."""
    kinds = list(dict.fromkeys(key for row in figure.rows for key in row if key != "start"))
    rows = [
        {"start": row["start"], "kind": kind, "order": order, "mib": row[kind]}
        for row in figure.rows
        for order, kind in enumerate(kinds)
    ]
    return sized(
        alt.Chart(_data(rows))
        .mark_area(interpolate="step-after")
        .encode(
            x=_ACCESSES,
            y=alt.Y("mib:Q").title("MiB").axis(tickCount=4, minExtent=44).stack("zero"),
            color=alt.Color("kind:N")
            .sort(kinds)
            .title(None)
            .legend(orient="top", direction="horizontal"),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("start:Q", title="from access", format=",d"),
                alt.Tooltip("kind:N", title="used for"),
                alt.Tooltip("mib:Q", title="MiB", format=".3g"),
            ],
        ),
        140,
    )


def free(figure: Figure) -> Chart:
    """Free memory by the size of its blocks."""
    sizes = [row["size"] for row in figure.rows]
    return sized(
        alt.Chart(_data(figure.rows))
        .mark_bar()
        .encode(
            x=alt.X("size:N").sort(sizes).title("blocks of").axis(labelAngle=0, ticks=False),
            y=alt.Y("mib:Q").title("MiB").axis(tickCount=4, minExtent=44),
            tooltip=[
                alt.Tooltip("size:N", title="blocks of"),
                alt.Tooltip("blocks:Q", format=",d"),
                alt.Tooltip("mib:Q", title="MiB", format=".3g"),
            ],
        ),
        120,
    )


def kernel(figure: Figure) -> Chart:
    """The kernel's cycles, a bar per kind of work."""
    kinds = [row["work"] for row in figure.rows]
    return sized(
        alt.Chart(_data(figure.rows))
        .mark_bar()
        .encode(
            x=alt.X("cycles:Q").title("cycles").axis(tickCount=5, format="~s"),
            y=alt.Y("work:N").title(None).sort(kinds).axis(ticks=False, domain=False),
            tooltip=[
                alt.Tooltip("work:N"),
                alt.Tooltip("cycles:Q", format=",d"),
            ],
        ),
        36 + 18 * len(kinds),
    )


def together(figure: Figure) -> Chart:
    """Misses of every TLB over time, a line per machine."""
    machines = list(dict.fromkeys(row["machine"] for row in figure.rows))
    return sized(
        alt.Chart(_data(figure.rows))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=alt.X("share:Q")
            .title("share of the run")
            .axis(format="%", grid=False, tickCount=6, labelOverlap=True)
            .scale(nice=False),
            y=alt.Y("misses:Q").title("misses per 1000 accesses").axis(tickCount=4, minExtent=44),
            color=alt.Color("machine:N")
            .scale(domain=machines)
            .title(None)
            .legend(orient="top", direction="horizontal"),
            strokeDash=alt.StrokeDash("machine:N").scale(domain=machines).title(None),
            tooltip=[
                alt.Tooltip("machine:N"),
                alt.Tooltip("share:Q", title="at", format=".1%"),
                alt.Tooltip("misses:Q", title="per 1000 accesses", format=".3g"),
            ],
        ),
        180,
    )


def miss_map(figure: Figure) -> Chart:
    """Misses over address (upwards) and time; a band of rows for each region.

    Cells overlap by a pixel: rounded apart, they would show a grid that is not there.
    """
    places = [place for place, _ in figure.axis]
    names = [name for _, name in figure.axis]
    label = f"{names!r}[indexof({places!r}, datum.value)]" if names else "''"
    most = max(row["misses"] for row in figure.rows)
    top = max(figure.edges)
    # Both layers have the axis, or the second one's own would be merged into it.
    axis = alt.Axis(
        values=places,
        labelExpr=label,
        labelLimit=110,
        labelOverlap=False,
        grid=False,
        ticks=False,
    )
    cells = (
        alt.Chart(_data(figure.rows))
        .mark_rect(x2Offset=1, y2Offset=-1)
        .encode(
            x=_ACCESSES,
            x2="end:Q",
            y=alt.Y("low:Q").title(None).scale(domain=[0, top], nice=False).axis(axis),
            y2="high:Q",
            color=alt.Color("misses:Q")
            .scale(type="log", domain=[1, max(most, 2)])
            .title("misses")
            .legend(orient="top", direction="horizontal", format=".2~s", gradientLength=120),
            tooltip=[
                alt.Tooltip("region:N"),
                alt.Tooltip("address:N", title="from address"),
                alt.Tooltip("start:Q", title="from access", format=",d"),
                alt.Tooltip("misses:Q", format=",d"),
            ],
        )
    )
    edges = (
        alt.Chart(_data([{"edge": edge} for edge in figure.edges[:-1]]))
        .mark_rule(style="edge")
        .encode(y=alt.Y("edge:Q").axis(axis))
    )
    return sized(alt.layer(cells, edges) if len(figure.edges) > 1 else cells, 360)


def serving(figure: Figure) -> Chart:
    """References a walk makes to each level of the table, by what served them."""
    places = [place for _, place in sorted({(row["order"], row["place"]) for row in figure.rows})]
    levels = list(dict.fromkeys(row["level"] for row in figure.rows))
    return sized(
        alt.Chart(_data(figure.rows))
        .mark_bar()
        .encode(
            x=alt.X("per_walk:Q").title("references per walk").axis(tickCount=5),
            y=alt.Y("level:N").title(None).sort(levels).axis(ticks=False, domain=False),
            color=alt.Color("place:O")
            .scale(domain=[*NEAR_PLACES, "memory"] if set(places) <= PLACES else places)
            .title("served by")
            .legend(orient="top", direction="horizontal", values=places),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("level:N"),
                alt.Tooltip("place:N", title="served by"),
                alt.Tooltip("references:Q", format=",d"),
                alt.Tooltip("per_walk:Q", title="a walk", format=".3g"),
            ],
        ),
        36 + 30 * len(levels),
    )


def curve(figure: Figure) -> Chart:
    """Misses over the entries of a TLB, both on logarithmic scales; a line per page size."""
    sizes = list(dict.fromkeys(row["page_size"] for row in figure.rows))
    return sized(
        alt.Chart(_data([row for row in figure.rows if row["misses"] > 0]))
        .mark_line(strokeWidth=1.75)
        .encode(
            x=alt.X("entries:Q")
            .title("entries")
            .scale(type="log", base=2, nice=False)
            .axis(grid=False, labelExpr="format(datum.value, ',d')", labelOverlap=True),
            y=alt.Y("misses:Q")
            .title("misses per 1000 lookups")
            .scale(type="log")
            .axis(format="~g", tickCount=4, labelOverlap=True, minExtent=44),
            color=alt.Color("page_size:O")
            .scale(domain=sizes, scheme="viridis")
            .sort(sizes)
            .title("pages of")
            .legend(orient="top", direction="horizontal"),
            tooltip=[
                alt.Tooltip("page_size:N", title="pages of"),
                alt.Tooltip("entries:Q", format=",d"),
                alt.Tooltip("misses:Q", title="per 1000 lookups", format=".3g"),
            ],
        ),
        320,
    )


Scale = Literal["linear", "logarithmic", "ordinal"]


def sweep(figure: Figure, axis: str, scale: Scale) -> Chart:
    """A measure of designs over the values of one parameter, a colour for each of the others.

    Numbers are joined by lines; values that have no distances (formats, machines) are bars.
    """
    series = list(dict.fromkeys(row["series"] for row in figure.rows))
    values = list(dict.fromkeys(row["at"] for row in figure.rows))
    tooltip = [
        alt.Tooltip("series:N", title="design"),
        alt.Tooltip("at:O", title=axis),
        alt.Tooltip("value:Q", title=figure.title, format=".4g"),
    ]
    y = alt.Y("value:Q").title(figure.title).axis(labelOverlap=True, minExtent=44)
    encoding: dict[str, Any] = {"y": y, "tooltip": tooltip if len(series) > 1 else tooltip[1:]}
    if len(series) > 1:
        scheme: Any = "tableau10" if len(series) <= 10 else "tableau20"
        encoding["color"] = (
            alt.Color("series:N")
            .scale(domain=series, scheme=scheme)
            .title(None)
            .legend(orient="top", direction="horizontal", columns=4, labelLimit=240)
        )
    if scale == "ordinal":
        across = alt.X("at:O").title(axis).sort(values)
        encoding["x"] = across.axis(labelAngle=0 if len(values) <= 8 else -40, labelLimit=160)
        if len(series) > 1:
            encoding["xOffset"] = alt.XOffset("series:N").sort(series)
        # Wide enough to be seen, and never as wide as the page for one design.
        bars = alt.Chart(_data(figure.rows)).mark_bar(width=alt.RelativeBandSize(0.8))
        return sized(bars.encode(**encoding), 280)
    line = alt.X("at:Q").title(axis)
    if scale == "logarithmic":
        line = line.scale(type="log", base=2, nice=False)
        line = line.axis(values=_powers(values), format="d", grid=False, labelOverlap=True)
    else:
        line = line.scale(nice=False, zero=False).axis(format="d", grid=False, labelOverlap=True)
    encoding["x"] = line
    if 1 < len(series) <= 8:
        # Whoever cannot tell the colours apart has the dashes and the shapes of points.
        encoding["strokeDash"] = alt.StrokeDash("series:N").scale(domain=series).title(None)
        encoding["shape"] = alt.Shape("series:N").scale(domain=series).title(None)
    point = alt.OverlayMarkDef(size=36) if len(values) <= 24 else False
    marked = alt.Chart(_data(figure.rows)).mark_line(strokeWidth=1.75, point=point)
    return sized(marked.encode(**encoding), 280)


def _powers(values: list[int]) -> list[int]:
    """Where a logarithmic axis has labels: at the powers of two that it spans, at most ten."""
    low, high = min(values), max(values)
    powers = [1 << bit for bit in range(64) if low <= 1 << bit <= high]
    return powers[:: -(-len(powers) // 10)] if len(powers) > 1 else [low, high]


def _closed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows and, for steps that reach to its end, the last one again at its end."""
    return [*rows, {**rows[-1], "start": rows[-1]["end"]}]


def _data(rows: list[dict[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=rows)


def sized(chart: Chart, height: int) -> Chart:
    """`chart` as wide as the page."""
    return chart.properties(
        width="container",
        height=height,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )


def theme(shade: Literal["light", "dark"]) -> dict[str, Any]:
    """The Vega-Lite configuration of the page's light or dark look."""
    light = shade == "light"
    ink, muted, line = (
        ("#1d1f22", "#5c636b", "#e2e4e7") if light else ("#e8e6e3", "#9aa1a9", "#34383d")
    )
    accent, quiet = ("#b4451f", "#9aa3ad") if light else ("#f0916a", "#6c757f")
    ramp = ["#f6dccf", "#d9774f", "#6e2109"] if light else ["#47271b", "#c9683f", "#ffd3bd"]
    places = (
        ["#e4e7ea", "#b9c1c9", "#e3a184", "#b4451f"]
        if light
        else ["#3d444c", "#69737e", "#a55b3d", "#f0916a"]
    )
    font = (
        "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
    )
    axis = {
        "labelColor": muted,
        "titleColor": muted,
        "titleFontWeight": "normal",
        "domainColor": line,
        "tickColor": line,
        "gridColor": line,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelFont": font,
        "titleFont": font,
    }
    return {
        "background": "transparent",
        "font": font,
        "view": {"stroke": None},
        "axis": axis,
        "legend": {
            "labelColor": ink,
            "titleColor": muted,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "titleFontSize": 12,
            "symbolStrokeWidth": 2,
        },
        "mark": {"color": accent},
        "style": {"quiet": {"color": quiet}, "edge": {"color": muted, "strokeWidth": 0.5}},
        "range": {
            "category": [accent, muted, ink, quiet],
            "ordinal": places,
            "heatmap": ramp,
            "ramp": ramp,
        },
    }
