"""The prices of the kernel's work (`[os.costs]`), from the times of its calls and faults.

```
  fault, page is there      | trap | region | object | mapping | entry  |
  fault, zeros              | trap | region | object | mapping | entry  | zeroing | frame taken |
  msync, nothing to do      | call | region |
  mincore of a page more           | object |
  mprotect of a page more                                      | entry  |
  unmapping a page more                                        | entry  | frame given back |
```

Only sums of costs can be timed. If a cost is not the difference of two sums, it is contained in
`traps`, or it is an assumption. For example, it is assumed that a node of a frame's list of
mappings takes one load from memory, like the frame's descriptor. (Linux only counts the mappings of
a frame; its nodes belong to regions.)
"""

from collections.abc import Mapping

from pagewalk.calibrate.seen import Seen, Spread

FLUSH_PAGE = 200
"""Cycles of flushing one page: an assumption. For more than 33 pages Linux flushes the whole
space.
"""
WALK = 30
"""The cycles per walk if they were not measured: an assumption."""
NEEDED = (
    "fault on a page of 4K",
    "fault on a page of 4K that is in memory",
    "unmapping a page of 4K that has a frame",
    "reading and writing an entry of the page table",
    "a call that looks for a region",
    "looking for a page in its object",
    "a call and its return",
    "zeroing 4K",
    "copying 4K",
    "a switch between processes, with a pipe's read and write",
    "mprotect of a page, alone",
)


def costs(seen: Seen) -> list[str]:
    """The lines of `[os.costs]` and `[os.costs.work]`. No lines if something was not timed."""
    if any(name not in seen.costs for name in NEEDED):
        return []
    found = {name: _cycles(cost, seen.ghz.value) for name, cost in seen.costs.items()}
    minor, whole, entry, zero, copy, call, unmap, looked, page = (
        found[name]
        for name in (
            "fault on a page of 4K that is in memory",
            "fault on a page of 4K",
            "reading and writing an entry of the page table",
            "zeroing 4K",
            "copying 4K",
            "a call and its return",
            "unmapping a page of 4K that has a frame",
            "a call that looks for a region",
            "looking for a page in its object",
        )
    )
    region = max(looked - call, 0)
    switch = found["a switch between processes, with a pipe's read and write"] - 2 * call
    send, receive, how = _interrupts(found)
    walk = _cycles(seen.walk["4K"], seen.ghz.value) if "4K" in seen.walk else WALK
    descriptor = _cycles(seen.caches[-1][1], seen.ghz.value) if seen.caches else WALK
    table = {
        "shootdown_send_cycles": send,
        "shootdown_receive_cycles": receive,
        "flush_page_cycles": FLUSH_PAGE,
        "flush_space_cycles": 33 * FLUSH_PAGE,
        "walk_cycles": walk,
        "fault_cycles": whole,
        "switch_cycles": switch,
    }
    work = {
        "traps": minor - entry - region - page - descriptor,
        "calls": call,
        "region_lookups": region,
        "object_lookups": page,
        "frames_taken": whole - minor - zero,
        "frames_given": unmap - entry,
        "descriptors": descriptor,
        "table_reads": entry // 2,
        "table_writes": entry - entry // 2,
        "mappings": descriptor,
        "zeroed": zero,
        "copied": copy,
    }
    return [
        "",
        "[os.costs]",
        *(f"{key} = {max(value, 0)}" for key, value in table.items()),
        f'source = "timed; switch_cycles: without two calls; shootdowns: {how}; flushes: '
        "assumptions, flush_space_cycles 33 pages' worth, beyond which Linux flushes the whole "
        'space; walk_cycles: just beyond the TLBs"',
        "",
        "[os.costs.work]",
        *(f"{key} = {max(value, 0)}" for key, value in work.items()),
        'source = "timed, as differences of calls and faults; descriptors and mappings: a load '
        "from the last cache each, an assumption; an entry is half read, half written, an "
        'assumption"',
    ]


def faults(seen: Seen) -> list[str]:
    """The lines of `[calibrated]` about page faults. No lines if something was not timed."""
    names = (
        "fault on a page of 4K",
        "fault on a page of 4K, in a program that it disturbs",
        "unmapping a page of 4K that has a frame",
        "fault on 2M, with zeroing",
        "unmapping a page of 2M that has a frame",
    )
    if any(name not in seen.costs for name in names):
        return []
    alone, within, unmap, large, unmap_large = (
        _cycles(seen.costs[name], seen.ghz.value) for name in names
    )
    # The real difference is never negative, but noise can hide it.
    ends = sorted((alone + unmap, within + unmap))
    return [f"fault_4k_cycles = {ends}", f"fault_2m_cycles = {large + unmap_large}"]


def _interrupts(found: Mapping[str, int]) -> tuple[int, int, str]:
    """Cycles of sending and of receiving an interrupt, and the source of both numbers."""
    alone = found["mprotect of a page, alone"]
    beside = found.get("mprotect of a page, another thread running")
    if beside is None:
        return 500, 1000, "assumptions, as there is one processor only"
    rest = max(beside - alone - FLUSH_PAGE, 0)
    how = "an mprotect beside a running thread less one alone and a flush, one third of it sending"
    return rest // 3, rest - rest // 3, how


def _cycles(time: Spread, ghz: float) -> int:
    return round(time.value * ghz)
