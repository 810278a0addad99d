"""MMU caches over their size: how often a walk need not read an entry of some level.

Parameters: `machine`, `program` (or a generator), `accesses`, `level` (3: the entries that cover
a gigabyte each; 2: those of two megabytes), `sizes` (columns: entries; of a split design, of each
level; of a path cache, paths), `designs` (rows: a name, and settings besides the size), and
`last` (the last size of some designs, where no more is asked of them).

A hit is a walk that needs an entry of the level and does not read it: it is held, or skipped
because one below it is. A page that is touched for the first time is walked for twice; the second
walk, which finds all that the first one left, does not count.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table
from pagewalk.sweeps import values


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Hit rates: one row per design, one column per size."""
    given: list[int] | str = parameters["sizes"]
    sizes = [int(size) for size in values(given)] if isinstance(given, str) else given
    designs: dict[str, list[str]] = parameters["designs"]
    last: dict[str, int] = parameters.get("last", {})
    points = [
        (design, size) for design in designs for size in sizes if size <= last.get(design, size)
    ]
    settings = [[*designs[design], f"mmu_cache.entries={size}"] for design, size in points]
    trace = lab.trace(parameters["program"], parameters["accesses"], fetches=False)
    runs = lab.runs(trace, parameters["machine"], settings)
    rates = {
        point: _hits(run, parameters["level"]) for point, run in zip(points, runs, strict=True)
    }
    rows = {design: [rates.get((design, size)) for size in sizes] for design in designs}
    return Table([str(size) for size in sizes], rows)


def _hits(run: Results, level: int) -> float | None:
    for one in run["mmu_cache"]["by_level"]:
        if one["level"] == level and one["needed"]:
            return float(one["held"] / one["needed"])
    return None
