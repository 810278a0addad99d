"""Follows a page of the handbook as a reader does, and compares what it shows with what is printed.

    ```console         commands; each block runs where the one before it has left the folder
    ```python          statements, in the same folder; a page's blocks share their names
    ```output          what the block above prints, line by line
    ```output-about    ... in which numbers may be off by a tenth
    ```output-any      ... in which numbers may be any, as times are

A line of three dots in an output stands for lines that are left out. Lines may break elsewhere.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SLACK = {"output": 0.0, "output-about": 0.1, "output-any": float("inf")}
"""By how much a number may differ from the one that is shown, as a share of it."""

_BLOCK = re.compile(r"^```([\w-]+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PIECE = re.compile(r"((?:(?<![^\s(])-)?\d+(?:\.\d+)?)(?: ([kMGT])(?!\w))?|(\(|[^\d\s(]+)")

Piece = str | float


@dataclass
class Step:
    """A block of a page, what it prints, and the blocks of output behind it: kind and text."""

    kind: str
    source: str
    outputs: list[tuple[str, str]]


def steps(page: Path) -> list[Step]:
    """What a reader does, one after the other."""
    found: list[Step] = []
    for kind, text in _BLOCK.findall(page.read_text()):
        if kind in ("console", "python"):
            found.append(Step(kind, text, []))
        elif kind in SLACK:
            found[-1].outputs.append((kind, text))
    return found


def is_tutorial(page: Path) -> bool:
    """Whether a page shows outputs, so that all of it is followed."""
    return any(step.outputs for step in steps(page))


def follow(page: Path, folder: Path) -> Iterator[tuple[Step, str]]:
    """Runs a page in `folder`, compares, and gives each step with what it has printed."""
    for name in ("workloads", "experiments", "machines"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    session = Session(folder, {**os.environ, "PATH": path, "COLUMNS": "80"})
    try:
        for step in steps(page):
            printed, failed = session.run(step)
            assert not failed, f"{page.name}: {step.source}\n{printed}"
            _compare(page, step, printed)
            yield step, printed
    finally:
        session.end()


class Session:
    """A shell and a Python in one folder, as a reader has them open."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.how: dict[str, Any] = {
            "cwd": folder,
            "env": env,
            "stderr": subprocess.STDOUT,
            "text": True,
            "errors": "replace",
        }
        self.python: subprocess.Popen[str] | None = None

    def run(self, step: Step) -> tuple[str, bool]:
        """What a step prints, and whether it fails."""
        if step.kind == "console":
            commands = re.sub(r"^\$ ", "", step.source, flags=re.MULTILINE)
            done = subprocess.run(
                ["bash", "-ec", commands],
                stdout=subprocess.PIPE,
                check=False,
                timeout=280,
                **self.how,
            )
            return done.stdout, done.returncode != 0
        if self.python is None:
            command = [sys.executable, "-uc", _PYTHON]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.python = subprocess.Popen(command, **pipes, **self.how)
        assert self.python.stdin is not None and self.python.stdout is not None
        print(json.dumps(step.source), file=self.python.stdin, flush=True)
        lines: list[str] = []
        while (line := self.python.stdout.readline()) not in (f"{_DONE}\n", ""):
            lines.append(line)
        return "".join(lines), not line or "Traceback (most recent call last):\n" in lines

    def end(self) -> None:
        """Ends the Python."""
        if self.python is not None:
            self.python.communicate()


_DONE = "-- done --"
_PYTHON = f"""
import json, sys, traceback
names = {{}}
for line in sys.stdin:
    try:
        exec(json.loads(line), names)
    except BaseException:
        traceback.print_exc()
    print({_DONE!r}, flush=True)
"""


def _compare(page: Path, step: Step, printed: str) -> None:
    at = 0
    there = list(pieces(printed))
    for kind, text in step.outputs:
        for part in re.split(r"^\.\.\.\n", text, flags=re.MULTILINE):
            at = _found(list(pieces(part)), there, at, SLACK[kind])
            shown = f"{page.name} shows behind\n{step.source}\n{part}"
            assert at >= 0, f"{shown}\nbut what is printed is\n{printed}"


def pieces(text: str) -> Iterator[Piece]:
    """The words of a text, and its numbers: `2.79 M` is one, and `<0.01` is 0.01."""
    for number, scale, word in _PIECE.findall(text.replace("<", "")):
        yield float(number) * _SCALES[scale] if number else word


def _found(wanted: list[Piece], printed: list[Piece], start: int, slack: float) -> int:
    """Behind where `wanted` stands in `printed`, from `start` on; -1 if it does not."""
    for at in range(start, len(printed) - len(wanted) + 1):
        if all(_same(*pair, slack) for pair in zip(wanted, printed[at:], strict=False)):
            return at + len(wanted)
    return -1


def _same(wanted: Piece, printed: Piece, slack: float) -> bool:
    if isinstance(wanted, float) and isinstance(printed, float):
        return wanted == printed or abs(wanted - printed) <= slack * abs(wanted)
    return wanted == printed
