"""The x axis of a sweep: the scale that fits the values of a key.

```
 16, 32, 64          powers of two: logarithmic, marked at powers
 64K, 256K, 1M       the same, marked as sizes
 1, 2, 3, ... 64     numbers: linear; logarithmic where most of them lie near the low end
 lru, random         no scale: in the order given, as bars
```
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["linear", "logarithmic", "ordinal"]

SIZES_MIN = 3
"""A key has a scale if it has at least this number of sizes. Two sizes are just two kinds of page
or cache.
"""

MARKS_MAX = 10

_SIZE = re.compile(r"(\d+)([BKMGT])")


@dataclass(frozen=True)
class Scale:
    """A key whose values are on the x axis."""

    title: str
    kind: Kind
    values: list[Any]
    """The values as they were given."""
    numbers: dict[Any, int]
    """The position of each value. Empty if the values have no scale."""
    sizes: bool
    """Whether the values are sizes in bytes."""

    @property
    def marks(self) -> dict[int, str]:
        """The positions and texts of the axis's labels, at most ten.

        Empty if labels may be anywhere.
        """
        low, high = min(self.numbers.values()), max(self.numbers.values())
        powers = [1 << bit for bit in range(64) if low <= 1 << bit <= high]
        if self.kind == "logarithmic":
            shown = powers if len(powers) > 1 else [low, high]
            words = {place: size(place) if self.sizes else str(place) for place in shown}
        else:
            words = {self.numbers[value]: str(value) for value in self.values if self.sizes}
        return dict(list(words.items())[:: -(-len(words) // MARKS_MAX) or 1])


def of(title: str, values: Sequence[Any]) -> Scale:
    """The scale of a key's values."""
    if not has_scale(values):
        return Scale(title, "ordinal", list(values), {}, False)
    numbers = {value: number(value) or 0 for value in values}
    kind: Kind = "logarithmic" if _logarithmic(sorted(numbers.values())) else "linear"
    return Scale(title, kind, list(values), numbers, not isinstance(values[0], int))


def has_scale(values: Sequence[Any]) -> bool:
    """Whether the values have a scale: several numbers, or at least `SIZES_MIN` sizes."""
    if len(values) > 1 and all(isinstance(value, int) for value in values):
        return True
    sized = [isinstance(value, str) and _SIZE.fullmatch(value) is not None for value in values]
    return len(values) >= SIZES_MIN and all(sized)


def number(value: object) -> int | None:
    """The number in a text, or the bytes of a size as in machine files. `None` if it is neither."""
    if isinstance(value, int):
        return value
    found = _SIZE.fullmatch(str(value))
    return int(found[1]) << 10 * "BKMGT".index(found[2]) if found else None


def size(value: int) -> str:
    """A size as in machine files, in the largest unit of which it is a whole multiple."""
    power = next(power for power in range(4, -1, -1) if value % (1 << 10 * power) == 0)
    return f"{value >> 10 * power}{'BKMGT'[power]}"


def _logarithmic(values: Sequence[int]) -> bool:
    """Whether the scale is logarithmic.

    It is if the values are powers of two, or most of them are near the low end of a long range.
    """
    if all(value > 0 and value & (value - 1) == 0 for value in values):
        return True
    middle = values[len(values) // 2]
    return bool(values[0] > 0 and values[-1] >= 8 * values[0] and middle < values[-1] / 3)
