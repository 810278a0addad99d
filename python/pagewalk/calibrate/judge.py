"""The accuracy of the ranges that a machine file predicts, from small programs that are timed.

```
  micro.c --timed--> 4K: 160 ns, 2M: 114 ns --> gain 29 %
     |                                             | inside?
     +--recorded, run on the machine file--> gain 22 to 38 %   from the file alone:
                                                   |           all loads wait, or none does
                                    with the 4K time known: 25 to 33 %
```

A gain is the share of the time with 4K pages that 2M pages save. A predicted range that is wider
than 20 percentage points (of a gain) or 3:1 (of a time) counts as wrong, even if it contains the
measured value.
"""

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagewalk import _native
from pagewalk.calibrate.probe import build
from pagewalk.machine import Machine
from pagewalk.recording import Recording

MICRO = Path(__file__).parent / "micro.c"
KINDS = {"chase": 1, "random": 1, "strided": 1, "join": 2}
"""The kinds of programs, each with its number of loads per step."""
SIZES = tuple(mega << 20 for mega in (1, 8, 64, 256, 1024, 2048))
ROUNDS = 9
WIDTH_MAX = 0.20
RATIO_MAX = 3.0
REPEATS_TO = 0.01
"""Repeated measurements of a gain differ by this share, so a range is widened by it."""
_STARTUP = 200_000
"""The number of accesses of a program before its `main`, rounded up."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Range:
    """A range, from its lowest to its highest value."""

    lo: float
    hi: float

    @property
    def middle(self) -> float:
        """The midpoint."""
        return (self.lo + self.hi) / 2

    def holds(self, value: float, within: float) -> bool:
        """Whether `value` lies in the range, or at most `within` outside of it."""
        return self.lo - within <= value <= self.hi + within


@dataclass(frozen=True)
class Case:
    """One program at one size: nanoseconds per step, and gains as shares of the time with 4K."""

    kind: str
    size_bytes: int
    timed: Mapping[str, float]
    times: Mapping[str, Range]
    gain: float
    alone: Range
    informed: Range

    def outside(self, predicted: Range) -> str | None:
        """Why the predicted gain counts as wrong. `None` if it is right."""
        if predicted.hi - predicted.lo > WIDTH_MAX:
            return "the range is wider than 20 points"
        if predicted.holds(self.gain, REPEATS_TO):
            return None
        return "it gains more than the most" if self.gain > predicted.hi else "less than the least"

    def time_outside(self, page: str) -> str | None:
        """Why the predicted time with pages of this size counts as wrong. `None` if it is right."""
        predicted = self.times[page]
        if predicted.hi > RATIO_MAX * predicted.lo:
            return "the range is wider than 3:1"
        if predicted.holds(self.timed[page], REPEATS_TO * self.timed[page]):
            return None
        return "it is slower" if self.timed[page] > predicted.hi else "it is faster"


def time_all(program: Path, sizes: tuple[int, ...] = SIZES) -> dict[tuple[str, str, int], float]:
    """Times every program. Returns the median nanoseconds by kind, page size and bytes."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for size in sizes:
        done = subprocess.run(
            [program, "time", str(size), str(ROUNDS)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise _native.WorkError(f"{program.name} ended with status {done.returncode}")
        for line in done.stdout.splitlines():
            kind, page, time = line.split()
            found.setdefault((kind, page, size), []).append(float(time))
    return {key: sorted(times)[len(times) // 2] for key, times in found.items()}


def model(program: Path, machine: str, kind: str, size: int, page: str) -> dict[str, Any]:
    """Simulates a program on the machine file with pages of one size. Returns the results."""
    settings = [f"os.page_size={page}", "os.populated=true"]
    recording = Recording(
        [str(program), "run", kind, str(size)],
        skip=size // 4096 + _STARTUP,
        max_accesses=3_000_000,
    )
    results, _, _ = Machine(machine, settings).run_live(recording, warmup=1_000_000, names=False)
    data: dict[str, Any] = results.data
    return data


@dataclass(frozen=True)
class Parts:
    """The cycles of a step: its instructions, all of its stalls, and all of its translation.

    In an out-of-order processor, `at_once` stalls overlap, and the walks before these stalls
    overlap too:

    ```
      one by one   |instructions|  stalls  |  translation  |
      at once      |instructions|                             hide whatever fits under them
                   |(instructions + stalls) / n|translation / walks|
    ```
    """

    instructions: float
    stalls: float
    translation: float

    @classmethod
    def of(cls, run: Mapping[str, Any], steps: float) -> "Parts":
        """The cycles of a step, from the results of a run and its number of steps."""
        each = run["machine"]["description"]["core"]["cycles_per_instruction"]
        instructions = run["instructions"] * each
        time = run["time"]
        return cls(
            instructions / steps,
            max(0.0, time["program_cycles"]["hi"] - instructions) / steps,
            time["translation_cycles"]["hi"] / steps,
        )

    def cycles(self, at_once: float, walks: float) -> float:
        """The cycles of a step if `at_once` stalls and `walks` walks overlap."""
        waits = (self.instructions + self.stalls) / at_once + self.translation / walks
        return max(self.instructions, waits)


@dataclass(frozen=True)
class Limits:
    """The limits of the machine in the table `[calibrated]` of its file.

    Attributes:
        ghz: The clock frequency in GHz.
        misses: The largest number of misses that overlap.
        walks: The largest number of walks that overlap.
        error: The largest error, as a share, of the times to which the file was fitted.
        gain_errors: How far measured gains are below and above the fitted gains.
    """

    ghz: float
    misses: float
    walks: float
    error: float
    gain_errors: tuple[float, float]


def predicted(four: Parts, two: Parts, limits: Limits) -> tuple[dict[str, Range], Range]:
    """The times of a step and the gain, if it is not known how many loads overlap."""
    ways = [
        (at_once, walks)
        for at_once in (1.0, limits.misses)
        for walks in (at_once, min(at_once, limits.walks))
    ]
    times = {}
    for page, parts in (("4K", four), ("2M", two)):
        found = [parts.cycles(*way) / limits.ghz for way in ways]
        times[page] = Range(min(found) * (1 - limits.error), max(found) * (1 + limits.error))
    return times, _gains(four, two, ways, limits)


def informed(four: Parts, two: Parts, limits: Limits, timed_cycles: float) -> Range:
    """The gain, if the time of a step with 4K pages is known.

    This time shows how many loads overlap.
    """
    ways = []
    for most in (limits.misses, limits.walks):
        lo, hi = 1.0, max(1.0, limits.misses)
        for _ in range(40):
            middle = (lo + hi) / 2
            longer = four.cycles(middle, min(middle, most)) > timed_cycles
            lo, hi = (middle, hi) if longer else (lo, middle)
        ways.append((lo, min(lo, most)))
    return _gains(four, two, ways, limits)


def _gains(four: Parts, two: Parts, ways: list[tuple[float, float]], limits: Limits) -> Range:
    gains = [1 - two.cycles(*way) / four.cycles(*way) for way in ways]
    low, high = limits.gain_errors
    return Range(min(gains) + low, max(gains) + high)


def judge(
    machine: str, limits: Limits, progress: Progress, sizes: tuple[int, ...] = SIZES
) -> list[Case]:
    """Times every program at every size, and predicts its times.

    Args:
        machine: The machine file of this machine.
        limits: The limits in the machine file.
        progress: Called with a description of each step.
        sizes: Sizes of the programs' data in bytes.

    Raises:
        Error: There is no compiler, or no recorder.
        WorkError: A program failed.
    """
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        program = build(MICRO, Path(folder))
        progress("timing")
        timed = time_all(program, sizes)
        for size in sizes:
            for kind, loads in KINDS.items():
                progress(f"{kind} over {size >> 20} MiB")
                runs = {page: model(program, machine, kind, size, page) for page in ("4K", "2M")}
                four, two = (
                    Parts.of(run, max(run["accesses"]["load"] / loads, 1)) for run in runs.values()
                )
                times, alone = predicted(four, two, limits)
                own = {page: timed[kind, page, size] for page in ("4K", "2M")}
                known = informed(four, two, limits, own["4K"] * limits.ghz)
                gain = 1 - own["2M"] / own["4K"]
                cases.append(Case(kind, size, own, times, gain, alone, known))
    return cases


def score(cases: list[Case]) -> dict[str, Any]:
    """The share of right predictions, and the median widths.

    Also the score of single numbers instead of ranges.

    The `error` of predicted single numbers is their mean distance from the measured gain, in
    percentage points.
    """
    total = len(cases)

    def of_gains(range_of: Callable[[Case], Range]) -> dict[str, float]:
        inside = sum(case.outside(range_of(case)) is None for case in cases)
        widths = sorted(range_of(case).hi - range_of(case).lo for case in cases)
        middles = [abs(range_of(case).middle - case.gain) for case in cases]
        return {
            "inside": inside / total,
            "median_width": widths[total // 2],
            "middle_error": sum(middles) / total,
        }

    times = [case.time_outside(page) is None for case in cases for page in ("4K", "2M")]
    ratios = sorted(
        case.times[page].hi / case.times[page].lo for case in cases for page in case.times
    )
    return {
        "cases": total,
        "alone": of_gains(lambda case: case.alone),
        "informed": of_gains(lambda case: case.informed),
        "no_gain_error": sum(abs(case.gain) for case in cases) / total,
        "no_gain_inside": sum(abs(case.gain) <= REPEATS_TO for case in cases) / total,
        "times_inside": sum(times) / len(times),
        "times_median_ratio": ratios[len(ratios) // 2],
    }


def document(cases: list[Case]) -> dict[str, Any]:
    """Score and cases as plain data, with the reason for each wrong prediction."""
    rows = []
    for case in cases:
        row = asdict(case)
        row["outside"] = {
            "alone": case.outside(case.alone),
            "informed": case.outside(case.informed),
            **{f"time_{page}": case.time_outside(page) for page in case.times},
        }
        rows.append(row)
    return {"schema": 1, "score": score(cases), "cases": rows}
