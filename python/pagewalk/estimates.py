"""Best estimates, within a range, of the time of translation and of the gain of page sizes.

```
 one by one   |instructions|  stalls  |  translation  |
 n at once    |instructions|                             hide whatever fits under them
              |(instructions + stalls) / n|translation / walks|
```

Counts of a trace do not show how many misses of a program overlap, so a range covers both extremes.
If the time of a native run and the clock of its machine are known, the least number of overlapping
misses is known too: with fewer, the model would take longer than the program did. A trace does not
show what else the program waits for, so that more misses may overlap, up to the largest number of
the machine. The likely gain lies between these two numbers, and its middle is the best estimate.

```
 time of the native run   |------------------------------------|
 least at once            |instructions + stalls, translation  |  nothing else takes time
 most at once             |ins + sta, tra|       other waits   |
```

Without a native run, the number is the geometric mean of 1 and the machine's largest number.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any, NamedTuple

from pagewalk import fault_gains, here

REPEATS_TO = 0.01
"""How far repeated measurements of a gain differ, as a share of the time. `likely` extends the
range by this share on either side (docs/howto/calibrate.md).
"""
MISSES = 10.0
"""The largest number of overlapping misses if the machine's file has no such number: an
assumption.
"""
WALKS = 2.0
"""The largest number of overlapping walks if it was not measured: an assumption."""


class Work(NamedTuple):
    """Cycles of a run: its instructions, all of its stalls, and all of its translation."""

    instructions: float
    stalls: float
    translation: float

    def cycles(self, at_once: float, walks: float) -> float:
        """The time of the run if the given numbers of stalls and of walks overlap."""
        waits = (self.instructions + self.stalls) / at_once + self.translation / walks
        return max(self.instructions, waits)

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> "Work | None":
        """The cycles in results; `None` if the machine's file gives no latencies."""
        time = results.get("time")
        if not time:
            return None
        each = results["machine"]["description"]["core"].get("cycles_per_instruction", 1)
        instructions = results["instructions"] * each
        program, translation = time["program_cycles"]["hi"], time["translation_cycles"]["hi"]
        return cls(instructions, max(0.0, program - instructions), translation)


class Overlap(NamedTuple):
    """How many misses and how many walks of a program overlap, and how this was found."""

    at_once: float
    walks: float
    how: str

    def cycles(self, work: Work) -> float:
        """Cycles of a run."""
        return work.cycles(self.at_once, self.walks)


def overlap(base: Mapping[str, Any]) -> Overlap | None:
    """How many misses and walks of a program overlap, from its results with base pages."""
    work = Work.of(base)
    if work is None:
        return None
    described = base["machine"]["description"]
    calibrated = described.get("calibrated") or {}
    most = float(described["core"].get("misses_in_flight") or MISSES)
    walks = float(calibrated.get("walks_in_flight") or min(WALKS, most))
    timed = _timed_cycles(base)
    if timed is not None:
        low, high = 1.0, max(1.0, most)
        for _ in range(40):
            middle = (low + high) / 2
            longer = work.cycles(middle, min(middle, walks)) > timed
            low, high = (middle, high) if longer else (low, middle)
        return Overlap(low, min(low, walks), "from the time of the native run")
    halfway = sqrt(most)
    known = "walks at once as timed" if calibrated else "an assumption for walks at once"
    return Overlap(
        halfway, min(halfway, walks), f"misses halfway between one and all at once; {known}"
    )


def _timed_cycles(base: Mapping[str, Any]) -> float | None:
    """Cycles of the native run in user mode, if a calibrated file says how long a cycle is."""
    native = base.get("native")
    calibrated = base["machine"]["description"].get("calibrated") or {}
    if native is None or native.get("translation_ms") is None or "ghz" not in calibrated:
        return None
    cycles: float = native["user_seconds"] * calibrated["ghz"] * 1e9
    return cycles if cycles > 0 else None


def share(results: Mapping[str, Any], machine: str) -> dict[str, Any] | None:
    """The best estimate of translation's share of a run, as an `Estimate`.

    Args:
        results: The results of the run.
        machine: The built-in name of the machine, or the path of its file.
    """
    found, work = overlap(results), Work.of(results)
    if found is None or work is None:
        return None
    whole = found.cycles(work)
    without = found.cycles(Work(work.instructions, work.stalls, 0.0))
    limits = results["time"]["share"]
    part = 1 - without / whole if whole > 0 else 0.0
    part = min(max(part, limits["lo"]), limits["hi"])
    native = results.get("native")
    known = native is not None and native.get("translation_ms") is not None
    ms = 1000 * native["user_seconds"] * part if native is not None and known else None
    fits = here.is_of(machine, here.processor())
    return {"share": part, "ms": ms, "how": found.how, "here": fits}


def translation(base: Mapping[str, Any], results: Mapping[str, Any]) -> float | None:
    """The best estimate of the cycles of translation of a run, within `time.translation_cycles`.

    Args:
        base: Results of the program with base pages, which show how many misses overlap.
        results: The results of the run.
    """
    found, work = overlap(base), Work.of(results)
    if found is None or work is None:
        return None
    without = Work(work.instructions, work.stalls, 0.0)
    limits = results["time"]["translation_cycles"]
    best = found.cycles(work) - found.cycles(without)
    return min(max(best, float(limits["lo"])), float(limits["hi"]))


def gain(base: Mapping[str, Any], placed: Mapping[str, Any]) -> float | None:
    """The expected gain of page sizes, as a share of the user time with base pages."""
    found, before, after = overlap(base), Work.of(base), _placed(base, placed)
    if found is None or before is None or after is None:
        return None
    if ends := _ends(base, before, after):
        return sum(ends) / 2
    whole = found.cycles(before)
    return 1 - found.cycles(after) / whole if whole > 0 else 0.0


def likely(base: Mapping[str, Any], placed: Mapping[str, Any]) -> dict[str, float] | None:
    """The range that is likely to contain a measured gain, on the machine of the native run.

    `None` without a native run, or if the machine's file is not calibrated.
    """
    before, after = Work.of(base), _placed(base, placed)
    if before is None or after is None:
        return None
    ends = _ends(base, before, after)
    return ends and {"lo": min(ends) - REPEATS_TO, "hi": max(ends) + REPEATS_TO}


def of_cpu(base: Mapping[str, Any], placed: Mapping[str, Any]) -> dict[str, float] | None:
    """The expected gain of pages of 2M, as a share of the CPU time, with its limits.

    CPU time is the time in user mode and in the kernel. The gain is that of translation and of page
    faults. `None` without a native run on the machine of a calibrated file.

    Args:
        base: Results with base pages, and with the native run.
        placed: Results in which some memory has pages of 2M.

    Returns:
        `lo`, `hi` and `best`, which is their middle; `translation_ms` and `faults_ms`, the
        milliseconds in the middle of each part.
    """
    before, after, native = Work.of(base), _placed(base, placed), base.get("native")
    prices = fault_gains.Prices.of(base)
    if before is None or after is None or native is None or prices is None:
        return None
    translation, faults = _ends(base, before, after), fault_gains.seconds(base, placed, prices)
    if translation is None:
        return None
    user, cpu = native["user_seconds"], native["user_seconds"] + native["system_seconds"]
    part = sorted(user * share for share in translation)
    lo, hi = ((one + other) / cpu for one, other in zip(part, faults, strict=True))
    return {
        "lo": lo - REPEATS_TO,
        "hi": hi + REPEATS_TO,
        "best": (lo + hi) / 2,
        "translation_ms": 500 * sum(part),
        "faults_ms": 500 * sum(faults),
    }


def seconds_of_translation(base: Mapping[str, Any]) -> float | None:
    """The seconds of the native run that translation takes: the middle of the likely range.

    `None` without a native run, or if the machine's file is not calibrated.
    """
    work, native = Work.of(base), base.get("native")
    if work is None or native is None:
        return None
    shares = _ends(base, work, Work(work.instructions, work.stalls, 0.0))
    return None if shares is None else float(native["user_seconds"] * sum(shares) / 2)


def _placed(base: Mapping[str, Any], placed: Mapping[str, Any]) -> Work | None:
    """The work of the program with other page sizes."""
    before, after = Work.of(base), Work.of(placed)
    if before is None or after is None:
        return None
    # Only translation differs. It includes the effect of page tables on the caches.
    return Work(before.instructions, before.stalls, after.translation)


def _ends(base: Mapping[str, Any], before: Work, after: Work) -> tuple[float, float] | None:
    """The gains with the least and with the most overlap that the native run permits."""
    timed, least = _timed_cycles(base), overlap(base)
    if timed is None or least is None:
        return None
    described = base["machine"]["description"]
    most = max(float(described["core"].get("misses_in_flight") or MISSES), least.at_once)
    walks = float((described.get("calibrated") or {}).get("walks_in_flight") or WALKS)
    ways = ((least.at_once, least.walks), (most, max(min(walks, most), least.walks)))
    first, last = ((before.cycles(*way) - after.cycles(*way)) / timed for way in ways)
    return first, last
