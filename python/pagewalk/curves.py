r"""The LRU curve: misses of fully associative LRU TLBs of every size, from one pass.

```
 curve(trace) ------------------------------> Curves, a table of one row per size
 count(trace) --> [Curve, ...] --document()--> JSON
                       \--report.curves-------> text, charts, HTML
```
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import _native
from pagewalk.lru import ENTRIES_MAX, PAGE_SIZES, Asked, Curve, Lookups, counted
from pagewalk.tabled import TableLike

if TYPE_CHECKING:
    import pyarrow as pa

    from pagewalk.formats import Made
    from pagewalk.progress import Progress
    from pagewalk.report.charts import Chart
    from pagewalk.trace import Trace

LOOKUPS: tuple[Lookups, ...] = ("data", "fetch", "all")
WORDS = {"data": "load and no store", "fetch": "fetch", "all": "access"}
"""The accesses that a trace must contain for each kind of lookups, in words."""
NOT_MODELLED = (
    "associativity, replacement other than LRU, and a second level: one fully associative TLB",
    "flushes: what the operating system unmaps stays, and pages of each space have a tag",
    "processors apart: all threads share one TLB",
    "where regions begin and end and what they allow: every page has the size of its curve, which "
    "for large pages no operating system can map",
)


class Curves(TableLike):
    """Misses of TLBs of every size, as a table that has the methods of a `pyarrow.Table` too.

    Attributes:
        table: A row for each kind of lookup, each page size and each number of entries from 1 on:
            `lookups`, `page_size`, `entries`, `misses`, `miss_ratio`, `total` (lookups) and `cold`
            (first touches of a page, which miss in a TLB of any size).
        curves: The curves as plain data.
        document: The document that `pagewalk curve --json` writes.
    """

    def __init__(self, curves: Sequence[Curve], document: dict[str, Any]) -> None:
        super().__init__(table(curves))
        self.curves = list(curves)
        self.document = document

    def __repr__(self) -> str:
        return f"<Curves of {self.document['trace']['name']}>"

    def _repr_html_(self) -> str:
        from pagewalk.report import curves, notebook

        figures = curves.sheet(self.document, self.curves).figures
        tables = [figure.table for figure in figures if figure.table]
        title = f"{self.document['trace']['name']}: misses over TLB size"
        return notebook.shown(title, [figure.sentence for figure in figures], tables)

    def made(self) -> "Made":
        """The contents of the files that `save` writes."""
        return made(self.curves, self.document)

    def plot(self, lookups: str | None = None) -> "Chart":
        """The chart of one kind of lookup. If no kind is named, it is the first one.

        Raises:
            Error: Lookups of this kind were not counted.
        """
        counted = dict.fromkeys(one.lookups for one in self.curves)
        if lookups is not None and lookups not in counted:
            raise _native.Error(f"`{lookups}` was not counted: choose one of {', '.join(counted)}")
        return super().plot(lookups)


def curve(
    trace: "Trace | str | os.PathLike[str]",
    *,
    page_sizes: Sequence[str] = PAGE_SIZES,
    lookups: Lookups | Sequence[Lookups] = "data",
    entries_max: int = ENTRIES_MAX,
    progress: "Progress | bool | None" = None,
) -> Curves:
    """Counts the misses of fully associative LRU TLBs of every size.

    Args:
        trace: A trace, or a value that `Trace` accepts.
        page_sizes: The page sizes, such as `["4K", "2M"]`. None may be below 4K.
        lookups: Which lookups to count: `data` (loads and stores), `fetch` (instructions) or `all`
            (data and fetch in one TLB); if several are given, each kind has a separate TLB.
        entries_max: The largest TLB size, in entries.
        progress: Called about ten times per second; `True` shows a bar by tqdm.

    Raises:
        Error: There is no such trace, or a parameter is wrong.
        WorkError: The trace is damaged.
    """
    from pagewalk.progress import bar
    from pagewalk.trace import Trace

    trace = trace if isinstance(trace, Trace) else Trace(trace)
    names: Sequence[Lookups] = [lookups] if isinstance(lookups, str) else lookups
    with bar(progress, f"reading {trace.name}") as told:
        curves = count(trace, page_sizes, names, entries_max, told)
    return Curves(curves, document(trace, curves))


def count(
    trace: "Trace",
    page_sizes: Sequence[str] = PAGE_SIZES,
    lookups: Sequence[Lookups] = ("data",),
    entries_max: int = ENTRIES_MAX,
    progress: "Progress | None" = None,
) -> list[Curve]:
    """The curves of `trace`, ordered by lookups and then by page size.

    Arguments and errors as for `curve`.
    """
    if entries_max >= 1 << 32:
        raise _native.Error(f"{entries_max} entries: give fewer than 2^32")
    for given, what in ((page_sizes, "page sizes"), (lookups, "lookups")):
        if not given:
            raise _native.Error(f"no {what} are given: name one or more")
    asked = Asked(page_sizes, lookups, entries_max)
    curves, trace.warnings = counted(trace.source, trace.reading, asked, progress)
    for which in dict.fromkeys(curve.lookups for curve in curves if not curve.total):
        what = f"{trace.name} holds no {WORDS[which]}: nothing was looked up"
        trace.warnings = [*trace.warnings, what]
    return curves


def table(curves: Sequence[Curve]) -> "pa.Table":
    """The curves as the table that `curve` returns."""
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


def made(curves: Sequence[Curve], document: dict[str, Any]) -> "Made":
    """The contents of the files that `save` writes."""
    from pagewalk.formats import Made
    from pagewalk.report.curves import charts, shown

    return Made(
        counted=lambda: table(curves),
        document=lambda: document,
        shown=lambda: shown(curves),
        charts=lambda: charts(curves),
    )


def document(trace: "Trace", curves: Sequence[Curve]) -> dict[str, Any]:
    """The curves as one JSON document.

    It has the misses at the sizes at which they change, which determine all others.
    """
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
