"""Programs with pages of several sizes, compared with the first size (G98 section 7).

Parameters:

* `machine`, `accesses`, and `set`, changes for every run;
* `programs`, the rows: programs or generators by name;
* `cpus`: the number of processors, if the machine has several;
* `columns`, by name: changes such as `os.place`; the other columns are compared with the first;
* `measure`, one of:
    * `fewer`: TLB misses that are avoided, in per cent of the first column's;
    * `faster`: by how much performance is higher, in per cent: the first column's time divided by
      this column's, minus one;
    * `share`: translation's share of the time, in per cent;
    * `dearer`: by how many more cycles translation takes, in per cent of the first column's;
    * `instructions`: of the refill handler, per refill.

The time is the program's, in the middle of its range, plus the translation cycles. A software
refill handler is never hidden by other work, so the range of translation contains only TLB
lookups.

Further columns: `best`, if true, is the greatest number of all columns except the first;
`differences` has by name two columns whose difference is shown; `beyond` has a name, and a share
of the misses in per cent: the column is the gain of the best size over the first size that avoids
this share. Further rows, if `extremes` is true: `(second)`, the second greatest number of all
programs in each column, and `(most)`, the greatest.
"""

from collections.abc import Callable
from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table
from pagewalk.trace import Trace


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per program."""
    columns: dict[str, list[str]] = parameters["columns"]
    every = parameters.get("set", [])
    number = NUMBERS[parameters["measure"]]
    differences: dict[str, list[str]] = parameters.get("differences", {})
    beyond: list[Any] = parameters.get("beyond", [])
    added = (["best"] if parameters.get("best") else []) + [*differences, *beyond[:1]]
    table = Table([*columns, *added])
    for row, program in parameters["programs"].items():
        trace = lab.trace(program, parameters["accesses"])
        if "cpus" in parameters:
            trace = Trace(f"mix:cpus={parameters['cpus']},[{trace.source}]")
        settings = [[*every, *changes] for changes in columns.values()]
        runs = lab.runs(trace, parameters["machine"], settings)
        values = {name: number(runs[0], run) for name, run in zip(columns, runs, strict=True)}
        cells: list[float | None] = list(values.values())
        if parameters.get("best"):
            cells.append(max(cells[1:]))  # type: ignore[type-var]
        cells += [values[more] - values[less] for more, less in differences.values()]
        if beyond:
            cells.append(_beyond(runs, beyond[1], number))
        table.rows[row] = cells
    if parameters.get("extremes"):
        every_row = [sorted(_known(column), reverse=True)
                     for column in zip(*table.rows.values(), strict=True)]  # fmt: skip
        table.rows["(second)"] = [known[1] if len(known) > 1 else None for known in every_row]
        table.rows["(most)"] = [known[0] if known else None for known in every_row]
    return table


def time_cycles(run: Results) -> float:
    """Cycles of a run but for the kernel's: the middle of the program's range, and translation."""
    return _program(run) + _translation(run)


def _known(column: tuple[float | None, ...]) -> list[float]:
    return [cell for cell in column if cell is not None]


def _beyond(
    runs: list[Results], lost: float, number: Callable[[Results, Results], float]
) -> float | None:
    """The largest gain of a later column over the first column that avoids this share of misses."""
    reached = [run for run in runs if _fewer(runs[0], run) >= lost]
    if len(reached) < 2:
        return None
    first, *larger = (number(runs[0], run) for run in reached)
    return max(larger) - first


def _misses(run: Results) -> int:
    return int(run["tlbs"][-1]["misses"])


def _program(run: Results) -> float:
    cycles = run["time"]["program_cycles"]
    return float(cycles["lo"] + cycles["hi"]) / 2


def _translation(run: Results) -> float:
    return float(run["time"]["translation_cycles"]["hi"])


def _fewer(first: Results, run: Results) -> float:
    return 100 * (1 - _misses(run) / _misses(first))


NUMBERS: dict[str, Callable[[Results, Results], float]] = {
    "fewer": _fewer,
    "faster": lambda first, run: 100 * (time_cycles(first) / time_cycles(run) - 1),
    "share": lambda _, run: 100 * _translation(run) / time_cycles(run),
    "dearer": lambda first, run: 100 * (_translation(run) / _translation(first) - 1),
    "instructions": lambda _, run: run["walks"]["handler_instructions"] / run["walks"]["walks"],
}
