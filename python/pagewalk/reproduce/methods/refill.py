"""Programs on a machine with different page tables: the cost of refills, and the size of tables.

Parameters:

* `machine`, `accesses`, and `set`, changes for every run;
* `programs`, the rows: programs by name;
* `designs`, the columns: page tables;
* `trap_cycles`: cycles to add to each refill, if the runs leave them out;
* `derived`, further columns by name: two designs with `/` or `-` between them;
* `compared`: the designs whose largest number divided by their smallest is the column `spread`;
* `measure`, one of:
    * `refill`: cycles per refill: the upper bound of translation cycles, divided by the walks;
    * `space`: bytes of tables in use, divided by the pages mapped at the end;
    * `elapsed`: all cycles, divided by those of the first design.
"""

from collections.abc import Callable
from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table, deviation, mean


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per program, then their mean and spread."""
    designs: list[str] = parameters["designs"]
    number, trap = MEASURES[parameters["measure"]], parameters.get("trap_cycles", 0)
    table = Table(list(designs))
    for row, program in parameters["programs"].items():
        trace = lab.trace(program, parameters["accesses"])
        settings = [[*parameters.get("set", []), *lab.settings(name)] for name in designs]
        runs = lab.runs(trace, parameters["machine"], settings)
        table.rows[row] = [number(run, runs[0], trap) for run in runs]
    for name, (one, sign, other) in parameters.get("derived", {}).items():
        _add(table, name, [one, other], SIGNS[sign])
    if "compared" in parameters:
        _add(table, "spread", parameters["compared"], _spread)
    columns = [[table.value((row, name)) for row in list(table.rows)] for name in table.columns]
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


def _add(
    table: Table, name: str, designs: list[str], number: Callable[[list[float]], float]
) -> None:
    """A column computed from the numbers of `designs` in the same row."""
    for row, values in table.rows.items():
        cells = [table.value((row, design)) for design in designs]
        known = [cell for cell in cells if cell is not None]
        values.append(number(known) if len(known) == len(cells) else None)
    table.columns.append(name)


def _spread(values: list[float]) -> float:
    return max(values) / min(values)


SIGNS: dict[str, Callable[[list[float]], float]] = {
    "/": lambda values: values[0] / values[1],
    "-": lambda values: values[0] - values[1],
}


def _refill(run: Results, _first: Results, trap: int) -> float | None:
    walks = run["walks"]["walks"]
    return run["time"]["translation_cycles"]["hi"] / walks + trap if walks else None


def _space(run: Results, _first: Results, _trap: int) -> float | None:
    pages = sum(run["memory"]["pages_by_size"].values())
    return run["memory"]["table_used_bytes"] / pages if pages else None


def _elapsed(run: Results, first: Results, trap: int) -> float | None:
    return _cycles(run, trap) / _cycles(first, trap)


def _cycles(run: Results, trap: int) -> float:
    time = run["time"]
    refills = time["translation_cycles"]["hi"] + trap * run["walks"]["walks"]
    return float(time["program_cycles"]["hi"] + refills)


def _geometric(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    product = 1.0
    for value in known:
        product *= value
    return float(product ** (1 / len(known))) if known else None


MEASURES: dict[str, Callable[[Results, Results, int], float | None]] = {
    "refill": _refill,
    "space": _space,
    "elapsed": _elapsed,
}
