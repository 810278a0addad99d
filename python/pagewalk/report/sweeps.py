r"""A sweep as text, as charts, and as a page.

```
 document --View--> parts: a trace's designs each, then the means --> text, table
     \--------------> figures: a chart per measure, of several traces a facet for each
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk._native import Error
from pagewalk.names import MEANS, TRACE
from pagewalk.report import scales
from pagewalk.report.measures import BY_KEY, Measure, Row, comparison, mean_name
from pagewalk.report.model import Cell, Figure, Sheet, Table, Value

if TYPE_CHECKING:
    from pagewalk.report.charts import Chart

ROWS_SHOWN = 40
"""The maximum number of designs in a table for people.

The Parquet file and the JSON document have all designs.
"""

TEXT_ROWS = 18
"""The number of designs of all traces in the text, if no number is requested."""

TEXT_LINES = 54
"""After this number of rows of the text, no more measures are shown. The sentences have all
measures.
"""

FAILED_SHOWN = 8

NEAR = 0.01
"""A design whose value differs from the best value by at most this share is as good."""
NEAR_NAMED = 3
"""The maximum number of designs near the best one that are named."""

SEARCHES = "mmu_cache.searches"
"""The count that every design with an MMU cache has."""
TRACE_LETTERS = 20
"""The number of letters of a trace's name in a row of the text, if they distinguish the traces."""


@dataclass(frozen=True)
class View:
    """Which designs the text and the page's table show, and in which order."""

    sort: str | None = None
    """A measure, whose best value comes first, or a key that varies. If absent, the order of the
    table.
    """
    top: int | None = None
    """The number of designs of each trace."""

    def check(self, keys: Sequence[str]) -> None:
        """Raises an error if the sort key is neither a varied key nor a measure.

        Raises:
            Error: There is no such measure or key.
        """
        if self.sort is not None and self.sort not in BY_KEY and self.sort not in keys:
            known = ", ".join([*BY_KEY, *keys])
            raise Error(f"--sort {self.sort}: choose one of {known}")

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """The rows, or the first of them, in this order. Rows without a value come last."""
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


@dataclass(frozen=True)
class Drawn:
    """The layout of a sweep's charts: the keys of axis, series and facets, and their labels."""

    x: str | None = None
    """The key on the x axis. If absent, a key whose values have a scale."""
    color: str | None = None
    """The key whose values are series. If absent, all keys that are neither `x` nor a facet."""
    facet: str | None = None
    """The key whose values have a chart each. If absent, `trace`, and the keys that are not
    `color`.
    """
    measures: Sequence[str] = ()
    """The measures that have charts. If none is named, those in which the designs differ."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of keys, of measures and, as `KEY:VALUE`, of values of keys."""

    def check(self, keys: Sequence[str]) -> None:
        """Raises an error for a key that does not vary, or that is used twice.

        Raises:
            Error: There is no such key or measure.
        """
        given = {"--x": self.x, "--color": self.color, "--facet": self.facet}
        taken: dict[str, str] = {}
        for flag, key in given.items():
            if key is None:
                continue
            if key not in keys:
                raise Error(
                    f"{flag} {key}: this key does not vary; choose one of {', '.join(keys)}"
                )
            if key in taken:
                raise Error(f"{flag} {key}: {taken[key]} uses this key already; choose another")
            taken[key] = flag
        for name in self.measures:
            if name not in BY_KEY:
                raise Error(f"--y {name}: choose one of {', '.join(BY_KEY)}")
        for name in self.labels:
            if name.partition(":")[0] not in (*keys, *BY_KEY):
                known = ", ".join([*keys, *BY_KEY])
                raise Error(
                    f"--label {name}: name one of {known}, or a value of a key as KEY:VALUE"
                )

    def keys(self, made: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
        """The key of the x axis, those of the series, and those of the facets.

        Together these are all keys that vary, so no two designs are drawn at the same place.
        """
        vary: Mapping[str, Sequence[Any]] = made["vary"]
        free = [key for key in vary if key not in (self.color, self.facet)]
        x = self.x or _axis(vary, free)
        rest = [key for key in free if key != x]
        facets = [self.facet] if self.facet else [key for key in rest if key == TRACE]
        rest = [key for key in rest if key not in facets]
        if self.color is None:
            return x, rest, facets
        if self.facet is None:
            return x, [self.color], [*facets, *rest]
        return x, [self.color, *rest], facets

    def value(self, key: str, value: object) -> str:
        """A value for a legend, where it must be understood without its key."""
        label = self.labels.get(f"{key}:{value}")
        if label is not None:
            return label
        name = self.labels.get(key, key.rsplit(".", 1)[-1])
        return f"{name} {value}" if isinstance(value, int) else str(value)


AUTOMATIC = Drawn()


def document(
    traces: Sequence[Mapping[str, Any]],
    machine: Mapping[str, Any],
    vary: Mapping[str, Any],
    rows: Any,
    normalize: Mapping[str, str],
    *,
    mean: str = MEANS[0],
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
        "comparison": comparison(designs, list(vary), normalize, mean),
    }


def render(made: dict[str, Any], view: View = ALL, drawn: Drawn = AUTOMATIC) -> str:
    """The page of a sweep, as the text of an HTML file."""
    from pagewalk.report import page

    return page.render_sheet(sheet(made, view, drawn), charts(made, drawn))


def charts(made: dict[str, Any], drawn: Drawn = AUTOMATIC) -> "list[list[Chart]]":
    """The charts of each of the page's figures.

    Each has one chart, or one for each trace and for the mean.
    """
    from pagewalk.report import sweepcharts

    scale, factors = _scale(made, drawn), bool(made["comparison"]["normalize"])
    return [
        sweepcharts.page(figure, scale, shared=factors)
        for figure in sheet(made, drawn=drawn).figures
    ]


def pictures(
    made: dict[str, Any], drawn: Drawn = AUTOMATIC, points: int | None = None
) -> "dict[str, Chart]":
    """The charts by the names of their measures. Each chart contains all of its facets.

    Args:
        made: The document of a sweep.
        drawn: The layout of the charts.
        points: Their width on paper in points. If absent, they are for a screen.
    """
    from pagewalk.report import sweepcharts

    scale, factors = _scale(made, drawn), bool(made["comparison"]["normalize"])
    return {
        measure.key.replace("_", "-"): sweepcharts.picture(figure, scale, factors, points)
        for measure, figure in zip(
            _drawn_measures(made, drawn), sheet(made, drawn=drawn).figures, strict=True
        )
    }


def _scale(made: Mapping[str, Any], drawn: Drawn) -> scales.Scale:
    axis = drawn.keys(made)[0]
    title, values = drawn.labels.get(axis, axis), made["vary"][axis]
    if scales.has_scale(values):
        return scales.of(title, values)
    return scales.of(title, [drawn.labels.get(f"{axis}:{value}", value) for value in values])


def _memory(machine: Mapping[str, Any]) -> str:
    """The requested memory of all designs, in words."""
    asked = machine.get("memory")
    size = f"{asked} of what base uses" if asked and asked.endswith("%") else asked
    free, wired = machine.get("aged", (1.0, 0.0))
    aged = f"aged: {text.percent(free)} free, {text.percent(wired)} wired"
    return ", ".join(part for part in (size, aged if "aged" in machine else None) if part)


def sheet(made: dict[str, Any], view: View = ALL, drawn: Drawn = AUTOMATIC) -> Sheet:
    """The page's data: a figure for each measure in which the designs differ, and one table."""
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
        figures=[_figure(made, measure, drawn) for measure in _drawn_measures(made, drawn)],
        table=_page_table(made, view),
        facts=[
            ("Machine", machine["title"]),
            *settings,
            *(trace_facts(traces[0]) if len(traces) == 1 else several),
        ],
        notes=[
            *dict.fromkeys(note for trace in traces for note in trace["notes"]),
            *(f"{_named(row, vary)}: {row['error']}" for row in failed[:FAILED_SHOWN]),
            *([f"{len(failed)} designs in all have no counts"] if failed else []),
            *_without_cache(made),
        ],
        version=made["pagewalk"],
        document=made,
        finding=[found] if (found := finding(made, view, drawn)) else [],
    )


def finding(made: dict[str, Any], view: View = ALL, drawn: Drawn = AUTOMATIC) -> str:
    """A sentence with the best design by the first measure in which designs differ.

    With several traces, the design whose mean over the traces is best. Empty if there is no such
    mean or if all designs are equal.
    """
    measures = _drawn_measures(made, drawn)
    sorted_by = BY_KEY.get(view.sort or "")
    measure = sorted_by or (measures[0] if measures else None)
    keys = [key for key in made["vary"] if key != TRACE]
    several = TRACE in made["vary"]
    designs = made["comparison"]["means" if several else "designs"]
    rows = [row for row in designs if measure and row.get(measure.key) is not None]
    if measure is None or len(rows) < 2:
        return ""
    sign = -1 if measure.highest else 1
    ordered = sorted(rows, key=lambda row: sign * float(row[measure.key]))
    best, worst = ordered[0], ordered[-1]
    factors = bool(made["comparison"]["normalize"])
    least, most = (measure.shown(row[measure.key], factors) for row in (best, worst))
    if least == most:
        return ""
    near = abs(best[measure.key]) * NEAR
    alike = [row for row in ordered[1:] if abs(row[measure.key] - best[measure.key]) <= near]
    mean = f", {mean_name(made['comparison']['mean'])} of the traces" if several else ""
    said = (
        f"Best of {text.plural(len(rows), 'design')} by {_title(measure, made)}{mean}: "
        f"{_design(best, keys, drawn)} with {least}; worst: {_design(worst, keys, drawn)} with "
        f"{most}."
    )
    if 0 < len(alike) <= NEAR_NAMED:
        said += f" As good within 1 %: {'; '.join(_design(row, keys, drawn) for row in alike)}."
    elif alike:
        said += f" {len(alike)} designs more are as good within 1 %."
    return said


def _design(row: Row, keys: Sequence[str], drawn: Drawn) -> str:
    return ", ".join(
        drawn.labels.get(f"{key}:{row[key]}", f"{drawn.labels.get(key, key)}={row[key]}")
        for key in keys
    )


def summary(made: dict[str, Any], view: View = ALL, drawn: Drawn = AUTOMATIC) -> str:
    """The sweep as text for a terminal: the range of each measure, and then some designs."""
    keys, measures = list(made["vary"]), _drawn_measures(made, drawn)
    failed = [row for row in made["designs"] if "error" in row]
    lines = [text.paragraph(f"{_traces(made)} on {_designs(made)} of {made['machine']['name']}")]
    if relative := _relative(made).removeprefix("; "):
        lines.append(text.paragraph(relative, "  "))
    parts = [[row for row in part if "error" not in row] for part in _parts(made, view)]
    if found := finding(made, view, drawn):
        lines.append(text.paragraph(found, "  ", "  "))
    if any(parts):
        lines += [text.paragraph(_ends(made, measure, drawn), "  ", "  ") for measure in measures]
    each = max(3, TEXT_ROWS // len(parts)) if view.top is None else None
    body = [_cells(row, keys, measures, made) for part in parts for row in part[:each]]
    if body:
        head = [*keys, *(_title(measure, made) for measure in measures)]
        rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in body]
        if TRACE in keys:
            labels = _labels([row[0] for row in rows])
            rows = [[labels[row[0]], *row[1:]] for row in rows]
        lines.append(text.table(head, rows, keys=len(keys), lines_max=TEXT_LINES))
    more = sum(map(len, parts)) - len(body)
    if more:
        lines.append(
            text.paragraph(
                f"… and {text.plural(more, 'row')} more: --sort and --top choose, -o and --html "
                "have all",
                "  ",
                "  ",
            )
        )
    if failed:
        lines.append(f"{text.plural(len(failed), 'design')} without counts:")
        told = (f"{_named(row, made['vary'])}: {row['error']}" for row in failed[:FAILED_SHOWN])
        lines += [text.paragraph(one, "  ", "  ") for one in told]
    if len(failed) > FAILED_SHOWN:
        lines.append(f"  … and {len(failed) - FAILED_SHOWN} more")
    lines += [text.paragraph(line, "", "  ") for line in _without_cache(made)]
    return "\n".join(lines)


def _without_cache(made: Mapping[str, Any]) -> list[str]:
    """A sentence about the designs that have no MMU cache, if others have one."""
    counted = [row for row in made["designs"] if row.get("error") is None]
    without = [row for row in counted if row.get(SEARCHES) is None]
    if not without or len(without) == len(counted):
        return []
    keys = [key for key in made["vary"] if not key.startswith("mmu_cache.")]
    names = dict.fromkeys(", ".join(f"{key}={row[key]}" for key in keys) for row in without)
    shown = "; ".join(list(names)[:FAILED_SHOWN]) + ("; …" if len(names) > FAILED_SHOWN else "")
    return [
        f"{text.plural(len(without), 'design')} without an MMU cache, as their page tables have no "
        f"upper levels that one could hold, or mmu_cache.design is none: {shown}"
    ]


def _measures(made: Mapping[str, Any]) -> list[Measure]:
    return [BY_KEY[key] for key in made["comparison"]["measures"]]


def _parts(made: Mapping[str, Any], view: View) -> list[list[Row]]:
    """The designs of each trace that the view selects, and then the means over the traces."""
    designs, means = made["comparison"]["designs"], made["comparison"]["means"]
    if TRACE not in made["vary"]:
        return [view.of(designs)]
    by_trace = [[row for row in designs if row[TRACE] == one] for one in made["vary"][TRACE]]
    if means:
        by_trace.append([{TRACE: mean_name(made["comparison"]["mean"]), **row} for row in means])
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
    """The name of a measure, with its unit unless values are factors."""
    return f"{measure.plain}, factor" if made["comparison"]["normalize"] else measure.name


def _relative(made: Mapping[str, Any]) -> str:
    """If values are shown as factors: the design with which the others are compared."""
    base = made["comparison"]["normalize"]
    if not base:
        return ""
    values = " and ".join(f"{key}={value}" for key, value in base.items())
    return f"; as factors of the design with {values} that is otherwise the same"


def _traces(made: Mapping[str, Any]) -> str:
    names = [trace["name"] for trace in made["traces"]]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _labels(names: Sequence[str]) -> dict[str, str]:
    """The names of traces, as short as possible while they differ."""
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


def _figure(made: dict[str, Any], measure: Measure, drawn: Drawn) -> Figure:
    _, _, apart = drawn.keys(made)
    rows = _points(made, measure, drawn)
    facets = list(dict.fromkeys(row["facet"] for row in rows)) if apart else []
    factors = bool(made["comparison"]["normalize"])
    sentence = _ends(made, measure, drawn)
    if facets and not factors:
        each = "trace" if apart == [TRACE] else "chart"
        sentence += f" Each {each} has a scale of its own."
    share = measure.share and not factors
    title = drawn.labels.get(measure.key, _title(measure, made))
    return Figure(title, sentence, rows, facets=facets, share=share)


def _points(made: dict[str, Any], measure: Measure, drawn: Drawn) -> list[dict[str, Any]]:
    """The data of each design in a chart: its position and its value."""
    axis, series, apart = drawn.keys(made)
    named = not scales.has_scale(made["vary"][axis])
    rows: list[dict[str, Any]] = []
    for row in [row for part in _parts(made, ALL) for row in part]:
        value = row.get(measure.key)
        if value is None:
            continue
        one = {
            "at": drawn.labels.get(f"{axis}:{row[axis]}", row[axis]) if named else row[axis],
            "value": value,
            "series": " ".join(drawn.value(key, row[key]) for key in series),
        }
        if apart:
            one["facet"] = " ".join(drawn.value(key, row[key]) for key in apart)
        rows.append(one)
    return rows


def _ends(made: dict[str, Any], measure: Measure, drawn: Drawn) -> str:
    """The lowest and the highest value of a measure among the designs, as a sentence."""
    rows, axis = _points(made, measure, drawn), drawn.keys(made)[0]
    factors = bool(made["comparison"]["normalize"])
    best, worst = (end(rows, key=lambda row: float(row["value"])) for end in (min, max))
    return (
        f"{measure.what[:1].upper()}{measure.what[1:]}{', as factors' if factors else ''}: "
        f"from {measure.shown(best['value'], factors)} ({_place(axis, best)}) to "
        f"{measure.shown(worst['value'], factors)} ({_place(axis, worst)})."
    )


def table(made: dict[str, Any], view: View = ALL, drawn: Drawn = AUTOMATIC) -> Table:
    """A row per design: its parameters first, then every measure."""
    rows = [row for part in _parts(made, view) for row in part]
    return _table(made, view, drawn, rows, "All designs")


def _page_table(made: dict[str, Any], view: View) -> Table:
    """The table of a page, with at most as many rows as people read."""
    rows = [row for part in _parts(made, view) for row in part]
    step = 1 if view != ALL else max(1, -(-len(rows) // ROWS_SHOWN))
    caption = "All designs" if step == 1 else f"Every {step}th design; all are in the page's JSON"
    if view.top is not None:
        each = " of each trace" if TRACE in made["vary"] else ""
        caption = f"{text.plural(view.top, 'design')}{each}; all are in the page's JSON"
    return _table(made, view, AUTOMATIC, rows[::step], caption)


def _table(
    made: dict[str, Any], view: View, drawn: Drawn, rows: Sequence[Row], caption: str
) -> Table:
    keys, measures, labels = list(made["vary"]), _drawn_measures(made, drawn), drawn.labels
    if view.sort is not None:
        measure = BY_KEY.get(view.sort)
        caption += f"; in the order of {measure.name if measure else view.sort}"
    head = [labels.get(key, key) for key in keys]
    head += [labels.get(measure.key, _title(measure, made)) for measure in measures]
    cells = [_cells(row, keys, measures, made) for row in rows]
    for row in cells:
        row[: len(keys)] = [
            labels.get(f"{key}:{cell}", cell) for key, cell in zip(keys, row, strict=False)
        ]
    numeric = [False] * len(keys) + [True] * len(measures)
    return Table(caption, head, cells, numeric, keys=len(keys))


def _axis(vary: Mapping[str, Sequence[Any]], free: Sequence[str]) -> str:
    """The key for the x axis: of the free keys with a scale, the one with the most values.

    If no free key has a scale, the key with the most values. The values of formats, policies,
    machines and of a few sizes have no scale and are shown in the given order.
    """
    keys = [key for key in free if key != TRACE] or list(free) or list(vary)
    return max(keys, key=lambda key: (scales.has_scale(vary[key]), len(vary[key])))


def _drawn_measures(made: Mapping[str, Any], drawn: Drawn) -> list[Measure]:
    """The measures that have charts, without those that no design has."""
    if not drawn.measures:
        return _measures(made)
    designs = made["comparison"]["designs"]
    missing = [name for name in drawn.measures if all(row.get(name) is None for row in designs)]
    if missing:
        raise Error(f"--y {missing[0]}: no design has this measure")
    return [BY_KEY[name] for name in drawn.measures]


def _place(axis: str, row: Row) -> str:
    parts = (row.get("facet", ""), row["series"], f"{axis} {row['at']}")
    return " ".join(str(part) for part in parts if part)


def _named(row: Row, vary: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={row[key]}" for key in vary)


def _span(values: Sequence[Any]) -> str:
    if len(values) <= 6:
        return ", ".join(map(str, values))
    return f"{values[0]} to {values[-1]}, {len(values)} values"
