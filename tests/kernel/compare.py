"""The manager `linux` beside the kernel: `python tests/kernel/compare.py OUTPUT.json [NAME ...]`.

```
 program, no large pages --layout.c--> its calls, its first touches --> a trace --> `linux`, by mode
 program, by mode        --layout.c--> /proc/PID/smaps where most was in memory        |
                                                  |                                    |
                                                  +------ region by region <-----------+
```

Each program of `PROGRAMS` runs natively under `never`, and then in each mode; without randomised
addresses it has the same regions each time. What it touches first, and when, is known from the run
under `never`. The 2M share of a region is what of its anonymous memory is in pages of 2M. The knobs
of the system, which must be root's to write, are as they were afterwards.
"""

import datetime
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pagewalk
from pagewalk.reproduce.lab import Lab

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
import drmemtrace  # noqa: E402

KNOBS = Path("/sys/kernel/mm/transparent_hugepage")
MODES = ("always", "madvise", "never")
PROGRAMS = (
    "sqlite3", "python3", "xz", "gzip", "perl", "sort", "minisat", "glpsol", "gcc", "compress",
    "heapsort", "mm", "swim", "fftpde", "upgrade",
)  # fmt: skip
LARGE = 2 << 20
NOHUGEPAGE = 15


@contextmanager
def knobs(mode: str) -> Iterator[None]:
    """The system's large pages as `mode` says, and its daemon asleep, meanwhile."""
    values = {KNOBS / "enabled": mode, KNOBS / "khugepaged/scan_sleep_millisecs": "4000000"}
    before = {}
    for path in values:
        text = path.read_text().strip()
        chosen = [word for word in text.split() if word.startswith("[")]
        before[path] = chosen[0].strip("[]") if chosen else text
    try:
        for path, value in values.items():
            path.write_text(value)
        yield
    finally:
        for path, value in before.items():
            path.write_text(value)


class Program:
    """A program that runs natively."""

    def __init__(self, lab: Lab, name: str, tool: Path, folder: Path) -> None:
        self.command, stdin, _ = lab.program(name).ready(
            lab.cache, ROOT / "workloads", install=True
        )
        self.stdin, self.tool, self.output = Path(stdin or os.devnull), tool, folder / "layout.txt"

    def run(self, what: str) -> list[str]:
        """The lines of `layout`."""
        with self.stdin.open("rb") as stdin:
            subprocess.run(
                [self.tool, what, self.output, *self.command],
                stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        return self.output.read_text(errors="replace").splitlines()


def fullest(lines: list[str]) -> int:
    """The call at which most pages were in memory."""
    counts = [line.split() for line in lines if line.startswith("N ")]
    return int(max(counts, key=lambda of: int(of[2]))[1])


def trace(lines: list[str], until: int) -> bytes:
    """The calls and touches before call `until`, as DynamoRIO would have recorded them."""
    out = [drmemtrace.start(1, 1), drmemtrace.time(1)]
    for line in lines:
        what, *numbers = line.split()
        of = [int(number) for number in numbers]
        match what:
            case "N" if of[0] >= until:
                break
            case "T":
                store = drmemtrace.store if of[2] else drmemtrace.load
                for page in range(of[0], of[0] + of[1]):
                    out.append(drmemtrace.instruction(0x1000) + store(page << 12))
            case "M":
                start, size, prot, flags, descriptor, offset = of
                out.append(
                    drmemtrace.call(
                        9, [start, size, prot, flags, descriptor & 0xFFFF_FFFF, offset], start
                    )
                )
                # Private pages of files are never large, and the trace does not say which file.
                if descriptor >= 0:
                    out.append(drmemtrace.call(28, [start, size, NOHUGEPAGE], 0))
            case "U":
                out.append(drmemtrace.call(11, of, 0))
            case "P":
                out.append(drmemtrace.call(10, of, 0))
            case "R":
                old, old_size, new_size, new = of
                out.append(drmemtrace.call(25, [old, old_size, new_size, 1, new], new))
            case "B":
                out.append(drmemtrace.call(12, [of[1]], of[1]))
            case "A":
                out.append(drmemtrace.call(28, of, 0))
    return b"".join([*out, drmemtrace.end(1)])


def native(smaps: list[str]) -> list[dict[str, Any]]:
    """Regions with their anonymous memory, and what of it is in pages of 2M."""
    regions: list[dict[str, Any]] = []
    for line in smaps:
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            name = rest[4] if len(rest) > 4 else ""
            regions.append(
                {"start": start, "end": end, "name": Path(name).name, "anonymous": 0, "large": 0}
            )
        elif first == "Anonymous:":
            regions[-1]["anonymous"] = int(rest[0]) << 10
        elif first == "AnonHugePages:":
            regions[-1]["large"] = int(rest[0]) << 10
    return regions


def predicted(path: Path, mode: str) -> list[dict[str, Any]]:
    """Mapped bytes by region and page size, as `linux` has them."""
    machine = pagewalk.Machine(
        "opteron-2008",
        set=["os.manager=linux", f"os.linux.enabled={mode}", "memory.size=16G"],
    )
    results = machine.run(pagewalk.Trace(path, format="drmemtrace", fetches="none"))
    found: list[dict[str, Any]] = results.data["manager"]["end"]["regions"]
    return found


def share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def groups(
    seen: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Regions with memory of their own, beside those of `linux` that overlap them.

    Neighbours that the kernel keeps apart, as their memory began apart, are one region of `linux`:
    they come together.
    """
    found: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = []
    for region in seen:
        start, end = region["start"], region["end"]
        if region["anonymous"] == 0:
            continue
        inside = [of for of in expected if start < of["start"] + of["bytes"] and of["start"] < end]
        if found and any(of in found[-1][1] for of in inside):
            regions, others = found[-1]
            regions.append(region)
            others += [of for of in inside if of not in others]
        else:
            found.append(([region], inside))
    yield from found


def rows(
    name: str, mode: str, seen: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A row for each of those that has a whole block of 2M."""
    found = []
    for regions, inside in groups(seen, expected):
        if not any(-(-of["start"] // LARGE) * LARGE + LARGE <= of["end"] for of in regions):
            continue
        own = sum(of["anonymous"] for of in regions)
        mapped = sum(sum(of["mapped_by_size"].values()) for of in inside)
        is_share = share(sum(of["large"] for of in regions), own)
        was = share(sum(of["mapped_by_size"].get("2M", 0) for of in inside), mapped)
        found.append(
            {
                "program": name, "mode": mode, "region": regions[0]["name"] or "mmap",
                "regions": len(regions), "start": regions[0]["start"],
                "bytes": sum(of["end"] - of["start"] for of in regions), "native_bytes": own,
                "predicted_bytes": mapped, "native_share": round(is_share, 2),
                "predicted_share": round(was, 2), "error": round(abs(is_share - was), 2),
            }
        )  # fmt: skip
    return found


def main() -> int:
    """The record, and a line per program."""
    output, *names = sys.argv[1:]
    if not os.access(KNOBS / "enabled", os.W_OK):
        print(
            f"{KNOBS} cannot be written: this needs root, and a kernel with large pages",
            file=sys.stderr,
        )
        return 1
    lab = Lab(ROOT / "experiments", install=True)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(folder) / "layout"
        source = ROOT / "tests/kernel/layout.c"
        subprocess.run(["cc", "-O2", "-o", tool, source], check=True)
        for name in names or PROGRAMS:
            program = Program(lab, name, tool, Path(folder))
            with knobs("never"):
                lines = program.run("trace")
            call = fullest(lines)
            path = Path(folder) / "trace"
            path.write_bytes(trace(lines, call))
            for mode in MODES:
                with knobs(mode):
                    seen = native(program.run(str(call)))
                of = rows(name, mode, seen, predicted(path, mode))
                found += of
                worst = max((row["error"] for row in of), default=0.0)
                print(
                    f"{name}, {mode}: {len(of)} regions, errors up to {worst:.1f} points",
                    flush=True,
                )
    errors = {mode: [row["error"] for row in found if row["mode"] == mode] for mode in MODES}
    record = {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "kernel": platform.release(),
        "pagewalk": pagewalk.__version__,
        "median_error": {mode: statistics.median(of) for mode, of in errors.items() if of},
        "rows": found,
    }
    Path(output).write_text(json.dumps(record, indent=1) + "\n")
    print({mode: (len(of), statistics.median(of) if of else None) for mode, of in errors.items()})
    return 0


if __name__ == "__main__":
    # Who is told to end leaves the system's knobs as they were, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
