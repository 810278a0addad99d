"""Programs on a machine with one page table after another: what refills cost, what tables take.

Parameters: `machine`, `programs` (rows: a name for each, and the program), `designs` (columns),
`accesses`, and `measure`:

* `refill`: cycles a refill: translation cycles over walks, at their highest;
* `space`: bytes of tables in use over pages mapped at the end;
* `elapsed`: all cycles, over those of the first design.
"""

from collections.abc import Callable
from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table, deviation, mean


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: a row a program, then their mean and spread."""
    designs: list[str] = parameters["designs"]
    number = MEASURES[parameters["measure"]]
    table = Table(list(designs))
    for row, program in parameters["programs"].items():
        trace = lab.trace(program, parameters["accesses"])
        settings = [lab.settings(name) for name in designs]
        runs = lab.runs(trace, parameters["machine"], settings)
        table.rows[row] = [number(run, runs[0]) for run in runs]
    columns = [[table.value((row, name)) for row in list(table.rows)] for name in designs]
    if parameters["measure"] == "elapsed":
        table.rows["geometric mean"] = [_geometric(column) for column in columns]
        return table
    table.rows["mean"] = [mean(column) for column in columns]
    table.rows["deviation"] = [deviation(column) for column in columns]
    table.rows["largest"] = [max((v for v in column if v is not None), default=None)
                             for column in columns]  # fmt: skip
    table.rows["smallest"] = [min((v for v in column if v is not None), default=None)
                              for column in columns]  # fmt: skip
    return table


def _refill(run: Results, _first: Results) -> float | None:
    walks = run["walks"]["walks"]
    return run["time"]["translation_cycles"]["hi"] / walks if walks and run["time"] else None


def _space(run: Results, _first: Results) -> float | None:
    pages = sum(run["memory"]["pages_by_size"].values())
    return run["memory"]["table_used_bytes"] / pages if pages else None


def _elapsed(run: Results, first: Results) -> float | None:
    return _cycles(run) / _cycles(first)


def _cycles(run: Results) -> float:
    return float(run["time"]["program_cycles"] + run["time"]["translation_cycles"]["hi"])


def _geometric(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    product = 1.0
    for value in known:
        product *= value
    return float(product ** (1 / len(known))) if known else None


MEASURES: dict[str, Callable[[Results, Results], float | None]] = {
    "refill": _refill,
    "space": _space,
    "elapsed": _elapsed,
}
