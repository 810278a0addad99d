"""`Curve`: the misses of a fully associative LRU TLB of every size, as plain data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pagewalk import _native

if TYPE_CHECKING:
    from array import array

    from pagewalk.progress import Progress

Lookups = Literal["data", "fetch", "all"]
PAGE_SIZES = ("4K", "16K", "64K", "2M", "1G")
ENTRIES_MAX = 65536


class Curve(NamedTuple):
    """Misses over the number of entries, for one page size."""

    lookups: Lookups
    """The accesses that are looked up: loads and stores, fetches, or all accesses."""
    page_size: str
    page_bytes: int
    total: int
    """The number of lookups. An access that touches two pages counts as two lookups."""
    cold: int
    """First lookups of a page, which miss in a TLB of any size."""
    misses: "array[int]"
    """Misses with 1, 2, 3, ... entries."""

    def steps(self) -> list[tuple[int, int]]:
        """The numbers of entries at which the misses change, each with its misses."""
        changes = []
        last = -1
        for entries, misses in enumerate(self.misses, 1):
            if misses != last:
                changes.append((entries, misses))
                last = misses
        return changes


class Asked(NamedTuple):
    """The curves to count: one for each kind of lookup and each page size."""

    page_sizes: Sequence[str] = PAGE_SIZES
    lookups: Sequence[Lookups] = ("all",)
    entries_max: int = ENTRIES_MAX


def counted(
    source: str, reading: _native.Reading, asked: Asked, progress: "Progress | None" = None
) -> tuple[list[Curve], list[str]]:
    """The curves of a trace, ordered by lookups and then by page size, and warnings.

    Raises:
        Error: A parameter is wrong.
        WorkError: The trace is damaged.
    """
    from array import array

    found, warnings = _native.trace_curves(
        source,
        reading,
        lookups=list(asked.lookups),
        page_sizes=list(asked.page_sizes),
        entries_max=asked.entries_max,
        progress=progress,
    )
    # The native module returns the curves in the order of the request.
    names = [(which, size) for which in asked.lookups for size in asked.page_sizes]
    curves = [
        Curve(which, size, page_bytes, total, cold, array("Q", misses))
        for (which, size), (_, page_bytes, total, cold, misses) in zip(names, found, strict=True)
    ]
    return curves, warnings
