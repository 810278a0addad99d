"""The cost of a round of processes that take turns, in large and small spaces (U02 section 4).

Parameters: `machine`, `set` (changes for every run), `trace` (a generator's, without its length),
`vary` (columns: for a parameter of the generator its values; or by name what is put behind the
trace), `accesses`, `warmup` and `runs`, rows of each: `set`, what it changes in the machine,
`machine`, another one, `trace`, what it adds to the generator's parameters, and `turns`, changes of
who runs in a round, the kernel's among them; `against`, the run that it is compared with, in place
of the first, and `free`, one in which a switch takes nothing.

Rows, for each of `runs`: `cycles` of a round, with every miss of the data caches and of the TLBs
paid for in full; `itlb`, `dtlb`, misses in it; `lines`, lines of the trace cache that it builds, or
of code that the first cache is brought where there is none. For each but the first of `runs`
`saved`: the share of the first's cycles, or of those that it is compared with, that it does not
take. With `free`, `overhead`: the cycles beyond those of that run.
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
