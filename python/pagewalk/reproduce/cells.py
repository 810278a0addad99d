"""Compares a paper's table with ours, cell by cell.

Averages may agree although no cell does. So the cells of each table are also compared: how much
they differ on average, and whether the cells that are large in the paper are also large in our
table.

All cells that both tables have are compared. Two kinds of cells are excluded: rows that are
averages of other rows, and columns to which the other columns are normalised, because all of their
numbers are equal.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pagewalk.reproduce.table import Table


@dataclass(frozen=True)
class Agreement:
    """How well the cells of two tables agree.

    Attributes:
        cells: The number of cells that both tables have.
        error: The mean absolute difference, in the unit of the table.
        paper_mean: The mean of the paper's cells, for comparison with the error.
        correlation: Spearman's rank correlation. `None` if all ranks of a table are equal.
    """

    cells: int
    error: float
    paper_mean: float
    correlation: float | None

    def document(self) -> dict[str, Any]:
        """The fields as plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        said = (
            f"Cell by cell: {self.cells} cells are off by {self.error:.3g} on average (the paper's "
            f"mean is {self.paper_mean:.3g})"
        )
        if self.correlation is None:
            return f"{said}."
        return f"{said}; rank correlation {self.correlation:.2f}."


def compare(paper: Table, ours: Table, aggregates: Sequence[str] = ()) -> Agreement | None:
    """How well `ours` agrees with `paper`; `None` with fewer than two cells in common."""
    pairs = []
    for column in paper.columns:
        cells = [(row, column) for row in paper.rows if row not in aggregates]
        known = [(one, other) for cell in cells if (one := paper.value(cell)) is not None
                 and (other := ours.value(cell)) is not None]  # fmt: skip
        if len(known) > 1 and len(set(known)) == 1:
            continue
        pairs += known
    if len(pairs) < 2:
        return None
    theirs, mine = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    error = sum(abs(one - other) for one, other in pairs) / len(pairs)
    correlation = _correlation(_ranks(theirs), _ranks(mine))
    return Agreement(len(pairs), error, sum(theirs) / len(theirs), correlation)


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value. Equal values have the mean of their ranks."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def _correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's correlation."""
    count = len(one)
    mean_one, mean_other = sum(one) / count, sum(other) / count
    products = sum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    squares = sum((a - mean_one) ** 2 for a in one) * sum((b - mean_other) ** 2 for b in other)
    return float(products / squares**0.5) if squares > 0 else None
