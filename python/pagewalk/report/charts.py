"""The charts: Vega-Lite specifications over the report's plain data.

Colours are in a theme's configuration, never in a chart, so that a page can draw the same
specification light or dark.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from pagewalk.report.figures import SWAP
from pagewalk.report.model import Figure, Report, Run

Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.ConcatChart

SI = "format(datum.value, '~s')"
"""The format of an axis's labels, as in 20M and 4k; 0 has no unit."""

_ACCESSES = (
    alt.X("start:Q")
    .title("accesses")
    .axis(labelExpr=SI, grid=False, tickCount=6, labelOverlap=True)
    .scale(nice=False)
)

NEAR_PLACES = ("l1d", "l2", "l3")
PLACES = {*NEAR_PLACES, "memory"}
"""The usual caches that serve walk references. Each has the same colour in every report."""

IN_ORDER: Literal["diverging"] = "diverging"
"""The range of a theme's colours for ordered categories, of which there may be many."""

NARROW = 700
"""If a chart's place is narrower than this number of pixels, its legend has fewer columns."""
LETTER = 6.6
"""The mean width in pixels of a letter in a legend or beside an axis."""
SYMBOL = 30
"""The width in pixels of a legend's symbol, with the gaps around the symbol and its label."""


def legend(names: Sequence[str], beside: int = 6, columns: int | None = None) -> alt.Legend:
    """A legend above a chart, with as many columns as fit, so that names are shown whole.

    Args:
        names: The names in the legend.
        beside: The width of the labels to the left of the chart, in letters. The legend begins to
            the right of them.
        columns: The number of columns in a place that is not narrow. If absent, as many as fit.
    """
    widths = [SYMBOL + LETTER * len(name) for name in names] or [SYMBOL]
    column, row, left = max(widths), sum(widths), 20 + LETTER * beside
    room = f"(containerSize()[0] - {left:.0f})"
    in_a_row = f"{room} > {row:.0f} ? {len(widths)} : max(1, floor({room} / {column:.0f}))"
    fits = NARROW + 150 - left
    wide = columns or (len(widths) if row < fits else max(1, int(fits / column)))
    # If there is no container, as in a file, the comparison is false.
    fitting = alt.ExprRef(f"containerSize()[0] < {NARROW} ? {in_a_row} : {wide}")
    return alt.Legend(orient="top", direction="horizontal", columns=fitting, labelLimit=240)


def charts(run: Run) -> dict[str, Chart]:
    """The charts for which one run has data, by the names of the charts."""
    makers = {
        "l1": (run.timeline, l1_timeline),
        "timeline": (run.timeline, timeline),
        "memory": (run.memory, memory),
        "page-sizes": (run.page_sizes, memory),
        "daemon": (run.daemon, daemon),
        "reservations": (run.reservations, reservations),
        "free": (run.free, free),
        "kernel": (run.kernel, kernel),
        "map": (run.map, miss_map),
        "serving": (run.serving, serving),
    }
    return {name: make(figure) for name, (figure, make) in makers.items() if figure is not None}


def shared_charts(report: Report) -> dict[str, Chart]:
    """The charts of all runs together: `together`."""
    return {} if report.together is None else {"together": together(report.together)}


def l1_timeline(figure: Figure) -> Chart:
    """L1 misses per 1000 accesses over time."""
    rows = [{"start": row["start"], "misses": row["l1"]} for row in _closed(figure.rows)]
    return sized(
        alt.Chart(inline(rows))
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
    """Lookups that missed every TLB, per 1000 accesses, over time, first touches apart."""
    kinds = {"touched before": "again", "first touch": "cold"}
    apart = alt.Opacity("kind:O").scale(domain=list(kinds), range=[1, 0.4])
    title = ["misses per", "1000 accesses"]
    return _stacked(_closed(figure.rows), kinds, title, "misses", {"opacity": apart})


def memory(figure: Figure) -> Chart:
    """Frames in use over time, by their content or by page size.

    Pages in swap have no frame: they are shown as a line above the areas.
    """
    kinds = list(dict.fromkeys(key for row in figure.rows for key in row if key != "start"))
    named = {kind: kind for kind in kinds if kind != SWAP}
    colour = alt.Color("kind:N").sort(list(named))
    areas = _areas(figure.rows, named, ["MiB"], "used for", {"color": colour})
    if SWAP not in kinds:
        return sized(areas, 140)
    rows = [{"start": row["start"], "kind": SWAP, "value": row[SWAP]} for row in figure.rows]
    swap = alt.Chart(inline(rows)).encode(x=_ACCESSES, y=alt.Y("value:Q").stack(None))
    dash = alt.StrokeDash("kind:N").scale(domain=[SWAP], range=[[4, 2]]).title(None)
    line = swap.mark_line(interpolate="step-after", style="swap", strokeWidth=2).encode(
        strokeDash=dash.legend(orient="top", direction="horizontal"),
        tooltip=[
            alt.Tooltip("start:Q", title="from access", format=",d"),
            alt.Tooltip("value:Q", title="MiB in swap", format=".3g"),
        ],
    )
    # The line has an edge, so that it can be seen on every area.
    edge = swap.mark_line(interpolate="step-after", style="ground", strokeWidth=4)
    return sized(alt.layer(areas, edge, line), 140)


def daemon(figure: Figure) -> Chart:
    """Base pages that the coalescing daemon moved, over time."""
    colour = alt.Color("kind:N").legend(None)
    moved = {"base pages moved": "moved"}
    return _stacked(figure.rows, moved, ["base pages", "moved"], "work", {"color": colour})


def reservations(figure: Figure) -> Chart:
    """Reservations made, filled and broken up to each time. Each of these is a line."""
    kinds = list(dict.fromkeys(key for row in figure.rows for key in row if key != "start"))
    rows = [
        {"start": row["start"], "kind": kind, "count": row[kind]}
        for row in figure.rows
        for kind in kinds
    ]
    return sized(
        alt.Chart(inline(rows))
        .mark_line(interpolate="step-after")
        .encode(
            x=_ACCESSES,
            y=alt.Y("count:Q").title("reservations").axis(tickCount=3, minExtent=44),
            color=alt.Color("kind:N").sort(kinds).title(None).legend(legend(kinds)),
            # If all reservations are filled, one line lies on another.
            strokeDash=alt.StrokeDash("kind:N").sort(kinds).legend(None),
            tooltip=[
                alt.Tooltip("start:Q", title="till access", format=",d"),
                alt.Tooltip("kind:N", title="what"),
                alt.Tooltip("count:Q", title="reservations", format=",d"),
            ],
        ),
        120,
    )


def _stacked(
    rows: Sequence[Mapping[str, Any]],
    kinds: Mapping[str, str],
    title: list[str],
    kind: str,
    apart: dict[str, Any],
) -> Chart:
    """Stacked areas over time, as wide as the page: see `_areas`."""
    return sized(_areas(rows, kinds, title, kind, apart), 140)


def _areas(
    rows: Sequence[Mapping[str, Any]],
    kinds: Mapping[str, str],
    title: list[str],
    kind: str,
    apart: dict[str, Any],
) -> alt.Chart:
    """Stacked areas over time.

    Args:
        rows: A row per step, which begins at `start`.
        kinds: The areas from bottom to top: the name and the field of each.
        title: The title, in lines.
        kind: The name of the categories, for the tooltip.
        apart: The channel, `color` or `opacity`, that distinguishes them.
    """
    data = [
        {"start": row["start"], "kind": name, "order": order, "value": row[field]}
        for row in rows
        for order, (name, field) in enumerate(kinds.items())
    ]
    areas: alt.Chart = (
        alt.Chart(inline(data))
        .mark_area(interpolate="step-after")
        .encode(
            x=_ACCESSES,
            y=alt.Y("value:Q").title(title).axis(tickCount=4, minExtent=44).stack("zero"),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("start:Q", title="from access", format=",d"),
                alt.Tooltip("kind:N", title=kind),
                alt.Tooltip("value:Q", title=" ".join(title), format=".3g"),
            ],
            **{
                name: channel.title(None).legend(legend(list(kinds)))
                for name, channel in apart.items()
            },
        )
    )
    return areas


def free(figure: Figure) -> Chart:
    """Free memory by the size of its blocks."""
    sizes = [row["size"] for row in figure.rows]
    return sized(
        alt.Chart(inline(figure.rows))
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
        alt.Chart(inline(figure.rows))
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
    """Lookups that missed every TLB, over time, a line per machine."""
    machines = list(dict.fromkeys(row["machine"] for row in figure.rows))
    return sized(
        alt.Chart(inline(figure.rows))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=alt.X("share:Q")
            .title("share of the run")
            .axis(format="%", grid=False, tickCount=6, labelOverlap=True)
            .scale(nice=False),
            y=alt.Y("misses:Q").title("misses per 1000 accesses").axis(tickCount=4, minExtent=44),
            color=alt.Color("machine:N")
            .scale(domain=machines)
            .sort(machines)
            .title(None)
            .legend(legend(machines)),
            **distinct("machine", machines, points=False),
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

    Cells overlap by a pixel, because gaps from rounding would look like a grid.
    """
    places = [place for place, _ in figure.axis]
    names = [name for _, name in figure.axis]
    label = named(places, names) if names else "''"
    most = max(row["misses"] for row in figure.rows)
    top = max(figure.edges)
    # Both layers have this axis. Otherwise the second layer's default axis would be merged into it.
    axis = alt.Axis(
        values=places,
        labelExpr=label,
        # A picture has no container, and is as wide as a page.
        labelLimit=alt.ExprRef("containerSize()[0] < 700 ? 110 : 220"),
        labelOverlap=False,
        grid=False,
        ticks=False,
    )
    cells = (
        alt.Chart(inline(figure.rows))
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
        alt.Chart(inline([{"edge": edge} for edge in figure.edges[:-1]]))
        .mark_rule(style="edge")
        .encode(y=alt.Y("edge:Q").axis(axis))
    )
    return sized(alt.layer(cells, edges) if len(figure.edges) > 1 else cells, 360)


def serving(figure: Figure) -> Chart:
    """References per walk to each level of the table, by the cache or memory that served them."""
    places = [place for _, place in sorted({(row["order"], row["place"]) for row in figure.rows})]
    levels = list(dict.fromkeys(row["level"] for row in figure.rows))
    served = legend(places)
    served.values = places
    return sized(
        alt.Chart(inline(figure.rows))
        .mark_bar()
        .encode(
            x=alt.X("per_walk:Q").title("references per walk").axis(tickCount=5),
            y=alt.Y("level:N").title(None).sort(levels).axis(ticks=False, domain=False),
            color=alt.Color("place:O")
            .scale(domain=[*NEAR_PLACES, "memory"] if set(places) <= PLACES else places)
            .title("served by")
            .legend(served),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("level:N"),
                alt.Tooltip("place:N", title="served by"),
                alt.Tooltip("references:Q", format=",d"),
                alt.Tooltip("per_walk:Q", title="references per walk", format=".3g"),
            ],
        ),
        36 + 30 * len(levels),
    )


def curve(figure: Figure) -> Chart:
    """Misses over the entries of a TLB, both on logarithmic scales; a line per page size."""
    sizes = list(dict.fromkeys(row["page_size"] for row in figure.rows))
    return sized(
        alt.Chart(inline([row for row in figure.rows if row["misses"] > 0]))
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
            .scale(domain=sizes, range=IN_ORDER)
            .sort(sizes)
            .title("pages of")
            .legend(legend(sizes)),
            strokeDash=distinct("page_size", sizes, points=False)["strokeDash"].title("pages of"),
            tooltip=[
                alt.Tooltip("page_size:N", title="pages of"),
                alt.Tooltip("entries:Q", format=",d"),
                alt.Tooltip("misses:Q", title="per 1000 lookups", format=".3g"),
            ],
        ),
        320,
    )


def scaling(figure: Figure) -> Chart:
    """Throughput over processors; a line per scheme of locks."""
    schemes = list(dict.fromkeys(row["scheme"] for row in figure.rows))
    return sized(
        alt.Chart(inline(figure.rows))
        .mark_line(strokeWidth=1.75, point=True)
        .encode(
            **distinct("scheme", schemes),
            x=alt.X("cpus:Q").title("processors").axis(grid=False, tickMinStep=1, format="d"),
            y=alt.Y("throughput:Q").title("operations per million cycles").axis(minExtent=44),
            color=alt.Color("scheme:N")
            .scale(domain=schemes)
            .title("locks")
            .legend(legend(schemes)),
            tooltip=[
                alt.Tooltip("scheme:N", title="locks"),
                alt.Tooltip("cpus:Q", title="processors"),
                alt.Tooltip("throughput:Q", title="per million cycles", format=".4g"),
            ],
        ),
        320,
    )


def time_use(figure: Figure) -> Chart:
    """The uses of processors' time: a bar per locking scheme."""
    schemes = list(dict.fromkeys(row["scheme"] for row in figure.rows))
    parts = list(dict.fromkeys(row["part"] for row in figure.rows))
    return sized(
        alt.Chart(inline(figure.rows))
        .mark_bar()
        .encode(
            x=alt.X("share:Q")
            .title("share of the processors' cycles")
            .axis(format="%", tickCount=5)
            .scale(domain=[0, 1]),
            y=alt.Y("scheme:N").title(None).sort(schemes).axis(ticks=False, domain=False),
            color=alt.Color("part:O")
            .scale(domain=parts, range=IN_ORDER)
            .sort(parts)
            .title(None)
            .legend(legend(parts, beside=max(map(len, schemes)))),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("scheme:N", title="locks"),
                alt.Tooltip("part:N", title="on"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        ),
        36 + 30 * len(schemes),
    )


_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4])
_SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-down", "triangle-right")


def distinct(field: str, series: Sequence[str], points: bool = True) -> dict[str, Any]:
    """Dashes and shapes of points that distinguish the series without their colours.

    There are five dashes and seven shapes, so that the first 35 pairs differ.
    """
    count = len(series)
    dashes = [_DASHES[at % len(_DASHES)] for at in range(count)]
    shapes = [_SHAPES[at % len(_SHAPES)] for at in range(count)]
    dash = alt.StrokeDash(f"{field}:N").title(None).sort(series)
    shape = alt.Shape(f"{field}:N").title(None).sort(series)
    found: dict[str, Any] = {"strokeDash": dash.scale(domain=series, range=dashes)}
    return found | ({"shape": shape.scale(domain=series, range=shapes)} if points else {})


def named(places: Sequence[float], names: Sequence[str]) -> str:
    """An expression that labels an axis with names at some positions."""
    return f"{list(names)!r}[indexof({list(places)!r}, datum.value)]"


def _closed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows and, for charts of steps, a copy of the last row at the end of the axis."""
    return [*rows, {**rows[-1], "start": rows[-1]["end"]}]


def inline(rows: list[dict[str, Any]]) -> alt.InlineData:
    """Rows as a chart's data."""
    return alt.InlineData(values=rows)


def reach(description: Mapping[str, Any], page_sizes: Sequence[str]) -> Chart:
    """The memory that each TLB of a machine reaches with pages of each size that it holds."""
    from pagewalk import text

    rows = [
        {"tlb": name, "size": size, "bytes": tlb["entries"] * text.bytes_of(size)}
        for name, tlb in description.get("tlb", {}).items()
        for size in tlb.get("page_sizes", page_sizes)
        if isinstance(tlb.get("entries"), int)
    ]
    names, sizes = (list(dict.fromkeys(row[key] for row in rows)) for key in ("tlb", "size"))
    points = alt.Chart(inline(rows)).mark_point(filled=True, size=90)
    return sized(
        points.encode(
            y=alt.Y("tlb:N").title(None).sort(names),
            x=alt.X("bytes:Q").scale(type="log", base=2).title("bytes").axis(format="s"),
            color=alt.Color("size:N").sort(sizes).title("page size").legend(orient="top"),
            shape=alt.Shape("size:N").sort(sizes).title("page size"),
            tooltip=[
                alt.Tooltip("tlb:N", title="TLB"),
                alt.Tooltip("size:N", title="page size"),
                alt.Tooltip("bytes:Q", title="bytes", format=",d"),
            ],
        ),
        32 * max(len(names), 1),
    )


def sized(chart: Chart, height: int) -> Chart:
    """`chart` as wide as the page."""
    fitting = alt.AutoSizeParams(type="fit-x", contains="padding")
    wide: Chart = chart.properties(width="container", height=height, autosize=fitting)
    return wide


_MORE = {
    "light": ["#0072b2", "#a64d8c", "#9a7400", "#2f7d6b", "#5566b5", "#8a8f96"],
    "dark": ["#56b4e9", "#d98cc0", "#d9b84a", "#6fbfa8", "#98a6ee", "#6c757f"],
}
"""The colours of all categories after the first three. Readers who cannot distinguish red and green
can distinguish them. The contrast of each with the background is at least 3.
"""


def theme(shade: Literal["light", "dark"]) -> dict[str, Any]:
    """The Vega-Lite configuration of the page's light or dark look."""
    light = shade == "light"
    ink, muted, line, ground = (
        ("#1d1f22", "#5c636b", "#e2e4e7", "#ffffff")
        if light
        else ("#e8e6e3", "#9aa1a9", "#34383d", "#16181b")
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
        "title": {"color": ink, "font": font, "fontSize": 13, "fontWeight": 600, "anchor": "start"},
        "mark": {"color": accent},
        "style": {
            "quiet": {"color": quiet},
            "swap": {"color": ink},
            "ground": {"color": ground},
            "edge": {"color": muted, "strokeWidth": 0.5},
        },
        "range": {
            "category": [accent, muted, ink, *_MORE[shade]],
            "ordinal": places,
            # From dark to bright, without the end of the range that could not be seen on the page's
            # background.
            IN_ORDER: {"scheme": "viridis", "extent": [0, 0.72] if light else [0.32, 1]},
            "heatmap": ramp,
            "ramp": ramp,
        },
    }


def paper() -> dict[str, Any]:
    """The configuration of a figure in a paper: black letters, as large as those of a caption."""
    look = theme("light")
    small = {"labelFontSize": 7, "titleFontSize": 7.5}
    ink = {"labelColor": "#000000", "titleColor": "#000000", "domainColor": "#000000"}
    legend = {
        **look["legend"],
        **small,
        "labelColor": "#000000",
        "symbolSize": 30,
        "symbolStrokeWidth": 0,
    }
    return look | {
        "axis": {**look["axis"], **small, **ink, "tickSize": 3, "labelPadding": 2},
        "legend": {**legend, "columnPadding": 6, "rowPadding": 1},
        "title": {**look["title"], "color": "#000000", "fontSize": 7.5, "offset": 4},
        "padding": 2,
    }
