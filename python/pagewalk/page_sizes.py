"""`advise`: which region of a program should have which page size, each tried by a run.

```
 base pages ------> regions by misses
 each region alone at each size, and all at one size  -> gain, memory added
 sets, by greatest gain per byte added, each run      -> the best that memory allows -> place file
```

Misses of regions do not add up, for all share the TLB: what is said of a set is what the run of
that set counted. IBM's `tprof -a` for AIX does this for four regions; place files are those of
`dprof` and `dplace` of IRIX (Ganapathy and Schimmel 1998, section 6.5.1).
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pagewalk import _native, large_pages, text
from pagewalk.document import Advised
from pagewalk.machine import Machine
from pagewalk.memory_share import memory_settings
from pagewalk.progress import Progress, bar

if TYPE_CHECKING:
    from pagewalk.trace import Trace

MEMORY_ADDED_MAX = 0.05
"""Most memory that the advice adds unless told otherwise, as a share."""
WORTH = 0.001
"""Share of all misses, or of their cycles, below which a region is left as it is: an assumption."""
FIRST_TOUCH = "first-touch"
"""The manager where a machine names none; it gives what madvise can give."""
MADVISED = "2M"
"""The size that Linux's madvise gives on x86-64."""
RUNS_AT_ONCE = 16
"""Runs that share a pass over the trace, as their page tables and memories are there at once."""
NOTES = (
    "On Linux madvise takes no size: pages have 2M, or those sizes that are enabled in "
    f"{large_pages.KNOBS}. MADV_HUGEPAGE works where {large_pages.KNOBS}/enabled is madvise or "
    "always, and where p begins on such a page. Pagewalk does not place a program that runs on "
    "Linux.",
    "Addresses of a place file are those of the recording.",
)


class Try(NamedTuple):
    """Page sizes by region, in the order of regions; `None`: base pages."""

    sizes: tuple[str | None, ...]


def advise(
    trace: "Trace | str | os.PathLike[str]",
    machine: str | os.PathLike[str],
    *,
    set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    memory_added_max: float = MEMORY_ADDED_MAX,
    aged: tuple[float, float] | None = None,
    memory: str | None = None,
    progress: "Progress | bool | None" = None,
) -> Advised:
    """Runs `trace` with each region at each page size alone, then with sets of them.

    Args:
        trace: A trace, or what `Trace` takes; not a pipe, as it is read several times.
        machine: As for `Machine`; its manager gives pages of the sizes that are wished: `irix`, as
            `origin-2000`'s, or `first-touch`, as that of most, or `linux`, which give 2M.
        set: What to change in it, as for `Machine`; not `os.place`.
        memory_added_max: Most memory that may be added, as a share of what base pages take.
        aged: Begin with memory that was used for long: shares of it that are free and wired.
        memory: How much there is, as for `memory_settings`.
        progress: Called with accesses done and in all of each group of runs; `True` shows a bar.

    Raises:
        Error: There is no such trace or machine, or the machine has only one page size.
        WorkError: The trace is damaged, or the run with base pages failed.
    """
    from pagewalk.trace import Trace

    trace = trace if isinstance(trace, Trace) else Trace(trace)
    settings = [f"{k}={v}" for k, v in set.items()] if isinstance(set, Mapping) else list(set)
    described = Machine(machine, settings)
    sizes = _sizes(described)
    if trace.is_pipe:
        raise _native.Error("a pipe is read once: `pagewalk import` it, then advise")
    if memory_added_max < 0:
        raise _native.Error(f"memory_added_max is {memory_added_max}: give a share of 0 or more")
    with bar(progress, f"page sizes of {trace.name}") as told:
        settings += memory_settings(
            trace, machine, set=settings, aged=aged, memory=memory, progress=told
        )
        base = Machine(machine, settings).run(trace, progress=told, names=False).data
        runs = _Runs(trace, (os.fspath(machine), settings), base, sizes, told)
        return Advised(runs.advised(memory_added_max))


def place_file(advised: Advised) -> str:
    """The rules that are advised, as `--place` takes them, with what each is for."""
    lines = [f"# {advised.trace.name} on {advised.machine.name}, by pagewalk advise"]
    for region in advised.regions:
        if region.size is not None:
            lines.append(f"{region.place} = {region.size}  # {' '.join(region.name.split())}")
    return "\n".join(lines) + "\n"


def _sizes(machine: Machine) -> list[str]:
    """The page sizes above that of base pages, smallest first."""
    described = machine.description
    manager = described.get("os", {})
    name = manager.get("manager", FIRST_TOUCH)
    if name not in (FIRST_TOUCH, "irix", "linux"):
        raise _native.Error(
            f"{machine.name} takes no wishes for page sizes: take a machine whose os.manager is "
            "irix, first-touch or linux, as -m origin-2000 or -m epyc-9005"
        )
    if name == "linux" and manager.get("linux", {}).get("enabled", "always") != "madvise":
        raise _native.Error(
            "large pages come by advice alone where os.linux.enabled is madvise: set that"
        )
    if manager.get("place"):
        raise _native.Error("os.place is what is looked for: leave it and --place out")
    base = text.bytes_of(manager.get("base_page", "4K"))
    if name == FIRST_TOUCH and (
        manager.get("uniform") or text.bytes_of(manager.get("page_size", "4K")) > base
    ):
        raise _native.Error(
            f"{machine.name} has pages of {manager['page_size']} everywhere already: set "
            "os.page_size=4K and leave os.uniform out"
        )
    tlbs = [tlb for tlb in described["tlb"].values() if isinstance(tlb, dict)]
    arrays = [array for tlb in tlbs for array in (tlb, *tlb.get("array", []))]
    found = {text.bytes_of(size): size for one in arrays for size in one.get("page_sizes", [])}
    sizes = [found[size] for size in sorted(found) if size > base]
    if name != "irix":
        # A TLB of which nothing is said holds it too.
        sizes = [MADVISED] if MADVISED in sizes or not found else []
    if not sizes:
        raise _native.Error(f"the TLBs of {machine.name} hold pages of one size: nothing to advise")
    return sizes


class _Runs:
    """The runs of one trace on one machine with all kinds of page sizes."""

    def __init__(
        self,
        trace: "Trace",
        machine: tuple[str, list[str]],
        base: dict[str, Any],
        sizes: list[str],
        progress: Progress | None,
    ) -> None:
        self.trace, (self.machine, self.settings) = trace, machine
        self.base_results, self.sizes, self.progress = base, sizes, progress
        found = _regions(base, sizes)
        # IRIX has pages of all sizes for all regions.
        by_linux = base["machine"]["description"].get("os", {}).get("manager") != "irix"
        why = [large_pages.why_none(region) if by_linux else None for region in found]
        self.regions = [one for one, none in zip(found, why, strict=True) if none is None]
        self.as_they_are = [(one, none) for one, none in zip(found, why, strict=True) if none]
        self.done: dict[Try, dict[str, Any]] = {}
        self.failed: dict[Try, str] = {}
        self.native = base.get("native")
        none = Try((None,) * len(self.regions))
        self.base = self.done[none] = self._run(none, base)
        self.zero = self._zero()

    def advised(self, memory_added_max: float) -> dict[str, Any]:
        """The document."""
        many = len(self.regions)
        alone = {
            (at, size): Try(tuple(size if one == at else None for one in range(many)))
            for at, region in enumerate(self.regions)
            for size in self.sizes
            if text.bytes_of(size) <= region["bytes"]
        }
        uniform = {size: Try((size,) * many) for size in self.sizes} if many else {}
        self._count([*alone.values(), *uniform.values()])
        limit = memory_added_max * self.base["memory_bytes"]
        wanted = [*self._grown(alone, limit), *self._grown(alone, None)]
        self._count(wanted)
        tried = [one for one in (*wanted, *uniform.values()) if one in self.done]
        best = self._best(tried, limit)
        sizes = best.sizes if best else (None,) * many
        regions = []
        for at, region in enumerate(self.regions):
            own = {
                size: self.done[one]
                for (of, size), one in alone.items()
                if of == at and one in self.done
            }
            size = sizes[at]
            write = large_pages.written(region, size, self._site(region)) if size else None
            reason = self._reason(own, size, limit)
            regions.append(_advised(region, own, size, reason, write))
        regions += [_advised(region, {}, None, why, None) for region, why in self.as_they_are]
        regions.sort(key=lambda region: -region["misses"] - region["cold_misses"])
        base = self.base_results
        failures = sorted({f"a run failed and was left out: {why}" for why in self.failed.values()})
        return {
            "schema": 1,
            "pagewalk": base["pagewalk"],
            "trace": base["trace"],
            "machine": base["machine"],
            "memory_added_max": memory_added_max,
            "base": self.base,
            "regions": regions,
            "regions_left_out": len(base["regions"]) - len(regions),
            "uniform": {size: self.done[one] for size, one in uniform.items() if one in self.done},
            "sets": self._undominated(tried),
            "best": self.done[best] if best else None,
            "notes": [*NOTES, *failures],
        }

    def _zero(self) -> float:
        """The cost of base pages under the refill handler of a process that wished for a size.

        The first region with a size pays for that handler, and the others no more.
        """
        if self.base_results["machine"]["description"]["walker"].get("kind") != "software":
            return _cost(self.base)
        machine = Machine(self.machine, [*self.settings, 'walker.page_mask="always"'])
        results = machine.run(self.trace, progress=self.progress, names=False)
        return _cost(self._run(Try((None,) * len(self.regions)), results.data))

    def _saved(self, run: Mapping[str, Any]) -> float:
        """What a region alone saves, the handler apart."""
        return self.zero - _cost(run)

    def _count(self, tries: Sequence[Try]) -> None:
        """Runs those of `tries` that have not been."""
        new = [one for one in dict.fromkeys(tries) if one not in self.done]
        for first in range(0, len(new), RUNS_AT_ONCE):
            group = new[first : first + RUNS_AT_ONCE]
            machines = [
                _native.Machine(
                    self.machine, [*self.settings, f"os.place={','.join(self._rules(one))}"]
                )
                for one in group
            ]
            outcomes, _ = _native.sweep_trace(
                machines, self.trace.source, self.trace.reading, 0, self.progress
            )
            for one, (counted, error) in zip(group, outcomes, strict=True):
                if counted is None:
                    self.failed[one] = str(error)
                else:
                    self.done[one] = self._run(one, json.loads(counted))

    def _rules(self, tried: Try) -> list[str]:
        return [
            f"{region['place']} = {size}"
            for region, size in zip(self.regions, tried.sizes, strict=True)
            if size is not None
        ]

    def _run(self, tried: Try, results: dict[str, Any]) -> dict[str, Any]:
        """A `PlacedRun`."""
        memory, time = results["memory"]["frames_peak_bytes"], results["time"]
        before = self.base_results["time"]
        cycles = time and time["translation_cycles"]
        gain = kernel = ms = None
        if time and before:
            first = before["translation_cycles"]
            gain = _range(first[end] - cycles[end] for end in ("lo", "hi"))
            if before.get("kernel") and time.get("kernel"):
                kernel = before["kernel"]["cycles"] - time["kernel"]["cycles"]
            native = self.native["translation_ms"] if self.native is not None else None
            if native is not None:
                # An end at which translation takes no time gains none.
                parts = {
                    end: (first[end] - cycles[end]) / first[end] if first[end] > 0 else 0.0
                    for end in ("lo", "hi")
                }
                ms = _range(native[end] * part for end, part in parts.items())
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
            "kernel_gain_cycles": kernel,
            "why": why,
        }

    def _grown(self, alone: Mapping[tuple[int, str], Try], limit: float | None) -> list[Try]:
        """Sets from none on, each with the change that gains most per byte that it adds.

        Gains and memory are those of regions alone; with a limit, no set adds more than that.
        """
        points = {key: self.done[one] for key, one in alone.items() if one in self.done}
        worth = WORTH * _cost(self.base)
        sizes: list[str | None] = [None] * len(self.regions)
        gains, added = [0.0] * len(sizes), [0] * len(sizes)
        sets: list[Try] = []
        while True:
            moves = []
            for (at, size), run in points.items():
                more = self._saved(run) - gains[at]
                bytes_ = run["memory_added_bytes"] - added[at]
                if more <= worth or (limit is not None and sum(added) + bytes_ > limit):
                    continue
                moves.append((more / max(bytes_, 1), more, at, size, bytes_))
            if not moves:
                return sets
            _, more, at, size, bytes_ = max(moves)
            sizes[at] = size
            gains[at] += more
            added[at] += bytes_
            sets.append(Try(tuple(sizes)))

    def _best(self, tried: Sequence[Try], limit: float) -> Try | None:
        """The set that gains most within the memory; of those that gain alike, the smallest."""
        fits = [one for one in tried if self.done[one]["memory_added_bytes"] <= limit]
        least = min([_cost(self.done[one]) for one in fits], default=_cost(self.base))
        worth = WORTH * _cost(self.base)
        if least >= _cost(self.base) - worth:
            return None
        near = [one for one in fits if _cost(self.done[one]) <= least + worth]

        def small(one: Try) -> tuple[int, int]:
            return sum(map(bool, one.sizes)), self.done[one]["memory_added_bytes"]

        return min(near, key=small)

    def _undominated(self, tried: Sequence[Try]) -> list[dict[str, Any]]:
        """The sets by memory, each of which gains more than all before it."""
        found: list[dict[str, Any]] = []
        for run in sorted(
            (self.done[one] for one in dict.fromkeys(tried)),
            key=lambda run: (run["memory_added_bytes"], _cost(run)),
        ):
            if _cost(run) < _cost(found[-1] if found else self.base):
                found.append(run)
        return found

    def _reason(self, own: Mapping[str, Any], size: str | None, limit: float) -> str:
        whole = max(self.zero, 1)
        if size is not None:
            # A size that the region has no room for comes from a set in which all have it.
            run = own.get(size) or [*own.values()][-1]
            saved = text.percent(self._saved(run) / whole)
            return f"saves {saved} of the translation, adds {_added(run['memory_added_bytes'])}"
        worth = [run for run in own.values() if self._saved(run) > WORTH * whole]
        if not worth:
            return "no size saves 0.1 % of the translation"
        least = min(run["memory_added_bytes"] for run in worth)
        if least > limit:
            return f"every size that saves something adds {_added(least)} or more"
        return "it saves too little beside the others"

    def _site(self, region: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The allocation site that a region was made for."""
        at = region.get("site")
        found: Mapping[str, Any] | None = None
        if at is not None:
            found = self.base_results["origins"]["sites"][at]
        return found


def _regions(base: Mapping[str, Any], sizes: Sequence[str]) -> list[dict[str, Any]]:
    """The regions that are tried, most misses first, with what a rule calls each."""
    rows = base["regions"]
    names = [row["name"] for row in rows]
    least = WORTH * base["walks"]["walks"]
    room = text.bytes_of(sizes[0]) if sizes else 0
    found: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: -row["misses"]):
        start, end = row["start"], row["start"] + row["bytes"]
        apart = all(end <= one["start"] or one["start"] + one["bytes"] <= start for one in found)
        if row["misses"] < max(least, 1) or row["bytes"] < room or not apart:
            continue
        own = row["name"] in ("heap", "stack") and names.count(row["name"]) == 1
        place = row["name"] if own else f"range {start:#x}..{end:#x}"
        found.append({**row, "place": place})
    return found


def _advised(
    region: Mapping[str, Any],
    alone: Mapping[str, Any],
    size: str | None,
    reason: str,
    write: large_pages.Written | None,
) -> dict[str, Any]:
    """An `AdvisedRegion`."""
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


def _cost(run: Mapping[str, Any]) -> float:
    """What is to be small: cycles, the middle of their range, or misses where there are none."""
    cycles = run["translation_cycles"]
    if cycles is None:
        return float(run["misses"] + run["cold_misses"])
    return float(cycles["lo"] + cycles["hi"]) / 2


def _added(bytes_: int) -> str:
    return "no memory" if bytes_ <= 0 else text.size(bytes_)


def _range(ends: Any) -> dict[str, float]:
    low, high = sorted(ends)
    return {"lo": low, "hi": high}
