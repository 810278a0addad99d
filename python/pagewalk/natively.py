"""A program's native run in addition to its recording.

The native run measures the real time, of which the model's results are shares.

A recording stores these measurements in `NAME.native.json` beside `NAME.pwt`, with the trace's
digest. A run of this trace reads them from there. The native run comes after the recording, so that
the page cache contains the files that both read.
"""

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pagewalk import _native

if TYPE_CHECKING:
    from pagewalk import plain
    from pagewalk.trace import Trace

SCHEMA = 1
SAMPLE_SECONDS = 0.005
"""Seconds between two samples of a program's memory, at the beginning of its run."""
SAMPLE_SHARE = 0.05
"""The largest share of the time that sampling all mappings may take. If sampling takes longer,
samples become rarer.
"""

_SIZES = {
    "AnonHugePages": "2M anonymous",
    "ShmemPmdMapped": "2M shared",
    "FilePmdMapped": "2M of files",
}

LIMITS = ("skip", "warmup", "max_accesses", "process")
"""Options that select a part of a trace."""

Opened = Callable[[], IO[bytes]]


def measure(
    command: Sequence[str], stdin: Opened | None = None, prepare_command: str | None = None
) -> dict[str, Any]:
    """Runs `command` natively, and discards its output.

    Args:
        command: The program and its arguments.
        stdin: Opens the program's standard input. If absent, there is nothing to read.
        prepare_command: A shell command that runs before.

    Returns:
        `command`, `wall_seconds`; `user_seconds` and `system_seconds`, of the program and of the
        children for which it waited; `exit_status`, 128 plus the signal if one ended it;
        `minor_faults`, page faults that waited for no disk; `resident_bytes_max`, as counted by the
        system; `peak`: resident bytes by page size and by mapping, of the program itself, in the
        sample with the most memory; `None` if the program ended before the first sample.

    Raises:
        Error: The program cannot be started, or the command that prepares it failed.
    """
    import subprocess
    import tempfile

    prepare(prepare_command)
    source = stdin() if stdin is not None else open(os.devnull, "rb")  # noqa: SIM115, PTH123
    # Some programs write nothing to /dev/null: grep, for example, stops at its first match.
    with source, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        try:
            process = subprocess.Popen(command, stdin=source, stdout=output, stderr=errors)
        except OSError as error:
            raise _native.Error(f"{command[0]} cannot be run: {error.strerror}") from error
        peak = _Peak(process.pid)
        peak.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            peak.stop()
        wall = time.perf_counter() - start
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
    return {
        "schema": SCHEMA,
        "command": list(command),
        "wall_seconds": wall,
        "user_seconds": usage.ru_utime,
        "system_seconds": usage.ru_stime,
        "minor_faults": usage.ru_minflt,
        "exit_status": code if code >= 0 else 128 - code,
        "resident_bytes_max": usage.ru_maxrss << 10,
        "peak": peak.found,
    }


def prepare(command: str | None) -> None:
    """Runs the shell command that restores the state before the program ran.

    Raises:
        Error: The command failed.
    """
    if command is None:
        return
    import subprocess

    done = subprocess.run(
        command, check=False, shell=True, stdin=subprocess.DEVNULL, stdout=sys.stderr
    )
    if done.returncode != 0:
        raise _native.Error(f"--native-prepare: `{command}` ended with status {done.returncode}")


@contextlib.contextmanager
def spooled_stdin() -> Iterator[Opened | None]:
    """Standard input for two runs.

    The first run has that of this process; the second run has the same file, opened again.

    A pipe is first read to its end, into a file that has no name. A terminal is given to the first
    run alone: the second run has nothing to read, and `None` is yielded.
    """
    if os.isatty(0):
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            start = os.lseek(0, 0, os.SEEK_CUR)
        except OSError:
            import tempfile

            own = os.dup(0)
            stack.callback(os.close, own)
            stack.callback(os.dup2, own, 0)
            spool = stack.enter_context(tempfile.TemporaryFile())
            with open(own, "rb", closefd=False) as pipe:
                shutil.copyfileobj(pipe, spool)
            spool.flush()
            start = 0
            with open(f"/proc/self/fd/{spool.fileno()}", "rb") as again:  # noqa: PTH123
                os.dup2(again.fileno(), 0)

        def opened() -> IO[bytes]:
            file = open("/proc/self/fd/0", "rb", buffering=0)  # noqa: SIM115, PTH123
            file.seek(start)
            return file

        yield opened


class _Peak(threading.Thread):
    """Samples a process's mappings, and keeps the sample with the most memory."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._folder = f"/proc/{pid}"
        self._ended = threading.Event()
        self.found: dict[str, Any] | None = None

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        again = 0.0
        while not self._ended.wait(SAMPLE_SECONDS):
            start = time.perf_counter()
            if start < again:
                continue
            try:
                self._look()
            except (OSError, ValueError):
                return
            again = start + (time.perf_counter() - start) / SAMPLE_SHARE

    def _look(self) -> None:
        pages = int(Path(f"{self._folder}/statm").read_text("ascii").split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE")
        # If memory has grown by only a few pages, it is not worth examining all mappings.
        if self.found is not None and resident < 1.02 * self.found["resident_bytes"]:
            return
        mappings = _mappings(Path(f"{self._folder}/smaps").read_text("utf-8", "replace"))
        if mappings:
            self.found = _summed(mappings)


def _mappings(smaps: str) -> list[dict[str, Any]]:
    """The resident bytes of each mapping, and how many of them are in larger pages."""
    mappings: list[dict[str, Any]] = []
    for line in smaps.splitlines():
        key, _, rest = line.partition(":")
        if "-" in key.split(" ", 1)[0] and not key[:1].isupper():
            parts = line.split(None, 5)
            start, end = (int(part, 16) for part in parts[0].split("-"))
            name = parts[5] if len(parts) > 5 else ""
            mappings.append(
                {"name": name, "start": start, "bytes": end - start, "rights": parts[1],
                 "resident_bytes": 0, "larger": {}}
            )  # fmt: skip
        elif key == "Rss":
            mappings[-1]["resident_bytes"] = int(rest.split()[0]) << 10
        elif key in _SIZES and int(rest.split()[0]):
            mappings[-1]["larger"][_SIZES[key]] = int(rest.split()[0]) << 10
        elif key == "KernelPageSize" and int(rest.split()[0]) > 4:
            size = f"{int(rest.split()[0])} KiB"
            mappings[-1]["larger"][size] = mappings[-1]["bytes"]
    return [mapping for mapping in mappings if mapping["resident_bytes"]]


def _summed(mappings: list[dict[str, Any]]) -> dict[str, Any]:
    resident = sum(mapping["resident_bytes"] for mapping in mappings)
    sizes: dict[str, int] = {}
    for mapping in mappings:
        for size, held in mapping["larger"].items():
            sizes[size] = sizes.get(size, 0) + held
    base = max(resident - sum(sizes.values()), 0)
    return {
        "resident_bytes": resident,
        "by_page_size": {"base pages": base, **sizes},
        "mappings": mappings,
    }


def beside(output: str | os.PathLike[str]) -> Path:
    """The file in which the native run of a recording is stored."""
    return Path(os.fspath(output)).with_suffix(".native.json")


def stored(trace: "Trace") -> dict[str, Any] | None:
    """The native run that was recorded with `trace`.

    `None` if the file belongs to another trace.
    """
    path = beside(trace.source)
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    # A window has another digest than the whole trace.
    digests = {trace.digest, type(trace)(trace.source).digest} - {None}
    return found if found.get("digest") in digests else None


def told(time_: "plain.Time | None", run: dict[str, Any], window: str | None) -> Any:
    """The native run as results show it.

    Args:
        time_: The results' `time`.
        run: The result of `measure`.
        window: If the results are not of the whole program: the reason.

    Returns:
        `run` without its mappings, with `translation_ms`: `lo` and `hi`, the user time
        multiplied by the share of translation; or `None`, and in `no_ms` the reason.
    """
    shown = {key: value for key, value in run.items() if key not in ("peak", "digest")}
    peak = run["peak"]
    shown["peak"] = peak and {key: peak[key] for key in ("resident_bytes", "by_page_size")}
    shown.setdefault("minor_faults", None)
    shown["translation_ms"] = shown["no_ms"] = None
    statuses = {run["exit_status"], run.get("recorded_status", run["exit_status"])}
    if len(statuses) > 1:
        window = (
            f"the program ended with status {run['recorded_status']} when it was recorded and "
            f"with {run['exit_status']} natively"
        )
    if window is None and time_ is None:
        window = "the machine file leaves out latencies that the time depends on"
    if window is not None or time_ is None:
        shown["no_ms"] = window
    else:
        user_ms = 1000 * run["user_seconds"]
        shown["translation_ms"] = {end: time_["share"][end] * user_ms for end in ("lo", "hi")}
    return shown


def window(**limits: Any) -> str | None:
    """Why these options select only a part of the program, or `None` if they select all of it."""
    given = [name.replace("_", "-") for name, value in limits.items() if value]
    return f"the results are of a part of the program only ({', '.join(given)})" if given else None
