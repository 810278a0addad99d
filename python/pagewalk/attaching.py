"""Recordings of a part of a program that runs already."""

import json
import os
import sys
from typing import Any

from pagewalk import _native
from pagewalk.output import refuse_no_trace
from pagewalk.progress import Progress
from pagewalk.recording import Recording


def attach(
    pid: int,
    output: str | os.PathLike[str],
    *,
    seconds: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Records a part of a running program, and lets it go on by itself.

    Args:
        pid: The process, which must be for x86-64 and of the same user.
        output: The trace to write.
        seconds: The time after which recording ends; without it, and without another end of the
            window, at the end of the program.
        force: Whether `output` may replace a file.
        progress: Called about ten times per second.
        options: Arguments of `Recording`: `skip`, `max_accesses`, `max_bytes`, `from_symbol` and
            the others of windows, `sample`, `filter`, `fetches`, `calls`, `arguments` and `pages`.

    Returns:
        As `Recording.record`; `exit_status` is 0.

    Raises:
        Error: The process cannot be recorded; it runs on.
        WorkError: The trace cannot be written.
    """
    refuse_no_trace(output)
    recording = Recording([f"process {pid}"], engine="native", **options).native()
    work = f"import sys; sys.path[:] = {sys.path!r}; from pagewalk import _native"
    operator = [sys.executable, "-c", f"{work}; _native.operate()"]
    path = os.fspath(output)
    outcome = _native.attach(recording, (pid, seconds, operator), path, force, progress)
    result: dict[str, Any] = json.loads(outcome)
    return result
