"""MMU caches under two replacement policies: references to upper levels a walk (B10 table 4.5).

Parameters: `machine`, `programs`, `accesses`, `designs` (a name for each, and its settings
besides the policy), `policies` (two; the second is the worse) and `base`: the design under the
second policy to whose number all are normalised. Numbers are averages over the programs.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.methods.walks import NUMBERS
from pagewalk.reproduce.table import Table, mean


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: a row a design, columns the policies, then by how much the second is worse."""
    designs: dict[str, list[str]] = parameters["designs"]
    policies: list[str] = parameters["policies"]
    points = [(design, policy) for design in designs for policy in policies]
    settings = [[*designs[design], f"mmu_cache.replacement={policy}"] for design, policy in points]
    misses: dict[tuple[str, str], list[float | None]] = {point: [] for point in points}
    for program in parameters["programs"].values():
        trace = lab.trace(program, parameters["accesses"], fetches=False)
        for point, run in zip(
            points, lab.runs(trace, parameters["machine"], settings), strict=True
        ):
            misses[point].append(NUMBERS["upper"](run))
    base = mean(misses[parameters["base"], policies[1]]) or 1.0
    table = Table([*policies, "increase"])
    for design in designs:
        first, second = ((mean(misses[design, policy]) or 0.0) / base for policy in policies)
        table.rows[design] = [first, second, second / first - 1 if first else None]
    return table
