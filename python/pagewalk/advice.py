"""What should be done about a run's TLB misses: one sentence, from the run and a curve.

```
 results: does translation take any time?     no  -> nothing to do
 curve:   entries for 1 % of misses,          far fewer of 2M -> larger pages, for which data
          of the machine's pages and of 2M,   fit a real TLB  -> a larger TLB
          or what it has near to that
                                              neither         -> the order of the accesses
```

The curve is that of `pagewalk curve`: exact misses of fully associative LRU TLBs of every size, of
loads and stores. First touches of a page are left out, for they miss whatever the TLB.
"""

from collections.abc import Mapping, Sequence
from math import log2
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report import values
from pagewalk.text import bytes_of

if TYPE_CHECKING:
    from pagewalk.curve import Curve
    from pagewalk.progress import Progress
    from pagewalk.results import Results
    from pagewalk.trace import Trace

ACCESSES_MAX = 50_000_000
"""Accesses that the curve is counted over, so that a run takes seconds more at most."""
LARGE = "2M"
"""The large page of x86-64 and of most others with base pages of 4K; a machine that says its sizes
is told the one nearest to it."""
MISSES_SHARE = 0.01
"""Misses per lookup, first touches apart, of a TLB that is large enough: an assumption."""
TIME_SHARE = 0.01
"""Share of the cycles up to which translation is not worth the work: an assumption."""
MISSES_PER_1000 = 0.5
"""The same where time is not known, in misses of every TLB per 1000 accesses."""
ENTRIES_REAL = 4096
"""Entries of the largest second-level TLB of today's machines here (`epyc-9005`)."""
FEWER = 8
"""How many times fewer entries of large pages make it worth to name them: an assumption."""


def advise(
    results: "Sequence[Results]", trace: "Trace", progress: "Progress | None" = None
) -> None:
    """Puts `advice` into results of `trace`: the sentence, and the entries that it speaks of."""
    from pagewalk.curve import count
    from pagewalk.trace import Trace

    documents = [result.data for result in results]
    sizes = list(dict.fromkeys([*map(_base, documents), *map(_large, documents)]))
    limit = min(trace.options["max_accesses"] or ACCESSES_MAX, ACCESSES_MAX)
    part = Trace(trace.source, **{**trace.options, "warmup": 0, "max_accesses": limit})
    curves = {curve.page_size: curve for curve in count(part, sizes, progress=progress)}
    for result in results:
        result.data["advice"] = advice(result.data, curves)


def advice(document: Mapping[str, Any], curves: "Mapping[str, Curve]") -> dict[str, Any]:
    """The sentence, and for each page size the entries that a TLB takes; `None`: more than counted.

    Args:
        document: Results of a run.
        curves: Loads and stores by page size: that of the machine, and the large one.
    """
    entries = {size: enough(curve) for size, curve in curves.items()}
    return {
        "sentence": _sentence(document, entries, max(c.total for c in curves.values())),
        "misses_share": MISSES_SHARE,
        "lookups": max(curve.total for curve in curves.values()),
        "entries": entries,
    }


def enough(curve: "Curve") -> int | None:
    """The fewest entries with which at most `MISSES_SHARE` of the lookups miss again."""
    allowed = MISSES_SHARE * curve.total + curve.cold
    return next((entries for entries, misses in curve.steps() if misses <= allowed), None)


def _base(document: Mapping[str, Any]) -> str:
    size = document["machine"]["description"].get("os", {}).get("page_size", "4K")
    return size if isinstance(size, str) else "4K"


def _large(document: Mapping[str, Any]) -> str:
    """The page size nearest to `LARGE` that the machine says it has; the smaller one of two."""
    tlbs = document["machine"]["description"].get("tlb", {}).values()
    arrays = [array for tlb in tlbs for array in (tlb, *tlb.get("array", ()))]
    there = {size for array in arrays for size in array.get("page_sizes") or ()}
    larger = there - {size for size in there if bytes_of(size) <= bytes_of(_base(document))}
    off = {size: abs(log2(bytes_of(size) / bytes_of(LARGE))) for size in larger}
    return min(larger, key=lambda size: (off[size], bytes_of(size)), default=LARGE)


def _sentence(document: Mapping[str, Any], entries: Mapping[str, int | None], lookups: int) -> str:
    accesses, missed = values.accesses(document), values.missing_all(document)
    time, base, big = document["time"], _base(document), _large(document)
    if time is not None and time["share"]["hi"] <= TIME_SHARE:
        most = text.percent(time["share"]["hi"])
        return f"Nothing to do: translation takes at most {most} of the cycles."
    if time is None and 1000 * missed <= MISSES_PER_1000 * accesses:
        rate = text.ratio(1000 * missed / max(accesses, 1))
        return f"Nothing to do: {rate} of 1000 accesses miss every TLB."
    if not lookups:
        return "Fetches alone miss: place the code that runs together on the same pages."
    small, large = entries[base], entries[big]
    there = max([0, *(tlb["entries"] for tlb in document["tlbs"] if "load" in tlb["serves"])])
    fits = small is not None and small <= there
    if not fits and base != big and large is not None and (small or FEWER * large) >= FEWER * large:
        return (
            f"Use pages of {big}{_where(document)}: {large} entries of {big} miss as rarely "
            f"(1 % of loads and stores) as {_said(small)} of {base}."
        )
    cold = sum(region["cold_misses"] for region in document["regions"])
    misses = sum(region["misses"] for region in document["regions"])
    if base != big and cold > 0.5 * misses:
        return (
            f"Use larger pages{_where(document)}: {text.percent(cold / misses)} of the misses are "
            "first touches of a page, which no TLB avoids."
        )
    processors = document["machine"]["description"].get("core", {}).get("count", 1)
    last = [tlb for tlb in document["tlbs"] if tlb["level"] == document["tlbs"][-1]["level"]]
    went = sum(tlb["evictions"] + tlb["flushed"] for tlb in last)
    if fits and processors > 1 and went < misses / 2:
        return (
            f"Use larger pages{_where(document)}, or fewer processors: {small} entries would do, "
            f"and {there} are there, but each of {processors} processors fills TLBs of its own."
        )
    if fits:
        return (
            f"Look at conflicts and flushes: {small} entries would do in a fully associative TLB, "
            f"and {there} are there."
        )
    if small is not None and small <= ENTRIES_REAL:
        return (
            f"Use a TLB of {small} entries, with which 1 % of loads and stores miss: larger pages "
            f"gain less ({_said(large)} entries of {big})."
        )
    return (
        "Change the order of the accesses or the layout of the data"
        f"{_where(document)}: for 1 % of misses a TLB takes {_said(small)} entries of {base}"
        + (f" or {_said(large)} of {big}." if base != big else ".")
    )


def _said(entries: int | None) -> str:
    return "more than 65536" if entries is None else str(entries)


def _where(document: Mapping[str, Any]) -> str:
    """The region with the most misses, where it has a good part of them."""
    total = sum(region["misses"] for region in document["regions"])
    busiest = max(document["regions"], key=lambda region: region["misses"], default=None)
    if busiest is None or not total or busiest["misses"] < 0.3 * total:
        return ""
    share = text.percent(busiest["misses"] / total)
    return f" for {busiest['name']} ({share} of the misses)"
