"""`Table`: numbers by row and column, as a paper prints them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

Cell = tuple[str, str]
"""The name of a row, and the name of a column."""


@dataclass
class Table:
    """Numbers by row and column.

    Attributes:
        columns: The names of the columns. In a figure over sizes they are numbers as text.
        rows: The numbers of each row, one per column. `None` stands for a missing number.
        unit: The unit of the numbers.
        drawings: Pictures that belong to the table, each with a title and an SVG. They are not in
            the document.
    """

    columns: list[str]
    rows: dict[str, list[float | None]] = field(default_factory=dict)
    unit: str = ""
    drawings: dict[str, str] = field(default_factory=dict)

    def value(self, cell: Cell) -> float | None:
        """The number in a cell. `None` if there is no such cell."""
        row, column = cell
        if row not in self.rows or column not in self.columns:
            return None
        return self.rows[row][self.columns.index(column)]

    def reaching(self, row: str, level: float) -> float | None:
        """The first column, as a number, from which on the row is never below `level`."""
        reached = None
        for column, value in zip(self.columns, self.rows.get(row, []), strict=False):
            if value is None:
                continue
            if value < level:
                reached = None
            elif reached is None:
                reached = float(column)
        return reached

    def document(self) -> dict[str, Any]:
        """The table as plain data, for JSON. Six significant digits are enough to compare."""
        rows = {
            name: [None if value is None else float(f"{value:.6g}") for value in values]
            for name, values in self.rows.items()
        }
        return {"unit": self.unit, "columns": self.columns, "rows": rows}

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Table":
        """The table in the data of `document`, or in `published` in an experiment's file."""
        return cls(
            [str(column) for column in document["columns"]],
            {name: list(values) for name, values in document["rows"].items()},
            str(document.get("unit", "")),
        )


def over(tables: Sequence[Table], number: Callable[[list[float]], float] = median) -> Table:
    """A table of the medians of several tables' cells, or of another `number`.

    All must have equal rows and columns.
    """
    first = tables[0]
    rows: dict[str, list[float | None]] = {}
    for name in first.rows:
        cells = zip(*(table.rows[name] for table in tables), strict=True)
        rows[name] = [_over(cell, number) for cell in cells]
    return Table(first.columns, rows, first.unit, first.drawings)


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the numbers among `values`."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def deviation(values: Sequence[float | None]) -> float | None:
    """The standard deviation of the numbers among `values`."""
    known = [value for value in values if value is not None]
    middle = mean(known)
    if middle is None:
        return None
    return float((sum((value - middle) ** 2 for value in known) / len(known)) ** 0.5)


def _over(values: Sequence[float | None], number: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return number(known) if len(known) == len(values) else None
