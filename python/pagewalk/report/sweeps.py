r"""A sweep as text, as charts, and as a page.

```
 document --View--> parts: a trace's designs each, then the means --> text, table
     \--------------> figures: a chart per measure, of several traces a facet for each
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk._native import Error
from pagewalk.report import scales
from pagewalk.report.measures import BY_KEY, MEAN, Measure, Row, comparison
from pagewalk.report.model import Cell, Figure, Sheet, Table, Value
from pagewalk.sweep.vary import TRACE

if TYPE_CHECKING:
    from pagewalk.report.charts import Chart

ROWS_SHOWN = 40
"""Designs in a table for people; all of them are in the Parquet file and the JSON document."""

FAILED_SHOWN = 8

TRACE_LETTERS = 20
"""Of a trace's name in a row of the text, if no more are needed to tell it apart."""


@dataclass(frozen=True)
class View:
    """Which designs the text and the page's table show, and in what order."""

    sort: str | None = None
    """A measure, whose best value comes first, or a key that varies; as in the table if absent."""
    top: int | None = None
    """How many designs, of each trace."""

    def check(self, keys: Sequence[str]) -> None:
        """Refuses an order by what neither varies nor is measured.

        Raises:
            Error: There is no such measure or key.
        """
        if self.sort is not None and self.sort not in BY_KEY and self.sort not in keys:
            known = ", ".join([*BY_KEY, *keys])
            raise Error(f"--sort {self.sort}: choose one of {known}")

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """The rows, or the first of them, in that order; those without a value come last."""
        key, measure = self.sort, BY_KEY.get(self.sort or "")
        if key is None:
            return list(rows[: self.top])

        def place(row: Row) -> tuple[Any, ...]:
            value = row.get(key)
            number = value if isinstance(value, int | float) else scales.number(str(value))
            if number is None:
                return (2, 0, "") if value is None else (1, 0, str(value))
            return (0, -number if measure and measure.highest else number, "")

        return sorted(rows, key=place)[: self.top]


ALL = View()


def document(
    traces: Sequence[Mapping[str, Any]],
    machine: Mapping[str, Any],
    vary: Mapping[str, Any],
    rows: Any,
    normalize: Mapping[str, str],
) -> dict[str, Any]:
    """The sweep as one JSON document."""
    from pagewalk import _native

    designs = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return {
        "schema": 2,
        "pagewalk": _native.version(),
        "traces": [dict(trace) for trace in traces],
        "machine": dict(machine),
        "vary": dict(vary),
        "designs": designs,
        "comparison": comparison(designs, list(vary), normalize),
    }


def render(made: dict[str, Any], view: View = ALL) -> str:
    """The page of a sweep, as the text of an HTML file."""
    from pagewalk.report import page

    return page.render_sheet(sheet(made, view), charts(made))


def charts(made: dict[str, Any]) -> "list[list[Chart]]":
    """The charts of each of the page's figures: one, or a facet for each trace and for the mean."""
    from pagewalk.report import sweepcharts

    axis, factors = scales.of(*_axis(made)), bool(made["comparison"]["normalize"])
    return [sweepcharts.page(figure, axis, shared=factors) for figure in sheet(made).figures]


def pictures(made: dict[str, Any]) -> "dict[str, Chart]":
    """The same by the names of the measures, the facets of each in one chart."""
    from pagewalk.report import sweepcharts

    axis, factors = scales.of(*_axis(made)), bool(made["comparison"]["normalize"])
    return {
        measure.key.replace("_", "-"): sweepcharts.picture(figure, axis, shared=factors)
        for measure, figure in zip(_measures(made), sheet(made).figures, strict=True)
    }


def _memory(machine: Mapping[str, Any]) -> str:
    """What was asked of all designs' memory."""
    asked = machine.get("memory")
    size = f"{asked} of what base uses" if asked and asked.endswith("%") else asked
    free, wired = machine.get("aged", (1.0, 0.0))
    aged = f"aged: {text.percent(free)} free, {text.percent(wired)} wired"
    return ", ".join(part for part in (size, aged if "aged" in machine else None) if part)


def sheet(made: dict[str, Any], view: View = ALL) -> Sheet:
    """The page's data: a figure for each measure in which the designs differ, one table of all."""
    from pagewalk.report.data import trace_facts

    traces, machine, vary = made["traces"], made["machine"], made["vary"]
    failed = [row for row in made["designs"] if "error" in row]
    settings = [("Changed in all", ", ".join(machine["settings"]))] if machine["settings"] else []
    if "memory" in machine or "aged" in machine:
        settings.append(("Memory", _memory(machine)))
    several = [(trace["name"], _in_a_line(trace_facts(trace))) for trace in traces]
    return Sheet(
        title=f"{_traces(made)}: {_designs(made)} of {machine['name']}",
        subtitle="Varied: "
        + "; ".join(f"{key} over {_span(vary[key])}" for key in vary if key != TRACE)
        + _relative(made),
        figures=[_figure(made, measure) for measure in _measures(made)],
        table=_table(made, view),
        facts=[
            ("Machine", machine["title"]),
            *settings,
            *(trace_facts(traces[0]) if len(traces) == 1 else several),
        ],
        notes=[
            *dict.fromkeys(note for trace in traces for note in trace["notes"]),
            *(f"{_named(row, vary)}: {row['error']}" for row in failed[:FAILED_SHOWN]),
            *([f"{len(failed)} designs in all have no counts"] if failed else []),
        ],
        version=made["pagewalk"],
        document=made,
    )


def summary(made: dict[str, Any], view: View = ALL) -> str:
    """The sweep as text for a terminal."""
    keys, measures = list(made["vary"]), _measures(made)
    failed = [row for row in made["designs"] if "error" in row]
    lines = [text.paragraph(f"{_traces(made)} on {_designs(made)} of {made['machine']['name']}")]
    if relative := _relative(made).removeprefix("; "):
        lines.append(text.paragraph(relative, "  "))
    body, more = [], 0
    for part in _parts(made, view):
        counted = [row for row in part if "error" not in row]
        body += [_cells(row, keys, measures, made) for row in counted[:ROWS_SHOWN]]
        more += len(counted[ROWS_SHOWN:])
    if body:
        head = [*keys, *(_title(measure, made) for measure in measures)]
        rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in body]
        if TRACE in keys:
            labels = _labels([row[0] for row in rows])
            rows = [[labels[row[0]], *row[1:]] for row in rows]
        lines.append(text.table(head, rows, keys=len(keys)))
    if view.top is None and more:
        lines.append(f"  … and {text.plural(more, 'design')} more")
    if failed:
        lines.append(f"{text.plural(len(failed), 'design')} without counts:")
        told = (f"{_named(row, made['vary'])}: {row['error']}" for row in failed[:FAILED_SHOWN])
        lines += [text.paragraph(one, "  ", "  ") for one in told]
    if len(failed) > FAILED_SHOWN:
        lines.append(f"  … and {len(failed) - FAILED_SHOWN} more")
    return "\n".join(lines)


def _measures(made: Mapping[str, Any]) -> list[Measure]:
    return [BY_KEY[key] for key in made["comparison"]["measures"]]


def _parts(made: Mapping[str, Any], view: View) -> list[list[Row]]:
    """The designs of each trace as the view has them, then the means over the traces."""
    designs, means = made["comparison"]["designs"], made["comparison"]["means"]
    if TRACE not in made["vary"]:
        return [view.of(designs)]
    by_trace = [[row for row in designs if row[TRACE] == one] for one in made["vary"][TRACE]]
    by_trace.append([{TRACE: MEAN, **row} for row in means])
    return [view.of(part) for part in by_trace]


def _cells(
    row: Row, keys: Sequence[str], measures: Sequence[Measure], made: Mapping[str, Any]
) -> list[Cell]:
    factors = bool(made["comparison"]["normalize"])
    cells: list[Cell] = [str(row[key]) for key in keys]
    for measure in measures:
        value = row.get(measure.key)
        shown = measure.shown(value, factors)
        cells.append(shown if value is None else Value(shown, value))
    return cells


def _title(measure: Measure, made: Mapping[str, Any]) -> str:
    """The name of a measure with its unit, which a factor has not."""
    return f"{measure.plain}, factor" if made["comparison"]["normalize"] else measure.name


def _relative(made: Mapping[str, Any]) -> str:
    """What designs are compared with, if they are shown as factors."""
    base = made["comparison"]["normalize"]
    if not base:
        return ""
    values = " and ".join(f"{key}={value}" for key, value in base.items())
    return f"; as factors of the design with {values} that is otherwise the same"


def _traces(made: Mapping[str, Any]) -> str:
    names = [trace["name"] for trace in made["traces"]]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _labels(names: Sequence[str]) -> dict[str, str]:
    """The names of traces, as short as they can be while they differ."""
    known = dict.fromkeys(names)
    longest = max(map(len, known))
    for letters in range(TRACE_LETTERS, longest):
        short = {name: text.shorten(name, letters) for name in known}
        if len({*short.values()}) == len(known):
            return short
    return {name: name for name in known}


def _in_a_line(facts: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{key.lower()} {value}" for key, value in facts)


def _designs(made: Mapping[str, Any]) -> str:
    return text.plural(len(made["designs"]) // len(made["traces"]), "design")


def _figure(made: dict[str, Any], measure: Measure) -> Figure:
    vary, axis = made["vary"], _axis(made)[0]
    others = [key for key in vary if key not in (axis, TRACE)]
    facets = [*vary[TRACE], MEAN] if TRACE in vary else []
    rows: list[dict[str, Any]] = []
    for row in [row for part in _parts(made, ALL) for row in part]:
        value = row.get(measure.key)
        if value is None:
            continue
        series = " ".join(_value(key, row) for key in others)
        facet = {"facet": row[TRACE]} if facets else {}
        rows.append({"at": row[axis], "value": value, "series": series, **facet})
    factors = bool(made["comparison"]["normalize"])
    best, worst = (end(rows, key=lambda row: float(row["value"])) for end in (min, max))
    sentence = (
        f"{measure.what[:1].upper()}{measure.what[1:]}{', as factors' if factors else ''}: "
        f"from {measure.shown(best['value'], factors)} ({_place(axis, best)}) to "
        f"{measure.shown(worst['value'], factors)} ({_place(axis, worst)})."
    )
    if facets and not factors:
        sentence += " Each trace has a scale of its own."
    share = measure.share and not factors
    return Figure(_title(measure, made), sentence, rows, facets=facets, share=share)


def _table(made: dict[str, Any], view: View) -> Table:
    """A row per design, its parameters first, then every measure."""
    keys, measures = list(made["vary"]), _measures(made)
    rows = [row for part in _parts(made, view) for row in part]
    step = 1 if view != ALL else max(1, -(-len(rows) // ROWS_SHOWN))
    cells = [_cells(row, keys, measures, made) for row in rows[::step]]
    caption = "All designs" if step == 1 else f"Every {step}th design; all are in the page's JSON"
    if view.top is not None:
        each = " of each trace" if TRACE in keys else ""
        caption = f"{text.plural(view.top, 'design')}{each}; all are in the page's JSON"
    if view.sort is not None:
        measure = BY_KEY.get(view.sort)
        caption += f"; in the order of {measure.name if measure else view.sort}"
    head = [*keys, *(_title(measure, made) for measure in measures)]
    return Table(caption, head, cells, [False] * len(keys) + [True] * len(measures))


def _axis(made: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
    """The key that makes the x axis, with its values: the one with the most values on a scale.

    Without any it is the key with the most values. Formats, policies, machines and a few sizes
    have no scale and stand in the order given.
    """
    vary: Mapping[str, Sequence[Any]] = made["vary"]
    keys = [key for key in vary if key != TRACE] or [TRACE]
    best = max(keys, key=lambda key: (scales.has_scale(vary[key]), len(vary[key])))
    return best, vary[best]


def _place(axis: str, row: Row) -> str:
    parts = (row.get("facet", ""), row["series"], f"{axis} {row['at']}")
    return " ".join(str(part) for part in parts if part)


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
