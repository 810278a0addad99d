"""Programs with less memory than they need, with base pages and with large ones (G98 section 5).

Parameters: `machine`, `programs` (rows), `accesses`, `set` (changes for every run), `shares` of the
memory that a program takes with base pages (columns, in per cent), `designs` (a name for each, and
its changes; the first is what the others are compared with), and `measure`:

* `time`: the time of the whole run, with the kernel's work and waits for disks, divided by the
  first design's;
* `work`: the share of the kinds of kernel work that have the same count as with the first design,
  in per cent;
* `downgrades`, `large_out`: large pages made smaller, and large pages evicted as a whole;
* `split`: downgrades per large page evicted as a whole.

A row per program and design but the first; with `split` and the like, per program and design.
"""

import math
from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table

MEGABYTE = 1 << 20


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """A row per program and design."""
    shares, designs = parameters["shares"], parameters["designs"]
    every, machine = parameters.get("set", []), parameters["machine"]
    several = len(designs) > 2
    table = Table([str(share) for share in shares])
    for row, program in parameters["programs"].items():
        trace = lab.trace(program, parameters["accesses"])
        [whole] = lab.runs(trace, machine, [[*every, *next(iter(designs.values()))]])
        sizes = [_size(whole, share) for share in shares]
        settings = [[*every, *changes, f"memory.size={size}M"]
                    for changes in designs.values() for size in sizes]  # fmt: skip
        runs = lab.runs(trace, machine, settings)
        first = runs[: len(shares)]
        for place, design in enumerate(designs):
            if place == 0:
                continue
            own = runs[place * len(shares) : (place + 1) * len(shares)]
            name = f"{row}, {design}" if several else row
            table.rows[name] = [
                _number(parameters["measure"], base, run)
                for base, run in zip(first, own, strict=True)
            ]
    return table


def _size(run: Results, share: float) -> int:
    """Megabytes of memory that are `share` per cent of what a run took."""
    kinds = ("anonymous", "file", "shared", "tables")
    used: int = sum(run["manager"]["bytes"][kind] for kind in kinds)
    return max(1, math.ceil(used * share / 100 / MEGABYTE))


def _time(run: Results) -> float:
    time = run["time"]
    cycles = time["program_cycles"]
    kernel = time["kernel"]["cycles"] + time["kernel"]["io_cycles"]
    return float((cycles["lo"] + cycles["hi"]) / 2 + time["translation_cycles"]["hi"] + kernel)


def _number(measure_: str, base: Results, run: Results) -> float | None:
    if measure_ == "time":
        return _time(run) / _time(base)
    work: dict[str, int] = run["manager"]["work"]
    if measure_ == "work":
        other: dict[str, int] = base["manager"]["work"]
        return 100 * sum(work[kind] == other[kind] for kind in other) / len(other)
    if measure_ == "split":
        return work["downgrades"] / work["large_out"] if work["large_out"] else None
    return float(work[measure_])
