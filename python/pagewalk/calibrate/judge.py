"""How far a machine file's ranges may be trusted: small programs, predicted and timed.

```
  micro.c --timed--> 4K: 160 ns, 2M: 114 ns --> gain 29 %
     |                                             | inside?
     +--recorded, run on the machine file--> gain 0 to 38 %   from the file alone
                                                   |
                                    with the 4K time known: 25 to 33 %
```

A gain is what of the time with 4K pages is saved by 2M pages. A range wider than 20 points (of a
gain) or 3:1 (of a time) counts as outside, whatever it holds.
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
"""The programs, and the loads of a step of each."""
SIZES = tuple(mega << 20 for mega in (1, 8, 64, 256, 1024, 2048))
ROUNDS = 9
WIDTH_MAX = 0.20
RATIO_MAX = 3.0
REPEATS_TO = 0.01
"""What a measured gain repeats to: a range is met as near as that."""
_STARTUP = 200_000
"""Accesses of a program before its `main`, and some more."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Range:
    """From the least to the most."""

    lo: float
    hi: float

    @property
    def middle(self) -> float:
        """The point between."""
        return (self.lo + self.hi) / 2

    def holds(self, value: float, within: float) -> bool:
        """Whether `value` lies in it, or as near as `within`."""
        return self.lo - within <= value <= self.hi + within


@dataclass(frozen=True)
class Case:
    """One program at one size: nanoseconds of a step, and gains as shares of the time with 4K."""

    kind: str
    size_bytes: int
    timed: Mapping[str, float]
    times: Mapping[str, Range]
    gain: float
    alone: Range
    informed: Range

    def outside(self, predicted: Range) -> str | None:
        """Why a predicted gain counts as outside; `None` if it is inside."""
        if predicted.hi - predicted.lo > WIDTH_MAX:
            return "the range is wider than 20 points"
        if predicted.holds(self.gain, REPEATS_TO):
            return None
        return "it gains more than the most" if self.gain > predicted.hi else "less than the least"

    def time_outside(self, page: str) -> str | None:
        """The same for the time with pages of one size."""
        predicted = self.times[page]
        if predicted.hi > RATIO_MAX * predicted.lo:
            return "the range is wider than 3:1"
        if predicted.holds(self.timed[page], REPEATS_TO * self.timed[page]):
            return None
        return "it is slower" if self.timed[page] > predicted.hi else "it is faster"


def time_all(program: Path, sizes: tuple[int, ...] = SIZES) -> dict[tuple[str, str, int], float]:
    """Times every program: medians of nanoseconds by kind, page size and bytes."""
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
    """Runs a program on the machine file with pages of a size; the results."""
    settings = [f"os.page_size={page}", "os.populated=true"]
    recording = Recording(
        [str(program), "run", kind, str(size)],
        skip=size // 4096 + _STARTUP,
        max_accesses=3_000_000,
    )
    results, _, _ = Machine(machine, settings).run_live(recording, warmup=1_000_000)
    return results.data


def predicted(
    four: Mapping[str, Any], two: Mapping[str, Any], steps: Mapping[str, float], ghz: float
) -> tuple[dict[str, Range], Range]:
    """Times of a step, and the gain, from the results with 4K and with 2M pages alone.

    Args:
        four: `time` of the results with pages of 4K.
        two: The same with 2M.
        steps: Steps of each of the two runs, by page size.
        ghz: Cycles of a nanosecond.
    """
    each = {"4K": _per_step(four, steps["4K"]), "2M": _per_step(two, steps["2M"])}
    times = {page: Range((p.lo + t.lo) / ghz, (p.hi + t.hi) / ghz) for page, (p, t) in each.items()}
    program, most = each["4K"]
    fewer = each["2M"][1]
    gains = [1 - (rest + fewer.hi) / (rest + most.hi) for rest in (program.lo, program.hi)]
    return times, Range(min(0.0, *gains), max(0.0, *gains))


def informed(
    four: Mapping[str, Any],
    two: Mapping[str, Any],
    steps: Mapping[str, float],
    timed_cycles: float,
) -> Range:
    """The gain when the time of a step with 4K pages is known.

    What of that time is translation lies between the time less the most of the program and the
    time less the least of it; what overlaps with 4K pages is taken to overlap with 2M.
    """
    program, most = _per_step(four, steps["4K"])
    fewer = _per_step(two, steps["2M"])[1]
    least = min(max(0.0, timed_cycles - program.hi), most.hi)
    highest = max(least, min(most.hi, timed_cycles - program.lo))
    saved = 1 - fewer.hi / most.hi if most.hi else 0.0
    ends = sorted((least * saved / timed_cycles, highest * saved / timed_cycles))
    return Range(ends[0], ends[1])


def _per_step(time: Mapping[str, Any], steps: float) -> tuple[Range, Range]:
    program, translation = time["program_cycles"], time["translation_cycles"]
    return (
        Range(program["lo"] / steps, program["hi"] / steps),
        Range(translation["lo"] / steps, translation["hi"] / steps),
    )


def judge(
    machine: str, ghz: float, progress: Progress, sizes: tuple[int, ...] = SIZES
) -> list[Case]:
    """Times and predicts every program at every size.

    Args:
        machine: The machine file of this machine.
        ghz: Its clock.
        progress: Told what is done next.
        sizes: Bytes of the programs' data.

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
                steps = {
                    page: max(run["accesses"]["load"] / loads, 1) for page, run in runs.items()
                }
                four, two = runs["4K"]["time"], runs["2M"]["time"]
                times, alone = predicted(four, two, steps, ghz)
                own = {page: timed[kind, page, size] for page in ("4K", "2M")}
                known = informed(four, two, steps, own["4K"] * ghz)
                gain = 1 - own["2M"] / own["4K"]
                cases.append(Case(kind, size, own, times, gain, alone, known))
    return cases


def score(cases: list[Case]) -> dict[str, Any]:
    """The shares of cases inside, median widths, and what points would have scored.

    `error` of a point is the mean of its distance from the measured gain, in points.
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
    """Score and cases as plain data, with the reason for each case outside."""
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
