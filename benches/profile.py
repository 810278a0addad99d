"""Instructions per access of one line of the bench, by part of the code, as Cachegrind counts them.

    cargo build --release -p bench
    python3 benches/profile.py target/release/bench "uniform over 8M: opteron-2008" [TRACE.pwt ...]

A line of `bench --smoke` is two rounds. What the compiler has inlined is counted where its source
is, so that a part is all that its files do; what comes from the standard library and `addr`, with
the function that it is inlined into. Numbers do not depend on what else the host does.
"""

import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# The first that a source file's path contains.
PARTS = {
    "mmu/src/tlb": "TLBs: lookup, fill",
    "mmu/src/replacement": "replacement: uses, victims",
    "mmu/src/set_array": "sets: search, occupy",
    "mmu/src/walk_cache": "MMU caches",
    "mmu/src/cache": "data caches",
    "mmu/src/hints": "data caches",
    "run/src/run": "run: what joins the parts",
    "hardware/src/walker": "walker",
    "hardware/src": "hardware",
    "results/src/count/history": "history",
    "results/src/count/labels": "labels and regions",
    "results/src/count": "counts by TLB and region",
    "trace/src/regions": "labels and regions",
    "managers/src": "operating system: faults",
    "crates/os/src": "operating system: faults",
    "run/src/sweep": "sweep: log",
    "ram/src": "memory, tables, start",
    "description/src": "memory, tables, start",
    "machine/src": "memory, tables, start",
    "pagetable/src": "page table: walk, map",
    "physmem/src": "frames",
    "hat/src": "page table: walk, map",
    "trace/src": "trace: decode, generate",
    "benches/src": "bench",
}


def part(path: str) -> str:
    """The part of the code that a source file belongs to."""
    return next((name for piece, name in PARTS.items() if piece in path), "other crates, libc")


def home(function: str) -> str:
    """Where a function's source is, as far as its name says so."""
    names = re.search(r"(\w+)::(\w+)(?:::(\w+))?", function)
    return f"{names[1]}/src/{names[2]}/{names[3]}" if names else ""


def main(bench: str, line: str, traces: list[str]) -> None:
    """Prints both tables for `line`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        valgrind = [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=no",
            f"--cachegrind-out-file={out}",
        ]
        command = [*valgrind, bench, "--smoke", "--only", line, *traces]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row = re.compile(rf".*{re.escape(line)}.*? (\d+) +[\d.]+ ")
        rounds = [row.match(text) for text in shown.splitlines()]
        accesses = 2 * sum(int(match[1]) for match in rounds if match)
        by_part: collections.Counter[str] = collections.Counter()
        by_function: collections.Counter[str] = collections.Counter()
        path = function = ""
        for row in out.read_text().splitlines():
            if row.startswith(("fl=", "fi=", "fe=")):
                path = row[3:]
            elif row.startswith("fn="):
                function = re.sub(r"::h[0-9a-f]{16}", "", row[3:])
            elif row[:1].isdigit():
                instructions = int(row.split()[1])
                is_tool = "/library/" in path or "addr/src" in path
                by_part[part(home(function) if is_tool else path)] += instructions
                by_function[function] += instructions
    if not accesses:
        sys.exit(f"no line of the bench contains `{line}`")
    print(f"{sum(by_part.values()) / accesses:8.0f}  in all, start and end among them")
    for counts in (by_part, by_function):
        print()
        for name, instructions in counts.most_common(20):
            print(f"{instructions / accesses:8.0f}  {name[:90]}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
