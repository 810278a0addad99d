"""Advice about a run's TLB misses: one sentence, from the run and a curve.

```
 results: does translation take any time?     no  -> nothing to do
 curve:   entries for 1 % of misses,          far fewer of 2M -> larger pages, for which data
          of the machine's pages and of 2M,   fit a real TLB  -> a larger TLB
          or what it has near to that
                                              neither         -> the order of the accesses
```

The curves are those of `pagewalk curve`: misses of fully associative LRU TLBs of every size, for
loads and stores. They are counted during the whole run, from a sample of the pages if there are
many, and from a sample of the accesses if the run is long (`crates/run/src/curve/sampled.rs`).
First touches of a page are not counted, because they miss in a TLB of any size.
"""

from array import array
from collections.abc import Mapping, Sequence
from math import log2
from typing import TYPE_CHECKING, Any, NamedTuple

from pagewalk import text
from pagewalk.lru import Curve
from pagewalk.report import values
from pagewalk.text import bytes_of

if TYPE_CHECKING:
    from pagewalk import _native, plain

LARGE = "2M"
"""The large page of x86-64, and of most other processors with base pages of 4K. For a machine whose
file lists page sizes, the listed size nearest to it is used.
"""
SMALLEST = "4K"
"""The smallest page size for which a curve can be counted."""
MISSES_SHARE = 0.01
"""A TLB is large enough if at most this share of its lookups miss, not counting first touches: an
assumption.
"""
TIME_SHARE = 0.01
"""If translation takes at most this share of the cycles, reducing it is not worth the work: an
assumption.
"""
MISSES_PER_1000 = 0.5
"""If times are not known: if at most this number of 1000 accesses miss every TLB, reducing the
misses is not worth the work: an assumption.
"""
ENTRIES_REAL = 4096
"""Entries of the largest second-level TLB among the built-in machines of today (`epyc-9005`)."""
FEWER = 8
"""Large pages are recommended if they need this many times fewer entries: an assumption."""


class Sample(NamedTuple):
    """A curve of loads and stores, counted over a whole run."""

    curve: Curve
    one_in: int
    """The sample has one in this many pages. 1: it has all pages."""
    gaps: tuple[int, int] | None = None
    """`(n, m)`: after the first `n` accesses, only one access in `m` was counted. `None`: all
    accesses were counted.
    """


def page_sizes(description: Mapping[str, Any]) -> list[str]:
    """The page sizes of the curves that advice for a machine needs.

    They are its base page and the large page.
    """
    sizes = dict.fromkeys([_base(description), _large(description)])
    return [size for size in sizes if bytes_of(size) >= bytes_of(SMALLEST)]


def advise(
    document: "plain.Document", sizes: Sequence[str], samples: "Sequence[_native.Sample]"
) -> None:
    """Adds `advice` to results, from curves of `sizes`; adds nothing if no curve was counted."""
    if not samples or not any(document["accesses"].values()):
        return
    found = {}
    for size, (counted, one_in, gaps) in zip(sizes, samples, strict=True):
        _, page_bytes, total, cold, misses = counted
        curve = Curve("data", size, page_bytes, total, cold, array("Q", misses))
        found[size] = Sample(curve, one_in, gaps)
    if _base(document["machine"]["description"]) in found:
        document["advice"] = advice(document, found)


def advice(document: "plain.Document", samples: Mapping[str, Sample]) -> "plain.Advice":
    """The advice, and for each page size how many TLB entries suffice.

    `None`: more than were counted.

    Args:
        document: Results of a run.
        samples: Curves of loads and stores for two page sizes: the machine's base page and the
            large page.
    """
    lookups = document["accesses"]["load"] + document["accesses"]["store"]
    entries = {size: enough(one.curve) for size, one in samples.items()}
    one_in = {size: one.one_in for size, one in samples.items()}
    return {
        "sentence": _sentence(document, entries, samples, lookups),
        "misses_share": MISSES_SHARE,
        "lookups": lookups,
        "entries": entries,
        "one_in": one_in,
    }


def enough(curve: Curve) -> int | None:
    """The fewest entries that suffice.

    At most `MISSES_SHARE` of the lookups then miss, not counting first touches.
    """
    allowed = MISSES_SHARE * curve.total + curve.cold
    return next((entries for entries, misses in curve.steps() if misses <= allowed), None)


def _base(description: Mapping[str, Any]) -> str:
    size = description.get("os", {}).get("page_size", "4K")
    return size if isinstance(size, str) else "4K"


def _large(description: Mapping[str, Any]) -> str:
    """The page size in the machine's file that is nearest to `LARGE`.

    If two are equally near, the smaller one.
    """
    tlbs = description.get("tlb", {}).values()
    arrays = [array for tlb in tlbs for array in (tlb, *tlb.get("array", ()))]
    there = {size for array in arrays for size in array.get("page_sizes") or ()}
    larger = there - {size for size in there if bytes_of(size) <= bytes_of(_base(description))}
    off = {size: abs(log2(bytes_of(size) / bytes_of(LARGE))) for size in larger}
    return min(larger, key=lambda size: (off[size], bytes_of(size)), default=LARGE)


def _sentence(
    document: "plain.Document",
    entries: Mapping[str, int | None],
    samples: Mapping[str, Sample],
    lookups: int,
) -> str:
    accesses, missed = values.accesses(document), values.missing_all(document)
    description = document["machine"]["description"]
    time, base, big = document["time"], _base(description), _large(description)

    def said(size: str) -> str:
        """How many entries a TLB for pages of `size` needs, as text.

        With two digits if it was counted from a sample.
        """
        count = entries[size]
        if count is None:
            return "more than 65536"
        sampled = samples[size]
        is_exact = sampled.one_in == 1 and sampled.gaps is None
        return str(count) if is_exact else f"about {float(f'{count:.1e}'):.0f}"

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
    over = _over(samples)
    if not fits and base != big and large is not None and (small or FEWER * large) >= FEWER * large:
        miss = f"entry of {big} misses" if large == 1 else f"entries of {big} miss"
        return (
            f"Use pages of {big}{_where(document)}: {over}, {said(big)} {miss} as rarely "
            f"(1 % of loads and stores) as {said(base)} of {base}."
        )
    cold = sum(region["cold_misses"] for region in document["regions"])
    misses = sum(region["misses"] for region in document["regions"])
    if cold > 0.5 * misses:
        why = f"{text.percent(cold / misses)} of the misses are first touches of a page"
        if base != big:
            return f"Use larger pages{_where(document)}: {why}, which no TLB avoids."
        return (
            f"Use memory that was used before{_where(document)}: {why}, which no TLB avoids, and "
            f"pages are of {base} where they can be."
        )
    processors = description.get("core", {}).get("count", 1)
    last = [tlb for tlb in document["tlbs"] if tlb["level"] == document["tlbs"][-1]["level"]]
    went = sum(tlb["evictions"] + tlb["flushed"] for tlb in last)
    if fits and processors > 1 and went < misses / 2:
        return (
            f"Use larger pages{_where(document)}, or fewer processors: {over}, {said(base)} "
            f"entries would do, and {there} are there, but each of {processors} processors fills "
            "TLBs of its own."
        )
    if fits:
        return (
            f"Look at conflicts and flushes: {over}, {said(base)} "
            f"{'entry' if small == 1 else 'entries'} would do in a fully associative TLB, and "
            f"{there} are there."
        )
    if small is not None and small <= ENTRIES_REAL:
        return (
            f"Use a TLB of {said(base)} entries, with which 1 % of loads and stores miss {over}: "
            f"larger pages gain less ({said(big)} entries of {big})."
        )
    return (
        "Change the order of the accesses or the layout of the data"
        f"{_where(document)}: {over}, 1 % of misses takes a TLB of {said(base)} entries of {base}"
        + (f" or {said(big)} of {big}." if base != big else ".")
    )


def _over(samples: Mapping[str, Sample]) -> str:
    """A description of the sample of pages and accesses from which the entries were counted."""
    parts = [
        f"one page of {size} in {one.one_in}" for size, one in samples.items() if one.one_in > 1
    ]
    # The curves of all page sizes were counted from the same accesses.
    for after, one_in in {one.gaps for one in samples.values() if one.gaps}:
        first = f" after the first {float(f'{after:.3g}') / 1e6:g} M" if after else ""
        parts.append(f"one access in {one_in}{first}")
    return (
        f"over the whole run (a sample of {' and '.join(parts)})" if parts else "over the whole run"
    )


def _where(document: "plain.Document") -> str:
    """The region with the most misses, if it has a large share of them."""
    total = sum(region["misses"] for region in document["regions"])
    busiest = max(document["regions"], key=lambda region: region["misses"], default=None)
    if busiest is None or not total or busiest["misses"] < 0.3 * total:
        return ""
    share = text.percent(busiest["misses"] / total)
    return f" for {busiest['name']} ({share} of the misses)"
