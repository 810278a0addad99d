"""A sweep as text, as charts, and as a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report.model import Cell, Figure, Sheet, Table, Value

if TYPE_CHECKING:
    from pagewalk.report.charts import Chart

ROWS_SHOWN = 40
"""Designs in a table for people; all of them are in the Parquet file and the JSON document."""

FAILED_SHOWN = 8

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Measure:
    """A number that designs are compared by."""

    name: str
    """On an axis or over a column."""
    what: str
    """In a sentence."""
    of: Callable[[Row], float | None]


def _misses(row: Row) -> float | None:
    accesses = _sum(row, "accesses.")
    return 1000 * row["walks.walks"] / accesses if accesses else None


def _references(row: Row) -> float | None:
    mapped = row["walks.walks"] - row["walks.cold"]
    if not mapped:
        return _a_walk(row, row["walks.references"])
    return float((row["walks.references"] - row["walks.cold_references"]) / mapped)


def _memory(row: Row) -> float | None:
    served = sum(_sum(row, f"walks.by_level.{level}.served.memory") for level in range(16))
    return _a_walk(row, served)


def _time(row: Row) -> float | None:
    return row.get("time.share.hi")


def _held(level: int) -> Measure:
    """Entries of level 2 lead to the lowest tables: with one of them a walk is one reference."""

    def share(row: Row) -> float | None:
        needed = row.get(f"mmu_cache.by_level.{level}.needed")
        return row[f"mmu_cache.by_level.{level}.held"] / needed if needed else None

    what = f"MMU-cache hit rate, level {level}: of the entries of that level that walks need"
    return Measure(f"MMU-cache hit rate, level {level}", what, share)


MEASURES = (
    Measure("misses per 1000 accesses", "misses of every TLB per 1000 accesses", _misses),
    Measure("references per walk", "references per walk, where the page is mapped", _references),
    Measure("from memory per walk", "references per walk that memory serves", _memory),
    _held(3),
    _held(2),
    Measure(
        "time in translation, at most",
        "share of all cycles, if walks alone are waited for",
        _time,
    ),
)


def document(
    trace: Mapping[str, Any], machine: Mapping[str, Any], vary: Mapping[str, Any], rows: Any
) -> dict[str, Any]:
    """The sweep as one JSON document."""
    from pagewalk import _native

    return {
        "schema": 1,
        "pagewalk": _native.version(),
        "trace": dict(trace),
        "machine": dict(machine),
        "vary": dict(vary),
        "designs": [
            {key: value for key, value in row.items() if value is not None} for row in rows
        ],
    }


def render(made: dict[str, Any]) -> str:
    """The page of a sweep, as the text of an HTML file."""
    from pagewalk.report import page

    return page.render_sheet(sheet(made), charts(made))


def charts(made: dict[str, Any]) -> "list[Chart]":
    """The charts of the page's figures, in their order."""
    from pagewalk.report import charts

    axis = _axis(made)
    scale: charts.Scale = "ordinal"
    if _numbers(made["vary"][axis]):
        scale = "logarithmic" if _logarithmic(made["vary"][axis]) else "linear"
    return [charts.sweep(figure, axis, scale) for figure in sheet(made).figures]


def sheet(made: dict[str, Any]) -> Sheet:
    """The page's data: a figure for each measure in which the designs differ, one table of all."""
    from pagewalk.report.data import trace_facts

    trace, machine, vary = made["trace"], made["machine"], made["vary"]
    failed = [row for row in made["designs"] if "error" in row]
    settings = [("Changed in all", ", ".join(machine["settings"]))] if machine["settings"] else []
    return Sheet(
        title=f"{trace['name']}: {_designs(made)} of {machine['name']}",
        subtitle="Varied: " + "; ".join(f"{key} over {_span(vary[key])}" for key in vary),
        figures=[_figure(made, measure) for measure in compared(made["designs"])],
        table=_table(made, compared(made["designs"])),
        facts=[("Machine", machine["title"]), *settings, *trace_facts(trace)],
        notes=[
            *trace["notes"],
            *(f"{_named(row, vary)}: {row['error']}" for row in failed[:FAILED_SHOWN]),
            *([f"{len(failed)} designs in all have no counts"] if failed else []),
        ],
        version=made["pagewalk"],
        document=made,
    )


def compared(rows: Sequence[Row]) -> list[Measure]:
    """The measures in which the designs differ, or all that are known if they do in none.

    Of measures that say the same of every design (all references from memory) the first is left.
    """
    whole = [row for row in rows if "walks.walks" in row and row["walks.walks"] is not None]
    known = [measure for measure in MEASURES if any(measure.of(row) is not None for row in whole)]
    differing = {tuple(_shown(m, row) for row in whole): m for m in reversed(known)}
    told = [m for shown, m in reversed(differing.items()) if len(set(shown)) > 1]
    return sorted(told, key=known.index) or known


def summary(made: dict[str, Any]) -> str:
    """The sweep as text for a terminal."""
    rows, vary = made["designs"], list(made["vary"])
    measures = compared(rows)
    counted = [row for row in rows if "error" not in row]
    failed = [row for row in rows if "error" in row]
    body = [
        [*(str(row[key]) for key in vary), *(_shown(measure, row) for measure in measures)]
        for row in counted[:ROWS_SHOWN]
    ]
    name = made["trace"]["name"]
    lines = [text.paragraph(f"{name} on {_designs(made)} of {made['machine']['name']}")]
    if body:
        head = [*vary, *(measure.name for measure in measures)]
        lines.append(text.table(head, body, keys=len(vary)))
    if len(counted) > ROWS_SHOWN:
        lines.append(f"  … and {text.plural(len(counted) - ROWS_SHOWN, 'design')} more")
    if failed:
        lines.append(f"{text.plural(len(failed), 'design')} without counts:")
        told = (f"{_named(row, made['vary'])}: {row['error']}" for row in failed[:FAILED_SHOWN])
        lines += [text.paragraph(one, "  ", "  ") for one in told]
    if len(failed) > FAILED_SHOWN:
        lines.append(f"  … and {len(failed) - FAILED_SHOWN} more")
    return "\n".join(lines)


def _designs(made: Mapping[str, Any]) -> str:
    return text.plural(len(made["designs"]), "design")


def _figure(made: dict[str, Any], measure: Measure) -> Figure:
    vary, axis = made["vary"], _axis(made)
    others = [key for key in vary if key != axis]
    rows: list[dict[str, Any]] = []
    for row in made["designs"]:
        value = None if "error" in row else measure.of(row)
        if value is None:
            continue
        series = " ".join(_value(key, row) for key in others)
        rows.append({"at": row[axis], "value": value, "series": series, "unit": measure.name})
    best = min(rows, key=lambda row: row["value"])
    worst = max(rows, key=lambda row: row["value"])
    sentence = (
        f"{measure.what[:1].upper()}{measure.what[1:]}: from {text.ratio(best['value'])} "
        f"({_place(axis, best)}) to {text.ratio(worst['value'])} ({_place(axis, worst)})."
    )
    return Figure(measure.name, sentence, rows)


def _table(made: dict[str, Any], measures: Sequence[Measure]) -> Table:
    """A row per design, its parameters first, then every measure."""
    vary = list(made["vary"])
    rows = made["designs"]
    step = max(1, -(-len(rows) // ROWS_SHOWN))
    cells: list[list[Cell]] = []
    for row in rows[::step]:
        of_row = [None if "error" in row else measure.of(row) for measure in measures]
        shown: list[Cell] = [
            "-" if value is None else Value(text.ratio(value), value) for value in of_row
        ]
        cells.append([*(str(row[key]) for key in vary), *shown])
    caption = "All designs" if step == 1 else f"Every {step}th design; all are in the page's JSON"
    names = [measure.name for measure in measures]
    return Table(caption, [*vary, *names], cells, [False] * len(vary) + [True] * len(names))


def _axis(made: dict[str, Any]) -> str:
    """The key that makes the x axis: the one with the most numbers as values, else the most values.

    Values that are no numbers (page sizes, formats, policies, machines) stand in the order given.
    """
    vary: Mapping[str, Sequence[Any]] = made["vary"]
    return max(vary, key=lambda key: (_numbers(vary[key]), len(vary[key])))


def _numbers(values: Sequence[Any]) -> bool:
    """Whether the values make a scale: numbers, and more than one."""
    return len(values) > 1 and all(isinstance(value, int) for value in values)


def _logarithmic(given: Sequence[int]) -> bool:
    """Whether the values on the x axis lie as powers do: most of them near the low end."""
    values = sorted(given)
    middle = values[len(values) // 2]
    return bool(values[0] > 0 and values[-1] >= 8 * values[0] and middle < values[-1] / 3)


def _shown(measure: Measure, row: Row) -> str:
    value = measure.of(row)
    return "-" if value is None else text.ratio(value)


def _place(axis: str, row: Row) -> str:
    return " ".join(part for part in (row["series"], f"{axis} {row['at']}") if part)


def _named(row: Row, vary: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={row[key]}" for key in vary)


def _value(key: str, row: Row) -> str:
    """A value that says by itself what it is, or with the last part of its key."""
    value = row[key]
    return f"{key.rsplit('.', 1)[-1]} {value}" if isinstance(value, int) else str(value)


def _span(values: Sequence[Any]) -> str:
    if len(values) <= 6:
        return ", ".join(map(str, values))
    return f"{values[0]} to {values[-1]}, {len(values)} values"


def _a_walk(row: Row, count: float) -> float | None:
    return count / row["walks.walks"] if row["walks.walks"] else None


def _sum(row: Row, prefix: str) -> int:
    return sum(
        value
        for key, value in row.items()
        if key.startswith(prefix) and isinstance(value, int) and value is not None
    )
