"""Advice on page sizes beside what it gains natively.

`python tests/python/placed.py [promised | measured] [MACHINE] [NAME ...]`

Each program of `PROGRAMS` is laid out by a library that is preloaded (place.c): all that malloc
gives lies in a heap that is large from the beginning, and begins where a large page does. So it
is recorded, and run on `epyc-9005` and on MACHINE, a file of `pagewalk calibrate`, with base
pages and with 2M for its data; the promise is the range of the share of its time that translation
takes less (`promised`).

Then the program runs natively, in turns without and with the advice (`measured`): with the heap
populated before it begins, so that first touches are no part of the processor time that the
library tells, and as it is, by user time. A gain is that of the least times, and behind it stands
the middle half of the gains round by round. Its kernel must leave transparent huge pages to
madvise, and nothing else should run. A row per program, for docs/method/placing.md.
"""

import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from pagewalk import Machine, Trace
from pagewalk.reproduce.lab import Lab

ROOT = Path(__file__).parents[2]
PAGEWALK = Path(sys.executable).parent / "pagewalk"
ROUNDS = 15
ACCESSES = 9_000_000_000
"""More than any of them makes, but minisat."""
HERE = ROOT / "experiments/host/here.toml"


@dataclass(frozen=True)
class Laid:
    """A program, its inputs made larger, and how the library lays it out.

    Attributes:
        of: Its name in experiments/programs.toml.
        place: What the library is told.
        grown: Keys of its inputs, with their values here.
        lines: Words in the lines of its script, with what stands for them here.
        environment: Variables that it is given.
    """

    of: str
    place: str
    grown: dict[str, int] = field(default_factory=dict)
    lines: tuple[str, str] = ("", "")
    environment: dict[str, str] = field(default_factory=dict)


PROGRAMS = {
    "sqlite3": Laid("sqlite3-large", "heap=320M", lines=("150000", "300000")),
    # Its own allocator would map its memory in pieces of 1 MiB.
    "python3": Laid(
        "python3-large", "heap=384M", {"bytes_": 12_000_000}, environment={"PYTHONMALLOC": "malloc"}
    ),
    "sort": Laid("sort", "heap=512M", {"bytes_": 36_000_000}),
    "minisat": Laid("minisat", "heap=64M"),
    "perl": Laid("perl", "heap=64M"),
}


def command_of(lab: Lab, laid: Laid) -> tuple[list[str], str]:
    """A program's command and the path of its standard input."""
    program = lab.program(laid.of)
    inputs = {
        name: {
            key: laid.grown.get(key, value)
            if key != "lines"
            else [line.replace(*laid.lines) if laid.lines[0] else line for line in value]
            for key, value in made.items()
        }
        for name, made in program.inputs.items()
    }
    command, stdin, _ = replace(program, inputs=inputs).ready(
        lab.cache, ROOT / "workloads", install=True
    )
    return command, stdin


def promised(trace: Trace, machine: str) -> tuple[float, float]:
    """The least and the most of the time that 2M for data saves, in per cent."""
    base, large = (
        Machine(machine, settings).run(trace).data["time"]
        for settings in ([], ["os.place=data=2M"])
    )
    ends = []
    for least, most in (("lo", "hi"), ("hi", "lo")):
        gain = base["translation_cycles"][least] - large["translation_cycles"][least]
        whole = base["program_cycles"][most] + base["translation_cycles"][least]
        ends.append(100 * gain / whole)
    return min(ends), max(ends)


def recorded(lab: Lab, laid: Laid, library: Path, folder: Path) -> Trace:
    """The program as the library lays it out, without the advice."""
    command, stdin = command_of(lab, laid)
    given = {
        **laid.environment, "PAGEWALK_PLACE": f"{laid.place},plain=1", "LD_PRELOAD": str(library),
    }  # fmt: skip
    place = ["env", *(f"{key}={value}" for key, value in given.items())]
    output = folder / f"{laid.of}.pwt"
    with Path(stdin).open("rb") as file:
        subprocess.run(
            [PAGEWALK, "record", "--max-accesses", str(ACCESSES), "--force", "-o", output, "--",
             *place, *command],
            stdin=file, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    return Trace(output)


@dataclass
class Times:
    """Seconds of one way to run a program, round by round: user time, and processor time told."""

    user: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)


def measured(lab: Lab, laid: Laid, library: Path, touched: int) -> tuple[Times, Times]:
    """The times without the advice and with it, in turns."""
    command, stdin = command_of(lab, laid)
    plain, advised = Times(), Times()
    for turn in range(2 * ROUNDS):
        # Neither always runs first.
        is_plain = turn % 4 in (0, 3)
        times = plain if is_plain else advised
        with tempfile.TemporaryFile("w+") as told, Path(stdin).open("rb") as file:
            place = f"{laid.place},plain={int(is_plain)},touched={touched},told={told.fileno()}"
            given = {**laid.environment, "PAGEWALK_PLACE": place, "LD_PRELOAD": str(library)}
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            subprocess.run(command, stdin=file, stdout=subprocess.DEVNULL, check=False,
                           stderr=subprocess.DEVNULL, env={**os.environ, **given},
                           pass_fds=[told.fileno()])  # fmt: skip
            times.user.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
            told.seek(0)
            times.told.append(int(told.read().split()[-1]) / 1e9)
    return plain, advised


def gained(plain: list[float], advised: list[float]) -> str:
    """What the advice gains in per cent: of the least times, and of the middle half of rounds."""
    each = sorted(100 * (1 - fast / slow) for slow, fast in zip(plain, advised, strict=True))
    low, high = each[len(each) // 4], each[-1 - len(each) // 4]
    return f"{100 * (1 - min(advised) / min(plain)):.1f} ({low:.1f} to {high:.1f})"


def main() -> None:
    """The rows."""
    names = sys.argv[1:]
    only = names.pop(0) if names and names[0] in ("promised", "measured") else None
    here = names.pop(0) if names and names[0].endswith(".toml") else str(HERE)
    lab = Lab(ROOT / "experiments", install=True)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "place.so"
        source = ROOT / "tests/python/place.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        for name in names or PROGRAMS:
            laid = PROGRAMS[name]
            row = [name]
            if only != "measured":
                trace = recorded(lab, laid, library, Path(folder))
                ranges = [promised(trace, machine) for machine in ("epyc-9005", here)]
                Path(trace.source).unlink()
                row += [f"{least:.1f} to {most:.1f}" for least, most in ranges]
            if only != "promised":
                faulting, touched = (measured(lab, laid, library, to) for to in (0, 1))
                row += [
                    f"{min(touched[0].told):.2f}", gained(touched[0].told, touched[1].told),
                    gained(faulting[0].user, faulting[1].user),
                ]  # fmt: skip
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
