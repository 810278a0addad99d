"""Builds the probe and runs it."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pagewalk import _native

SOURCE = Path(__file__).parent / "probe.c"
COMPILE = ("-O2", "-pthread")
REPEATS = 9

Curve = Mapping[int, list[float]]
"""For each parameter: the nanoseconds of each repetition."""


def build(source: Path, folder: Path) -> Path:
    """Compiles a C program into `folder`.

    Raises:
        Error: There is no compiler.
        WorkError: The program does not compile.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise _native.Error("timing needs a C compiler: `apt-get install gcc libc6-dev`")
    program = folder / source.stem
    command = [compiler, *COMPILE, "-o", str(program), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise _native.WorkError(f"{source.name} cannot be built: {''.join(last)}")
    return program


def measure(repeats: int = REPEATS) -> dict[str, Curve]:
    """Times this machine for some seconds. Returns the curves by name, as `probe.c` describes them.

    Raises:
        Error: There is no compiler.
        WorkError: The probe failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = build(SOURCE, Path(folder))
        done = subprocess.run([program, str(repeats)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise _native.WorkError(
            f"the timing program ended with status {done.returncode}: it needs 1.3 GB of free "
            "memory"
        )
    return parse(done.stdout)


def parse(text: str) -> dict[str, Curve]:
    """The curves in the probe's output."""
    curves: dict[str, dict[int, list[float]]] = {}
    for line in text.splitlines():
        name, parameter, *times = line.split()
        curves.setdefault(name, {})[int(parameter)] = [float(time) for time in times]
    return dict(curves)
