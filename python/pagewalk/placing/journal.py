"""Settings of the whole system that root changes for one program, and how they are restored.

```
 journal written (root's own, 0600)  ->  watcher in a session of its own  ->  knobs changed
 the program has ended               ->  knobs put back, journal removed
 pagewalk was killed                 ->  its end of a pipe closes: the watcher does that
 both were killed                    ->  the next `pagewalk place --system` or `--restore` does it
```

If somebody else has changed a knob meanwhile, the knob is not restored. A journal is refused if it
contains knobs that are not in `_KNOBS`, or values that they do not accept.
"""

import contextlib
import json
import os
import re
import signal
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pagewalk._native import Error, WorkError
from pagewalk.placing.pages import BASE, LARGE
from pagewalk.placing.rules import Rule, shown
from pagewalk.placing.system import POOLS, THP, System

FOLDER = Path("/run/pagewalk")
_NAME = "place.json"
_SIZE_KNOB = re.compile(rf"/{re.escape(THP)}/hugepages-\d+kB/enabled")
_POOL_KNOB = re.compile(rf"/{re.escape(POOLS)}/hugepages-\d+kB/nr_hugepages")
_KNOBS = (
    (_SIZE_KNOB, re.compile("always|inherit|madvise|never")),
    (_POOL_KNOB, re.compile(r"\d{1,9}")),
)
"""The knobs that may be changed, and the values that each knob accepts."""


class Change(NamedTuple):
    """A knob and its new value."""

    path: str
    value: str


def plan(rules: Sequence[Rule], pools: dict[int, int], system: System) -> list[Change]:
    """The knobs that rules and pools need.

    Raises:
        Error: The rules contradict each other.
    """
    small = sorted({rule.size for rule in rules if BASE < rule.size < LARGE})
    changes = []
    if len(small) > 1:
        raise Error(
            f"rules for {shown(small[0])} and {shown(small[1])}: page sizes below 2M are set for "
            "the whole system, one at a time: give rules for only one of them"
        )
    if small:
        [size] = small
        both = any(rule.size == LARGE for rule in rules)
        # If advised memory has pages of 2M, other memory has the smaller size.
        changes.append(Change(_knob(size), "always" if both else "madvise"))
        for other in system.sizes():
            if other > size and not both:
                changes.append(Change(_knob(other), "never"))
    for size, count in pools.items():
        known = system.pools()
        if size not in known:
            have = ", ".join(shown(one) for one in known) or "none"
            raise Error(f"--pool: this kernel has no pool of {shown(size)} pages: it has {have}")
        changes.append(Change(system.pool_knob(size), str(known[size][0] + count)))
    return changes


def _knob(size: int) -> str:
    return f"/{THP}/hugepages-{size >> 10}kB/enabled"


@contextlib.contextmanager
def changed(
    changes: Sequence[Change], folder: Path = FOLDER, system: System | None = None
) -> Iterator[None]:
    """Changes knobs until the block ends, however it ends.

    Raises:
        Error: This is not root, or another pagewalk has changed knobs.
        WorkError: A knob does not accept the value.
    """
    system = System() if system is None else system
    if not changes:
        yield
        return
    if os.geteuid() != 0:
        raise Error("--system changes settings of the whole system: run the command as root")
    for change in changes:
        if not _is_allowed(change.path, change.value):
            raise Error(f"{change.path} = {change.value}: pagewalk never changes this setting")
    restore(folder, system)
    before = [(one.path, _value(system, one.path), one.value) for one in changes]
    journal = _write(folder, before)
    with _watcher(folder, system):
        try:
            for one in changes:
                _set(system, one.path, one.value)
            _check_pools(changes, before, system)
            yield
        finally:
            _put_back(before, system)
            with contextlib.suppress(FileNotFoundError):
                journal.unlink()


def restore(folder: Path = FOLDER, system: System | None = None) -> list[str]:
    """Restores the knobs that an earlier pagewalk has changed. Returns the knobs with their values.

    Raises:
        Error: The pagewalk that changed them still runs.
        WorkError: The journal is not root's own, or damaged.
    """
    system = System() if system is None else system
    path = folder / _NAME
    found = _read(path)
    if found is None:
        return []
    if _is_alive(found["pid"], found["start"]) and found["pid"] != os.getpid():
        raise Error(
            f"pagewalk (process {found['pid']}) has changed settings of the system for a program "
            "that still runs: wait until that program has ended"
        )
    done = _put_back(found["knobs"], system)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    return done


def _is_allowed(path: str, value: str) -> bool:
    return any(knob.fullmatch(path) and values.fullmatch(value) for knob, values in _KNOBS)


def _value(system: System, path: str) -> str:
    knob = system.knob(path)
    if knob is None:
        raise Error(f"{path}: this kernel has no such knob")
    return knob.value


def _set(system: System, path: str, value: str) -> None:
    try:
        (system.root / path.lstrip("/")).write_text(value)
    except OSError as error:
        raise WorkError(f"{path} does not accept `{value}`: {error.strerror}") from error


def _check_pools(
    changes: Sequence[Change], before: Sequence[tuple[str, str, str]], system: System
) -> None:
    """Raises an error if a pool got fewer pages than requested.

    The kernel itself reports no error.
    """
    for one, (path, old, _) in zip(changes, before, strict=True):
        if not _POOL_KNOB.fullmatch(one.path):
            continue
        have = int(_value(system, path))
        if have < int(one.value):
            raise WorkError(
                f"--pool: memory has blocks for {have - int(old)} pages of the pool and not for "
                f"{int(one.value) - int(old)}: request fewer, or free some first with `echo 1 > "
                "/proc/sys/vm/compact_memory`"
            )


def _put_back(knobs: Sequence[Any], system: System) -> list[str]:
    done = []
    for path, before, set_ in reversed(list(knobs)):
        knob = system.knob(path)
        # Somebody else has changed the knob since then. A pool may also have got fewer pages than
        # were requested.
        if knob is None or (knob.value != set_ and not _POOL_KNOB.fullmatch(path)):
            continue
        with contextlib.suppress(OSError, WorkError):
            _set(system, path, before)
            done.append(f"{path} = {before}")
    return done


def _write(folder: Path, knobs: Sequence[tuple[str, str, str]]) -> Path:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != 0 or state.st_mode & 0o022:
        raise WorkError(
            f"{folder}: root must own this folder, and nobody else may write to it: remove it"
        )
    path, whole = folder / _NAME, folder / f"{_NAME}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # The file was left by a killed pagewalk with the same process identifier. Only root can write
    # to the folder, as was just checked.
    with contextlib.suppress(FileNotFoundError):
        whole.unlink()
    try:
        with os.fdopen(os.open(whole, flags, 0o600), "w") as text:
            json.dump({"pid": os.getpid(), "start": _start(os.getpid()), "knobs": knobs}, text)
            text.flush()
            os.fsync(text.fileno())
        # The journal gets its name only when all of it is written. Otherwise another process could
        # read a part of it, and would report it as damaged.
        os.link(whole, path)
    except FileExistsError as error:
        raise Error(
            f"{path}: another pagewalk is changing settings at this moment: try again later"
        ) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            whole.unlink()
    return path


def _read(path: Path) -> dict[str, Any] | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WorkError(f"{path}: {error.strerror}: this is not a journal of pagewalk") from error
    with os.fdopen(file, "r") as text:
        state = os.fstat(text.fileno())
        if state.st_uid != 0 or state.st_mode & 0o077:
            raise WorkError(
                f"{path}: root must own this file, and others must have no permissions for it "
                "(mode 0600), so it was not used: remove it"
            )
        try:
            found = json.load(text)
            knobs = [tuple(map(str, row)) for row in found["knobs"]]
            read = {"pid": int(found["pid"]), "start": int(found["start"]), "knobs": knobs}
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(
                f"{path}: the journal is damaged: check the settings below /sys/kernel/mm by hand, "
                "then remove the file"
            ) from error
    wrong = [row for row in knobs if len(row) != 3 or not _is_allowed(row[0], row[1])]
    if wrong:
        raise WorkError(
            f"{path}: has a row for {wrong[0][0]} that pagewalk has never written: remove the file"
        )
    return read


def _start(pid: int) -> int:
    """When a process began, in ticks since the system was started.

    0 if there is no such process.
    """
    try:
        stat_ = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat_.rpartition(")")[2].split()[19])


def _is_alive(pid: int, start: int) -> bool:
    return start != 0 and _start(pid) == start


@contextlib.contextmanager
def _watcher(folder: Path, system: System) -> Iterator[None]:
    """Starts a separate process that restores the knobs if this process is killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # The grandchild's parent ends, so that code that waits for children does not wait for the
        # grandchild.
        if os.fork() == 0:
            _watch(reading, writing, folder, system)
        os._exit(0)
    os.close(reading)
    os.waitpid(child, 0)
    try:
        yield
    finally:
        os.close(writing)


def _watch(reading: int, writing: int, folder: Path, system: System) -> None:
    try:
        os.close(writing)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):
            os.dup2(nothing, file)
        os.chdir("/")
        while os.read(reading, 1):
            pass
        # The other process may be about to end.
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                restore(folder, system)
                break
            except Error:
                time.sleep(0.05)
    finally:
        os._exit(0)
