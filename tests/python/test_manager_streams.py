"""Random traces under every memory manager, through the command.

No run panics or has no end, and an error is one line.

A trace is a table of accesses (`csv`), or accesses and system calls of several processes
(`drmemtrace`), with ranges of every size and alignment. `pagewalk run` has one manager, a
page-table format and knobs; `pagewalk managers` has all managers.
`crates/machine/tests/machine/streams.rs` does it with all events and far more streams, in one
process.

Twelve traces in the tests; `make torture` has `PAGEWALK_STREAMS` of them. A run that fails names
its seed: `PAGEWALK_STREAMS_SEED` begins with it.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import drmemtrace
import pytest

SEED = int(os.environ.get("PAGEWALK_STREAMS_SEED", "1"))
STREAMS = int(os.environ.get("PAGEWALK_STREAMS", "12"))
SECONDS_MAX = 120
"""A run that takes longer has no end: the longest take some seconds."""
PAGE, BLOCK = 4096, 2 << 20
MANAGERS = (
    "first-touch", "base", "irix", "freebsd", "linux", "ingens", "hawkeye", "ca",
    "translation-ranger",
)  # fmt: skip
MACHINES = ("epyc-9005", "opteron-2008", "xeon-6900p")
TABLES = {
    47: (
        "page_table.format=x86-64", "page_table.format=flattened", "page_table.format=powerpc",
        "page_table.software_tlb=8K",
    ),
    56: ("page_table.levels=5",),
    63: (
        "page_table.format=mpt", "page_table.format=guarded", "page_table.format=hashed",
        "page_table.format=clustered", "page_table.format=inverted", "page_table.format=linear",
    ),
}  # fmt: skip
ANY = (
    "swap.size=64M", "swap.size=1M", "os.replacement=lru", "os.replacement=2q", "core.count=2",
    "core.asid_bits=0", "memory.aged={free=0.5,wired=0.1,seed=2}", "memory.allocator=size-lists",
    "memory.allocator=page-blocks", "os.inject=\"fail-allocation:30\"", "os.populated=true",
    "os.clock=instructions", "memory.numa={nodes=2}",
)  # fmt: skip
OWN = {
    "irix": ("os.place=data=2M", "os.place=\"mmap=64K wait\""),
    "freebsd": ("os.reservations={eager=true}", "os.reservations={sizes=[\"64K\",\"2M\"]}"),
    "linux": (
        "os.linux.enabled=madvise", "os.linux.defrag=always", "os.eager_paging=true",
        "os.linux.hugepages-64kB.enabled=always", "os.linux.khugepaged.scan_sleep_millisecs=1",
        "os.linux.hugepages-1048576kB.enabled=always", "os.linux.cycles_per_ms=1000",
    ),
    "ingens": ("os.ingens={util_threshold=1}", "os.ingens={deferred_mode=2}"),
    "hawkeye": ("os.hawkeye={faults=false,sleep_millisecs=1}",),
    "ca": ("os.ca={offsets_max=1}",),
    "translation-ranger": ("os.ranger={region_bytes_min=\"64K\",period_millisecs=1}",),
}  # fmt: skip


class Life:
    """A random program of some processes, whose addresses have so many bits."""

    def __init__(self, rng: random.Random, bits: int) -> None:
        self.rng = rng
        far = rng.randrange(1 << rng.randint(33, bits)) & ~(BLOCK - 1)
        self.places = [0x4000_0000, 0x4000_0000 + 3 * BLOCK, far]

    def range(self, is_odd: bool = True) -> tuple[int, int]:
        """A start and a length; odd ones may lie anywhere."""
        rng = self.rng
        place = rng.choice(self.places)
        match rng.randrange(24):
            case 0 if is_odd:
                return rng.getrandbits(64), rng.getrandbits(rng.randint(1, 64))
            case 1 if is_odd:
                return place, rng.choice((0, 1, (1 << 64) - 1, 1 << 47))
            case 2:
                return place + rng.randrange(BLOCK), rng.randrange(BLOCK)
            case 3 | 4 | 5 | 6 | 7:
                return place, rng.randint(1, 3) * BLOCK
            case _:
                return place + rng.randrange(1200) * PAGE, rng.randint(1, 600) * PAGE

    def touches(self) -> list[tuple[str, int, int]]:
        """Kinds, addresses and sizes of some accesses in a row."""
        rng = self.rng
        start, bytes_ = self.range(is_odd=rng.random() < 0.01)
        kind = rng.choice(("load", "store"))
        step, count = rng.choice((8, PAGE, PAGE, BLOCK)), rng.choice((1, 8, 64, 512))
        size = rng.choice((1, 8, 8, 64, 300))
        addresses = range(start, start + max(1, bytes_), step)[:count]
        return [(kind, addr & ((1 << 64) - 1), size) for addr in addresses]

    def call(self) -> bytes:
        """A memory call, as DynamoRIO records it."""
        rng = self.rng
        (start, bytes_), (to, other) = self.range(), self.range()
        result = rng.choice((0,) * 12 + (-12, -22)) & ((1 << 64) - 1)
        match rng.choices(
            ("mmap", "munmap", "mprotect", "brk", "mremap", "madvise"), (4, 3, 3, 1, 3, 5)
        )[0]:
            case "mmap":
                flags = rng.choice((0x22, 0x22, 0x21, 0x2, 0x1, 0x20022))
                offset = rng.choice((0, PAGE, 1 << 40, 77))
                of = [start, bytes_, rng.choice((0, 1, 3, 3, 3, 7)), flags, 3, offset]
                return drmemtrace.call(9, of, result or start)
            case "munmap":
                return drmemtrace.call(11, [start, bytes_], result)
            case "mprotect":
                return drmemtrace.call(10, [start, bytes_, rng.randrange(8)], result)
            case "brk":
                return drmemtrace.call(12, [start], start)
            case "mremap":
                of = [start, bytes_, rng.choice((bytes_, other, bytes_ // 2)), 1, to]
                return drmemtrace.call(25, of, result or to)
            case _:
                advice = rng.choice((rng.randrange(30), 4, 14, 15, 22, 23, 25))
                return drmemtrace.call(28, [start, bytes_, advice], result)

    def table(self, path: Path) -> Path:
        """Accesses alone, as a table of several threads."""
        rows = [
            f"{addr},{kind},{size},{self.rng.randrange(3)}"
            for _ in range(self.rng.randint(10, 60))
            for kind, addr, size in self.touches()
        ]
        path.write_text("addr,kind,size,thread\n" + "\n".join(rows) + "\n")
        return path

    def folder(self, path: Path) -> Path:
        """Accesses and calls of up to three processes."""
        path.mkdir()
        for pid in range(1, self.rng.randint(2, 4)):
            out = [drmemtrace.start(pid, pid)]
            for stamp in range(self.rng.randint(2, 12)):
                out.append(drmemtrace.time(stamp * 10 + pid, self.rng.randrange(3)))
                for _ in range(self.rng.randint(1, 12)):
                    if self.rng.random() < 0.5:
                        out.append(self.call())
                        continue
                    for kind, addr, size in self.touches():
                        access = drmemtrace.load if kind == "load" else drmemtrace.store
                        out.append(drmemtrace.instruction(0x1000) + access(addr, size))
            (path / f"p.{pid}.{pid}.memtrace").write_bytes(b"".join([*out, drmemtrace.end(pid)]))
        return path


def command(seed: int, folder: Path) -> list[str]:
    """A command over a trace of its own."""
    rng = random.Random(seed)
    bits = rng.choice((47, 47, 47, 56, 63))
    life = Life(rng, bits)
    path = life.table(folder / "t.csv") if rng.random() < 0.3 else life.folder(folder / "traces")
    settings = [rng.choice(TABLES[bits])] if rng.random() < 0.7 or bits > 47 else []
    if settings and rng.random() < 0.95:
        settings.append("mmu_cache.design=none")
    settings.append(f"memory.size={rng.choice(('1M', '4M', '16M', '64M', '1G'))}")
    settings += rng.sample(ANY, rng.randrange(3))
    if rng.random() < 0.2:
        arguments = ["managers", str(path), "--machine", rng.choice(MACHINES[:2])]
    else:
        manager = rng.choice(MANAGERS)
        own = OWN.get(manager, ())
        settings += [f"os.manager={manager}", *rng.sample(own, min(len(own), rng.randrange(3)))]
        arguments = ["run", str(path), "--machine", rng.choice(MACHINES)]
    if rng.random() < 0.2:
        arguments += ["--check"] if arguments[0] == "run" else []
    return [*arguments, *(word for setting in settings for word in ("--set", setting))]


def wrong_with(done: "subprocess.CompletedProcess[str]") -> str | None:
    """What is wrong with how a command ended, if anything is."""
    told = done.stderr.strip()
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    for word in ("panicked", "Traceback", "RUST_BACKTRACE"):
        if word in told:
            return word
    if done.returncode == 0:
        return None
    errors = [line for line in told.splitlines() if line.startswith("pagewalk: error: ")]
    if done.returncode not in (1, 2) or len(errors) != 1 or told.splitlines()[-1] != errors[0]:
        return f"status {done.returncode}, which is not told in a line"
    return None


@pytest.mark.parametrize("seed", range(SEED, SEED + STREAMS))
def test_a_random_trace_runs_or_is_refused_in_a_line(seed: int, tmp_path: Path) -> None:
    arguments = command(seed, tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pagewalk", *arguments],
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.fail(f"PAGEWALK_STREAMS_SEED={seed}: more than {SECONDS_MAX} s: {arguments}")
    wrong = wrong_with(done)
    assert wrong is None, f"PAGEWALK_STREAMS_SEED={seed}: {wrong}: {arguments}\n{done.stderr}"
