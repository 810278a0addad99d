"""`advise`: which region of a program should have which page size.

```
 pass 1  base pages                -> regions by misses, those that are alike together
 pass 2  all of them at one size   -> what each group saves there, and the memory that it adds
 pass 3  the set that saves most   -> what is advised -> place file
```

The number of runs does not depend on the number of regions (`page_size_groups`). Pass 2 has one run
if there is one larger page size, and otherwise two, at a middle size and at the largest. Pass 3 has
the best set within the limit of memory; if that is expected to save more, the best set without the
limit; and a set for each size below the middle one. A set that adds too much memory is followed by
up to `TIGHTENED_MAX` smaller ones. With `exact`, each region is
run alone at each size, and each set on the way to the advice is run.

The gains of regions do not add up, since all regions share the TLB. So the numbers of a set of page
sizes are counted in a run with that set. IBM's `tprof -a` for AIX runs each of four regions alone;
place files are those of `dprof` and `dplace` of IRIX (Ganapathy and Schimmel 1998, section 6.5.1).
"""

import copy
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from pagewalk import (
    _native,
    document,
    estimates,
    here,
    large_pages,
    page_size_groups,
    predictions,
    text,
)
from pagewalk.machine import Machine
from pagewalk.memory_share import memory_settings
from pagewalk.page_size_costs import Costs
from pagewalk.page_size_groups import WORTH, Part, Worth
from pagewalk.progress import Progress, bar
from pagewalk.tabled import Tabled, flat, table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pagewalk.formats import Made
    from pagewalk.trace import Trace

MEMORY_ADDED_MAX = 0.05
"""The default limit of the memory that the advice adds, as a share."""
FIRST_TOUCH = "first-touch"
"""The memory manager if a machine names none. It can map the page sizes that madvise requests."""
MADVISED = "2M"
"""The page size that Linux's madvise gives on x86-64."""
RUNS_AT_ONCE = 16
"""The maximum number of runs in one pass over the trace, since the page tables and memories of all
of them are kept at the same time.
"""
NOTES = (
    "On Linux madvise takes no size: pages have 2M, or those sizes that are enabled in "
    f"{large_pages.KNOBS}. MADV_HUGEPAGE works where {large_pages.KNOBS}/enabled is madvise or "
    "always, and where p begins on such a page. `pagewalk place FILE -- CMD` runs the program with "
    "the place file that -o writes.",
    "Addresses of a place file are those of the recording.",
)
SIZES_AT_ONCE = 2
"""The maximum number of page sizes with which all regions are run. If there are more sizes, two are
run: one in the middle and the largest.
"""
TIGHTENED_MAX = 2
"""How many times another set is chosen if a set has added more memory than was estimated."""

Early = Callable[[str], None]
"""A function that is called after a pass, with a sentence of preliminary results."""


class Try(NamedTuple):
    """The page size of each group, in the order of the groups. `None`: base pages."""

    sizes: tuple[str | None, ...]


class Advised(document.Advised, Tabled):
    """Which page sizes a program should have: the document's fields, and a table of regions."""

    def __repr__(self) -> str:
        return f"<Advised: {self.trace.name} on {self.machine.name}>"

    def to_arrow(self) -> "pa.Table":
        """A table with a row for each region.

        It has the advised size, the reason, and the counts of the region's group at each size.

        Columns such as `together.2M.misses` are of the run in which all groups had that size.
        """
        return table_of([flat({**region, "alone": None}) for region in self.data["regions"]])

    def place_file(self) -> str:
        """The advised rules as the text of a place file, for `pagewalk place` and `--place`."""
        return place_file(self)

    def made(self) -> "Made":
        """The contents of the files that `save` writes."""
        from pagewalk.formats import Made
        from pagewalk.report import placed

        return Made(
            counted=self.to_arrow,
            document=lambda: self.data,
            shown=lambda: placed.shown(self.data),
            charts=lambda: placed.charts(self.data),
        )

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook, placed

        title = f"{self.trace.name}: page sizes on {self.machine.name}"
        return notebook.shown(title, [placed.headline(self.data)], [placed.shown(self.data)])


def advise(
    trace: "Trace | str | os.PathLike[str]",
    machine: str | os.PathLike[str] | None = None,
    *,
    set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    memory_added_max: float = MEMORY_ADDED_MAX,
    aged: tuple[float, float] | None = None,
    memory: str | None = None,
    progress: "Progress | bool | None" = None,
    exact: bool = False,
    early: Early | None = None,
) -> Advised:
    """Runs `trace` with base pages, with one size for all regions, and with the best set of sizes.

    Args:
        trace: A trace, or a value that `Trace` accepts; not a pipe, because it is read several
            times.
        machine: As for `Machine`. Its memory manager must accept requests for page sizes: `irix`
            (as on `origin-2000`), or `first-touch` (as on most machines) and `linux`, which accept
            requests for 2M. If absent: the machine of this computer's processor (`here.at_hand`).
        set: Settings to change, as for `Machine`; not `os.place`.
        memory_added_max: Limit of the memory that the advice adds, as a share of the memory that
            base pages take.
        aged: Start with memory in the state after long use: the shares that are free and wired.
        memory: Size of memory, as for `memory_settings`.
        progress: Called with the number of accesses done and of all accesses, for each group of
            runs; `True` shows a bar.
        exact: Simulate each region alone at each page size, and each set of page sizes that is
            considered. This takes long if there are many regions.
        early: Called after the first and the second pass with a sentence of preliminary results.

    Raises:
        Error: There is no such trace or machine, or the machine has only one page size.
        WorkError: The trace is damaged, or the run with base pages failed.
    """
    from pagewalk.trace import Trace

    trace = trace if isinstance(trace, Trace) else Trace(trace)
    settings = [f"{k}={v}" for k, v in set.items()] if isinstance(set, Mapping) else list(set)
    machine = here.at_hand() if machine is None else machine
    described = Machine(machine, settings)
    sizes = _sizes(described)
    if trace.is_pipe:
        raise _native.Error("a pipe can be read only once: `pagewalk import` it, then advise")
    if memory_added_max < 0:
        raise _native.Error(f"memory_added_max is {memory_added_max}: give a share of 0 or more")
    with bar(progress, f"page sizes of {trace.name}") as told:
        settings += memory_settings(
            trace, machine, set=settings, aged=aged, memory=memory, progress=told
        )
        base = Machine(machine, settings).run(trace, progress=told, names=False).data
        where = (os.fspath(machine), settings)
        runs = _Runs(trace, where, base, sizes, told, exact=exact)
        return Advised(runs.advised(memory_added_max, early or (lambda _: None)))


def place_file(advised: Advised) -> str:
    """The advised rules as the text of a place file, with comments that explain them."""
    lines = [f"# {advised.trace.name} on {advised.machine.name}, by pagewalk advise"]
    best = advised.data["best"]
    predicted = predictions.of(best, advised.machine.name) if best is not None else None
    lines += [predicted.line()] if predicted is not None else []
    for region in advised.regions:
        if region.size is not None:
            lines.append(f"{region.place} = {region.size}  # {' '.join(region.name.split())}")
    return "\n".join(lines) + "\n"


def _sizes(machine: Machine) -> list[str]:
    """The page sizes that are larger than base pages, smallest first."""
    described = machine.description
    manager = described.get("os", {})
    name = manager.get("manager", FIRST_TOUCH)
    if name not in (FIRST_TOUCH, "irix", "linux"):
        raise _native.Error(
            f"{machine.name} has a memory manager that takes no requests for page sizes: choose a "
            "machine whose os.manager is "
            "irix, first-touch or linux, such as -m origin-2000 or -m epyc-9005"
        )
    if name == "linux" and manager.get("linux", {}).get("enabled", "always") != "madvise":
        raise _native.Error(
            "os.linux.enabled must be madvise, so that only advised memory gets large pages: set it"
        )
    if manager.get("place"):
        raise _native.Error("advise searches for page sizes itself: leave os.place and --place out")
    base = text.bytes_of(manager.get("base_page", "4K"))
    if name == FIRST_TOUCH and (
        manager.get("uniform") or text.bytes_of(manager.get("page_size", "4K")) > base
    ):
        raise _native.Error(
            f"{machine.name} has pages of {manager['page_size']} for all memory: set "
            "os.page_size=4K, and leave os.uniform out"
        )
    tlbs = [tlb for tlb in described["tlb"].values() if isinstance(tlb, dict)]
    arrays = [array for tlb in tlbs for array in (tlb, *tlb.get("array", []))]
    found = {text.bytes_of(size): size for one in arrays for size in one.get("page_sizes", [])}
    sizes = [found[size] for size in sorted(found) if size > base]
    if name != "irix":
        # A TLB for which the file lists no page sizes holds pages of this size too.
        sizes = [MADVISED] if MADVISED in sizes or not found else []
    if not sizes:
        raise _native.Error(f"the TLBs of {machine.name} hold pages of one size: nothing to advise")
    return sizes


class _Tried(NamedTuple):
    """The runs from which the advice is chosen."""

    alone: dict[tuple[int, str], Try]
    """Runs with each group alone at each size."""
    uniform: dict[str, Try]
    """Runs with all groups at one size."""
    sets: list[Try]
    """Runs with sets of page sizes."""


class _Runs:
    """The runs of one trace on one machine with different page sizes."""

    def __init__(
        self,
        trace: "Trace",
        machine: tuple[str, list[str]],
        base: dict[str, Any],
        sizes: list[str],
        progress: Progress | None,
        *,
        exact: bool,
    ) -> None:
        self.trace, (self.machine, self.settings) = trace, machine
        self.base_results, self.sizes, self.progress = base, sizes, progress
        self.exact = exact
        described = base["machine"]["description"]
        # IRIX has pages of all sizes for all regions.
        by_linux = described.get("os", {}).get("manager") != "irix"
        self.by_software = described["walker"].get("kind") == "software"
        found = page_size_groups.candidates(base, sizes)
        why = [large_pages.why_none(region) if by_linux else None for region in found]
        least = WORTH * base["walks"]["walks"]
        can = [one for one, none in zip(found, why, strict=True) if none is None]
        self.groups = page_size_groups.groups(can, least, alike=not exact)
        self.as_they_are = [
            (one, none)
            for one, none in zip(found, why, strict=True)
            if none and one["misses"] >= max(least, 1)
        ]
        self.done: dict[Try, dict[str, Any]] = {}
        self.parts: dict[Try, list[Part]] = {}
        self.failed: dict[Try, str] = {}
        self.native = base.get("native")
        none = self.none = Try((None,) * len(self.groups))
        self.base = self.done[none] = self._run(none, base)
        self.parts[none] = page_size_groups.parts(base, self.groups)
        self.costs = Costs(base, self.base)
        self.zero = self._zero() if exact else self.costs.base

    def advised(self, memory_added_max: float, early: Early) -> dict[str, Any]:
        """The document of the advice."""
        limit = memory_added_max * self.base["memory_bytes"]
        if any(self.base_results["accesses"].values()):
            early(self._after_base())
        tried = self._each(limit) if self.exact else self._quickly(limit, early)
        best = self._best(tried.sets, limit)
        sizes = best.sizes if best else self.none.sizes
        regions = []
        for at, group in enumerate(self.groups):
            own = {
                size: self.done[one]
                for (of, size), one in tried.alone.items()
                if of == at and one in self.done
            }
            size = sizes[at]
            together = self._together(at, tried.uniform)
            reason = (
                self._reason(own, size, limit)
                if self.exact
                else self._reason_together(at, size, together, limit)
            )
            for region in group.regions:
                write = large_pages.written(region, size, self._site(region)) if size else None
                row = _advised(region, own, size, reason, write)
                regions.append({**row, "group": at, "together": together})
        regions += [
            {**_advised(region, {}, None, why, None), "group": None, "together": {}}
            for region, why in self.as_they_are
        ]
        regions.sort(key=lambda region: -region["misses"] - region["cold_misses"])
        base = self.base_results
        failures = sorted({f"a run failed and was left out: {why}" for why in self.failed.values()})
        there = sum(region["misses"] + region["cold_misses"] for region in regions)
        return {
            "schema": 1,
            "pagewalk": base["pagewalk"],
            "trace": base["trace"],
            "machine": base["machine"],
            "memory_added_max": memory_added_max,
            "exact": self.exact,
            "runs": len(self.done) + len(self.failed),
            "here": here.is_of(self.machine, here.processor()),
            "how": getattr(estimates.overlap(base), "how", None),
            "base": self.base,
            "regions": regions,
            "regions_left_out": len(base["regions"]) - len(regions),
            "misses_left_out": sum(region["misses"] for region in base["regions"]) - there,
            "uniform": {
                size: self.done[one] for size, one in tried.uniform.items() if one in self.done
            },
            "sets": self._undominated(tried.sets),
            "best": self.done[best] if best else None,
            "notes": [*NOTES, *failures],
        }

    def _each(self, limit: float) -> _Tried:
        """Runs each group alone at each size, then all groups at each size.

        Then runs the sets that `grown` returns.
        """
        many = len(self.groups)
        alone = {
            (at, size): Try(tuple(size if one == at else None for one in range(many)))
            for at, group in enumerate(self.groups)
            for size in self.sizes
            if text.bytes_of(size) <= group.regions[0]["bytes"]
        }
        uniform = {size: Try((size,) * many) for size in self.sizes} if many else {}
        self._count([*alone.values(), *uniform.values()])
        worths = {
            key: Worth(self._saved(self.done[one]), self.done[one]["memory_added_bytes"])
            for key, one in alone.items()
            if one in self.done
        }
        least = WORTH * self.costs.base
        sets = [
            Try(one)
            for most in (limit, None)
            for one in page_size_groups.grown(worths, many, least, most)
        ]
        self._count(sets)
        return _Tried(
            alone, uniform, [one for one in (*sets, *uniform.values()) if one in self.done]
        )

    def _quickly(self, limit: float, early: Early) -> _Tried:
        """Runs all groups at one or two sizes, then the best set of sizes within the limit."""
        many = len(self.groups)
        if not many:
            return _Tried({}, {}, [])
        sizes = self.sizes
        if len(sizes) > SIZES_AT_ONCE:
            sizes = [sizes[(len(sizes) - 1) // 2], sizes[-1]]
        uniform = {size: Try((size,) * many) for size in sizes}
        self._count_regions([*uniform.values()])
        for one in uniform.values():
            if one in self.done:
                early(self._after_uniform(one))
        worths = self._estimated(uniform)
        least = WORTH * self.costs.base

        def last(most: float | None) -> Try:
            return Try([self.none.sizes, *page_size_groups.grown(worths, many, least, most)][-1])

        wanted = [last(limit)]
        free = last(None)
        saved = [
            self.costs.base - self.costs.of(self.done[one])
            for one in uniform.values()
            if one in self.done
        ]
        if self._worth_of(worths, free).saved > max(saved, default=0) + least:
            wanted.append(free)
        for size in self.sizes[: self.sizes.index(sizes[0])]:
            # If the sizes that were run add too much memory, sizes that were not run may add less.
            wanted.append(self._filled(wanted[0], size, worths))
        self._count_regions(wanted)
        # A set that was estimated to fit may have added more memory than the limit. Then a smaller
        # set is chosen.
        most = limit
        for _ in range(TIGHTENED_MAX):
            run, estimate = self.done.get(wanted[0]), self._worth_of(worths, wanted[0])
            if run is None or run["memory_added_bytes"] <= limit or wanted[0] == self.none:
                break
            most = 0.95 * min(most, estimate.memory_bytes) * limit / run["memory_added_bytes"]
            wanted = [last(most), *wanted]
            self._count_regions(wanted)
        sets = [
            one for one in (*wanted, *uniform.values()) if one in self.done and one != self.none
        ]
        return _Tried({}, uniform, sets)

    def _filled(self, tried: Try, size: str, worths: Mapping[tuple[int, str], Worth]) -> Try:
        """The set `tried`, with `size` for groups that gain by it and whose size was not run."""
        least = WORTH * self.costs.base
        ran = {size for done in self.parts for size in done.sizes if size is not None}
        gain = [worths.get((at, size), Worth(0, 0)).saved > least for at in range(len(self.groups))]
        filled = [
            size if one not in ran and gains else one
            for one, gains in zip(tried.sizes, gain, strict=True)
        ]
        return Try(tuple(filled))

    def _estimated(self, uniform: Mapping[str, Try]) -> dict[tuple[int, str], Worth]:
        """The expected effect of each size on each group."""
        found = {}
        ran = {text.bytes_of(size): one for size, one in uniform.items() if one in self.done}
        for at, group in enumerate(self.groups):
            known = {page_size_groups.base_page(self.base_results): Worth(0.0, 0.0)}
            known |= {bytes_: self._worth_at(at, one) for bytes_, one in ran.items()}
            for size in self.sizes:
                bytes_ = text.bytes_of(size)
                if bytes_ <= group.regions[0]["bytes"] and bytes_ <= max(known):
                    found[at, size] = page_size_groups.interpolated(known, bytes_)
        return found

    def _worth_at(self, at: int, tried: Try) -> Worth:
        """What a group saves and the memory that it adds.

        Both numbers are from a run in which all groups have the same size.
        """
        before, after = self.parts[self.none][at], self.parts[tried][at]
        rows = self.base_results["regions"]
        whole = sum(row["walk_cycles"] or 0 for row in rows)
        if self.base["translation_cycles"] is None or not whole:
            saved = float(before.misses - after.misses)
        elif self.by_software:
            # The refill handler of a process with several page sizes takes longer, whichever group
            # has large pages.
            share = before.walk_cycles / max(before.misses, 1)
            saved = (before.misses - after.misses) * share * self.costs.cycles / whole
        else:
            saved = (before.walk_cycles - after.walk_cycles) * self.costs.cycles / whole
        # Pages touched are not memory in use: it may be mapped twice, and a range of addresses may
        # be another process's too. Groups share the rest by what they touch.
        before_all, after_all = self.parts[self.none], self.parts[tried]
        counted = sum(part.touched_bytes for part in after_all)
        counted -= sum(part.touched_bytes for part in before_all)
        rest = self.done[tried]["memory_added_bytes"] - counted
        share = before.touched_bytes / max(sum(part.touched_bytes for part in before_all), 1)
        added = after.touched_bytes - before.touched_bytes + rest * share
        return Worth(self.costs.saved(saved, before, after), max(added, 0.0))

    @staticmethod
    def _worth_of(worths: Mapping[tuple[int, str], Worth], tried: Try) -> Worth:
        """The expected effect of a set, if its groups do not affect each other."""
        found = [worths[at, size] for at, size in enumerate(tried.sizes) if size is not None]
        return Worth(sum(one.saved for one in found), sum(one.memory_bytes for one in found))

    def _together(self, at: int, uniform: Mapping[str, Try]) -> dict[str, dict[str, Any]]:
        """A `RegionsAtSize` of a group for each size with which all groups were run."""
        found = {}
        for size, one in uniform.items():
            if one in self.parts:
                part, worth = self.parts[one][at], self._worth_at(at, one)
                found[size] = {
                    "misses": part.misses - part.cold,
                    "cold_misses": part.cold,
                    "large_pages": part.large,
                    "memory_added_bytes": round(worth.memory_bytes),
                    "saved_share": self.costs.share(worth.saved),
                }
        return found

    def _after_base(self) -> str:
        """The preliminary result after the first pass."""
        of = sum(region["misses"] for region in self.base_results["regions"])
        here = sum(group.misses for group in self.groups)
        regions = sum(len(group.regions) for group in self.groups)
        if not regions:
            return "after pass 1: no region with 0.1 % of the misses can have larger pages"
        first = self.groups[0].regions[0]["name"]
        return (
            f"after pass 1: {text.percent(here / max(of, 1))} of the misses are in "
            f"{text.plural(regions, 'region')} that can have larger pages, in "
            f"{text.plural(len(self.groups), 'group')} of like ones; the busiest is {first}"
        )

    def _after_uniform(self, tried: Try) -> str:
        """The preliminary result after the second pass."""
        run = self.done[tried]
        saved = self.costs.share(self.costs.base - self.costs.of(run))
        return (
            f"after pass 2: {tried.sizes[0]} for all of them saves {text.percent(max(saved, 0))} "
            f"of {self.costs.of_what}, and adds {_added(run['memory_added_bytes'])}"
        )

    def _zero(self) -> float:
        """The cost of base pages under the refill handler of a process that has requested a size.

        The first region with a requested size adds the cost of this handler. Further regions add no
        cost.
        """
        if not self.by_software:
            return self.costs.base
        machine = Machine(self.machine, [*self.settings, 'walker.page_mask="always"'])
        results = machine.run(self.trace, progress=self.progress, names=False)
        return self.costs.of(self._run(self.none, results.data))

    def _saved(self, run: Mapping[str, Any]) -> float:
        """The savings of a region alone, without the cost of the handler."""
        return self.zero - self.costs.of(run)

    def _count(self, tries: Sequence[Try]) -> None:
        """Runs those of `tries` that were not run yet."""
        new = [one for one in dict.fromkeys(tries) if one not in self.done]
        for first in range(0, len(new), RUNS_AT_ONCE):
            group = new[first : first + RUNS_AT_ONCE]
            machines = [
                _native.Machine(self.machine, [*self.settings, self._placed(one)]) for one in group
            ]
            outcomes, _ = _native.sweep_trace(
                machines, self.trace.source, self.trace.reading, 0, self.progress
            )
            for one, (counted, error) in zip(group, outcomes, strict=True):
                if counted is None:
                    self.failed[one] = str(error)
                else:
                    self.done[one] = self._run(one, json.loads(counted))

    def _count_regions(self, tries: Sequence[Try]) -> None:
        """Runs those of `tries` that have no results yet, in parallel, with counts by region.

        A sweep would read the trace only once. But a sweep's results have no counts by region and
        page size, and a sweep takes more time per design than a run.
        """
        new = [one for one in dict.fromkeys(tries) if one not in self.done]
        is_over = threading.Event()

        def run(one: Try, progress: Progress | None) -> dict[str, Any] | _native.WorkError:
            machine = Machine(self.machine, [*self.settings, self._placed(one)])
            try:
                trace = copy.copy(self.trace)
                found: dict[str, Any] = machine.run(trace, progress=progress, names=False).data
            except _native.WorkError as error:
                return error
            return found

        if not new:
            return
        with ThreadPoolExecutor(max_workers=len(new)) as pool:
            others = [pool.submit(run, one, lambda *_: not is_over.is_set()) for one in new[1:]]
            try:
                found = [run(new[0], self.progress)]
            except BaseException:
                is_over.set()
                raise
            found += [other.result() for other in others]
        for one, results in zip(new, found, strict=True):
            if isinstance(results, _native.WorkError):
                self.failed[one] = str(results)
            else:
                self.done[one] = self._run(one, results)
                self.parts[one] = page_size_groups.parts(results, self.groups)

    def _placed(self, tried: Try) -> str:
        return f"os.place={','.join(self._rules(tried))}"

    def _rules(self, tried: Try) -> list[str]:
        return [
            rule
            for group, size in zip(self.groups, tried.sizes, strict=True)
            if size is not None
            for rule in group.rules(size)
        ]

    def _run(self, tried: Try, results: dict[str, Any]) -> dict[str, Any]:
        """The `PlacedRun` of one of `tries`."""
        memory, time = results["memory"]["frames_peak_bytes"], results["time"]
        before = self.base_results["time"]
        cycles = time and time["translation_cycles"]
        gain = kernel = ms = share = best = best_ms = likely = of_cpu = None
        if time and before:
            first = before["translation_cycles"]
            gain = _range(first[end] - cycles[end] for end in ("lo", "hi"))
            if before.get("kernel") and time.get("kernel"):
                kernel = before["kernel"]["cycles"] - time["kernel"]["cycles"]
            # At an end of the range at which translation takes no time, nothing can be gained.
            parts = {
                end: (first[end] - cycles[end]) / first[end] if first[end] > 0 else 0.0
                for end in ("lo", "hi")
            }
            share = _range(before["share"][end] * part for end, part in parts.items())
            machine = self.base_results["machine"]
            placed = {**results, "machine": machine}
            estimated = estimates.gain(self.base_results, placed)
            likely = estimates.likely(self.base_results, placed)
            if set(tried.sizes) <= {MADVISED, None}:
                of_cpu = estimates.of_cpu(self.base_results, placed)
            if estimated is not None:
                best = min(max(estimated, share["lo"]), share["hi"])
            native = self.native["translation_ms"] if self.native is not None else None
            if native is not None:
                ms = _range(native[end] * part for end, part in parts.items())
                if best is not None and self.native is not None:
                    best_ms = 1000 * self.native["user_seconds"] * best
        why: dict[str, int] = {}
        for row in (results.get("manager") or {}).get("sizes", []):
            why[row["why"]] = why.get(row["why"], 0) + row["pages"]
        return {
            "rules": self._rules(tried),
            "misses": results["walks"]["walks"] - results["walks"]["cold"],
            "cold_misses": results["walks"]["cold"],
            "memory_bytes": memory,
            "memory_added_bytes": memory - self.base_results["memory"]["frames_peak_bytes"],
            "translation_cycles": cycles,
            "gain_cycles": gain,
            "gain_ms": ms,
            "gain_share": share,
            "gain_likely": likely,
            "gain_best": best,
            "gain_best_ms": best_ms,
            "gain_of_cpu": of_cpu,
            "kernel_gain_cycles": kernel,
            "why": why,
        }

    def _best(self, tried: Sequence[Try], limit: float) -> Try | None:
        """The set with the largest gain within the memory limit.

        Of sets with equal gains, the smallest.
        """
        fits = [one for one in tried if self.done[one]["memory_added_bytes"] <= limit]
        least = min([self.costs.of(self.done[one]) for one in fits], default=self.costs.base)
        worth = WORTH * self.costs.base
        if least >= self.costs.base - worth:
            return None
        near = [one for one in fits if self.costs.of(self.done[one]) <= least + worth]

        def small(one: Try) -> tuple[int, int]:
            rules = len(self.done[one]["rules"])
            return rules, self.done[one]["memory_added_bytes"]

        return min(near, key=small)

    def _undominated(self, tried: Sequence[Try]) -> list[dict[str, Any]]:
        """Sets ordered by their memory: those that gain more than every set with less memory."""
        found: list[dict[str, Any]] = []
        for run in sorted(
            (self.done[one] for one in dict.fromkeys(tried)),
            key=lambda run: (run["memory_added_bytes"], self.costs.of(run)),
        ):
            if self.costs.of(run) < self.costs.of(found[-1] if found else self.base):
                found.append(run)
        return found

    def _reason(self, own: Mapping[str, Any], size: str | None, limit: float) -> str:
        if size is not None:
            # A region may have a size for which it has no room: in a set in which all regions have
            # this size.
            run = own.get(size) or [*own.values()][-1]
            saved = text.percent(self._saved(run) / (self.zero or 1))
            return (
                f"saves {saved} of {self.costs.of_what}, adds {_added(run['memory_added_bytes'])}"
            )
        worth = [run for run in own.values() if self._saved(run) > WORTH * self.zero]
        if not worth:
            return f"no size saves 0.1 % of {self.costs.of_what}"
        least = min(run["memory_added_bytes"] for run in worth)
        if least > limit:
            return f"every size that saves something adds {_added(least)} or more"
        return "it saves too little in addition to what the chosen sizes save"

    def _reason_together(
        self, at: int, size: str | None, together: Mapping[str, Any], limit: float
    ) -> str:
        """Why a group has its size, from the runs in which all groups had the same size."""
        count = len(self.groups[at].regions)
        they = f"{count} regions alike" if count > 1 else "it"
        if size is not None:
            run = together.get(size) or [*together.values()][-1]
            verb = "save" if count > 1 else "saves"
            return (
                f"{they} {verb} {text.percent(run['saved_share'])} of {self.costs.of_what} "
                f"where all regions have {size}, and {'add' if count > 1 else 'adds'} "
                f"{_added(run['memory_added_bytes'])}"
            )
        if together and not any(run["large_pages"] for run in together.values()):
            return (
                f"no larger page lies within {they}: where it is mapped, no multiple of "
                f"{self.sizes[0]} has room; --spread {self.sizes[0]} puts mappings at multiples"
            )
        worth = [run for run in together.values() if run["saved_share"] > WORTH]
        if not worth:
            return f"no size saves 0.1 % of {self.costs.of_what}"
        least = min(run["memory_added_bytes"] for run in worth)
        if least > limit:
            return f"every size that saves something adds {_added(least)} or more"
        return "it saves too little in addition to what the chosen sizes save"

    def _site(self, region: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The allocation site for which a region was allocated."""
        at = region.get("site")
        found: Mapping[str, Any] | None = None
        if at is not None:
            found = self.base_results["origins"]["sites"][at]
        return found


def _advised(
    region: Mapping[str, Any],
    alone: Mapping[str, Any],
    size: str | None,
    reason: str,
    write: large_pages.Written | None,
) -> dict[str, Any]:
    """The `AdvisedRegion` of a region."""
    return {
        **{key: region[key] for key in ("name", "start", "bytes", "place")},
        "backing": region.get("backing"),
        "misses": region["misses"] - region["cold_misses"],
        "cold_misses": region["cold_misses"],
        "alone": alone,
        "size": size,
        "reason": reason,
        "write": write.line if write else None,
        "code": write.code if write else None,
    }


def _added(bytes_: int) -> str:
    return "no memory" if bytes_ <= 0 else text.size(bytes_)


def _range(ends: Any) -> dict[str, float]:
    low, high = sorted(ends)
    return {"lo": low, "hi": high}
