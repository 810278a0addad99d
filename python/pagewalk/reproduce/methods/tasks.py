"""A task is created, gets and touches one page, and is deleted (E99 §3.3, "tasking benchmarks").

The page belongs to the system, which maps it to the task by an IPC: a node of the page's mapping
tree is created and deleted with the task.

Parameters: `machine`, `designs` (columns), `rounds`. The rows are per round: cycles, as the sum of
the references' cycles and one cycle per instruction; instructions; bytes initialised; bytes of
frames allocated; and the time of the same structures on this host, as the least of the means of
several rounds.
"""

from typing import Any

from pagewalk.page_table import EXECUTE, READ, USER, WRITE, PageTable
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table

CODE = 0x40_0000
REPEATS = 5
ALL = READ | WRITE | EXECUTE | USER


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one column per design."""
    table = Table(list(parameters["designs"]))
    names = (
        "cycles",
        "instructions",
        "bytes initialised",
        "references",
        "bytes of frames",
        "native ns",
    )
    table.rows = {name: [] for name in names}
    rounds = parameters["rounds"]
    for design in parameters["designs"]:
        benches = (lab.bench(parameters["machine"], design, metered=False) for _ in range(REPEATS))
        native = min(_rounds(bench, rounds)[-1] for bench in benches)
        *counted, _ = _rounds(lab.bench(parameters["machine"], design), rounds)
        for name, value in zip(names, (*counted, native), strict=True):
            table.rows[name].append(value)
    return table


def _rounds(bench: PageTable, rounds: int) -> list[float]:
    """Per round: cycles, instructions, bytes initialised, references, bytes of frames, and ns."""
    # The system itself has a space, as L4's root task does.
    parent, _ = bench.create()
    bench.map(parent, [CODE])
    sums = [0.0] * 6
    for turn in range(rounds + 1):
        child, made = bench.create()
        mapped = bench.hand(parent, child, [CODE], ALL)
        touched = bench.walk(child, [CODE])
        ended = bench.destroy(child)
        if turn == 0:
            continue  # caches and pools are cold
        for work in (made, mapped, touched, ended):
            sums[0] += work.cycles + work.instructions
            sums[1] += work.instructions
            sums[2] += work.initialised_bytes
            sums[3] += work.reads + work.writes
            sums[5] += work.nanoseconds
        sums[4] += made.table_bytes + mapped.table_bytes
    return [value / rounds for value in sums]
