"""Groups of regions that get the same page size, and the effect of each size on each group.

```
 base pages: regions --by length, site, density--> groups --0.1 % of the misses--> tried ones
 all at one size: each group's misses and memory there, beside those with base pages
```

The misses of a region when all regions have large pages are close to its misses when it alone has
them, because its own large pages take few entries of the TLB in both cases. So one run per size
replaces a run per region and size. The choice that these estimates lead to is then run itself.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pagewalk import text

WORTH = 0.001
"""If a region has less than this share of all misses, or of their cycles, its page size is not
changed: an assumption.
"""


class Group(NamedTuple):
    """Regions with equal properties, which are tried together with the same page size."""

    regions: list[dict[str, Any]]
    """Rows of results with base pages, most misses first. `place` is the region's name in rules."""

    @property
    def misses(self) -> int:
        """Lookups that missed every TLB with base pages, first touches too."""
        return sum(region["misses"] for region in self.regions)

    def rules(self, size: str) -> list[str]:
        """The place rules that ask for `size`."""
        return [f"{region['place']} = {size}" for region in self.regions]


class Part(NamedTuple):
    """The counts of a group's regions in a run."""

    misses: int
    """Lookups that missed every TLB, first touches too."""
    cold: int
    """First touches of a page."""
    touched_bytes: int
    """The total size in bytes of the pages that were touched for the first time."""
    large: int
    """The number of these pages that are larger than the smallest size."""
    walk_cycles: int
    """Cycles of translation if other work hides none of them. 0 if the machine's file has no
    latencies.
    """


class Worth(NamedTuple):
    """The expected effect of a page size on a group."""

    saved: float
    """The cost of translation that the size saves, in the unit of `cost`."""
    memory_bytes: float
    """The memory that the size adds, in bytes."""


def candidates(base: Mapping[str, Any], sizes: Sequence[str]) -> list[dict[str, Any]]:
    """Regions that have misses and room for a larger page, most misses first.

    No two of them overlap.
    """
    rows = base["regions"]
    names = Counter(row["name"] for row in rows)
    room = text.bytes_of(sizes[0]) if sizes else 0
    touched: dict[tuple[str, int], int] = Counter()
    for _, region, _, _, page, _, cold in base["origins"]["misses"]:
        touched[_identity(rows[region])] += cold * page
    found: list[dict[str, Any]] = []
    taken: list[tuple[int, int]] = []
    for row in sorted(rows, key=lambda row: -row["misses"]):
        start, end = row["start"], row["start"] + row["bytes"]
        if row["misses"] < 1 or row["bytes"] < room:
            continue
        at = bisect_left(taken, (start, end))
        if (at > 0 and taken[at - 1][1] > start) or (at < len(taken) and taken[at][0] < end):
            continue
        taken.insert(at, (start, end))
        own = row["name"] in ("heap", "stack") and names[row["name"]] == 1
        place = row["name"] if own else f"range {start:#x}..{end:#x}"
        found.append({**row, "place": place, "touched_bytes": touched[_identity(row)]})
    return found


def groups(regions: Sequence[dict[str, Any]], least: float, *, alike: bool) -> list[Group]:
    """Groups of `regions`, those with most misses first.

    Groups with fewer than `least` misses are left out.

    Args:
        regions: The regions that `candidates` has returned.
        least: Misses of a group below which it is left out.
        alike: Whether regions that differ only in their address form one group.
    """
    found: dict[Any, Group] = {}
    for region in regions:
        key = _kind(region) if alike else region["place"]
        found.setdefault(key, Group([])).regions.append(region)
    worth = [group for group in found.values() if group.misses >= max(least, 1)]
    return sorted(worth, key=lambda group: -group.misses)


def _kind(region: Mapping[str, Any]) -> tuple[Any, ...]:
    """The properties that all regions of a group share: length, allocation site, kind, density.

    Density is the share of a region's bytes in base pages that were touched, in quarters: it
    determines how much memory larger pages add.
    """
    dense = round(4 * min(region["touched_bytes"] / region["bytes"], 1))
    name = re.sub(r" \d+$", "", region["name"]) if region.get("site") is None else None
    kind = ("backing", "rights", "populated", "mapped_by_site")
    return region["bytes"], region.get("site"), name, dense, *[region.get(key) for key in kind]


def parts(results: Mapping[str, Any], tried: Sequence[Group]) -> list[Part]:
    """The counts of each group, from results with counts by region."""
    rows = results["regions"]
    touched = [0] * len(rows)
    large = [0] * len(rows)
    base = base_page(results)
    for _, region, _, _, page, _, cold in results["origins"]["misses"]:
        touched[region] += cold * page
        large[region] += cold if page > base else 0
    found: dict[tuple[str, int], list[int]] = {}
    for at, row in enumerate(rows):
        counted = (row["misses"], row["cold_misses"], touched[at], large[at])
        counts = [*counted, row["walk_cycles"] or 0]
        before = found.get(_identity(row), [0] * len(counts))
        found[_identity(row)] = [old + new for old, new in zip(before, counts, strict=True)]
    none = [0] * len(Part._fields)
    return [
        Part(
            *map(
                sum,
                zip(*[found.get(_identity(region), none) for region in group.regions], strict=True),
            )
        )
        for group in tried
    ]


def base_page(results: Mapping[str, Any]) -> int:
    """The size in bytes of the smallest pages of the machine on which results were counted."""
    system = results["machine"]["description"].get("os", {})
    return text.bytes_of(system.get("base_page", "4K"))


def _identity(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["name"], row["start"]


def interpolated(known: Mapping[int, Worth], size: int) -> Worth:
    """The estimated effect of a size between two sizes that were run.

    It is in proportion to the page size in bytes.

    Args:
        known: Effects by page size in bytes, including the effect of base pages.
        size: Bytes, from the smallest of `known` to the largest.
    """
    if size in known:
        return known[size]
    below = max(at for at in known if at < size)
    above = min(at for at in known if at > size)
    share = (size - below) / (above - below)
    low, high = known[below], known[above]
    return Worth(*[a + (b - a) * share for a, b in zip(low, high, strict=True)])


def grown(
    worths: Mapping[tuple[int, str], Worth], count: int, least: float, limit: float | None
) -> list[tuple[str | None, ...]]:
    """Sets of page sizes by group.

    The first set is empty; each next set adds the change that gains most per byte of memory.

    Args:
        worths: For each group alone: the effect of each size.
        count: The number of groups.
        least: A change that saves less than this cost is not made.
        limit: The largest number of bytes that a set may add. `None`: no limit.
    """
    sizes: list[str | None] = [None] * count
    gains, added = [0.0] * count, [0.0] * count
    sets: list[tuple[str | None, ...]] = []
    while True:
        moves = []
        for (at, size), worth in worths.items():
            more = worth.saved - gains[at]
            bytes_ = worth.memory_bytes - added[at]
            if more <= least or (limit is not None and sum(added) + bytes_ > limit):
                continue
            moves.append((more / max(bytes_, 1), more, at, size, bytes_))
        if not moves:
            return sets
        _, more, at, size, bytes_ = max(moves)
        sizes[at] = size
        gains[at] += more
        added[at] += bytes_
        sets.append(tuple(sizes))
