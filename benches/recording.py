"""What recording costs: user CPU of five programs, recorded natively and in QEMU, and Cachegrind's.

    .venv/bin/python benches/recording.py [--rounds 5] [--only PROGRAM] [--json FILE]

Each round runs every program in every way, one after the other, so that a busy machine is as busy
for all of them. The table has medians, as multiples of the program's own user CPU; the start of
`pagewalk` is part of them.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import rounds

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
    options = rounds.parser("What recording costs, as user CPU.", 5).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found = rounds.medians(options, ways(folder), programs(folder), user_seconds)
    rounds.heading("user CPU, times native", [*found])
    rounds.row("alone, seconds", [f"{took['alone']:.2f}" for took in found.values()])
    for way in ("native", "qemu", "cachegrind"):
        rounds.row(way, [f"{took[way] / took['alone']:.1f}" for took in found.values()])


if __name__ == "__main__":
    main()
