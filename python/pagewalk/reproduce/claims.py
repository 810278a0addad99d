"""Claims of a paper as checks of our numbers.

A claim is one number, or one order, that can be computed from a table:

* `value = CELL`, `ratio = [CELL, CELL]`, `spread = [CELLS]` (largest over smallest), or
  `reaching = {row, level}` (the first size from which a row stays at or above a level), with
  `within = [low, high]` (`inf`: no bound), and `published`, the paper's own number, where it
  prints one;
* `ascending = [CELLS]`, each no larger than the next, but for a share `slack`;
* `least = CELL` and `among = [CELLS]`: it is no larger than any of them, but for `slack`.

A cell is `[row, column]`, or one name where the claim names the `row` or `column` of all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pagewalk import text
from pagewalk._native import Error
from pagewalk.reproduce.table import Cell, Table

KEYS = {
    "says", "row", "column", "value", "ratio", "spread", "reaching", "ascending", "least",
    "among", "within", "published", "slack", "reason",
}  # fmt: skip
KINDS = ("value", "ratio", "spread", "reaching", "ascending", "least")


def shown(value: float) -> str:
    """A number with three digits, as people read it: no exponents."""
    return (
        f"{value:.3g}" if 1e-4 <= abs(value) < 1000 or value == 0 else text.count(round(value, 9))
    )


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        says: The claim in words.
        reached: Whether our numbers bear it out; `None` if they are not there.
        ours: Our number, or the numbers that were to be in order.
        paper: The paper's number, or the order.
        reason: Why it is missed, where that is known.
    """

    says: str
    reached: bool | None
    ours: str
    paper: str
    reason: str = ""

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "says": self.says,
            "reached": self.reached,
            "ours": self.ours,
            "paper": self.paper,
            "reason": self.reason,
        }


class Claim:
    """One claim as an experiment's file states it.

    Raises:
        Error: It states nothing that can be checked; `where` says which file.
    """

    def __init__(self, stated: dict[str, Any], where: str) -> None:
        self._stated = stated
        self._where = where
        self.says = str(stated.get("says", ""))
        if unknown := set(stated) - KEYS:
            raise Error(f"{where}: a claim has no {', '.join(sorted(unknown))}")
        kinds = [kind for kind in KINDS if kind in stated]
        if len(kinds) != 1 or not self.says:
            raise Error(f"{where}: a claim `says` something and has one of {', '.join(KINDS)}")
        self._kind = kinds[0]
        if self._kind in ("value", "ratio", "spread", "reaching") and "within" not in stated:
            raise Error(f"{where}: `{self.says}` lacks the band `within` which it is reached")

    def cells(self) -> list[Cell]:
        """The cells that it looks at."""
        stated = self._stated[self._kind]
        if self._kind in ("value", "least"):
            return [self._cell(stated)] + [self._cell(c) for c in self._stated.get("among", [])]
        if self._kind == "reaching":
            return []
        return [self._cell(cell) for cell in stated]

    def judge(self, table: Table) -> Verdict:
        """Whether `table` bears it out."""
        if self._kind in ("ascending", "least"):
            return self._order(table)
        number = self._number(table)
        low, high = self._stated["within"]
        published = self._stated.get("published")
        band = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
        paper = band if published is None else f"{published:g} (taken as reached: {band})"
        if published == low == high:
            paper = f"{published:g}"
        if number is None:
            return self._verdict(None, "not reached at any size" if self._kind == "reaching" else
                                 "not measured", paper)  # fmt: skip
        return self._verdict(low <= number <= high, shown(number), paper)

    def _number(self, table: Table) -> float | None:
        if self._kind == "reaching":
            wanted = self._stated["reaching"]
            return table.reaching(wanted["row"], wanted["level"])
        values = [table.value(cell) for cell in self.cells()]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or not known:
            return None
        if self._kind == "value":
            return known[0]
        if self._kind == "ratio":
            return known[0] / known[1] if known[1] else None
        return max(known) / min(known) if min(known) > 0 else None

    def _order(self, table: Table) -> Verdict:
        cells = self.cells()
        values = [table.value(cell) for cell in cells]
        sign = " ≤ " if self._kind == "ascending" else ", "
        names = [" ".join(part for part in self._short(cell)) for cell in cells]
        paper = sign.join(names)
        if self._kind == "least":
            paper = f"{names[0]} is least of {', '.join(names[1:])}"
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return self._verdict(None, "not measured", paper)
        slack = 1 + float(self._stated.get("slack", 0))
        pairs = (
            pairwise(known)
            if self._kind == "ascending"
            else ((known[0], other) for other in known[1:])
        )
        holds = all(one <= other * slack for one, other in pairs)
        ours = ", ".join(f"{n} {shown(v)}" for n, v in zip(names, known, strict=True))
        return self._verdict(holds, ours, paper)

    def _short(self, cell: Cell) -> Sequence[str]:
        row, column = cell
        if self._stated.get("row") == row:
            return [column]
        return [row] if self._stated.get("column") == column else [row, column]

    def _verdict(self, reached: bool | None, ours: str, paper: str) -> Verdict:
        reason = "" if reached else str(self._stated.get("reason", ""))
        return Verdict(self.says, reached, ours, paper, reason)

    def _cell(self, stated: Any) -> Cell:
        if isinstance(stated, list) and len(stated) == 2:
            return str(stated[0]), str(stated[1])
        if not isinstance(stated, list):
            if "row" in self._stated:
                return str(self._stated["row"]), str(stated)
            if "column" in self._stated:
                return str(stated), str(self._stated["column"])
        raise Error(f"{self._where}: `{self.says}`: {stated} is no cell: write [row, column]")
