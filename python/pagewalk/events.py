"""`stat`: the counts of a run on one screen, with the cost of each as a range of cycles.

```
 results: counts -------------------------> event, count
          time, latencies of the machine -> cycles lo..hi -> share of all cycles lo..hi
```

`perfex -y` of IRIX (Ganapathy and Schimmel 1998, section 6.5.1) and `perf stat` do this for
hardware counters. Here the cycles are those of `time` in the results, divided among the events: at
either end of the range, the cycles of the events of a part (the program, translation, the kernel)
add up to the cycles that `time` has for that part.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagewalk.document import Stat
from pagewalk.machine import Machine
from pagewalk.names import DEFAULT
from pagewalk.report import values
from pagewalk.results import Results
from pagewalk.text import bytes_of

if TYPE_CHECKING:
    from pagewalk import plain
    from pagewalk.progress import Progress
    from pagewalk.trace import Trace


@dataclass(frozen=True)
class Event:
    """An event, how often it was counted, and its cost: the least and the most cycles."""

    part: str
    name: str
    count: int | None
    cycles: tuple[float, float] | None


def stat(
    trace: "Trace | Results | str | os.PathLike[str]",
    machine: str | os.PathLike[str] = DEFAULT,
    *,
    set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    progress: "Progress | bool | None" = None,
) -> Stat:
    """The events of a run, with the cycles that each takes.

    Args:
        trace: A trace, or a value that `Trace` accepts, to simulate; or results of an earlier run.
        machine: As for `Machine`.
        set: Settings to change, as for `Machine`.
        progress: Called about ten times per second; `True` shows a bar by tqdm.

    Raises:
        Error: There is no such trace or machine.
        WorkError: The trace is damaged, or its run failed.
    """
    results = trace
    if not isinstance(results, Results):
        results = Machine(machine, set).run(results, progress=progress)
    return Stat(of_document(results.data))


def of_document(document: "plain.Document") -> "plain.Stat":
    """The `Stat` of a results document, as plain data."""
    time, native = document["time"], document.get("native")
    found = [*_program(document), *_translation(document), *_kernel(document)]
    costs = [event.cycles for event in found if event.cycles is not None]
    whole = (sum(low for low, _ in costs), sum(high for _, high in costs))

    def share(cycles: tuple[float, float]) -> "plain.Range[float]":
        """The range of each event's share.

        The lower end uses the event's least cycles and the other events' most cycles; the upper end
        uses the reverse.
        """
        low, high = cycles
        most, least = low + whole[1] - high, high + whole[0] - low
        return {"lo": low / most if most else 0.0, "hi": high / least if least else 0.0}

    return {
        "schema": 1,
        "pagewalk": document["pagewalk"],
        "trace": document["trace"],
        "machine": document["machine"],
        "events": [
            {
                "part": event.part,
                "name": event.name,
                "count": event.count,
                "cycles": _range(event.cycles) if time and event.cycles else None,
                "share": share(event.cycles) if time and event.cycles else None,
            }
            for event in found
        ],
        "cycles": _range(whole) if time else None,
        "translation_ms": native["translation_ms"] if native else None,
        "not_modelled": document["not_modelled"],
    }


def _program(document: "plain.Document") -> Iterator[Event]:
    """The events of the program: instructions, accesses, and where accesses were served."""
    time, described = document["time"], document["machine"]["description"]
    issue = 0.0
    if time:
        issue = document["instructions"] * described["core"]["cycles_per_instruction"]
    yield Event("program", "instructions", document["instructions"], (issue, issue))
    yield Event("program", "accesses", values.accesses(document), None)
    served = _served(document)
    waits = [count * wait for _, count, wait in served]
    # Hardware overlaps all stalls together, so the least number of cycles is divided among them.
    hidden = max(time["program_cycles"]["lo"] - issue, 0) / max(sum(waits), 1) if time else 0
    for (place, count, _), most in zip(served, waits, strict=True):
        yield Event("program", f"served by {place}", count, (most * hidden, most))


def _served(document: "plain.Document") -> list[tuple[str, int, float]]:
    """The program's references by the cache or memory that served them.

    Each has the cycles that a reference waits.

    A hit in the first-level cache is part of the instruction. The results do not record which
    references beyond that cache are fetches, so each gets the average over all fetches; the sum is
    exact.
    """
    caches, described = document["caches"], document["machine"]["description"]
    first, beyond = [], []
    missed = from_first = 0
    in_instructions = 0.0
    for cache in caches:
        counts = cache["program"]
        misses = counts["read_misses"] + counts["write_misses"]
        hits = counts["reads"] + counts["writes"] - misses
        latency = described["cache"][cache["name"]].get("latency_cycles") or 0
        if cache["name"].startswith("l1"):
            # The misses of both first-level caches are looked up in the second level.
            first.append((cache["name"], hits, 0.0))
            in_instructions += misses * latency
            from_first, missed = from_first + misses, missed + misses
        else:
            beyond.append((cache["name"], hits, latency))
            missed = misses
    if caches:
        beyond.append(("memory", missed, described["memory"].get("latency_cycles") or 0))
    served = sum(count for _, count, _ in beyond)
    if served:
        # References of kinds for which there is no first-level cache are looked up in the second
        # level.
        in_instructions += (served - from_first) * beyond[0][2]
        in_instructions /= served
    return first + [
        (place, count, max(latency - in_instructions, 0)) for place, count, latency in beyond
    ]


def _translation(document: "plain.Document") -> Iterator[Event]:
    """Lookups and misses of the TLBs, walks and their references."""
    time, described = document["time"], document["machine"]["description"]
    rest = (0, 0)
    if time:
        rest = time["translation_cycles"]["lo"], time["translation_cycles"]["hi"]
    for tlb in document["tlbs"]:
        name = tlb["name"]
        cycles = tlb["lookups"] * (described["tlb"][name].get("latency_cycles") or 0)
        rest = rest[0], rest[1] - cycles
        yield Event("translation", f"{name} TLB lookups", tlb["lookups"], (0, cycles))
        yield Event("translation", f"{name} TLB misses", tlb["misses"], None)
    walks = document["walks"]
    yield Event("translation", "walks", walks["walks"], rest)
    yield Event("translation", "walks of first touches", walks["cold"], None)
    for size, row in _by_size(document):
        yield Event("translation", f"walks for {size} pages", row, None)
    yield Event("translation", "walk references", walks["references"], None)


def _by_size(document: "plain.Document") -> list[tuple[str, int]]:
    """Misses of the last TLB level by page size, the smallest size first.

    Empty if there is only one size.
    """
    last = max((tlb["level"] for tlb in document["tlbs"]), default=1)
    found: dict[str, int] = {}
    for tlb in document["tlbs"]:
        for size, counts in tlb["by_page_size"].items():
            if tlb["level"] == last and counts["misses"]:
                found[size] = found.get(size, 0) + counts["misses"]
    return sorted(found.items(), key=lambda row: bytes_of(row[0])) if len(found) > 1 else []


def _kernel(document: "plain.Document") -> Iterator[Event]:
    """The kernel's work with its cycles.

    Without prices in the machine's file, only faults and shootdowns are counted.
    """
    time, manager = document["time"], document.get("manager")
    costs = document["machine"]["description"].get("os", {}).get("costs") or {}
    counts = dict(manager["work"]) if manager else {}
    counts["shootdowns"] = document["shootdowns"]["made"]
    kernel, faults = time and time["kernel"], document["faults"]
    if not kernel:
        yield Event(
            "kernel",
            "faults",
            faults["first_touch"] + faults["returned"] + faults["protection"],
            None,
        )
        yield Event("kernel", "shootdowns", counts["shootdowns"], None)
        return
    for work, cycles in kernel["by_work"].items():
        price = costs.get({"faults": "fault_cycles", "switches": "switch_cycles"}.get(work, ""))
        count = cycles // price if price else counts.get(work)
        if cycles or count:
            yield Event("kernel", work.replace("_", " "), count, (cycles, cycles))
    if kernel["io_cycles"]:
        io = kernel["io_cycles"]
        yield Event("kernel", "waits for disks", None, (io, io))


def _range(ends: tuple[float, float]) -> "plain.Range[float]":
    return {"lo": ends[0], "hi": ends[1]}
