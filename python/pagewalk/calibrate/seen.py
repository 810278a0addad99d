"""Finds knees and plateaus in curves of nanoseconds, and from these the machine's properties.

```
  ns    page: one line of each of n pages      .--- walk
        minus line: n adjacent lines       .--'
                          .---------------'     second-level TLB: every load hits it
        -----------------'
        n          64                 1536      knees: entries of the TLBs
```

At each point the shortest time of the repetitions counts, because noise only adds time. For far
loads the median counts. The spread of a number is the spread of the points from which it was
computed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pagewalk import _native
from pagewalk.calibrate.probe import Curve

FIRST_STEP_CYCLES = 1.0
"""A rise by this number of cycles shows the end of the first-level TLB. A few of its sets overflow
earlier.
"""
STEP_CYCLES = 3.0
"""A rise by this number of cycles shows the end of the second-level TLB: walks take at least ten
cycles.
"""
FLAT = 1.15
"""The times of a plateau differ at most by this factor."""


@dataclass(frozen=True)
class Spread:
    """A number, with the lowest and the highest value that the measurements allow."""

    value: float
    lo: float
    hi: float


@dataclass
class Seen:
    """The measured properties of a machine; times are in nanoseconds.

    Attributes:
        ghz: Clock frequency: dependent additions per nanosecond.
        cycles_per_instruction: Cycles per independent addition.
        l1_entries: The number of pages of 4K that the first-level TLB for data can hold.
        l2_entries: The number of pages of 4K that the second-level TLB can hold. `None` if no knee
            was found.
        l2_hit: Time that a hit in the second-level TLB adds.
        walk: Time that a walk adds to a hit in the second level, by page size.
        splinters: Whether memory in 2M pages has the knees of 4K pages. A possible cause is a host
            that maps it by smaller pages.
        caches: The size in bytes and the latency of each level of the data caches.
        memory: Latency of memory.
        misses_in_flight: The largest number of misses of the last cache that overlap.
        walks_in_flight: The largest number of walks that overlap.
        far: The time of a load from a random address in some memory, by page size and by the size
            of this memory in bytes. These times are medians, not the shortest times, because other
            programs also slow down the programs whose times are predicted.
        costs: The times of the kernel's work by name, such as a fault.
        unseen: The quantities that could not be measured, in words.
    """

    ghz: Spread
    cycles_per_instruction: Spread
    l1_entries: Spread
    l2_entries: Spread | None
    l2_hit: Spread
    walk: dict[str, Spread]
    splinters: bool
    caches: list[tuple[int, Spread]]
    memory: Spread
    misses_in_flight: Spread
    walks_in_flight: Spread | None
    far: dict[str, dict[int, Spread]]
    costs: dict[str, Spread]
    unseen: list[str] = field(default_factory=list)


def see(curves: Mapping[str, Curve]) -> Seen:
    """The properties that `curves` show.

    Raises:
        WorkError: The curves show no first-level TLB, for example because the machine was busy.
    """
    add = curves["add"]
    ghz = _inverse(spread(add[1]))
    cycle = 1 / ghz.value
    line = {n: min(times) for n, times in curves["line"].items()}
    small = _beyond(curves["page"], line)
    huge = _beyond(curves["huge"], line)
    unseen: list[str] = []
    first = _knee(small, 0.0, FIRST_STEP_CYCLES * cycle)
    if first is None or first[0] < 2 * min(small):
        raise _native.WorkError(
            "the timing shows no first-level TLB: other programs disturb it; run it again when the "
            "machine is idle"
        )
    hit = _level(small, 1.3 * first[1], 5 * first[1])
    second = _knee(small, hit.value, STEP_CYCLES * cycle, after=4 * first[1])
    walk: dict[str, Spread] = {}
    if second is None:
        unseen.append(
            "the size of the second-level TLB, and the cycles of walks: up to the largest size, "
            "the times have no knee"
        )
    else:
        walk["4K"] = _less(_level(small, 1.5 * second[1], 3 * second[1]), hit)
    splinters = _splinters(small, huge, first, second, hit.value)
    if splinters and second is not None:
        walk["2M"] = _less(_level(huge, 1.5 * second[1], 3 * second[1]), hit)
    else:
        unseen.append("walks to pages of 2M: all that were touched stayed in the TLB")
    far = max(line)
    if splinters and second is not None:
        # Adjacent lines are in pages too, so they also miss the TLBs, if they need more pages than
        # the TLBs hold.
        line = {
            n: time - _missing(n, first[0]) * hit.value - _missing(n, second[0]) * walk["2M"].value
            for n, time in line.items()
        }
    caches = _caches(line)
    flight = spread(curves["line"][far])
    memory = Spread(line[far], line[far], line[far] + flight.hi - flight.lo)
    alone = spread(next(iter(curves["independent"].values())))
    unseen += [
        "TLBs and caches for fetches: taken as those for data",
        "ways and replacement of TLBs and caches, MMU caches, ASIDs: assumptions",
        "prefetchers: every pattern that was timed is random",
    ]
    if len(curves["mprotect"]) < 2:
        unseen.append("an mprotect with another thread: there is one processor only")
    return Seen(
        ghz=ghz,
        cycles_per_instruction=_over(spread(add[6]), spread(add[1])),
        l1_entries=_entries(first),
        l2_entries=None if second is None else _entries(second),
        l2_hit=hit,
        walk=walk,
        splinters=splinters,
        caches=caches,
        memory=memory,
        misses_in_flight=_over(flight, alone),
        walks_in_flight=_walks_in_flight(curves),
        far={
            page: {size: typical(times) for size, times in curves[name].items()}
            for page, name in (("4K", "far"), ("2M", "far-huge"))
            if name in curves
        },
        costs=_costs(curves),
        unseen=unseen,
    )


def _walks_in_flight(curves: Mapping[str, Curve]) -> Spread | None:
    """The quotient of two times: what 4K pages add to dependent and to independent loads."""
    if "far" not in curves:
        return None
    most = max(curves["far"])
    four, two, four_apart, two_apart = (
        spread(curves[name][most]) for name in ("far", "far-huge", "apart", "apart-huge")
    )
    if four.lo <= two.hi or four_apart.lo <= two_apart.hi:
        return None
    return Spread(
        (four.value - two.value) / (four_apart.value - two_apart.value),
        (four.lo - two.hi) / (four_apart.hi - two_apart.lo),
        (four.hi - two.lo) / (four_apart.lo - two_apart.hi),
    )


def spread(times: list[float]) -> Spread:
    """The shortest of several times, with the range up to their median."""
    ordered = sorted(times)
    return Spread(ordered[0], ordered[0], ordered[len(ordered) // 2])


def typical(times: list[float]) -> Spread:
    """The median of several times, with the range of their quartiles. It includes noise."""
    ordered = sorted(times)
    quarter = len(ordered) // 4
    return Spread(ordered[len(ordered) // 2], ordered[quarter], ordered[-1 - quarter])


def _inverse(time: Spread) -> Spread:
    return Spread(1 / time.value, 1 / time.hi, 1 / time.lo)


def _over(above: Spread, below: Spread) -> Spread:
    return Spread(above.value / below.value, above.lo / below.hi, above.hi / below.lo)


def _less(whole: Spread, part: Spread) -> Spread:
    """`whole` minus `part`, and at least 0."""
    rest = (whole.value - part.value, whole.lo - part.hi, whole.hi - part.lo)
    return Spread(*(max(number, 0.0) for number in rest))


def _beyond(curve: Curve, line: Mapping[int, float]) -> dict[int, float]:
    return {n: min(times) - line[n] for n, times in curve.items() if n in line}


def _knee(
    beyond: Mapping[int, float], level: float, step: float, after: float = 0
) -> tuple[int, int] | None:
    """The ends of a knee.

    They are the last size whose time is `level`, and the first size from which on all times are a
    step above it.
    """
    sizes = [n for n in sorted(beyond) if n >= after]
    for at, n in enumerate(sizes[1:], 1):
        if all(beyond[later] > level + step for later in sizes[at : at + 4]):
            return sizes[at - 1], n
    return None


def _missing(lines: int, entries: int) -> float:
    """The share of random loads from `lines` adjacent lines that miss in a TLB with `entries`."""
    return max(0.0, 1 - 64 * entries / lines)


def _level(beyond: Mapping[int, float], start: float, end: float) -> Spread:
    """The median, the shortest and the longest time of the sizes from `start` to `end` pages."""
    found = sorted(time for n, time in beyond.items() if start <= n <= end)
    if not found:
        raise _native.WorkError(
            f"no size from {start:.0f} to {end:.0f} pages was timed: other programs may have "
            "disturbed the timing; run it again when the machine is idle"
        )
    return Spread(found[len(found) // 2], found[0], found[-1])


def _entries(knee: tuple[int, int]) -> Spread:
    """The number of entries for a knee between two sizes: the roundest number between them."""
    last, first = knee
    roundest = max(range(last, first), key=lambda n: (n & -n, -n))
    return Spread(roundest, last, first - 1)


def _splinters(
    small: Mapping[int, float],
    huge: Mapping[int, float],
    first: tuple[int, int],
    second: tuple[int, int] | None,
    hit: float,
) -> bool:
    """Whether memory in 2M pages has TLB misses at the same sizes as memory in 4K pages."""
    # A knee shows splintering: the 2M pages themselves are so few that none of them would miss.
    if second is None:
        places = [n for n in huge if 2 * first[1] <= n]
        return min(huge[n] for n in places) > hit / 2
    places = [n for n in huge if 1.5 * second[1] <= n <= 3 * second[1]]
    return sum(huge[n] > hit + (small[n] - hit) / 4 for n in places) > len(places) / 2


def _caches(line: Mapping[int, float]) -> list[tuple[int, Spread]]:
    """The intervals of sizes whose loads take equally long.

    A curve that rises everywhere has none.
    """
    sizes = sorted(line)
    found: list[tuple[int, Spread]] = []
    start = 0
    while start < len(sizes):
        end = start
        while end + 1 < len(sizes) and line[sizes[end + 1]] < FLAT * line[sizes[start]]:
            end += 1
        # An interval whose ends differ by less than a factor of two belongs to a slope.
        if sizes[end] >= 2 * sizes[start] and (
            not found or line[sizes[start]] > 1.5 * found[-1][1].value
        ):
            times = sorted(line[n] for n in sizes[start : end + 1])
            found.append((sizes[end] * 64, Spread(times[len(times) // 2], times[0], times[-1])))
            start = end + 1
        else:
            start += 1
    return _with_slope(found[:-1], line, found[-1][1].value if found else 0.0)


def _with_slope(
    levels: list[tuple[int, Spread]], line: Mapping[int, float], memory: float
) -> list[tuple[int, Spread]]:
    """Adds a shared cache if there are only two plateaus.

    It is the slope that ends at half of memory's latency.
    """
    if len(levels) != 2:
        return levels
    slope = [n for n in sorted(line) if n * 64 > 1.4 * levels[-1][0] and line[n] < memory / 2]
    if len(slope) < 2:
        return levels
    times = [line[n] for n in slope]
    return [*levels, (slope[-1] * 64, Spread(times[len(times) // 2], times[0], times[-1]))]


def _costs(curves: Mapping[str, Curve]) -> dict[str, Spread]:
    names = {
        ("fault", 4096): "fault on a page of 4K",
        ("fault", 2 << 20): "fault on 2M, with zeroing",
        ("minor", 4096): "fault on a page of 4K that is in memory",
        ("unmap", 4096): "unmapping a page of 4K that has a frame",
        ("unmap", 2 << 20): "unmapping a page of 2M that has a frame",
        ("entry", 1): "reading and writing an entry of the page table",
        ("region", 1): "a call that looks for a region",
        ("object", 1): "looking for a page in its object",
        ("call", 1): "a call and its return",
        ("zero", 4096): "zeroing 4K",
        ("copy", 4096): "copying 4K",
        ("switch", 1): "a switch between processes, with a pipe's read and write",
        ("mprotect", 1): "mprotect of a page, alone",
        ("mprotect", 2): "mprotect of a page, another thread running",
    }
    found = {
        name: spread(curves[curve][parameter])
        for (curve, parameter), name in names.items()
        if parameter in curves.get(curve, {})
    }
    program = curves.get("program", {})
    if 0 in program and 4096 in program:
        within = _less(spread(program[4096]), spread(program[0]))
        found["fault on a page of 4K, in a program that it disturbs"] = within
    return found
