"""MMU caches over their size: how often a walk need not read an entry of some level.

Parameters: `machine`, `program` (or a generator), `accesses`, `level` (3: the entries that cover
a gigabyte each; 2: those of two megabytes), `sizes` (columns: entries; of a split design, of each
level; of a path cache, paths), and `designs` (rows: a name, and settings besides the size).

A hit is a walk that needs an entry of the level and does not read it: it is held, or skipped
because one below it is.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Hit rates: a row a design, a column a size."""
    sizes: list[int] = parameters["sizes"]
    designs: dict[str, list[str]] = parameters["designs"]
    trace = lab.trace(parameters["program"], parameters["accesses"], fetches=False)
    points = [
        [*changes, f"mmu_cache.entries={size}"] for changes in designs.values() for size in sizes
    ]
    runs = iter(lab.runs(trace, parameters["machine"], points))
    level = parameters["level"]
    rows: dict[str, list[float | None]] = {
        design: [_hits(next(runs), level) for _ in sizes] for design in designs
    }
    return Table([str(size) for size in sizes], rows)


def _hits(run: Results, level: int) -> float | None:
    for one in run["mmu_cache"]["by_level"]:
        if one["level"] == level and one["needed"]:
            return float(one["held"] / one["needed"])
    return None
