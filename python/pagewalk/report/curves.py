"""LRU curves as text, as charts, and as a page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report.model import Cell, Figure, Sheet, Table, Value

if TYPE_CHECKING:
    from pagewalk.lru import Curve
    from pagewalk.report.charts import Chart

POINTS_PER_OCTAVE = 8
WHAT = {"data": "loads and stores", "fetch": "fetches", "all": "all accesses"}


def render(document: dict[str, Any], curves: Sequence["Curve"]) -> str:
    """The page of the curves, as the text of an HTML file."""
    from pagewalk.report import page

    return page.render_sheet(sheet(document, curves), [[one] for one in charts(curves).values()])


def charts(curves: Sequence["Curve"]) -> "dict[str, Chart]":
    """The charts by kind of lookup: `data`, `fetch`, `all`."""
    from pagewalk.report import charts

    return {group[0].lookups: charts.curve(figure(group)) for group in grouped(curves)}


def sheet(document: dict[str, Any], curves: Sequence["Curve"]) -> Sheet:
    """The page's data: a figure for each kind of lookup."""
    from pagewalk.report.data import trace_facts

    trace = document["trace"]
    entries = max(len(one.misses) for one in curves)
    return Sheet(
        title=f"{trace['name']}: misses over TLB size",
        subtitle=f"Fully associative LRU TLBs of 1 to {text.count(entries)} entries, all exact",
        figures=[figure(group) for group in grouped(curves)],
        table=None,
        facts=trace_facts(trace),
        notes=[*trace["notes"], *document["warnings"]]
        + [f"Not modelled: {line}" for line in document["not_modelled"]],
        version=document["pagewalk"],
        document=document,
    )


def grouped(curves: Sequence["Curve"]) -> list[list["Curve"]]:
    """The curves of each kind of lookup."""
    kinds = list(dict.fromkeys(one.lookups for one in curves))
    return [[one for one in curves if one.lookups == kind] for kind in kinds]


def figure(curves: Sequence["Curve"]) -> Figure:
    """Misses over entries, a line per page size."""
    what = WHAT[curves[0].lookups]
    rows = [
        {
            "page_size": one.page_size,
            "entries": entries,
            "misses": 1000 * one.misses[entries - 1] / max(one.total, 1),
        }
        for one in curves
        for entries in _points(len(one.misses), POINTS_PER_OCTAVE)
    ]
    return Figure(f"Misses of {what} over TLB size", few_miss(curves), rows, _table(curves))


def few_miss(curves: Sequence["Curve"]) -> str:
    """How many entries suffice for each page size, in a sentence."""
    quiet = [f"{_enough(one, 0.01)} of {one.page_size}" for one in curves]
    return (
        "Entries that a fully associative LRU TLB takes so that at most 1 % of "
        f"{WHAT[curves[0].lookups]} miss: {', '.join(quiet)}."
    )


def summary(name: str, curves: Sequence["Curve"]) -> str:
    """The curves as text for a terminal."""
    parts = []
    for group in grouped(curves):
        lookups = text.count(max(one.total for one in group))
        head = [f"misses of {WHAT[group[0].lookups]}", *(one.page_size for one in group)]
        points = _points(len(group[0].misses), 1)
        # Beyond the last step of all curves, all lines would be equal.
        enough = max(one.steps()[-1][0] for one in group)
        shown = [at for at in points if at < enough] + [at for at in points if at >= enough][:1]
        body = [
            [_entries(entries), *(text.percent(_ratio(one, entries)) for one in group)]
            for entries in shown
        ]
        if shown[-1] < points[-1]:
            body[-1][0] += f" to {points[-1]}"
        first = ["first touches", *(text.count(one.cold) for one in group)]
        parts.append(
            text.paragraph(f"{name}: {lookups} lookups of a fully associative LRU TLB", "", "  ")
            + f"\n{text.paragraph(few_miss(group), '  ', '  ')}\n"
            + text.table(head, [*body, first])
        )
    return "\n\n".join(parts)


def shown(curves: Sequence["Curve"]) -> Table:
    """Misses at powers of two: a column for each page size of each kind of lookup."""
    groups = [_table(group) for group in grouped(curves)]
    several = len(groups) > 1
    heads = [
        f"{name}, {WHAT[group[0].lookups]}" if several else name
        for table, group in zip(groups, grouped(curves), strict=True)
        for name in table.head[1:]
    ]
    rows = [
        [parts[0][0], *(cell for part in parts for cell in part[1:])]
        for parts in zip(*(table.rows for table in groups), strict=True)
    ]
    caption = "Misses as a share of lookups" if several else groups[0].caption
    return Table(caption, ["Entries", *heads], rows, [True] * (1 + len(heads)))


def _table(curves: Sequence["Curve"]) -> Table:
    cells: list[list[Cell]] = [
        [
            Value(text.count(entries), entries),
            *(Value(text.percent(_ratio(one, entries)), _ratio(one, entries)) for one in curves),
        ]
        for entries in _points(len(curves[0].misses), 1)
    ]
    sizes = [one.page_size for one in curves]
    caption = f"Misses of {WHAT[curves[0].lookups]}, as a share of lookups"
    return Table(caption, ["Entries", *sizes], cells, [True] * (1 + len(sizes)))


def _ratio(one: "Curve", entries: int) -> float:
    return one.misses[entries - 1] / max(one.total, 1)


def _enough(one: "Curve", share: float) -> str:
    """The fewest entries with which at most `share` of the lookups miss."""
    allowed = share * one.total
    found = next((entries for entries, misses in one.steps() if misses <= allowed), None)
    return f"more than {len(one.misses)}" if found is None else str(found)


def _entries(entries: int) -> str:
    return f"{entries} {'entry' if entries == 1 else 'entries'}"


def _points(entries_max: int, an_octave: int) -> list[int]:
    """Numbers of entries at equal distances on a logarithmic scale, and `entries_max`."""
    points, step = [], 0
    while (entries := round(2 ** (step / an_octave))) < entries_max:
        points.append(entries)
        step += 1
    return sorted({*points, entries_max})
