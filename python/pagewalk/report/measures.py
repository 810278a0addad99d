r"""The measures of a sweep's designs.

They are shown as plain numbers, as factors, and as means over traces.

```
 design's counts --Measure--> value --normalize--> factor of the base design of the same trace
                                        \--> geometric mean over the traces, per design
```

A geometric mean of factors does not depend on which design is the base. An arithmetic mean does.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagewalk import text
from pagewalk.names import MEANS, TRACE

Row = Mapping[str, Any]


def mean_name(mean: str) -> str:
    """The name that stands in place of a trace's name if a value is the mean over all traces."""
    return f"{mean} mean"


@dataclass(frozen=True)
class Measure:
    """A number by which designs are compared."""

    key: str
    """The name of the measure in the JSON document and for `--sort`."""
    name: str
    """The name on an axis or over a column, with the unit."""
    plain: str
    """`name` without a unit, for factors."""
    what: str
    """The name of the measure in a sentence."""
    of: Callable[[Row], float | None]
    share: bool = False
    """Whether the number is a share, which is shown in per cent."""
    highest: bool = False
    """Whether the highest value is the best."""

    def shown(self, value: float | None, factor: bool = False) -> str:
        """The value as text, or a factor relative to another value."""
        if value is None:
            return "-"
        if factor:
            return f"{value:.3f}" if value < 9.9995 else text.ratio(value)
        return text.percent(value) if self.share else text.ratio(value)


def _misses(row: Row) -> float | None:
    accesses = _sum(row, "accesses.")
    return 1000 * row["walks.walks"] / accesses if accesses else None


def _references(row: Row) -> float | None:
    mapped = row["walks.walks"] - row["walks.cold"]
    if not mapped:
        return _per_walk(row, row["walks.references"])
    return float((row["walks.references"] - row["walks.cold_references"]) / mapped)


def _memory(row: Row) -> float | None:
    served = sum(_sum(row, f"walks.by_level.{level}.served.memory") for level in range(16))
    return _per_walk(row, served)


def _time(row: Row) -> float | None:
    return row.get("time.share.hi")


def _hit_rate(level: int) -> Measure:
    """An entry of level 2 points to a table of the lowest level.

    A walk that has it makes one reference.
    """

    def share(row: Row) -> float | None:
        needed = row.get(f"mmu_cache.by_level.{level}.needed")
        return row[f"mmu_cache.by_level.{level}.held"] / needed if needed else None

    name = f"MMU-cache hit rate, level {level}"
    what = f"{name}: of the entries of that level that walks need"
    return Measure(f"hit_rate_{level}", name, name, what, share, share=True, highest=True)


MEASURES = (
    Measure(
        "misses",
        "misses per 1000 accesses",
        "misses",
        "misses of every TLB per 1000 accesses",
        _misses,
    ),
    Measure(
        "references",
        "references per walk",
        "references per walk",
        "references per walk, where the page is mapped",
        _references,
    ),
    Measure(
        "from_memory",
        "references to memory per walk",
        "references to memory per walk",
        "references per walk that memory serves",
        _memory,
    ),
    _hit_rate(3),
    _hit_rate(2),
    Measure(
        "time",
        "share of all cycles in translation, at most",
        "share of cycles in translation, at most",
        "share of all cycles in translation, if walks alone are waited for",
        _time,
        share=True,
    ),
)
BY_KEY = {measure.key: measure for measure in MEASURES}


def comparison(
    designs: Sequence[Row],
    keys: Sequence[str],
    normalize: Mapping[str, str],
    mean: str = MEANS[0],
) -> dict[str, Any]:
    """The measures of all designs, and their means if there are several traces.

    Args:
        designs: The rows of a sweep's table.
        keys: The keys that vary, in the order of the columns.
        normalize: Values of some keys. Each measure is divided by the measure of the design that
            has these values and is otherwise equal.
        mean: One of `MEANS`.

    Returns:
        `normalize`; `mean`; `measures`, the keys of those in which the designs differ; `designs`,
        for each its keys, the value of each measure that is known of it, and its `error`; `means`,
        the same without `trace`.
    """
    rows = [
        {
            **{key: row[key] for key in keys},
            **{m.key: m.of(row) for m in MEASURES if row.get("walks.walks") is not None},
            **({"error": row["error"]} if "error" in row else {}),
        }
        for row in designs
    ]
    told = _differing(rows)
    if normalize:
        _make_factors(rows, keys, normalize)
    return {
        "normalize": dict(normalize),
        "mean": mean,
        "measures": told,
        "designs": [{k: v for k, v in row.items() if v is not None} for row in rows],
        "means": _means(rows, keys, mean),
    }


def _differing(rows: Sequence[Row]) -> list[str]:
    """The measures in which the designs differ. If there are none, all known measures.

    If several measures show the same values for all designs (for example, if memory serves all
    references), only the first of them is kept.
    """
    whole = [row for row in rows if "error" not in row]
    known = [one for one in MEASURES if any(row.get(one.key) is not None for row in whole)]
    shown = {tuple(m.shown(row.get(m.key)) for row in whole): m for m in reversed(known)}
    told = [measure for values, measure in shown.items() if len({*values}) > 1]
    return [measure.key for measure in known if measure in told or not told]


def _make_factors(
    rows: Sequence[dict[str, Any]], keys: Sequence[str], normalize: Mapping[str, str]
) -> None:
    def place(row: Row, base: bool) -> tuple[str, ...]:
        return tuple(normalize[k] if base and k in normalize else str(row[k]) for k in keys)

    bases = {place(row, False): dict(row) for row in rows}
    for row in rows:
        base = bases.get(place(row, True), {})
        for measure in MEASURES:
            value, one = row.get(measure.key), base.get(measure.key)
            if measure.key in row:
                row[measure.key] = value / one if value is not None and one else None


def _means(rows: Sequence[Row], keys: Sequence[str], mean: str) -> list[dict[str, Any]]:
    """For each design: the mean of each measure that every trace has.

    There is no geometric mean where one of the values is 0.
    """
    if TRACE not in keys or mean == "none":
        return []
    own = [key for key in keys if key != TRACE]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in own), []).append(row)
    means = []
    for place, group in groups.items():
        found: dict[str, Any] = dict(zip(own, place, strict=True))
        for measure in MEASURES:
            values = [row[measure.key] for row in group if row.get(measure.key) is not None]
            if len(values) < len(group):
                continue
            if mean == "arithmetic":
                found[measure.key] = sum(values) / len(values)
            elif all(values):
                found[measure.key] = math.exp(sum(map(math.log, values)) / len(values))
        means.append(found)
    return means


def _per_walk(row: Row, count: float) -> float | None:
    return count / row["walks.walks"] if row["walks.walks"] else None


def _sum(row: Row, prefix: str) -> int:
    return sum(
        value
        for key, value in row.items()
        if key.startswith(prefix) and isinstance(value, int) and value is not None
    )
