"""The map of misses over address and time, without addresses that have no misses.

```
 address                        row
 stack   7ffff..  ########      ########   stack
                  (nothing)     ========
 heap    555..    ##  ###  ##   ##  ###    heap     only granules with misses have rows;
                  (nothing)     ========            each region keeps a band of its own
 code    400..    ####          ####       code
```
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report import values
from pagewalk.report.model import Figure, Table, Value

if TYPE_CHECKING:
    from pagewalk import plain

COLUMNS_MAX = 160
ROWS_MAX = 120
BANDS_MAX = 16
BAND_SHARE_MIN = 0.045
"""A band's label needs this share of the map's height."""


@dataclass(frozen=True)
class _Band:
    """The rows of one region in the map: its granules that have misses, in order."""

    name: str
    granules: list[int]
    misses: int


def miss_map(document: "plain.Document") -> Figure | None:
    """Misses over address and time. Only granules that have misses get a row.

    Granules are grouped into bands by region. Neighbours are merged until the rows fit. A band is
    always at least as high as a label.
    """
    grid = document["map"]
    if not grid["cells"] or not values.accesses(document):
        return None
    length = values.length(document)
    bands, left_out = _bands(document)
    places: dict[int, tuple[float, float]] = {}
    axis: list[tuple[float, str]] = []
    edges: list[float] = []
    names: dict[int, str] = {}
    merged = -(-sum(len(band.granules) for band in bands) // ROWS_MAX)
    slots_of = [-(-len(band.granules) // merged) for band in bands]
    lowest = _lowest(slots_of)
    top = 0.0
    for band, slots in zip(bands, slots_of, strict=True):
        height = max(1.0, lowest / slots)
        for position, granule in enumerate(band.granules):
            low = top + position // merged * height
            places[granule] = (low, low + height)
            names[granule] = band.name
        axis.append((top + slots * height / 2, band.name))
        top += slots * height
        edges.append(top)
    bins = 1 + max(cell[0] for cell in grid["cells"])
    columns = -(-bins // COLUMNS_MAX)
    sums: dict[tuple[int, float], list[Any]] = {}
    for time, granule, misses in grid["cells"]:
        if granule not in places:
            continue
        low, high = places[granule]
        cell = sums.setdefault((time // columns, low), [high, granule, 0])
        cell[1] = min(cell[1], granule)
        cell[2] += misses
    rows = [
        {
            "start": column * columns * grid["bin_accesses"],
            "end": min((column + 1) * columns * grid["bin_accesses"], length),
            "low": low,
            "high": high,
            "misses": misses,
            "address": text.address(granule * grid["granule_bytes"]),
            "region": names[granule],
        }
        for (column, low), (high, granule, misses) in sorted(sums.items())
    ]
    total = sum(cell[2] for cell in grid["cells"])
    busiest = sorted(bands, key=lambda band: -band.misses)[:3]
    sentence = (
        "The busiest: "
        + ", ".join(f"{band.name} ({text.percent(band.misses / total)})" for band in busiest)
        + ". Addresses without misses have no row"
        + (
            f"; regions with {text.percent(left_out / total)} of the misses have no rows of their "
            "own."
            if left_out
            else "."
        )
    )
    table = Table(
        "Misses of every TLB by region, lowest address first",
        ["Region", "From address", "Granules with misses", "Misses"],
        [
            [
                band.name,
                text.address(band.granules[0] * grid["granule_bytes"]),
                Value(text.count(len(band.granules)), len(band.granules)),
                Value(text.count(band.misses), band.misses),
            ]
            for band in bands
        ],
        [False, True, True, True],
    )
    return Figure("Misses over address and time", sentence, rows, table, axis, edges)


def _lowest(heights: Sequence[int]) -> float:
    """The height of the lowest bands at which each is the share `BAND_SHARE_MIN` of all heights."""
    lowest = 1.0
    # The loop reaches a fixed point: the total grows with the lowest height, but by less.
    for _ in range(32):
        lowest = BAND_SHARE_MIN * sum(max(height, lowest) for height in heights)
    return lowest


def _bands(document: "plain.Document") -> tuple[list[_Band], int]:
    """The granules of the busiest regions, by address, and the misses of all other regions."""
    misses: dict[int, int] = {}
    for _, granule, number in document["map"]["cells"]:
        misses[granule] = misses.get(granule, 0) + number
    owners = _owners(document)
    regions = document["regions"]
    grouped: dict[int, list[int]] = {}
    for granule in sorted(misses):
        grouped.setdefault(owners[granule], []).append(granule)
    own = _own(document)
    bands = [
        _Band(
            regions[region]["name"],
            granules,
            own.get(region, 0) if own else sum(misses[granule] for granule in granules),
        )
        for region, granules in grouped.items()
    ]
    kept = sorted(bands, key=lambda band: -band.misses)[:BANDS_MAX]
    left_out = sum(misses.values()) - sum(band.misses for band in kept)
    return [band for band in bands if band in kept], left_out


def _own(document: "plain.Document") -> dict[int, int]:
    """The misses of each region, including those in granules in another region's band."""
    own: dict[int, int] = {}
    for _, region, misses in document["map"].get("owners", ()):
        own[region] = own.get(region, 0) + misses
    return own


def _owners(document: "plain.Document") -> dict[int, int]:
    """For each granule the index of the region that has the most of its misses.

    If a granule holds the end of one region and the beginning of the next, addresses alone do not
    show to which region a miss belongs.
    """
    most: dict[int, tuple[int, int]] = {}
    grid = document["map"]
    if "owners" not in grid:
        # Documents of earlier versions have only addresses. The last region that begins at an
        # address is used.
        starts = [region["start"] for region in document["regions"]]
        ends = ((cell[1], (cell[1] + 1) * grid["granule_bytes"]) for cell in grid["cells"])
        return {granule: max(0, bisect_left(starts, end) - 1) for granule, end in ends}
    for granule, region, misses in grid["owners"]:
        if misses > most.get(granule, (0, 0))[0]:
            most[granule] = (misses, region)
    return {granule: region for granule, (_, region) in most.items()}
