"""Advice on page sizes beside what it gains natively: `python tests/python/placed.py [NAME ...]`.

For each program of `PROGRAMS` a recording of 60 million accesses is run on `epyc-9005` with base
pages and with 2M for its data; the promise is the range of the share of its time that translation
takes less. Then the program runs natively, in turns without and with the advice, by a library that
is preloaded (place.c), and the gain is that of the least user time of each: as it is, and with the
heap populated before it begins. Its kernel must leave transparent huge pages to madvise. A row per
program, for docs/page-sizes.md.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from pagewalk.reproduce.lab import Lab

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "sqlite3": "heap=128M", "python3": "heap=128M,mmap=1", "sort": "heap=512M",
    "minisat": "heap=128M", "perl": "heap=256M",
}  # fmt: skip
ROUNDS = 7
ACCESSES = 60_000_000
MANAGED = ["os.manager=irix", 'tlb.l1i.page_sizes=["4K","2M","1G"]',
           'tlb.l1d.page_sizes=["4K","2M","1G"]']  # fmt: skip


def promised(lab: Lab, name: str) -> tuple[float, float]:
    """The least and the most of the time that 2M for data saves, in per cent."""
    trace = lab.trace(name, ACCESSES)
    base, placed = lab.runs(trace, "epyc-9005", [MANAGED, [*MANAGED, "os.place=data=2M"]])
    ends = []
    for least, most in (("lo", "hi"), ("hi", "lo")):
        gain = base["time"]["translation_cycles"][least]
        gain -= placed["time"]["translation_cycles"][least]
        program = base["time"]["program_cycles"][most]
        ends.append(100 * gain / (program + base["time"]["translation_cycles"][least]))
    return ends[0], ends[1]


def measured(lab: Lab, name: str, library: Path, touched: int) -> tuple[float, float]:
    """Seconds of user time without the advice, and what the advice gains in per cent."""
    command, stdin, _ = lab.program(name).ready(lab.cache, ROOT / "workloads", install=True)
    times: dict[str, list[float]] = {"plain=1": [], "plain=0": []}
    for _ in range(ROUNDS):
        for plain, seconds in times.items():
            asked = f"{PROGRAMS[name]},{plain},touched={touched}"
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
    lab = Lab(ROOT / "experiments", install=True)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "place.so"
        source = ROOT / "tests/python/place.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        for name in sys.argv[1:] or PROGRAMS:
            seconds, gain = measured(lab, name, library, 0)
            _, touched = measured(lab, name, library, 1)
            least, most = promised(lab, name)
            shares = f"{least:.1f} to {most:.1f} | {gain:.1f} | {touched:.1f}"
            print(f"| {name} | {seconds:.2f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
