"""One program on several designs: the cost of a walk in references.

Parameters: `machine`, `program` (or a generator), `accesses`, `fetches`, `rows` (by name: settings
of the machine) and `columns` (by name: one of the numbers that the method `walks` describes).
"""

from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.methods.walks import NUMBERS
from pagewalk.reproduce.table import Table


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per design."""
    columns: dict[str, str] = parameters["columns"]
    rows: dict[str, list[str]] = parameters["rows"]
    fetches = parameters.get("fetches", False)
    trace = lab.trace(parameters["program"], parameters["accesses"], fetches)
    runs = lab.runs(trace, parameters["machine"], list(rows.values()))
    return Table(
        list(columns),
        {
            name: [NUMBERS[number](run) for number in columns.values()]
            for name, run in zip(rows, runs, strict=True)
        },
    )
