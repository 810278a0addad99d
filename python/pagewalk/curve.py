r"""The LRU curve: misses of fully associative LRU TLBs of every size, from one pass.

```
 curve(trace) ------------------------------> pyarrow.Table, one row per size
 count(trace) --> [Curve, ...] --document()--> JSON
                       \--report.curves-------> text, charts, HTML
```
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pagewalk import _native

if TYPE_CHECKING:
    from array import array

    import pyarrow as pa

    from pagewalk.progress import Progress
    from pagewalk.trace import Trace

Lookups = Literal["data", "fetch", "all"]

LOOKUPS: tuple[Lookups, ...] = ("data", "fetch", "all")
WORDS = {"data": "load and no store", "fetch": "fetch", "all": "access"}
"""What a trace may have none of."""
PAGE_SIZES = ("4K", "16K", "64K", "2M", "1G")
ENTRIES_MAX = 65536

NOT_MODELLED = (
    "associativity, replacement other than LRU, and a second level: one fully associative TLB",
    "flushes: what the operating system unmaps stays, and pages of each space have a tag",
    "processors apart: all threads share one TLB",
    "where regions begin and end and what they allow: every page has the size of its curve, which "
    "for large pages no operating system can map",
)


class Curve(NamedTuple):
    """Misses over the number of entries, for one page size."""

    lookups: Lookups
    """What is looked up: loads and stores, fetches, or every access."""
    page_size: str
    page_bytes: int
    total: int
    """Lookups; an access that touches two pages is two."""
    cold: int
    """Lookups of a page for the first time, which miss whatever the size."""
    misses: "array[int]"
    """Misses of 1, 2, 3, ... entries."""

    def steps(self) -> list[tuple[int, int]]:
        """Entries and misses where the misses change; between two of them they stay."""
        changes = []
        last = -1
        for entries, misses in enumerate(self.misses, 1):
            if misses != last:
                changes.append((entries, misses))
                last = misses
        return changes


def curve(
    trace: "Trace | str | os.PathLike[str]",
    *,
    page_sizes: Sequence[str] = PAGE_SIZES,
    lookups: Lookups | Sequence[Lookups] = "data",
    entries_max: int = ENTRIES_MAX,
    progress: "Progress | bool | None" = None,
) -> "pa.Table":
    """Counts the misses of fully associative LRU TLBs of every size.

    Args:
        trace: A trace, or what `Trace` takes.
        page_sizes: As in `["4K", "2M"]`; 4K or larger.
        lookups: What the TLB is looked up for: `data` (loads and stores), `fetch`, `all`, or
            several of them, each with a TLB of its own.
        entries_max: The largest TLB.
        progress: Called about ten times per second; `True` shows a bar by tqdm.

    Returns:
        A table with a row for each of `lookups`, each page size and each number of entries from
        1 on: `lookups`, `page_size`, `entries`, `misses`, `miss_ratio`, `total` (lookups) and
        `cold` (first touches of a page, which miss whatever the size).

    Raises:
        Error: There is no such trace, or a parameter is wrong.
        WorkError: The trace is damaged.
    """
    from pagewalk.progress import bar
    from pagewalk.trace import Trace

    trace = trace if isinstance(trace, Trace) else Trace(trace)
    names: Sequence[Lookups] = [lookups] if isinstance(lookups, str) else lookups
    with bar(progress, f"reading {trace.name}") as told:
        return table(count(trace, page_sizes, names, entries_max, told))


def count(
    trace: "Trace",
    page_sizes: Sequence[str] = PAGE_SIZES,
    lookups: Sequence[Lookups] = ("data",),
    entries_max: int = ENTRIES_MAX,
    progress: "Progress | None" = None,
) -> list[Curve]:
    """The curves of `trace`, page sizes innermost; arguments and errors as for `curve`."""
    from array import array

    if entries_max >= 1 << 32:
        raise _native.Error(f"{entries_max} entries: a TLB has less than 2^32")
    for given, what in ((page_sizes, "page sizes"), (lookups, "lookups")):
        if not given:
            raise _native.Error(f"no {what} are given: name one or more")
    counted, trace.warnings = _native.trace_curves(
        trace.source,
        trace.reading,
        lookups=list(lookups),
        page_sizes=list(page_sizes),
        entries_max=entries_max,
        progress=progress,
    )
    # The native half keeps the order in which it was asked.
    asked = [(which, size) for which in lookups for size in page_sizes]
    curves = [
        Curve(which, size, page_bytes, total, cold, array("Q", misses))
        for (which, size), (_, page_bytes, total, cold, misses) in zip(asked, counted, strict=True)
    ]
    for which in dict.fromkeys(curve.lookups for curve in curves if not curve.total):
        what = f"{trace.name} holds no {WORDS[which]}: nothing was looked up"
        trace.warnings = [*trace.warnings, what]
    return curves


def table(curves: Sequence[Curve]) -> "pa.Table":
    """The curves as the table that `curve` gives."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    for one in curves:
        rows = len(one.misses)
        misses = pa.array(one.misses, pa.uint64())
        total = pa.scalar(max(one.total, 1), pa.float64())
        parts.append(
            pa.table(
                {
                    "lookups": pa.repeat(one.lookups, rows),
                    "page_size": pa.repeat(one.page_size, rows),
                    "entries": pa.array(range(1, rows + 1), pa.uint32()),
                    "misses": misses,
                    "miss_ratio": pc.divide(misses.cast(pa.float64()), total),
                    "total": pa.repeat(pa.scalar(one.total, pa.uint64()), rows),
                    "cold": pa.repeat(pa.scalar(one.cold, pa.uint64()), rows),
                }
            )
        )
    return pa.concat_tables(parts)


def document(trace: "Trace", curves: Sequence[Curve]) -> dict[str, Any]:
    """The curves as one JSON document; misses where they change, which is all of them."""
    notes = list(NOT_MODELLED)
    if trace.header.get("filter") == "page16":
        notes.append(
            "accesses that the page16 filter dropped: lookups are those that it kept, and what the "
            "others tell of the order of use is missing"
        )
    return {
        "schema": 1,
        "pagewalk": _native.version(),
        "trace": {"name": trace.name, "digest": trace.digest, **trace.header},
        "curves": [
            {
                "lookups": one.lookups,
                "page_size": one.page_size,
                "page_bytes": one.page_bytes,
                "total": one.total,
                "cold": one.cold,
                "entries_max": len(one.misses),
                "misses": [list(step) for step in one.steps()],
            }
            for one in curves
        ],
        "warnings": list(trace.warnings),
        "not_modelled": notes,
    }
