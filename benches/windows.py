"""What a recording of 1 in 100 costs: CPU time of programs alone, bare, sampled and recorded whole.

    .venv/bin/python benches/windows.py [--rounds 3] [--only PROGRAM] [--whole] [--json FILE]

`bare` is the engine's base cost: the program is translated and nothing of it is recorded, as its
window begins after more accesses than it makes. `1 in 100` is `--sample 1M/100M`. The rows take
turns, so that a busy machine is as busy for all of them. The table has medians of user and system
CPU time, with that of `pagewalk` itself.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import rounds

AWK = """BEGIN {
    for (i = 0; i < 4000000; i++) { n[i % 5003] += i * 7 % 11; s = s + length(i) }
    print s
}"""
PYTHON = """
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(30))
"""
PERL = (
    "my %n; for my $i (1 .. 3000000) { $n{$i * 7919 % 4000} += $i } print scalar(keys %n), qq(\\n);"
)


def programs(folder: Path) -> dict[str, list[str]]:
    """Commands of programs that run for about a second, by name."""
    text = b"".join(path.read_bytes() for path in sorted(Path("/usr/include").rglob("*.h")))
    (folder / "text").write_bytes((text * 4)[: 24 << 20])
    return {
        "gzip": ["gzip", "-9", "-c", f"{folder}/text"],
        "awk": ["awk", AWK],
        "python3": ["/usr/bin/python3", "-I", "-S", "-c", PYTHON],
        "perl": ["perl", "-e", PERL],
    }


def ways(folder: Path, whole: bool) -> dict[str, list[str]]:
    """What is put in front of a command, by how it runs."""
    record = [sys.executable, "-m", "pagewalk", "record", "-q", "--force", "--engine", "native"]
    record += ["-o", f"{folder}/t.pwt"]
    found = {
        "alone": [],
        "bare": [*record, "--skip", "1000T", "--"],
        "1 in 100": [*record, "--sample", "1M/100M", "--"],
    }
    return found | ({"whole": [*record, "--"]} if whole else {})


def seconds_of(command: list[str]) -> float:
    """The CPU time of a command and all that it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = subprocess.DEVNULL
    subprocess.run(command, stdout=quiet, stderr=quiet, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measures, and prints the table."""
    parser = rounds.parser("What windows cost, as CPU time.", 3)
    parser.add_argument("--whole", action="store_true", help="also record all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        fronts = ways(folder, options.whole)
        found = rounds.medians(options, fronts, programs(folder), seconds_of)
    rounds.heading("CPU time", [*found])
    rounds.row("alone, seconds", [f"{took['alone']:.2f}" for took in found.values()])
    for way in fronts:
        if way != "alone":
            cells = [f"{took[way] / took['alone']:.2f}" for took in found.values()]
            rounds.row(f"{way}, times alone", cells)
    cells = [f"{took['1 in 100'] / took['bare']:.2f}" for took in found.values()]
    rounds.row("1 in 100, times bare", cells)


if __name__ == "__main__":
    main()
