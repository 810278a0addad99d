"""MMU caches over their size: how often a walk need not read an entry of some level.

Parameters: `machine`, `program` (or a generator), `accesses`, `after` (the first so many accesses
are run and not counted: by two runs, of which one ends there), `level` (3: the entries that cover
a gigabyte each; 2: those of two megabytes), `sizes` (columns: entries; of a split design, of each
level; of a path cache, paths), `designs` (rows: a name, and settings besides the size), and
`last` (the last size of some designs, whose curves are flat beyond).

A hit is a walk that needs an entry of the level and does not read it: it is held, or skipped
because one below it is. A page that is touched for the first time is walked for twice; the second
walk, which finds all that the first one left, does not count.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Hit rates: a row a design, a column a size."""
    sizes: list[int] = parameters["sizes"]
    designs: dict[str, list[str]] = parameters["designs"]
    last: dict[str, int] = parameters.get("last", {})
    points = [
        (design, size) for design in designs for size in sizes if size <= last.get(design, size)
    ]
    settings = [[*designs[design], f"mmu_cache.entries={size}"] for design, size in points]
    level = parameters["level"]
    counts = [(0, 0)] * len(points)
    for sign, accesses in ((-1, parameters.get("after", 0)), (1, parameters["accesses"])):
        if accesses:
            trace = lab.trace(parameters["program"], accesses, fetches=False)
            runs = lab.runs(trace, parameters["machine"], settings)
            counts = [
                (before[0] + sign * held, before[1] + sign * needed)
                for before, (held, needed) in zip(
                    counts, (_counts(run, level) for run in runs), strict=True
                )
            ]
    rates = {
        point: held / needed for point, (held, needed) in zip(points, counts, strict=True) if needed
    }
    rows = {design: [rates.get((design, size)) for size in sizes] for design in designs}
    return Table([str(size) for size in sizes], rows)


def _counts(run: Results, level: int) -> tuple[int, int]:
    """Walks that did not read an entry of the level, of those that needed one."""
    for one in run["mmu_cache"]["by_level"]:
        if one["level"] == level:
            return one["held"], one["needed"]
    return 0, 0
