"""MMU caches by size: the share of walks that need not read an entry of a level.

Parameters:

* `machine`, `program` (or a generator), `accesses`;
* `level`: 3 for the entries that cover one gigabyte each, 2 for those that cover two megabytes;
* `sizes`, the columns: the number of entries; for a split design the number per level, and for a
  path cache the number of paths;
* `designs`, the rows, by name: settings other than the size;
* `last`: the largest size of some designs, if they are not measured with larger sizes.

A hit is a walk that needs an entry of the level but does not read it: the entry is in the cache,
or the walk skips it because an entry of a lower level is in the cache. The first touch of a page
causes two walks. The second walk finds all entries that the first one read, and does not count.
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
