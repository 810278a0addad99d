"""Random streams beside the kernel: `python tests/kernel/streams.py OUTPUT.json [--seed N]`.

```
 stream --play.c--> what each call and touch gave, the page sizes after each -----+
   |                                                                              | line by line
   +-- with the calls' results --play.rs--> crate `vm` as `linux` has it: those --+
```

Processes map, unmap, protect, move, lock and advise ranges of some blocks of 2M at fixed addresses,
and fork and end. Both sides say what each load found and which touches were refused. After each
operation they list the pages that hardware has, from which the page size of each block of 2M
follows. A stream that differs is reduced to few operations. Knobs of the system, which must be
root's to write, are as they were afterwards.
"""

import argparse
import datetime
import json
import os
import platform
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import knobs
from model import ROOT, example

BLOCK = 512
"""Base pages of a block of 2M."""
BLOCKS = 6
PAGES = BLOCKS * BLOCK
FIRST = 1 << 32
"""The number of the first page that streams use."""
FILE_PAGES = 2048
PROCESSES_MAX = 5
DONTNEED, HUGEPAGE, NOHUGEPAGE, POPULATE_READ, POPULATE_WRITE, COLLAPSE = 4, 14, 15, 22, 23, 25
ADVICE = (
    DONTNEED, DONTNEED, HUGEPAGE, NOHUGEPAGE, COLLAPSE, COLLAPSE, POPULATE_READ, POPULATE_WRITE,
)  # fmt: skip
MODES = {
    "always": ({"enabled": "always"}, 1 << 9, 0),
    "madvise": ({"enabled": "madvise"}, 0, 1 << 9),
    "64kB": ({"enabled": "always", "hugepages-64kB/enabled": "always"}, 1 << 9 | 1 << 4, 0),
}
"""Knobs, and masks of the orders of blocks that they allow everywhere, and where advised."""
PLAYED_MAX = 20
REDUCED_MAX = 20
FOLLOWED = ("apart",)
"""Differences of sizes after which others of the stream only follow."""
ADMITTED = (*FOLLOWED, "pages")
"""Differences that docs/method/managers.md has the reasons of."""
LARGE = "LZ"
"""Letters of pages of 2M: with memory of their own, or the page of zeros."""


@dataclass
class Difference:
    """What a stream gave natively and not in the model."""

    kind: str
    """`touch`: what a load found, or why a touch was refused; `size`: the page size of a block;
    `apart`: the same where the kernel has two mappings in the block that are one in the model;
    `pages`: which pages hardware has; `run`: the model did not come to its end."""
    line: int
    text: str


def some_range(rng: random.Random) -> tuple[int, int]:
    """A first page and a number of pages: blocks, parts of them, pages at their ends, any."""
    place = rng.randrange(BLOCKS) * BLOCK
    match rng.randrange(6):
        case 0 | 1:
            start, pages = place, BLOCK * rng.randint(1, 3)
        case 2:
            start, pages = place + rng.randrange(BLOCK), rng.randint(1, 16)
        case 3:
            start = max(0, place + rng.choice((-1, 1, 8, 256)))
            pages = rng.choice((BLOCK, 256, 1, 2 * BLOCK))
        case 4:
            start, pages = place, rng.choice((1, 8, 255, 256, 511, 513))
        case _:
            start, pages = rng.randrange(PAGES), rng.randint(1, 2 * BLOCK)
    return FIRST + start, max(1, min(pages, PAGES - start))


class Stream:
    """Operations of a seed, as lines that `play.c` takes; `check` after each."""

    def __init__(self, seed: int, operations: int) -> None:
        self.rng = random.Random(seed)
        self.alive, self.born, self.stamp = [0], 1, 0
        self.forks = self.rng.random() < 0.6
        # Private memory alone, mostly, or as often any other kind.
        self.kinds = self.rng.choice(((1, 0, 0, 0), (8, 1, 1, 1), (4, 2, 2, 2)))
        self.lines = [f"map 0 {FIRST} {PAGES} 3 0 0", "check"]
        for _ in range(operations):
            self.lines += [*self.operation(self.rng.choice(self.alive)), "check"]

    def operation(self, process: int) -> Iterator[str]:
        rng = self.rng
        page, pages = some_range(rng)
        match rng.choices(
            ("touch", "map", "unmap", "protect", "move", "advise", "lock", "fork", "exit"),
            (45, 10, 6, 6, 7, 15, 4, 5, 4),
        )[0]:
            case "touch":
                for _ in range(rng.randint(1, 4)):
                    yield from self.touches(process)
            case "map":
                kind = rng.choices(range(4), self.kinds)[0]
                first = rng.choice((page - FIRST, rng.randrange(64), (page - FIRST) % BLOCK))
                first = max(0, min(first, FILE_PAGES - pages)) if kind >= 2 else 0
                prot = rng.choice((3, 3, 3, 3, 1, 0, 2, 5, 7))
                yield f"map {process} {page} {pages} {prot} {kind} {first}"
            case "unmap":
                yield f"unmap {process} {page} {pages}"
            case "protect":
                prot = rng.choice((3, 3, 3, 1, 1, 0, 2, 5, 7))
                yield f"protect {process} {page} {pages} {prot}"
            case "move":
                # To another place, or in its own, where it may grow only if nothing follows.
                flags = rng.choice((3, 3, 3, 0))
                to = some_range(rng)[0]
                new = rng.choice((pages, pages, max(1, pages // 2), pages + rng.randint(1, 64)))
                new = min(new, PAGES - (to - FIRST)) if flags else new
                yield f"move {process} {page} {pages} {to} {new} {flags}"
            case "advise":
                yield f"advise {process} {page} {pages} {rng.choice(ADVICE)}"
            case "lock":
                # 1: MLOCK_ONFAULT.
                what = rng.choice(("lock {} 0", "lock {} 1", "unlock {}", "unlock {}"))
                yield what.format(f"{process} {page} {pages}")
            case "fork" if self.forks and self.born < 12 and len(self.alive) < PROCESSES_MAX:
                yield f"fork {process} {self.born}"
                self.alive.append(self.born)
                self.born += 1
            case "exit" if len(self.alive) > 1:
                self.alive.remove(process)
                yield f"exit {process}"
            case "fork" | "exit":
                yield from self.touches(process)

    def touches(self, process: int) -> Iterator[str]:
        rng = self.rng
        page, pages = some_range(rng)
        what = rng.choice(("load", "store", "store"))
        step, count = rng.choice((1, 7, 64, 512)), rng.choice((1, 1, 4, 40))
        for each in range(page, page + pages, step)[:count]:
            self.stamp += 1
            yield f"{what} {process} {each}" + (f" {self.stamp}" if what == "store" else "")


class Player:
    """Both sides, under the knobs of a mode."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.native, self.model, self.file = folder / "play", model, folder / "file"
        source = ROOT / "tests/kernel/play.c"
        subprocess.run(["cc", "-O1", "-o", self.native, source], check=True)
        # A page at a time, so that the page cache has no larger folios of it.
        with self.file.open("wb", buffering=0) as file:
            for index in range(FILE_PAGES):
                file.write(struct.pack("<Q", 1 << 60 | index) + bytes(4088))
        self.is_written = True
        self.masks = ["0", "0"]

    def enter(self, mode: str) -> None:
        """Sets the knobs of a mode."""
        values, *masks = MODES[mode]
        self.masks = [str(mask) for mask in masks]
        (knobs.THP / "hugepages-64kB/enabled").write_text("never")
        (knobs.THP / "khugepaged/scan_sleep_millisecs").write_text("4000000")
        for name, value in values.items():
            (knobs.THP / name).write_text(value)
        # Each knob wakes the daemon once.
        time.sleep(0.2)

    def natively(self, lines: list[str]) -> list[str]:
        """What the kernel gives for each line."""
        if self.is_written:
            with self.file.open("r+b", buffering=0) as file:
                for index in range(FILE_PAGES):
                    os.pwrite(file.fileno(), struct.pack("<Q", 1 << 60 | index), index << 12)
                os.fdatasync(file.fileno())
        self.is_written = any(line.startswith("map") and line.split()[5] == "3" for line in lines)
        text = "\n".join(lines) + "\n"
        done = subprocess.run(
            [self.native, self.file], input=text, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    def modelled(self, lines: list[str], native: list[str]) -> list[str]:
        """What the model gives for each line, after which the result of a call stands."""
        told = [
            line
            if line == "check"
            else f"{line} {0 if line.startswith(('load', 'store')) else result}"
            for line, result in zip(lines, native, strict=True)
        ]
        try:
            done = subprocess.run(
                [self.model, *self.masks], input="\n".join(told) + "\n",
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return []
        return done.stdout.splitlines()

    def differences(self, lines: list[str]) -> list[Difference]:
        """The first difference of each kind, by line.

        A stream that the kernel had no block of memory for is played again once memory is compact.
        """
        for _ in range(PLAYED_MAX):
            before = refused_blocks()
            native = self.natively(lines)
            if refused_blocks() == before:
                return list(compared(lines, native, self.modelled(lines, native)))
            Path("/proc/sys/vm/compact_memory").write_text("1")
        raise knobs.RefusedError("memory is too full for pages of 2M: end what else runs here")

    def reduced(self, lines: list[str], kind: str, seconds: float = 60) -> list[str]:
        """Fewer operations with a difference of that kind: halves are left out, then quarters."""
        end = time.monotonic() + seconds

        def differs(tried: list[str]) -> bool:
            try:
                return any(of.kind == kind for of in self.differences(tried))
            except subprocess.CalledProcessError:
                # What a process does that is never forked.
                return False

        first = next((of.line for of in self.differences(lines) if of.kind == kind), None)
        if first is None:
            return lines
        last = lines[first]
        kept = [line for line in lines[:first] if line != "check"]
        if not differs([*kept, last]):
            return lines[: first + 1]
        size = max(1, len(kept) // 2)
        while time.monotonic() < end:
            before = len(kept)
            at = 0
            while at < len(kept) and time.monotonic() < end:
                tried = kept[:at] + kept[at + size :]
                if differs([*tried, last]):
                    kept = tried
                else:
                    at += size
            if size == 1 and len(kept) == before:
                break
            size = max(1, size // 2)
        return [*kept, last]


def refused_blocks() -> list[str]:
    """Lines of /proc/vmstat that count pages of 2M for which no memory was free, of anybody."""
    counters = ("thp_fault_fallback ", "thp_collapse_alloc_failed ", "thp_zero_page_alloc_failed ")
    lines = Path("/proc/vmstat").read_text().splitlines()
    return [line for line in lines if line.startswith(counters)]


def pages_of(line: str) -> dict[int, dict[int, str]]:
    """The letter of each page that hardware has, by process."""
    found: dict[int, dict[int, str]] = {}
    pages: dict[int, str] = {}
    for word in line.split():
        if word.endswith(("v", "w")):
            continue
        if "+" in word:
            start, rest = word.split("+")
            pages.update((int(start) + into, rest[-1]) for into in range(int(rest[:-1])))
        else:
            pages = found.setdefault(int(word), {})
    return found


def mappings_of(line: str) -> dict[int, list[range]]:
    """The pages of all mappings, by process."""
    found: dict[int, list[range]] = {}
    mappings: list[range] = []
    for word in line.split():
        if word.endswith("v"):
            start, rest = word.split("+")
            mappings.append(range(int(start), int(start) + int(rest[:-1])))
        elif "+" not in word:
            mappings = found.setdefault(int(word), [])
    return found


def large_of(pages: dict[int, str]) -> dict[int, str]:
    """The letter of each block of 2M that is a large page."""
    return {page // BLOCK: letter for page, letter in pages.items() if letter in LARGE}


def compared(lines: list[str], native: list[str], other: list[str]) -> Iterator[Difference]:
    """The first difference of each kind."""
    found: set[str] = set()
    for at, (line, one) in enumerate(zip(lines, native, strict=True)):
        if at >= len(other):
            yield Difference("run", at, f"the model ends before: {line}")
            return
        two = other[at]
        for kind, text in between(line, one, two) if one != two else ():
            if kind not in found and not (kind == "size" and found.intersection(FOLLOWED)):
                found.add(kind)
                yield Difference(kind, at, text)


def between(line: str, one: str, two: str) -> Iterator[tuple[str, str]]:
    """Kinds of differences of two results of a line, each with what is different."""
    if line != "check":
        yield "touch", f"{line}: natively {one}, in the model {two}"
        return
    mine, theirs = pages_of(one), pages_of(two)
    for process in mine:
        # What a region without rights has is in the kernel's page table, and not in the model's.
        hidden = {page for page, letter in theirs[process].items() if letter == "n"}
        native, other = (
            {page: letter for page, letter in of[process].items() if page not in hidden}
            for of in (mine, theirs)
        )
        sizes, others = large_of(native), large_of(other)
        firsts, others_firsts = (
            {pages.start for pages in mappings_of(of)[process]} for of in (one, two)
        )
        apart = {page // BLOCK for page in firsts - others_firsts}
        # What has left the model's page table comes back by a fault, as large as it was.
        loaded = {page // BLOCK for page in other}
        for block in sorted(sizes.keys() | others.keys()):
            was, is_now = sizes.get(block, "small"), others.get(block, "small")
            if was != is_now and block in loaded:
                place = block - FIRST // BLOCK
                text = f"process {process}, block {place}: natively {was}, in the model {is_now}"
                yield "apart" if block in apart else "size", text
        pages = sorted(native.items() ^ other.items())
        if pages:
            page, _ = pages[0]
            yield (
                "pages",
                (
                    f"process {process}, page +{page - FIRST} and {len(dict(pages)) - 1} more: "
                    f"natively {native.get(page, 'none')}, in the model {other.get(page, 'none')}"
                ),
            )


def plain(line: str) -> str:
    """A line with pages counted from the first one that streams use."""
    words = line.split()
    places = {"load": [2], "store": [2], "move": [2, 4], "fork": [], "exit": [], "check": []}
    for place in places.get(words[0], [2]):
        words[place] = f"+{int(words[place]) - FIRST}"
    return " ".join(words)


def main() -> int:
    """The record, a line per difference, and a sum."""
    parser = argparse.ArgumentParser(description="random streams beside the running kernel")
    parser.add_argument("output", type=Path, metavar="OUTPUT.json")
    parser.add_argument("--seed", type=int, default=1, help="the first stream's seed")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--operations", type=int, default=60, help="operations of a stream")
    asked = parser.parse_args()
    model = example("pagewalk-vm", "play")
    found = []
    counts: Counter[str] = Counter()
    seeds = range(asked.seed, asked.seed + asked.streams)
    print(f"{asked.streams} streams of {asked.operations} operations, from seed {asked.seed} on")
    with tempfile.TemporaryDirectory() as folder, knobs.kept():
        player = Player(Path(folder), model)
        for number, mode in enumerate(MODES):
            player.enter(mode)
            for seed in seeds[number :: len(MODES)]:
                lines = Stream(seed, asked.operations).lines
                for of in player.differences(lines):
                    counts[of.kind] += 1
                    print(f"seed {seed}, {mode}, {of.kind}, line {of.line}: {of.text}", flush=True)
                    is_new = of.kind not in ADMITTED and counts[of.kind] <= REDUCED_MAX
                    few = player.reduced(lines, of.kind) if is_new else []
                    few = [plain(line) for line in few]
                    print("".join(f"    {line}\n" for line in few), end="", flush=True)
                    found.append({"seed": seed, "mode": mode, **asdict(of), "reduced": few})
    record = {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "kernel": platform.release(),
        "seed": asked.seed,
        "streams": asked.streams,
        "operations": asked.operations,
        "differences": found,
    }
    asked.output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"differences by kind: {dict(counts) or 'none'}")
    return 1 if counts.keys() - set(ADMITTED) else 0


if __name__ == "__main__":
    sys.exit(knobs.run(main))
