"""Measures the gain of page sizes: runs a program with and without them in turns.

```
 round      1        2        3    ...
 without   |--|        |--|  |--|        each round runs both, which of them first is by chance
 with          |-|  |-|          |-|
 difference  d1      d2       d3         median, and its interval by order statistics
```

The interval is that of the sign test. If n differences are sorted, the k-th from the beginning and
the k-th from the end enclose the median with a probability that follows from the binomial
distribution, whatever the distribution of the differences is. The width of the interval is checked
only after 8, 12, 18, 27, ... rounds. If it were checked after each round, the comparison would end
when an interval is narrow by chance, and intervals would contain the median less often than their
confidence says.
"""

import contextlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from math import comb
from pathlib import Path
from statistics import median
from typing import IO, Any, NamedTuple

from pagewalk._native import Error
from pagewalk.placing.counters import Counters

CONFIDENCE = 0.95
"""The probability with which an interval contains the median difference."""
ROUNDS_MIN = 8
"""The number of rounds before the interval is checked for the first time."""
MORE = 1.5
"""The factor between the numbers of rounds at two checks of the interval."""
SECONDS_MIN = 0.01
"""If a program takes less than this number of CPU seconds, its start dominates the measurement."""
TIMES = ("wall_seconds", "user_seconds", "system_seconds", "cpu_seconds")
"""The times of a sample."""
JUDGED = "cpu_seconds"
"""The time whose interval ends a comparison. Other programs disturb it less than wall time."""

Opened = Callable[[], IO[bytes]]


class Sample(NamedTuple):
    """The times of one run."""

    wall_seconds: float
    user_seconds: float
    system_seconds: float
    minor_faults: int
    major_faults: int
    resident_bytes_max: int
    status: int
    counts: dict[str, int]
    launcher_seconds: float

    @property
    def cpu_seconds(self) -> float:
        """Time in user mode and in the kernel."""
        return self.user_seconds + self.system_seconds


class Limits(NamedTuple):
    """The limits at which a comparison ends."""

    within: float = 0.01
    """An interval of at most this width is narrow enough. The width is a share of the time without
    the placement.
    """
    rounds_max: int = 60
    seconds_max: float = 120.0


class Compared(NamedTuple):
    """The samples of a comparison, by round."""

    without: list[Sample]
    placed: list[Sample]
    seconds: float
    ended: str
    """Why the comparison ended."""


def interval(differences: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """An interval that contains the median with a probability of at least `confidence`.

    With fewer than six differences there is no such interval. Then the least and the greatest are
    returned.
    """
    ordered = sorted(differences)
    count = len(ordered)
    outside, k = 0.0, 0
    # As many values on either side are left out as possible, so that the interval still contains
    # the median often enough.
    while k < count // 2:
        outside += 2 * comb(count, k) / 2**count
        if outside > 1 - confidence:
            break
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[count - k]


def compare(
    without: Callable[[], Sample],
    placed: Callable[[], Sample],
    limits: Limits,
    *,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int, float], object] | None = None,
) -> Compared:
    """Runs both in turns until the difference's interval is narrow enough, or a limit is reached.

    Args:
        without: Runs the program as it is.
        placed: Runs it with other page sizes.
        limits: The limits at which the comparison ends.
        seed: Seed of the order of the two runs in each round.
        clock: The time in seconds.
        progress: Called with the number of rounds done, and the interval's width as a share of the
            time.

    Raises:
        Error: Runs of the program differ, the program ends with another status when it is placed,
            or it is too short.
    """
    chance = random.Random(seed)
    start = clock()
    # The first run of each is not counted: it reads files that later runs find in memory.
    first = [without(), placed()]
    # If the status differs, it may differ at each run, whether the program is placed or not.
    again = without() if first[0].status != first[1].status else first[0]
    _same(first[0], again, first[1])
    if first[0].cpu_seconds < SECONDS_MIN:
        raise Error(
            f"the program takes {1000 * first[0].cpu_seconds:.1f} ms of CPU time, which is mostly "
            f"its start: give it more work, so that it takes {1000 * SECONDS_MIN:.0f} ms or more"
        )
    samples: tuple[list[Sample], list[Sample]] = ([], [])
    look, ended = ROUNDS_MIN, f"{limits.rounds_max} rounds"
    while len(samples[0]) < limits.rounds_max:
        order = [(0, without), (1, placed)]
        chance.shuffle(order)
        for which, run in order:
            samples[which].append(run())
        _same(first[0], samples[0][-1], samples[1][-1])
        rounds = len(samples[0])
        width = _width(*samples)
        if progress is not None:
            progress(rounds, width)
        if rounds == look:
            look = int(look * MORE)
            if width <= limits.within:
                ended = f"the interval is narrower than {100 * limits.within:g} % of the time"
                break
        if clock() - start > limits.seconds_max and rounds >= min(ROUNDS_MIN, limits.rounds_max):
            ended = f"{limits.seconds_max:g} seconds"
            break
    return Compared(*samples, clock() - start, ended)


def _same(before: Sample, without: Sample, placed: Sample) -> None:
    """Raises `Error` if the runs ended with different statuses."""
    if without.status != before.status:
        raise Error(
            f"the program ended with status {before.status} in one run and {without.status} in the "
            "next, so that runs cannot be compared; with --prepare, give a shell command that "
            "restores what the program changes"
        )
    if placed.status != before.status:
        raise Error(
            f"the program ends with status {before.status} without the rules and {placed.status} "
            "with them, so that runs cannot be compared; `pagewalk place --verify` shows what the "
            "rules did"
        )


def _width(without: Sequence[Sample], placed: Sequence[Sample]) -> float:
    low, high = interval(_differences(without, placed, JUDGED))
    return (high - low) / max(median(one.cpu_seconds for one in without), 1e-9)


def _differences(without: Sequence[Sample], placed: Sequence[Sample], name: str) -> list[float]:
    pairs = zip(without, placed, strict=True)
    return [float(getattr(one, name) - getattr(other, name)) for one, other in pairs]


def document(compared: Compared) -> dict[str, Any]:
    """The medians of both, and the gain of each kind of time with its interval, as plain data."""
    sides = {"without": compared.without, "placed": compared.placed}
    numbers = (*TIMES, "minor_faults", "major_faults", "resident_bytes_max", "launcher_seconds")
    medians = {
        side: {name: median(getattr(one, name) for one in samples) for name in numbers}
        | {"counts": _counts(samples)}
        for side, samples in sides.items()
    }
    gains = {}
    for name in TIMES:
        found = _differences(compared.without, compared.placed, name)
        low, high = interval(found)
        whole = max(medians["without"][name], 1e-9)
        seconds = {"lo": low, "median": median(found), "hi": high}
        gains[name] = {
            "seconds": seconds,
            "share": {end: value / whole for end, value in seconds.items()},
        }
    return {
        "schema": 1,
        "rounds": len(compared.without),
        "seconds": compared.seconds,
        "ended": compared.ended,
        "confidence": CONFIDENCE,
        "status": compared.without[0].status,
        **medians,
        "gain": gains,
        "samples": {
            side: [{**one._asdict(), "cpu_seconds": one.cpu_seconds} for one in samples]
            for side, samples in sides.items()
        },
    }


def _counts(samples: Sequence[Sample]) -> dict[str, float]:
    return {name: median(one.counts[name] for one in samples) for name in samples[0].counts}


def sampled(
    run: Callable[[], dict[str, Any]], counters: Counters | None, prepare: str | None = None
) -> Sample:
    """Runs a program once by calling `run`, which returns its `status` and `usage`."""
    if prepare is not None:
        done = subprocess.run(
            prepare, check=False, shell=True, stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
        if done.returncode:
            raise Error(f"--prepare: `{prepare}` ended with status {done.returncode}")
    own = _own_seconds()
    if counters is not None:
        counters.start()
    start = time.perf_counter()
    outcome = run()
    wall = time.perf_counter() - start
    counts = counters.stop() if counters is not None else {}
    usage = outcome["usage"]
    return Sample(
        wall,
        usage["user_seconds"],
        usage["system_seconds"],
        usage["minor_faults"],
        usage["major_faults"],
        usage["resident_bytes_max"],
        outcome["status"],
        counts,
        _own_seconds() - own,
    )


def _own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _nothing() -> IO[bytes]:
    return Path(os.devnull).open("rb")


@contextlib.contextmanager
def streams(stdin: Opened | None) -> Iterator[None]:
    """A context within which programs read `stdin` from its beginning. Their output is discarded.

    Output goes to a file without a name, because some programs do less when they write to
    `/dev/null`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(stdin() if stdin is not None else _nothing())
        sink = stack.enter_context(tempfile.TemporaryFile())
        for number, file in ((0, source), (1, sink), (2, sink)):
            kept = os.dup(number)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, number)
            os.dup2(file.fileno(), number)
        yield
