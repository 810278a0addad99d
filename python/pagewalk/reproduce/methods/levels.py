"""The cost of the upper levels of a multi-level table in a software refill (E99 §5.5).

The upper levels are all levels except the lowest. Parameters: `machine`, `design`, `set`,
`programs`, `accesses`, `node_instructions` (instructions of the handler at each node), and
`secondary_miss_cycles` (cycles that a linear table takes if its own page misses the TLB). A row is
a program, and the last row is their mean. The columns are the cycles of the upper levels per
refill, and the hit rate of page-table accesses with which a linear table takes as many cycles.
"""

from typing import Any

from pagewalk.machine import Machine
from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table, mean


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per program, then their mean."""
    table = Table(["upper five levels", "break-even"])
    latencies = _latencies(parameters["machine"])
    for row, program in parameters["programs"].items():
        trace = lab.trace(program, parameters["accesses"])
        settings = [[*parameters.get("set", []), *lab.settings(parameters["design"])]]
        [run] = lab.runs(trace, parameters["machine"], settings)
        table.rows[row] = _row(_upper(run, latencies, parameters["node_instructions"]), parameters)
    upper = mean([row[0] for row in table.rows.values()])
    table.rows["mean"] = _row(upper, parameters)
    return table


def _row(upper: float | None, parameters: dict[str, Any]) -> list[float | None]:
    secondary = parameters["secondary_miss_cycles"]
    return [upper, None if upper is None else 1 - upper / secondary]


def _upper(run: Results, latencies: dict[str, int], instructions: int) -> float | None:
    """Cycles a walk above the lowest level: of each reference, and of instructions around it."""
    walks = run["walks"]["walks"]
    cycles = sum(
        count * (latencies[place] + instructions)
        for level in run["walks"]["by_level"]
        if level["level"] > 1
        for place, count in level["served"].items()
    )
    return cycles / walks if walks else None


def _latencies(machine: str) -> dict[str, int]:
    """Cycles that a load waits beyond its instruction: none for the first data cache."""
    description = Machine(machine).description
    cache = description["cache"]["l1d"]["latency_cycles"]
    return {"l1d": 0, "memory": description["memory"]["latency_cycles"] - cache}
