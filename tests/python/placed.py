"""Advice on page sizes beside what it gains natively.

`python tests/python/placed.py [MACHINE] [NAME ...]`

Each program of `PROGRAMS` is laid out by a library that is preloaded (place.c): its heap grows by
much at once, so that large pages have room, and lies where a large page begins. So it is
recorded, and run on `epyc-9005` and on MACHINE, a file of `pagewalk calibrate`, with base pages
and with 2M for its data; the promise is the range of the share of its time that translation takes
less. Then the program runs natively, in turns without and with the advice, and the gain is that
of the least user time of each: as it is, and with the heap populated before it begins, where the
pages' first touches are in none of the two. Its kernel must leave transparent huge pages to
madvise. A row per program, for docs/page-sizes.md.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from pagewalk import Machine, Trace
from pagewalk.reproduce.lab import Lab

ROOT = Path(__file__).parents[2]
PAGEWALK = Path(sys.executable).parent / "pagewalk"
PROGRAMS = {
    "sqlite3": "heap=128M", "python3": "heap=128M,mmap=1", "sort": "heap=512M",
    "minisat": "heap=128M", "perl": "heap=256M",
}  # fmt: skip
ROUNDS = 7
ACCESSES = 1_500_000_000
HERE = ROOT / "experiments/host/here.toml"


def placed(name: str, plain: int, touched: int) -> str:
    """How the library lays a program out, and whether it advises."""
    return f"{PROGRAMS[name]},plain={plain},touched={touched}"


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


def recorded(lab: Lab, name: str, library: Path, folder: Path) -> Trace:
    """The program as the library lays it out, without the advice."""
    command, stdin, _ = lab.program(name).ready(lab.cache, ROOT / "workloads", install=True)
    place = ["env", f"PAGEWALK_PLACE={placed(name, 1, 0)}", f"LD_PRELOAD={library}"]
    output = folder / f"{name}.pwt"
    with Path(stdin).open("rb") as file:
        subprocess.run(
            [PAGEWALK, "record", "--max-accesses", str(ACCESSES), "--force", "-o", output, "--",
             *place, *command],
            stdin=file, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    return Trace(output)


def measured(lab: Lab, name: str, library: Path, touched: int) -> tuple[float, float]:
    """Seconds of user time without the advice, and what the advice gains in per cent."""
    command, stdin, _ = lab.program(name).ready(lab.cache, ROOT / "workloads", install=True)
    times: dict[str, list[float]] = {"1": [], "0": []}
    for _ in range(ROUNDS):
        for plain, seconds in times.items():
            asked = placed(name, int(plain), touched)
            place = {"PAGEWALK_PLACE": asked, "LD_PRELOAD": str(library)}
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            with Path(stdin).open("rb") as file:
                subprocess.run(command, stdin=file, stdout=subprocess.DEVNULL, check=False,
                               stderr=subprocess.DEVNULL, env={**os.environ, **place})  # fmt: skip
            seconds.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    plain_, advised = (min(seconds) for seconds in times.values())
    return plain_, 100 * (1 - advised / plain_)


def main() -> None:
    """The rows."""
    names = sys.argv[1:]
    here = names.pop(0) if names and names[0].endswith(".toml") else str(HERE)
    lab = Lab(ROOT / "experiments", install=True)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "place.so"
        source = ROOT / "tests/python/place.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        for name in names or PROGRAMS:
            trace = recorded(lab, name, library, Path(folder))
            ranges = [promised(trace, machine) for machine in ("epyc-9005", here)]
            Path(trace.source).unlink()
            seconds, gain = measured(lab, name, library, 0)
            _, touched = measured(lab, name, library, 1)
            cells = [f"{least:.1f} to {most:.1f}" for least, most in ranges]
            row = [name, f"{seconds:.2f}", *cells, f"{gain:.1f}", f"{touched:.1f}"]
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
