"""A program with large pages beside others on one processor (G98 figure 7).

Parameters:

* `machine`, `accesses`, and `set`, changes for every run;
* `foreground`: the program that is measured;
* `start`: the address of the program's region whose misses are counted, which has nearly all of
  them;
* `wish`: the place rule that gives large pages to the foreground;
* `backgrounds`, the rows, by name: a program or a generator, and its place rule;
* `threads`, the columns: the numbers of background programs;
* `turns`: the number of turns into which the run of the foreground is divided.

Numbers say by how much the foreground's performance with large pages, beside the others, is higher
than with base pages and no others, in per cent. In rows `NAME, beside the same` it is compared
with base pages beside the same others. The time of the foreground is the program's time when it
runs alone, plus the translation cycles of its region beside the others.
"""

from typing import Any

from pagewalk.machine import Machine
from pagewalk.progress import ProgressLine
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table
from pagewalk.trace import Trace


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """A row per kind of background."""
    accesses, machine = parameters["accesses"], parameters["machine"]
    own = lab.trace(parameters["foreground"], accesses)
    [alone] = lab.runs(own, machine, [parameters.get("set", [])])
    cycles = alone["time"]["program_cycles"]
    program = (cycles["lo"] + cycles["hi"]) / 2
    quantum = max(1000, alone["instructions"] // parameters["turns"])
    device = Machine(machine, parameters.get("set", []))
    with ProgressLine(f"{parameters['foreground']} alone") as shown:
        run = device.run(Trace(f"mix:order=turns,quantum={quantum},[{own.source}]"), progress=shown)
    base = program + _translation(run.data["regions"], parameters["start"])
    table = Table([str(count) for count in parameters["threads"]])
    for row, (background, rule) in parameters["backgrounds"].items():
        behind = lab.trace(background, accesses)
        cells: list[float | None] = []
        same: list[float | None] = []
        for count in parameters["threads"]:
            others = f",[{behind.source}]*{count}" if count else ""
            mixed = Trace(f"mix:order=turns,quantum={quantum},[{own.source}]{others}")
            rules = [rule] if rule and count else []
            times = []
            for wishes in (rules, [parameters["wish"], *rules]):
                place = [f"os.place={','.join(wishes)}"] if wishes else []
                device = Machine(machine, [*parameters.get("set", []), *place])
                with ProgressLine(f"{parameters['foreground']} beside {count} of {row}") as shown:
                    run = device.run(mixed, progress=shown)
                times.append(program + _translation(run.data["regions"], parameters["start"]))
            cells.append(100 * (base / times[1] - 1))
            same.append(100 * (times[0] / times[1] - 1))
        table.rows[row] = cells
        table.rows[f"{row}, beside the same"] = same
    return table


def _translation(regions: list[dict[str, Any]], start: int) -> int:
    """Cycles of translation for the region that begins at `start`."""
    return sum(region["walk_cycles"] or 0 for region in regions if region["start"] == start)
