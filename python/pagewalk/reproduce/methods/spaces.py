"""The time that small spaces save programs that run together (U02 sections 4.4 to 4.9).

Parameters:

* `machine`;
* `kernel`: the model of a kernel whose path is added at system calls (`Trace`);
* `runs`: for each run the changes of the machine; the others are compared with the first;
* `columns`, by name:
    * `trace`: a program or a generator, with its number of `accesses`;
    * `warmup`: the number of accesses at the beginning that are not counted; or `last`: the number
      of accesses at the end that are counted, after a warm-up of the same length;
    * `pipe`: the bytes that a pipe holds;
    * `kernel`, in place of the experiment's, and `set`, further changes of the machine;
    * `members`: the programs that are small in all runs except the first; the others are large;
    * `always`: the programs that are small in all runs, as Linux is;
* `windows`: the number of parts of equal length into which the counted accesses are divided;
* `each`, by name: a column for a single one of many requests, with `fewer` and `more`, two columns
  whose programs make different numbers of requests, and `requests`, the difference.

Rows, for each of `runs`:

* `cycles`: with the full latency of every miss of the data caches and of the TLBs;
* `itlb`, `dtlb`: misses;
* `lines`: lines that the trace cache builds;
* `delivered`: fetches that the trace cache delivers;
* with `windows`, `least` and `mean`: the cycles of a window;
* for each run except the first, `saved`, `itlb saved` and so on: the share of the first run's
  count that this run saves.
"""

import json
from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table
from pagewalk.trace import Trace

KERNEL_SERVER = "linux"
"""The name of the process of a Linux at user level, which is small in every run as in U02."""


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Each of `runs` at each column."""
    table = Table(list(parameters["columns"]))
    names = list(parameters["runs"])
    for column in parameters["columns"].values():
        for row, number in _column(column, parameters, lab).items():
            table.rows.setdefault(row, []).append(number)
    for each in parameters.get("each", []):
        fewer, more = (table.columns.index(each[end]) for end in ("fewer", "more"))
        table.columns.append(each["name"])
        for numbers_of in table.rows.values():
            few, many = numbers_of[fewer], numbers_of[more]
            one = None if few is None or many is None else (many - few) / each["requests"]
            numbers_of.append(one)
    first, *rest = names
    for name in rest:
        for row in ("cycles", "itlb", "dtlb", "lines", "delivered", "least", "mean"):
            if f"{first} {row}" not in table.rows:
                continue
            pairs = zip(table.rows[f"{name} {row}"], table.rows[f"{first} {row}"], strict=True)
            said = "saved" if row == "cycles" else f"{row} saved"
            table.rows[f"{name} {said}"] = [
                1 - own / whole if own is not None and whole else None for own, whole in pairs
            ]
    return table


def _column(
    column: dict[str, Any], parameters: dict[str, Any], lab: Lab
) -> dict[str, float | None]:
    recorded = lab.trace(column["trace"], column["accesses"])
    source = recorded.source
    if "pipe" in column:
        source = f"mix:pipe={column['pipe']},{source}"
    total = recorded.accesses or column["accesses"]
    warmup = max(total - column["last"], 0) if "last" in column else column.get("warmup", 0)
    # If only the last accesses count, an equal number of accesses before them warms the machine.
    warming = column.get("last", warmup)
    kernel = column.get("kernel", parameters["kernel"]) or None
    settings = [
        [*_members({**column, **run}, number, bool(kernel)), *run["set"], *column.get("set", [])]
        for number, run in enumerate(parameters["runs"].values())
    ]
    found: dict[str, float | None] = {}

    def runs(before: int, accesses: int | None) -> list[Results]:
        skip = max(before - warming, 0)
        trace = Trace(source, skip=skip, warmup=before - skip, max_accesses=accesses, kernel=kernel)
        return lab.runs(trace, parameters["machine"], settings)

    for name, result in zip(parameters["runs"], runs(warmup, None), strict=True):
        for row, number in numbers(result).items():
            found[f"{name} {row}"] = number
    windows = parameters.get("windows", 0)
    if windows:
        length = (total - warmup) // windows
        parts = [runs(warmup + length * index, length) for index in range(windows)]
        for index, name in enumerate(parameters["runs"]):
            cycles = [numbers(part[index])["cycles"] for part in parts]
            found[f"{name} least"] = min(cycles)
            found[f"{name} mean"] = sum(cycles) / windows
    return found


def _members(column: dict[str, Any], run: int, kernel: bool) -> list[str]:
    """The programs in small spaces: `always` in the first run, `members` too or all in others."""
    if not kernel or (run > 0 and "members" not in column):
        return []
    always = column.get("always", [KERNEL_SERVER])
    members = [*always, *(column["members"] if run > 0 else [])]
    return [f"os.small.members={json.dumps(members)}"]


def numbers(run: Results) -> dict[str, float]:
    """Cycles of a run, every miss paid for in full, TLB misses, and the trace cache's work.

    Without a trace cache, `lines` counts lines of code that are loaded into the first-level cache.
    """
    time, cache = run["time"], run.get("trace_cache")
    if cache is None:
        code = next((one for one in run["caches"] if one["name"] == "l1i"), None)
        lines = code["program"]["read_misses"] if code else 0
        cache = {"lines_built": lines, "delivered": 0}
    misses = {tlb["name"]: tlb["misses"] for tlb in run["tlbs"]}
    cycles = time["program_cycles"]["hi"] + time["translation_cycles"]["hi"]
    return {
        "cycles": float(cycles + time["kernel"]["cycles"]),
        "itlb": float(misses["l1i"]),
        "dtlb": float(misses["l1d"]),
        "lines": float(cache["lines_built"]),
        "delivered": float(cache["delivered"]),
    }
