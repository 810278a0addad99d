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
from typing import Any

SMALL, LARGE = 4096, 2 << 20
PER_PAGE = (0.5, 2.0)
"""Limits of the number of faults per page of the model. Large pages do not save more faults than
that: the other faults are in libraries, and in memory that the program has given back and touched
again.
"""


def seconds(
    base: Mapping[str, Any], placed: Mapping[str, Any], native: Mapping[str, Any]
) -> tuple[float, float] | None:
    """The seconds that pages of 2M save in page faults, at the lower and at the higher price.

    `None` if the native run or the machine's file lacks a number, or if base pages are not of 4K.

    Args:
        base: Results with base pages.
        placed: Results in which some memory has pages of 2M.
        native: The native run of the program.
    """
    described = base["machine"]["description"]
    prices = described.get("calibrated") or {}
    faults, first = native.get("minor_faults"), base["walks"]["cold"]
    keys = ("ghz", "fault_4k_cycles", "fault_2m_cycles")
    if described["os"]["page_size"] != "4K" or any(key not in prices for key in keys):
        return None
    if faults is None or first == 0:
        return None
    large = _large(base, placed)
    saved = first - (placed["walks"]["cold"] - large)
    least, most = PER_PAGE
    saved *= min(max(faults / first, least), most)
    hertz = prices["ghz"] * 1e9
    low, high = (
        (saved * price - large * prices["fault_2m_cycles"]) / hertz
        for price in prices["fault_4k_cycles"]
    )
    return low, high


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
