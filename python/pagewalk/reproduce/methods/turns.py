"""The cost of a round of processes that take turns, in large and small spaces (U02 section 4).

Parameters:

* `machine`, and `set`, changes for every run;
* `trace`: a generator, without its length;
* `vary`, the columns: values of one parameter of the generator, or by name a text that is appended
  to the trace;
* `accesses` and `warmup`;
* `runs`, by name: `set`, changes of the machine; `machine`, in place of the experiment's machine;
  `trace`, further parameters of the generator; `turns`, the number of switches per round, including
  those of the kernel; `against`, the run with which it is compared, in place of the first;
* `free`: the run in which a switch costs nothing.

Rows, for each of `runs`:

* `cycles` per round, with the full latency of every miss of the data caches and of the TLBs;
* `itlb`, `dtlb`: misses per round;
* `lines`: lines per round that the trace cache builds or, without a trace cache, lines of code
  that are loaded into the first-level cache;
* for each run except the first, `saved`: the share that it saves of the cycles of the run with
  which it is compared;
* with `free`, `overhead`: the cycles in addition to those of that run.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.methods.spaces import numbers
from pagewalk.reproduce.table import Table

ROWS = ("cycles", "itlb", "dtlb", "lines")


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Each of `runs` at each column."""
    columns = [
        (f"{key} {value}", f",{key}={value}") if isinstance(values, list) else (key, f",{values}")
        for key, values in parameters["vary"].items()
        for value in (values if isinstance(values, list) else [values])
    ]
    table = Table([name for name, _ in columns])
    first = ""
    for name, run in parameters["runs"].items():
        first = first or name
        for _, behind in columns:
            spec = f"{parameters['trace']}{behind}{run.get('trace', '')}"
            trace = lab.trace(spec, parameters["accesses"])
            changes = [*parameters.get("set", []), *run.get("set", [])]
            warmed = lab.warmed(trace, parameters["warmup"])
            result = lab.runs(warmed, run.get("machine", parameters["machine"]), [changes])[0]
            counted = 1 - parameters["warmup"] / parameters["accesses"]
            rounds = trace.info()["events"]["run"] * counted / run["turns"]
            counts = numbers(result)
            for row in ROWS:
                table.rows.setdefault(f"{name} {row}", []).append(counts[row] / rounds)
    cycles = {name: table.rows[f"{name} cycles"] for name in parameters["runs"]}
    for name, run in parameters["runs"].items():
        if name != first and run.get("against") != name:
            pairs = zip(cycles[name], cycles[run.get("against", first)], strict=True)
            table.rows[f"{name} saved"] = [
                1 - own / whole if own is not None and whole else None for own, whole in pairs
            ]
        if "free" in run:
            pairs = zip(cycles[name], cycles[run["free"]], strict=True)
            table.rows[f"{name} overhead"] = [
                None if own is None or least is None else own - least for own, least in pairs
            ]
    return table
