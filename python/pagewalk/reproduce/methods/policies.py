"""MMU caches under two replacement policies: references to upper levels (B10 table 4.5).

Parameters:

* `machine`, `programs`, `accesses`, and `set`, changes for every run;
* `designs`, the rows, by name: settings other than the policy;
* `policies`: two policies, of which the second is expected to be worse;
* `base`: the design to whose number under the second policy all numbers are normalised.

The columns are the averages of references per walk over the programs under both policies, the
increase from the first policy to the second, and this increase for each program. The last row has
the misses per walk of `base` without normalisation: under both policies, and for each program
under the first.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.methods.walks import NUMBERS
from pagewalk.reproduce.table import Table, mean


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per design, columns the policies, the increase, and it by program."""
    designs: dict[str, list[str]] = parameters["designs"]
    programs: dict[str, str] = parameters["programs"]
    first, second = parameters["policies"]
    points = [(design, policy) for design in designs for policy in (first, second)]
    settings = [
        [*parameters.get("set", []), *designs[design], f"mmu_cache.replacement={policy}"]
        for design, policy in points
    ]
    misses: dict[tuple[str, str], list[float | None]] = {point: [] for point in points}
    for program in programs.values():
        trace = lab.trace(program, parameters["accesses"], fetches=False)
        runs = lab.runs(trace, parameters["machine"], settings)
        for point, run in zip(points, runs, strict=True):
            misses[point].append(NUMBERS["upper"](run))
    base = parameters["base"]
    unit = mean(misses[base, second]) or 1.0
    table = Table([first, second, "increase", *programs])
    for design in designs:
        one, other = misses[design, first], misses[design, second]
        means = mean(one) or 0.0, mean(other) or 0.0
        table.rows[design] = [
            *(number / unit for number in means),
            *map(_increase, [means[0], *one], [means[1], *other]),
        ]
    table.rows[f"{base}, misses a walk"] = [
        mean(misses[base, first]), mean(misses[base, second]), None, *misses[base, first],
    ]  # fmt: skip
    return table


def _increase(first: float | None, second: float | None) -> float | None:
    return second / first - 1 if first and second is not None else None
