"""Inverted tables against a cached radix tree, program by program (B10 chapter 5).

The size of an inverted table depends on the size of memory, so each program gets a memory that it
fills: the least power of two that holds its pages and their table. A table with twice as many
places as frames is then from a quarter to half full.

Parameters: `machine`, `programs`, `accesses`, `set` (changes for every run), `averages`, `columns`
(by name: a design and a number of `walks`, or `fill`), and `sized_by`: the design whose run
determines the number of pages. Designs in `fitted` get the memory that the program fills.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.methods.walks import NUMBERS
from pagewalk.reproduce.table import Table, mean

PAGE = 4096
TABLE_SHARE = 1 / 16
"""The share of memory for the table itself: at most 256 bytes per frame.

Designs with larger entries use most of this.
"""


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per program, then the averages."""
    columns: dict[str, list[str]] = parameters["columns"]
    machine, fitted = parameters["machine"], parameters["fitted"]
    every = parameters.get("set", [])
    designs = list(dict.fromkeys(design for design, _ in columns.values()))
    table = Table(list(columns))
    for row, program in parameters["programs"].items():
        trace = lab.trace(program, parameters["accesses"], fetches=False)
        [sized] = lab.runs(trace, machine, [[*every, *lab.settings(parameters["sized_by"])]])
        megabytes = _memory(sized) >> 20
        settings = [
            [
                *every,
                *lab.settings(design),
                *([f"memory.size={megabytes}M"] if design in fitted else []),
            ]
            for design in designs
        ]
        runs = dict(zip(designs, lab.runs(trace, machine, settings), strict=True))
        table.rows[row] = [
            _fill(runs[design]) if number == "fill" else NUMBERS[number](runs[design])
            for design, number in columns.values()
        ]
    for name, members in parameters.get("averages", {}).items():
        rows = [table.rows[member] for member in members]
        table.rows[name] = [mean(column) for column in zip(*rows, strict=True)]
    return table


def _memory(run: Results) -> int:
    """The least power of two of bytes that always holds the program and an inverted table."""
    needed = run["memory"]["frames_peak_bytes"] * (1 + TABLE_SHARE)
    bytes_ = 1 << 20
    while bytes_ < needed:
        bytes_ *= 2
    return bytes_


def _fill(run: Results) -> float:
    """The largest share of the table's places in use; it has twice as many places as frames."""
    memory = run["memory"]
    pages_bytes = memory["frames_peak_bytes"] - memory["table_bytes"]
    return float(pages_bytes / memory["frames_total_bytes"] / 2)
