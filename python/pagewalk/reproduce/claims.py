"""Claims of a paper as checks of our numbers.

A claim is a number or an order that can be computed from a table:

* `value = CELL`, `ratio = [CELL, CELL]`, `spread = [CELLS]` (largest over smallest),
  `mean = [CELLS]`, `reaching = {row, level}` (the first size from which a row stays at or above a
  level), or the share of cells that lie in a band: `each = [CELLS]` (all) or `majority = [CELLS]`
  (over a half);
* `ascending = [CELLS]`, each smaller than the next;
* `least = CELL` or `greatest = CELL` and `among = [CELLS]`: it is smaller, or larger, than each of
  them.

An order is strict: two equal numbers do not satisfy it. `slack` is the share by which neighbours
may be in the wrong order. The last number of an ascending order must still exceed the first by more
than this share. With `ties = true`, for a paper that says "no less" or "at least", neighbours may
be equal. If all numbers are equal, the order is never reached.

`unit` says what our number measures, if that is neither the unit of the table nor a plain ratio of
two cells.

A cell is `[row, column]`. If the claim names the `row` or the `column` of all cells, a cell is only
the other name.

The band comes from the paper. Around a printed number, `published`, it is 10 % of the number to
either side, or half of the last printed `digit`, if that is more. If the paper makes the claim in
words, `within = [low, high]` (`inf`: no bound) or `slack` translates the words into numbers, and
`band` gives the reason for these numbers. If a band is wider than 10 % around a printed number,
`wide` gives the reason, and the claim is counted separately.

The `kind` of a claim says how it is counted. `paper` is a claim of a paper. `fitted`: one of our
parameters was chosen so that the number agrees; the key `fitted` names it. `arithmetic`: nothing is
measured. `own`: no paper makes the claim. `goal`: the paper says, without a measurement, what a
design should achieve, or what is expected of a design that was not built. Only claims of the kind
`paper` count as claims of the papers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from pagewalk import text
from pagewalk._native import Error
from pagewalk.reproduce.table import Cell, Table

NUMBERS = ("value", "ratio", "spread", "mean", "reaching", "each", "majority")
SHARES = {"each": (1.0, 1.0), "majority": (math.nextafter(0.5, 1), 1.0)}
ORDERS = ("ascending", "least", "greatest")
KEYS = {
    "says", "row", "column", *NUMBERS, *ORDERS, "among", "within", "published", "digit", "slack",
    "ties", "band", "wide", "kind", "fitted", "timed", "reason", "unit",
}  # fmt: skip
KINDS = ("paper", "wide", "fitted", "arithmetic", "goal", "own")
"""The kinds of claims. A claim of the kind `paper` with a wide band is counted as `wide`."""
TOLERANCE = 0.1
"""The band around a printed number, as a share of it to either side."""

REACHED, MISSED, UNSTABLE, UNMEASURED = "reached", "missed", "unstable", "not measured"


def shown(value: float) -> str:
    """A number with three digits and without an exponent."""
    return (
        f"{value:.3g}" if 1e-4 <= abs(value) < 1000 or value == 0 else text.count(round(value, 9))
    )


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        says: The claim in words.
        kind: How it is counted: one of `KINDS`.
        verdict: `reached`, `missed`, `unstable` (some placements reach it and others do not), or
            `not measured`.
        ours: Our number, or the numbers that should be in order. For several placements it is the
            median, with the least and the greatest number.
        paper: The paper's number, or the order.
        reason: Why the claim is not reached, if the reason is known.
        remark: Why the band was chosen, or what was fitted.
        timed: Whether the number is a time on the host, which differs on another host.
    """

    says: str
    kind: str
    verdict: str
    ours: str
    paper: str
    reason: str = ""
    remark: str = ""
    timed: bool = False

    @property
    def reached(self) -> bool:
        """Whether all of our numbers satisfy the claim."""
        return self.verdict == REACHED

    def document(self) -> dict[str, Any]:
        """The claim with its verdict as plain data, for JSON."""
        return {
            "says": self.says,
            "kind": self.kind,
            "verdict": self.verdict,
            "ours": self.ours,
            "paper": self.paper,
            "reason": self.reason,
            "remark": self.remark,
        }


class Claim:
    """One claim as an experiment's file states it.

    Raises:
        Error: The claim cannot be checked, or it has a band without a reason. `where` names the
            file.
    """

    def __init__(self, stated: dict[str, Any], where: str) -> None:
        self._stated = stated
        self._where = where
        self.says = str(stated.get("says", ""))
        if unknown := set(stated) - KEYS:
            raise Error(
                f"{where}: unknown keys of a claim: {', '.join(sorted(unknown))}; the keys are "
                f"{', '.join(sorted(KEYS))}"
            )
        checks = [check for check in (*NUMBERS, *ORDERS) if check in stated]
        if len(checks) != 1 or not self.says:
            known = ", ".join((*NUMBERS, *ORDERS))
            raise Error(f"{where}: a claim needs the key `says` and exactly one of {known}")
        self._check = checks[0]
        self.kind = self._kind()
        self._within = self._band() if self._check in NUMBERS else (0.0, 0.0)
        if stated.get("slack") and "band" not in stated:
            raise self._error("has `slack` without a reason: write the reason in `band`")
        if "ties" in stated and (self._check not in ORDERS or "slack" in stated):
            raise self._error("has `ties`: leave it out, as only orders without `slack` have it")

    @property
    def timed(self) -> bool:
        """Whether the claim is about a time on the host."""
        return bool(self._stated.get("timed"))

    @property
    def reason(self) -> str:
        """Why the claim was not reached, if the reason is known."""
        return str(self._stated.get("reason", ""))

    def quantity(self, unit: str) -> str:
        """What our number measures, in words. `unit` is the unit of the experiment's table."""
        if "unit" in self._stated:
            return str(self._stated["unit"])
        if self._check == "ratio":
            terms = " divided by ".join(self._names())
            return f"{terms}, {unit}" if unit else terms
        if self._check == "spread":
            return f"largest divided by smallest, {unit}" if unit else "largest divided by smallest"
        return "" if self._check in SHARES or self._check == "reaching" else unit

    def stated(self) -> dict[str, Any]:
        """The part of the file's entry that determines the verdict: all except words and kind."""
        return {key: value for key, value in self._stated.items()
                if key not in ("says", "reason", "band", "wide", "kind", "fitted", "unit")
                }  # fmt: skip

    def relabelled(self, saved: dict[str, Any]) -> Verdict:
        """The saved verdict on this claim, with the claim's current words and kind."""
        return self._verdict(saved["verdict"], saved["ours"])

    def cells(self) -> list[Cell]:
        """The cells that the claim compares."""
        stated = self._stated[self._check]
        if self._check in ("value", "least", "greatest"):
            return [self._cell(stated)] + [self._cell(c) for c in self._stated.get("among", [])]
        if self._check == "reaching":
            return []
        return [self._cell(cell) for cell in stated]

    def judge(self, tables: Sequence[Table]) -> Verdict:
        """The verdict on the claim, from `tables`. There is a table for each placement."""
        if self._check in ORDERS:
            return self._order(tables)
        numbers = [self._number(table) for table in tables]
        low, high = SHARES.get(self._check, self._within)
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers):
            missing = "not reached at any size" if self._check == "reaching" else UNMEASURED
            verdict = UNSTABLE if known else UNMEASURED
            return self._verdict(verdict, missing)
        holds = [low <= number <= high for number in known]
        ours = self._share(known) if self._check in SHARES else _spread(known)
        return self._verdict(_of(holds), ours)

    def _kind(self) -> str:
        kind = str(self._stated.get("kind", "paper"))
        if "wide" in self._stated and kind == "paper":
            return "wide"
        if kind not in KINDS or kind == "wide":
            raise self._error(
                "has an unknown `kind`: write `paper`, `fitted`, `arithmetic`, `goal` or `own`"
            )
        if (kind == "fitted") != ("fitted" in self._stated):
            raise self._error(
                'must have both `kind = "fitted"` and `fitted`, which says what was fitted to '
                "what, or neither"
            )
        return kind

    def _band(self) -> tuple[float, float]:
        """The band in which the number counts as reached.

        Raises an error for a band without a reason.
        """
        stated = self._stated
        published = stated.get("published")
        if "within" not in stated:
            if published is None or self._check in SHARES:
                raise self._error("has no band: write `within = [low, high]`")
            return published - self._margin(), published + self._margin()
        low, high = stated["within"]
        if self.kind in ("arithmetic", "own"):
            return low, high
        if published is None:
            if "band" not in stated and self.kind != "fitted":
                raise self._error(
                    "has `within` but no published number: write in `band` how the numbers of "
                    "`within` follow from the paper's words"
                )
        elif "wide" not in stated and self.kind != "fitted":
            margin = self._margin() + 1e-9
            if low < published - margin or high > published + margin:
                raise self._error("has a band wider than 10 %: write the reason in `wide`")
        return low, high

    def _margin(self) -> float:
        """How far a number may be from the printed number."""
        published, digit = float(self._stated["published"]), float(self._stated.get("digit", 0))
        return max(TOLERANCE * abs(published), digit / 2)

    def _number(self, table: Table) -> float | None:
        if self._check == "reaching":
            wanted = self._stated["reaching"]
            return table.reaching(wanted["row"], wanted["level"])
        values = [table.value(cell) for cell in self.cells()]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or not known:
            return None
        if self._check == "value":
            return known[0]
        if self._check == "ratio":
            return known[0] / known[1] if known[1] else None
        if self._check == "mean":
            return sum(known) / len(known)
        if self._check in SHARES:
            low, high = self._within
            return sum(low <= value <= high for value in known) / len(known)
        return max(known) / min(known) if min(known) > 0 else None

    def _share(self, shares: Sequence[float]) -> str:
        """How many of the cells are in the band, as in `2 of 4 values in [0, 1.01]`."""
        low, high = self._within
        count = len(self.cells())
        band = f"in [{low:g}, {high:g}]" if high < math.inf else f"of at least {low:g}"
        if low == high:
            band = f"equal to {low:g}"
        return f"{_spread([share * count for share in shares])} of {count} values {band}"

    def _order(self, tables: Sequence[Table]) -> Verdict:
        cells = self.cells()
        names = self._names()
        columns: list[list[float]] = [[] for _ in cells]
        holds = []
        for table in tables:
            values = [table.value(cell) for cell in cells]
            known = [value for value in values if value is not None]
            if len(known) < len(values):
                return self._verdict(UNMEASURED, UNMEASURED)
            for column, value in zip(columns, known, strict=True):
                column.append(value)
            holds.append(self._holds(known))
        ours = ", ".join(f"{n} {_spread(v)}" for n, v in zip(names, columns, strict=True))
        return self._verdict(_of(holds), ours)

    def _names(self) -> list[str]:
        """The cells that the claim compares, in words."""
        return [" ".join(self._short(cell)) for cell in self.cells()]

    def _paper(self) -> str:
        """The paper's number with its band, or the paper's order."""
        if self._check == "ascending":
            return (" ≤ " if self._stated.get("ties") else " < ").join(self._names())
        if self._check in ORDERS:
            first, *others = self._names()
            return f"{first} is {self._check} of {', '.join(others)}"
        if self._check in SHARES:
            count = len(self.cells())
            return "more than half" if self._check == "majority" else f"{count} of {count}"
        (low, high), published = self._within, self._stated.get("published")
        if published == low == high:
            return f"{published:g}"
        band = f"at least {low:g}" if high == math.inf else f"{_bound(low)} to {_bound(high)}"
        return band if published is None else f"{published:g} (taken as reached: {band})"

    def _holds(self, values: list[float]) -> bool:
        """Whether `values` are in order. Equal values are not in order."""
        factor = 1 + float(self._stated.get("slack", 0))
        if self._check == "ascending":
            pairs = list(pairwise(values))
            happened = values[0] * factor < values[-1]
        else:
            pairs = [(values[0], other) for other in values[1:]]
            happened = min(values) < max(values)
        if self._check == "greatest":
            pairs = [(other, one) for one, other in pairs]
        if factor > 1 or self._stated.get("ties"):
            return happened and all(one <= other * factor for one, other in pairs)
        return all(one < other for one, other in pairs)

    def _short(self, cell: Cell) -> Sequence[str]:
        row, column = cell
        if self._stated.get("row") == row:
            return [column]
        return [row] if self._stated.get("column") == column else [row, column]

    def _verdict(self, verdict: str, ours: str) -> Verdict:
        stated = self._stated
        reason = "" if verdict == REACHED else self.reason
        remark = str(stated.get("fitted") or stated.get("wide") or stated.get("band") or "")
        paper = self._paper()
        return Verdict(self.says, self.kind, verdict, ours, paper, reason, remark, self.timed)

    def _cell(self, stated: Any) -> Cell:
        if isinstance(stated, list) and len(stated) == 2:
            return str(stated[0]), str(stated[1])
        if not isinstance(stated, list):
            if "row" in self._stated:
                return str(self._stated["row"]), str(stated)
            if "column" in self._stated:
                return str(stated), str(self._stated["column"])
        raise self._error(f"names {stated}, which is not a cell: write [row, column]")

    def _error(self, what: str) -> Error:
        return Error(f"{self._where}: the claim `{self.says}` {what}")


def _bound(value: float) -> str:
    """A bound of a band, with four digits and without an exponent."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _of(holds: Sequence[bool]) -> str:
    return REACHED if all(holds) else UNSTABLE if any(holds) else MISSED


def _spread(values: Sequence[float]) -> str:
    middle = shown(median(values))
    least, most = shown(min(values)), shown(max(values))
    return middle if least == most else f"{middle} ({least} to {most})"
