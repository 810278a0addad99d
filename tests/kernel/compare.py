"""The manager `linux` beside the kernel: `python tests/kernel/compare.py OUTPUT.json [NAME ...]`.

```
 program, no large pages --layout.c--> its calls, its touches --> events --> `linux`, by mode
 program, by mode        --layout.c--> /proc/PID/smaps where most was in memory   |
                                                  |                               |
                                                  +------ region by region <------+
```

Each program of `PROGRAMS`, and each program of `life.c`, runs natively under `never`, and then in
each mode; without randomised addresses it has the same regions each time. What it and the processes
that it forks touch, and when, is known from the run under `never`. The 2M share of a region is the
share of its anonymous memory that is in pages of 2M. The knobs of the system, which must be root's
to write, are as they were afterwards.
"""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pagewalk
from pagewalk.reproduce.lab import Lab

sys.path.insert(0, str(Path(__file__).parent))
import knobs
from model import ROOT, example

MODES = ("always", "madvise", "never")
PROGRAMS = (
    "sqlite3", "python3", "xz", "gzip", "perl", "sort", "minisat", "glpsol", "gcc", "compress",
    "heapsort", "mm", "swim", "fftpde", "upgrade",
)  # fmt: skip
LIVES = ("vectors", "locks", "forks")
"""What `life.c` does."""
LARGE = 2 << 20
NOHUGEPAGE = 15
CLONE_VM = 0x100


def enter(mode: str) -> None:
    """Sets the system's large pages as `mode` says, and has its daemon sleep."""
    (knobs.THP / "khugepaged/scan_sleep_millisecs").write_text("4000000")
    (knobs.THP / "enabled").write_text(mode)


class Program:
    """A program that runs natively."""

    def __init__(self, lab: Lab, name: str, folder: Path) -> None:
        stdin = None
        if name in LIVES:
            self.command = [str(folder / "life"), name]
        else:
            self.command, stdin, _ = lab.program(name).ready(
                lab.cache, ROOT / "workloads", install=True
            )
        self.tool, self.output = folder / "layout", folder / "layout.txt"
        self.stdin = Path(stdin or os.devnull)

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


def events(lines: list[str], until: int) -> str:  # noqa: PLR0912 (a case per kind of line)
    """The calls and touches before call `until` of process 0, for `examples/events.rs`."""
    out: list[dict[str, Any]] = []

    def event(name: str, **of: int | str | None) -> None:
        out.append({"event": name, **of})

    # The child of a vfork runs in its parent's space until it executes a program.
    speaking, shared, parents = 0, set[int](), dict[int, int]()

    def speak(process: int) -> None:
        while process in shared:
            process = parents[process]
        event("run", space=process)

    for line in lines:
        what, *numbers = line.split()
        of = [int(number) for number in numbers]
        match what:
            case "N" if of[0] >= until:
                break
            case "S":
                speaking = of[0]
                speak(speaking)
            case "T":
                kind = "store" if of[2] else "load"
                for page in range(of[0], of[0] + of[1]):
                    out.append({"access": kind, "addr": page << 12, "bytes": 8})
            case "M":
                start, size, prot, flags, fd, offset = of
                event(
                    "mmap", addr=start, bytes=size, prot=prot, flags=flags, fd=fd, offset=offset,
                    path=None, result=start,
                )  # fmt: skip
                # Private pages of files are never large, and `layout` does not say which file.
                if fd >= 0:
                    event("madvise", addr=start, bytes=size, advice=NOHUGEPAGE, result=0)
            case "U":
                event("munmap", addr=of[0], bytes=of[1], result=0)
            case "P":
                event("mprotect", addr=of[0], bytes=of[1], prot=of[2], result=of[3])
            case "R":
                old, old_bytes, new_bytes, new, flags = of
                event(
                    "mremap", addr=old, old_bytes=old_bytes, new_bytes=new_bytes, flags=flags,
                    new_addr=new, result=new,
                )  # fmt: skip
            case "B":
                event("brk", addr=of[1], result=of[1])
            case "A":
                event("madvise", addr=of[0], bytes=of[1], advice=of[2], result=of[3])
            case "L":
                event("mlock", addr=of[0], bytes=of[1], flags=of[2], result=of[3])
            case "K":
                event("munlock", addr=of[0], bytes=of[1], result=of[2])
            case "F":
                child, flags = of
                event("fork", result=100 + child, flags=flags)
                parents[child] = speaking
                if flags & CLONE_VM:
                    shared.add(child)
                else:
                    # Children take their spaces in the order in which these run first.
                    speak(child)
                    speak(speaking)
            case "E" | "X":
                if speaking in shared:
                    shared.discard(speaking)
                    speak(speaking)
                # Nothing is there any more. The end of a program is what results look at, and
                # that is process 0's.
                event("munmap", addr=0, bytes=1 << 47, result=0)
    return "".join(json.dumps(each) + "\n" for each in out)


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


def predicted(tool: Path, told: str, mode: str) -> list[dict[str, Any]]:
    """Mapped bytes of process 0 by region and page size, as `linux` has them."""
    settings = ["os.manager=linux", f"os.linux.enabled={mode}", "memory.size=16G"]
    done = subprocess.run(
        [tool, "opteron-2008", *settings], input=told, stdout=subprocess.PIPE, text=True, check=True
    )
    regions = json.loads(done.stdout)["manager"]["end"]["regions"]
    return [region for region in regions if region["space"] == 0]


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
    lab = Lab(ROOT / "experiments", install=True)
    model = example("machine", "events")
    found = []
    with tempfile.TemporaryDirectory() as text, knobs.kept():
        folder = Path(text)
        for tool in ("layout", "life"):
            source = ROOT / "tests/kernel" / f"{tool}.c"
            subprocess.run(["cc", "-O2", "-o", folder / tool, source], check=True)
        for name in names or (*PROGRAMS, *LIVES):
            program = Program(lab, name, folder)
            enter("never")
            lines = program.run("trace")
            call = fullest(lines)
            told = events(lines, call)
            for mode in MODES:
                enter(mode)
                seen = native(program.run(str(call)))
                of = rows(name, mode, seen, predicted(model, told, mode))
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
    sys.exit(knobs.run(main))
