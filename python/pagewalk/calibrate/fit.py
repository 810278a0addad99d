r"""Fits the numbers that no knee of a curve shows: host, last cache, memory, distant walks.

```
  far loads, timed:  32M   128M   512M   of 4K and of 2M pages
                       \     |     /
  each host x each size of the last cache:  the machine file runs the same loads
                       |
  time of a load = what is known + memory x (loads that reach it) + refill x (walks)
                       |                      \____ counted ____/
  least squares: memory, refill --> the host and the cache with the least error
```

On a shared computer, a program gets a varying share of the last cache. And the cost of a walk grows
with the memory in use, because page tables compete with data for the caches. So both are fitted to
the times of loads from far memory. The remaining difference is an error of each prediction.
"""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagewalk.calibrate.seen import Seen
from pagewalk.machine import Machine
from pagewalk.trace import Trace

CACHE_TIMES = (0.25, 0.5, 1, 2, 4, 16)
"""The sizes of the last cache that are tried, as multiples of the measured size. If other programs
share the cache, its plateau ends at a smaller size than that of the cache.
"""
_ACCESSES = 150_000
_WARMUP = 250_000
_INSTRUCTIONS = 4
"""The number of instructions per step of the far loads: multiply, add, mask, load."""


@dataclass(frozen=True)
class Fit:
    """The fitted numbers.

    Attributes:
        host: The page size with which a host maps this machine's memory. `None` if there is no
            host.
        last_cache: Size of the last cache in bytes.
        memory_cycles: Latency of memory in cycles.
        refill_cycles: Cycles of a walk in addition to its references.
        error: The largest difference between a load's time and the fit, as a share of that time.
        gain_errors: The lowest and the highest difference, over all far loads, between measured and
            fitted gains of 2M pages over 4K pages, as shares of 1. Each is widened by the spread of
            the measured gain. The range always contains 0.
        points: For each far load its page size, bytes, measured cycles and fitted cycles.
    """

    host: str | None
    last_cache: int
    memory_cycles: float
    refill_cycles: float
    error: float
    gain_errors: tuple[float, float]
    points: tuple[tuple[str, int, float, float], ...]


def fit(seen: Seen, text: Callable[[Fit], str], progress: Callable[[str], None]) -> Fit | None:
    """The host, the cache and the costs with which the machine file fits the far loads best.

    Args:
        seen: The measurements.
        text: A function that returns the text of the machine file for a fit.
        progress: Called with a description of each trial.
    """
    if not seen.far or not seen.caches:
        return None
    hosts = ("4K", "2M") if seen.splinters else (None, "2M")
    last = seen.caches[-1][0]
    before = max((size for size, _ in seen.caches[:-1]), default=0)
    sizes = [size for times in CACHE_TIMES if (size := int(last * times)) > before]
    found = []
    for host, size in itertools.product(hosts, sizes):
        progress(f"host pages: {host or 'none'}, last cache: {size >> 10}K")
        trial = Fit(host, size, round(seen.memory.value * seen.ghz.value), 0, 0, (0, 0), ())
        found.append(_solve(seen, trial, text(trial)))
    return min(found, key=lambda one: one.error)


def _solve(seen: Seen, trial: Fit, file: str) -> Fit:
    """`trial` with the memory latency and the refill cycles that fit best, by least squares."""
    rows = []
    for page, loads in seen.far.items():
        for size, timed in loads.items():
            rest, memory, walks = _counted(file, page, size, trial.memory_cycles)
            rows.append((page, size, timed.value * seen.ghz.value, rest, memory, walks))
    memory, refill = _least_squares(
        [((m / timed, w / timed), (timed - rest) / timed) for _, _, timed, rest, m, w in rows]
    )
    points = tuple(
        (page, size, timed, rest + memory * m + refill * w)
        for page, size, timed, rest, m, w in rows
    )
    error = max(abs(fitted / timed - 1) for _, _, timed, fitted in points)
    pairs = {(page, size): (timed, fitted) for page, size, timed, fitted in points}
    low = high = 0.0
    for (page, size), (four, ours) in pairs.items():
        if page == "4K":
            off = pairs["2M", size][1] / ours - pairs["2M", size][0] / four
            low = min(low, off - _wobble(seen, size))
            high = max(high, off + _wobble(seen, size))
    return Fit(trial.host, trial.last_cache, memory, refill, error, (low, high), points)


def _wobble(seen: Seen, size: int) -> float:
    """Half of the distance between the quartiles of a size's gain, as a share of the 4K time."""
    four, two = seen.far["4K"][size], seen.far["2M"][size]
    apart = (two.hi - two.lo) / two.value + (four.hi - four.lo) / four.value
    return apart * two.value / four.value / 4


def _counted(file: str, page: str, size: int, memory_cycles: float) -> tuple[float, float, float]:
    """Per dependent load: cycles without memory and refills, loads that reach memory, and walks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "here.toml"
        path.write_text(file, encoding="utf-8")
        settings = ["os.uniform=true", "os.populated=true", "walker.refill_cycles=0"]
        settings.append(f"os.page_size={page}")
        spec = f"uniform,size={size >> 20}M,accesses={_WARMUP + _ACCESSES}"
        spec += f",stores=0,instructions={_INSTRUCTIONS}"
        machine = Machine(str(path), settings)
        data: dict[str, Any] = machine.run(Trace(f"generate:{spec}", warmup=_WARMUP)).data
    cycles = data["time"]["program_cycles"]["hi"] + data["time"]["translation_cycles"]["hi"]
    last = data["caches"][-1]
    reached = sum(last[who]["read_misses"] for who in ("program", "walker"))
    return (
        (cycles - reached * memory_cycles) / _ACCESSES,
        reached / _ACCESSES,
        data["walks"]["walks"] / _ACCESSES,
    )


def _least_squares(rows: list[tuple[tuple[float, float], float]]) -> tuple[float, float]:
    """Two factors of at least 0 for two columns, so that the sum is nearest to the last column."""
    aa = sum(a * a for (a, _), _ in rows)
    ab = sum(a * b for (a, b), _ in rows)
    bb = sum(b * b for (_, b), _ in rows)
    ay = sum(a * y for (a, _), y in rows)
    by = sum(b * y for (_, b), y in rows)
    determinant = aa * bb - ab * ab
    if determinant > 1e-12:
        first, second = (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant
        if first >= 0 and second >= 0:
            return first, second
    return max(0.0, ay / aa if aa else 0.0), 0.0
