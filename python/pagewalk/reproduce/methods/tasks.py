"""A task is made, touches one page, and is deleted (E99 §3.3, "tasking benchmarks").

Parameters: `machine`, `designs` (columns), `rounds`. Rows: counted work of a round, in cycles of
references, bytes initialised and bytes of frames taken; and the time of the same structures on
this host, as the least of several rounds' means.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table
from pagewalk.workbench import Workbench

CODE = 0x40_0000
REPEATS = 5


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """A column a design."""
    table = Table(list(parameters["designs"]))
    names = ("cycles", "bytes initialised", "references", "bytes of frames", "native ns")
    table.rows = {name: [] for name in names}
    rounds = parameters["rounds"]
    for design in parameters["designs"]:
        benches = (lab.bench(parameters["machine"], design, metered=False) for _ in range(REPEATS))
        native = min(_rounds(bench, rounds)[4] for bench in benches)
        bench = lab.bench(parameters["machine"], design)
        cycles, zeroed, references, frames, _ = _rounds(bench, rounds)
        for name, value in zip(names, (cycles, zeroed, references, frames, native), strict=True):
            table.rows[name].append(value)
    return table


def _rounds(bench: Workbench, rounds: int) -> tuple[float, float, float, float, float]:
    """Cycles, bytes initialised, references, bytes of frames and nanoseconds of a round."""
    # The system itself has a space, as L4's root task does.
    parent, _ = bench.create()
    bench.map(parent, [CODE])
    sums = [0.0] * 5
    for turn in range(rounds + 1):
        child, made = bench.create()
        mapped = bench.map(child, [CODE])
        touched = bench.walk(child, [CODE])
        ended = bench.destroy(child)
        if turn == 0:
            continue  # caches and pools are cold
        for work in (made, mapped, touched, ended):
            sums[0] += work.cycles
            sums[1] += work.initialised_bytes
            sums[2] += work.reads + work.writes
            sums[4] += work.nanoseconds
        sums[3] += made.table_bytes + mapped.table_bytes
    return (sums[0] / rounds, sums[1] / rounds, sums[2] / rounds, sums[3] / rounds,
            sums[4] / rounds)  # fmt: skip
