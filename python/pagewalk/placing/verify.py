"""Requested and actual page sizes by region: the document of `pagewalk verify`.

```
 mapping + rules, advice, knobs --> wanted size
 mapping + PAGEMAP_SCAN         --> blocks that large pages map, and what else is in memory
 the difference                 --> bytes by reason
```
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pagewalk import _native
from pagewalk._native import Error
from pagewalk.placing import mappings, pages, reasons, rules
from pagewalk.placing.mappings import Mapping
from pagewalk.placing.pages import BASE, LARGE, Range
from pagewalk.placing.reasons import Process, Why
from pagewalk.placing.rules import Rule, shown
from pagewalk.placing.system import THP, System

SCHEMA = 1
_HUGETLB_TUNABLE = "glibc.malloc.hugetlb=2"


class Wanted(NamedTuple):
    """The page size that a part of a mapping should have."""

    start: int
    end: int
    size: int
    by: str
    """The origin of the request: the text of a rule, `advice`, `knob` or `pool`."""
    is_rule: bool


def verify(
    pid: int,
    rules_: Sequence[Rule] = (),
    *,
    system: System | None = None,
    grown: dict[str, int] | None = None,
    disabled: int | None = None,
    moment: str = "now",
) -> dict[str, Any]:
    """The page sizes of a process: requested, actual, and the reasons where they differ.

    Args:
        pid: The process. It continues to run.
        rules_: A place file, as `rules.read` gives it.
        system: The kernel's settings. If absent, those of this system.
        grown: By how much counters of faults grew while the process ran.
        disabled: The value of PR_GET_THP_DISABLE, if it is known.
        moment: The time of the observation: `now`, `at its end`, `at its peak`.

    Returns:
        A document; docs/reference/verify.md has its keys.

    Raises:
        Error: There is no such process.
        WorkError: The process may not be examined.
    """
    system = (System() if system is None else system).still()
    found = mappings.read(pid)
    process = _process(pid, system, grown or {}, disabled)
    matched = rules.matched(rules_, found)
    notes: list[str] = []
    regions = []
    for one in found:
        parts = list(_wanted(one, matched.get(one.start, ()), system))
        if not parts and not one.huge and one.kind != mappings.HUGETLB:
            continue
        if region := _region(one, parts, process, system, notes):
            regions.append(region)
    regions.sort(key=lambda region: -region["resident_bytes"])
    if _HUGETLB_TUNABLE in process.tunables and all(
        free == 0 for _, free in system.pools().values()
    ):
        why = reasons.pool(LARGE, system)
        notes.append(
            f"GLIBC_TUNABLES asks for pages of a pool, and none is left: {why.means}. The C "
            f"library then takes base pages. The pool is set by {why.knob}; to enlarge it, run: "
            f"{why.change}"
        )
    large = sum(bytes_ for one in regions for size, bytes_ in one["got"].items() if size != "4K")
    if large and system.is_guest():
        notes.append(f"host: {reasons.host().means}")
    unmet = [rule.title for rule in rules_ if not _is_met(rule, matched)]
    return {
        "schema": SCHEMA,
        "pagewalk": _native.version(),
        "pid": pid,
        "command": command_of(pid),
        "kernel": system.read("proc/sys/kernel/osrelease"),
        "moment": moment,
        "resident_bytes": sum(one.resident for one in found),
        "large_bytes": large,
        "wanted_bytes": sum(one["wanted_bytes"] for one in regions),
        "missing_bytes": sum(why["bytes"] for one in regions for why in one["why"]),
        "knobs": _knobs(system),
        "regions": regions,
        "rules_unmet": unmet,
        "notes": notes,
    }


def _is_met(rule: Rule, matched: dict[int, list[tuple[int, int, Rule]]]) -> bool:
    return any(rule is found for parts in matched.values() for _, _, found in parts)


def _process(pid: int, system: System, grown: dict[str, int], disabled: int | None) -> Process:
    # A program can forbid large pages for itself at any time.
    if system.status(pid).get("THP_enabled") == "0":
        disabled = 1
    if disabled is None and system.allowed(LARGE) == "always":
        try:
            disabled = _native.thp_disabled(pid)
        except OSError:
            disabled = None
    charge = grown.get("anon_fault_fallback_charge", 0)
    fallback = grown.get("anon_fault_fallback", 0) - charge
    environment = system.read(f"proc/{pid}/environ") or ""
    tunables = next(
        (one for one in environment.split("\0") if one.startswith("GLIBC_TUNABLES=")), ""
    )
    return Process(pid, disabled, fallback, charge, tunables)


def command_of(pid: int) -> list[str]:
    """The command line with which a process was started."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        name = Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in words] or [name]


def _knobs(system: System) -> dict[str, str]:
    folder = system.root / THP
    names = ["enabled", "defrag", "shmem_enabled", "khugepaged/max_ptes_none"]
    names += sorted(f"{one.name}/enabled" for one in folder.glob("hugepages-*kB"))
    found = {name: system.knob(f"{THP}/{name}") for name in names}
    return {knob.path: knob.value for knob in found.values() if knob is not None}


def _wanted(
    one: Mapping, parts: Iterable[tuple[int, int, Rule]], system: System
) -> Iterable[Wanted]:
    """The parts of a mapping for which a page size is wanted, by address."""
    if one.kind == mappings.HUGETLB:
        size = one.bytes_of.get("KernelPageSize", LARGE)
        yield Wanted(one.start, one.end, size, "pool", False)
        return
    at = one.start
    otherwise = _without_rule(one, system)
    for start, end, rule in parts:
        if at < start and otherwise:
            yield Wanted(at, start, *otherwise, False)
        yield Wanted(start, end, rule.size, rule.title, True)
        at = end
    if at < one.end and otherwise:
        yield Wanted(at, one.end, *otherwise, False)


def _without_rule(one: Mapping, system: System) -> tuple[int, str] | None:
    """The size that a mapping without a rule should have, by its advice or by the knobs."""
    if one.kind == mappings.OTHER or "nh" in one.flags:
        return None
    is_own = one.kind in mappings.OWN
    sizes = [size for size in system.sizes() if size > BASE] if is_own else [LARGE]
    if "hg" in one.flags:
        given = [size for size in sizes if system.allowed(size) != "never"]
        return max(given, default=LARGE), "advice"
    if is_own and "w" in one.rights:
        given = [size for size in sizes if system.allowed(size) == "always"]
        return (max(given), "knob") if given else None
    return None


def _region(
    one: Mapping, parts: list[Wanted], process: Process, system: System, notes: list[str]
) -> dict[str, Any] | None:
    least = min((part.size for part in parts), default=LARGE)
    if one.bytes < least and one.kind != mappings.HUGETLB:
        # No page of these sizes fits into the mapping, so it does not matter where its pages are.
        start = one.start
        ranges, has_blocks = [Range(start, start + one.resident, False)], True
    else:
        ranges, has_blocks = _present(process.pid, one, notes)
    got, by_folio = _got(process.pid, one, parts, (ranges, has_blocks), notes)
    if not got:
        return None
    why: dict[Why, int] = {}
    wanted_bytes = 0
    for part in parts:
        if part.size <= BASE or one.kind == mappings.HUGETLB:
            continue
        inside = list(_inside(ranges, part.start, part.end))
        resident = sum(end - start for start, end, _ in inside)
        wanted_bytes += resident
        seen = inside, by_folio, has_blocks
        for reason, missing in _missing(one, part, seen, process, system):
            if missing > 0:
                why[reason] = why.get(reason, 0) + missing
    sizes = sorted({part.size for part in parts}, reverse=True)
    return {
        "name": one.name,
        "start": one.start,
        "bytes": one.bytes,
        "rights": one.rights,
        "backing": one.kind,
        "resident_bytes": one.resident,
        "wanted": [shown(size) for size in sizes],
        "by": list(dict.fromkeys(part.by for part in parts)),
        "wanted_bytes": wanted_bytes,
        "got": {shown(size): got[size] for size in sorted(got, reverse=True)},
        "why": [
            {"bytes": bytes_, **reason._asdict()}
            for reason, bytes_ in sorted(why.items(), key=lambda item: -item[1])
        ],
    }


def _present(pid: int, one: Mapping, notes: list[str]) -> tuple[list[Range], bool]:
    """The parts of a mapping in memory, and whether it is known which blocks are large."""
    if one.resident == 0:
        return [], True
    try:
        return pages.present(pid, one.start, one.end), True
    except pages.UnsupportedError:
        _once(
            notes,
            "this kernel has no PAGEMAP_SCAN (Linux 6.7): large pages are those that smaps counts, "
            "and which blocks have them is not known",
        )
        return pages.words(pid, one.start, one.end), False
    except OSError as error:
        raise Error(f"process {pid}: its pages may not be examined: {error.strerror}") from error


def _once(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)


def _got(
    pid: int,
    one: Mapping,
    parts: list[Wanted],
    seen: tuple[list[Range], bool],
    notes: list[str],
) -> tuple[dict[int, int], dict[int, int]]:
    """The number of bytes of a mapping in memory, by page size.

    The second result is the bytes of folios between 4K and 2M.
    """
    ranges, has_blocks = seen
    if one.kind == mappings.HUGETLB:
        size = one.bytes_of.get("KernelPageSize", LARGE)
        return ({size: one.resident} if one.resident else {}), {}
    resident = sum(end - start for start, end, _ in ranges)
    huge = sum(end - start for start, end, is_huge in ranges if is_huge)
    huge = huge if has_blocks else one.huge
    got = {LARGE: huge} if huge else {}
    small: dict[int, int] = {}
    if any(BASE < part.size < LARGE for part in parts):
        folios = pages.folios(pid, ranges)
        if folios is None:
            _once(notes, "pages between 4K and 2M are counted for root alone (/proc/kpageflags)")
        else:
            small = {size: bytes_ for size, bytes_ in folios.items() if size > BASE}
            got |= small
    rest = resident - huge - sum(small.values())
    if rest > 0:
        got[BASE] = rest
    return got, small


def _inside(ranges: Iterable[Range], start: int, end: int) -> Iterable[Range]:
    for one in ranges:
        first, last = max(one.start, start), min(one.end, end)
        if first < last:
            yield Range(first, last, one.huge)


def _bytes(ranges: Iterable[Range], start: int, end: int) -> int:
    """The number of bytes of a part that are mapped by base pages."""
    return sum(last - first for first, last, huge in _inside(ranges, start, end) if not huge)


def _missing(
    one: Mapping,
    part: Wanted,
    seen: tuple[list[Range], dict[int, int], bool],
    process: Process,
    system: System,
) -> Iterable[tuple[Why, int]]:
    """The number of bytes that have smaller pages than wanted, by reason.

    `seen` is a tuple: the ranges in memory; bytes by folio size; whether it is known which blocks
    are large.
    """
    inside, by_folio, has_blocks = seen
    size = part.size
    absent = sum(end - start for start, end, huge in inside if not huge)
    if not has_blocks:
        absent = max(absent - one.huge, 0)
    absent -= sum(bytes_ for folio, bytes_ in by_folio.items() if folio >= size)
    if absent <= 0:
        return
    if one.bytes < size:
        yield reasons.smaller(one, size), absent
        return
    first, last = -(-one.start // size) * size, one.end // size * size
    if first >= last:
        yield reasons.unaligned(one, size), absent
        return
    edges = _bytes(inside, one.start, first) + _bytes(inside, last, one.end)
    edges = min(edges, absent)
    if edges:
        yield reasons.unaligned(one, size), edges
    if absent > edges:
        if size > LARGE:
            yield reasons.pool(size, system), absent - edges
        else:
            yield reasons.large(one, process, system, part.is_rule), absent - edges
