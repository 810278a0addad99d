"""How much time pages of 2M save in page faults.

```
 pages of 4K   |fault|fault|fault|fault| ...       512 faults, and as many pages to unmap at the end
 a page of 2M  |fault, and zeroing of 2M|          zeroes bytes that are never touched, too
```

The model says how many pages are loaded with each choice of page sizes. A native run of the program
says how many faults there really were: a page that is read first and stored to later faults twice.
A calibrated machine file has two prices of a fault on a page of 4K. The lower price was timed with
one fault after the other. The higher price was timed in a program that the faults disturb: the
kernel's work evicts data of the program from the processor's caches and branch predictors. What a
program really saves per fault lies between these two prices.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

SMALL, LARGE = 4096, 2 << 20
PER_PAGE = (0.5, 2.0)
"""Limits of the number of faults per page of the model. Large pages do not save more faults than
that: the other faults are in libraries, and in memory that the program has given back and touched
again.
"""


class Prices(NamedTuple):
    """What page faults of one program cost, in seconds."""

    small: tuple[float, float]
    """A fault on a page of 4K: the lower price and the higher price."""
    large: float
    """A fault on a page of 2M."""
    faults: float
    """Faults of the program per page that the model loads."""

    @classmethod
    def of(cls, base: Mapping[str, Any]) -> "Prices | None":
        """The prices for a program, from its results with base pages.

        `None` if its native run or the machine's file lacks a number, or if base pages are not of
        4K.
        """
        described, native = base["machine"]["description"], base.get("native") or {}
        prices = described.get("calibrated") or {}
        faults, first = native.get("minor_faults"), base["walks"]["cold"]
        keys = ("ghz", "fault_4k_cycles", "fault_2m_cycles")
        if described["os"]["page_size"] != "4K" or any(key not in prices for key in keys):
            return None
        if faults is None or first == 0:
            return None
        hertz = prices["ghz"] * 1e9
        low, high = (price / hertz for price in prices["fault_4k_cycles"])
        least, most = PER_PAGE
        per_page = min(max(faults / first, least), most)
        return cls((low, high), prices["fault_2m_cycles"] / hertz, per_page)

    def saved(self, before: float, small: float, large: float) -> tuple[float, float]:
        """Seconds that larger pages save: at the lower price, and at the higher price.

        Args:
            before: Pages loaded if all have 4K.
            small: Pages of 4K that are loaded beside the large ones.
            large: Pages of 2M that are loaded.
        """
        low, high = (
            (before - small) * self.faults * price - large * self.large for price in self.small
        )
        return low, high


def seconds(
    base: Mapping[str, Any], placed: Mapping[str, Any], prices: Prices
) -> tuple[float, float]:
    """Seconds of page faults that pages of 2M save: at the lower price, and at the higher price.

    Args:
        base: Results with base pages.
        placed: Results in which some memory has pages of 2M.
        prices: Those of the program.
    """
    large = _large(base, placed)
    return prices.saved(base["walks"]["cold"], placed["walks"]["cold"] - large, large)


def _large(base: Mapping[str, Any], placed: Mapping[str, Any]) -> float:
    """Pages of 2M that were loaded.

    All pages together contain the bytes that base pages would contain, and the memory that larger
    pages add. This determines two numbers: `small + large` pages were loaded, with `small * 4K +
    large * 2M` bytes.
    """
    loaded = float(placed["walks"]["cold"])
    added = placed["memory"]["frames_peak_bytes"] / base["memory"]["frames_peak_bytes"]
    bytes_ = float(base["walks"]["cold"] * SMALL * added)
    return min(max((bytes_ - loaded * SMALL) / (LARGE - SMALL), 0.0), loaded)
