"""What recording costs: user CPU of five programs, recorded natively and in QEMU, and Cachegrind's.

    .venv/bin/python benches/recording.py [--rounds 5] [--only PROGRAM] [--json FILE]

Each round runs every program in every way, one after the other, so that a busy machine is as busy
for all of them. The table has medians, as multiples of the program's own user CPU; the start of
`pagewalk` is part of them.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PYTHON = """
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
words = {}
for i in range(60000):
    words[str(i % 5000)] = words.get(str(i % 5000), 0) + i
print(fib(20), sum(words.values()), sorted(words)[17])
"""
PERL = r"""
my %n;
for my $i (1 .. 120000) {
    my $w = "w" . ($i * 7919 % 4000);
    $n{$w} += $i;
    $w =~ s/(\d)(\d)/$2$1/;
    $n{$w}++;
}
my @most = sort { $n{$b} <=> $n{$a} || $a cmp $b } keys %n;
print join(" ", map { "$_ $n{$_}" } @most[0 .. 3]), "\n";
"""


def programs(folder: Path) -> dict[str, list[str]]:
    """Commands of programs with one thread, by name."""
    text = b"".join(path.read_bytes() for path in sorted(Path("/usr/include").rglob("*.h")))
    (folder / "text").write_bytes(text[: 2 << 20])
    (folder / "less").write_bytes(text[: 3 << 17])
    return {
        "gzip": ["gzip", "-9", "-c", f"{folder}/text"],
        "sqlite3": ["sqlite3", ":memory:", f".read {ROOT}/workloads/join-long.sql"],
        "xz": ["xz", "-T1", "-c", f"{folder}/less"],
        "python3": ["/usr/bin/python3", "-I", "-S", "-c", PYTHON],
        "perl": ["perl", "-e", PERL],
    }


def ways(folder: Path) -> dict[str, list[str]]:
    """What is put in front of a command, by how it runs."""
    record = [sys.executable, "-m", "pagewalk", "record", "-q", "--force"]
    cache = ["--cache-sim=yes", "--cachegrind-out-file=/dev/null"]
    return {
        "alone": [],
        "native": [*record, "--engine", "native", "-o", f"{folder}/n.pwt", "--"],
        "qemu": [*record, "--engine", "qemu", "-o", f"{folder}/q.pwt", "--"],
        "cachegrind": ["valgrind", "-q", "--tool=cachegrind", *cache],
    }


def user_seconds(command: list[str]) -> float:
    """The user CPU of a command and all that it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    quiet = subprocess.DEVNULL
    subprocess.run(command, stdout=quiet, stderr=quiet, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description="What recording costs, as user CPU.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", help="a program; again for another one")
    parser.add_argument("--json", type=Path, help="write the seconds of each round there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        fronts, commands = ways(folder), programs(folder)
        chosen = {name: commands[name] for name in options.only or commands}
        seconds: dict[str, dict[str, list[float]]] = {
            name: {way: [] for way in fronts} for name in chosen
        }
        for _ in range(options.rounds):
            for name, command in chosen.items():
                for way, front in fronts.items():
                    seconds[name][way].append(user_seconds([*front, *command]))
    medians = [
        {way: statistics.median(took) for way, took in row.items()} for row in seconds.values()
    ]
    print("| user CPU, times native |", " | ".join(chosen), "|")
    print("|---" * (1 + len(chosen)) + "|")
    print("| alone, seconds |", " | ".join(f"{row['alone']:.2f}" for row in medians), "|")
    for way in ("native", "qemu", "cachegrind"):
        cells = (f"{row[way] / row['alone']:.1f}" for row in medians)
        print(f"| {way} |", " | ".join(cells), "|")
    if options.json:
        options.json.write_text(json.dumps(seconds, indent=1) + "\n")
    print(f"{options.rounds} rounds; load {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
