"""Runs a program with page sizes.

This is done by the launcher, or by environment variables if ptrace is forbidden.

```
 ptrace allowed     the native half's launcher: madvise is called for the program, nothing is set
 ptrace forbidden   the C library's tunables, and the switches of allocators found in the program
```

Variables affect the program and all programs that it executes. The launcher removes them again
before a child can read them. Without the launcher they stay.
"""

import json
import mmap
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pagewalk import _native, text
from pagewalk._native import Error, WorkError
from pagewalk.placing.journal import Change
from pagewalk.placing.pages import BASE, LARGE
from pagewalk.placing.rules import Rule, shown
from pagewalk.placing.system import System, grown
from pagewalk.placing.verify import command_of, verify

SAMPLE_SECONDS = 0.02
"""Seconds between two samples of a program's memory."""
SAMPLE_SHARE = 0.2
"""The largest share of the time that sampling all mappings may take."""
_MORE = 1.05
"""Another sample is taken when memory has grown by this factor."""
TOP_PAD = 64 << 20
"""The number of bytes by which the C library moves the break if the launcher does not move it."""

_ALLOCATORS = {
    "jemalloc": (
        (b"<jemalloc>", b"libjemalloc.so"), ("MALLOC_CONF", "JE_MALLOC_CONF"), "thp:always", ","
    ),
    "mimalloc": ((b"mimalloc: ", b"libmimalloc.so"), ("MIMALLOC_ALLOW_THP",), "1", ""),
    "JVM": ((b"JLI_Launch",), ("JDK_JAVA_OPTIONS",), "-XX:+UseTransparentHugePages", " "),
}  # fmt: skip
"""For each allocator: bytes that identify it in a file, or the name of its library in a program
that is linked to it; the variables; the text that is added to a variable, and the separator before
it.
"""
_WITHOUT_SWITCH = {
    "Go": (b"\xff Go buildinf:",),
    "tcmalloc": (b"libtcmalloc", b"TCMALLOC_SAMPLE_PARAMETER"),
}
"""Allocators that have no variable for large pages. Go's runtime leaves large pages to the kernel.
tcmalloc does not request them (but it can take its memory from a file in a hugetlbfs, by
TCMALLOC_MEMFS_MALLOC_PATH).
"""


FORBIDDEN = (
    "ptrace is forbidden here, by a container or by Yama: rules that need ptrace are left out; "
    "allow ptrace (--cap-add SYS_PTRACE, or kernel.yama.ptrace_scope below 3)"
)
"""The note if programs may not be traced."""


class Variable(NamedTuple):
    """A variable of the environment, with its new value and its earlier value."""

    name: str
    value: str
    before: str | None
    why: str


def allocators(program: str) -> list[str]:
    """The allocators that a program's file contains.

    `glibc` stands for the C library's allocator.
    """
    path = shutil.which(program) or program
    try:
        with open(path, "rb") as file, _mapped(file.fileno()) as data:  # noqa: PTH123
            if data[:4] != b"\x7fELF":
                return []
            signs = {name: signs for name, (signs, *_) in _ALLOCATORS.items()} | _WITHOUT_SWITCH
            found = [
                name
                for name, signs_ in signs.items()
                if any(data.find(sign) >= 0 for sign in signs_)
            ]
            is_glibcs = data.find(b"ld-linux") >= 0 or data.find(b"glibc.malloc.") >= 0
            if is_glibcs and "Go" not in found:
                found.append("glibc")
    except (OSError, ValueError):
        return []
    preloaded = os.environ.get("LD_PRELOAD", "")
    return found + [name for name in _ALLOCATORS if name in preloaded and name not in found]


def shelled(command: list[str]) -> list[str]:
    """The command. If its file is a script without `#!`, it is run by `/bin/sh`, as shells do."""
    path = shutil.which(command[0])
    if path is None:
        return command
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(256)
    except OSError:
        return command
    # If the first line contains a NUL, shells assume that the file is a program for another system.
    is_script = head[:2] != b"#!" and head[:4] != b"\x7fELF" and b"\0" not in head.split(b"\n")[0]
    return ["/bin/sh", path, *command[1:]] if is_script else command


def _mapped(file: int) -> mmap.mmap:
    return mmap.mmap(file, 0, access=mmap.ACCESS_READ)


def variables(
    program: str, rules: Sequence[Rule], environment: Mapping[str, str]
) -> list[Variable]:
    """The variables to set for a program that may not be traced."""
    sized = [rule for rule in rules if rule.size >= LARGE]
    if not any(rule.what in ("heap", "mmap", "data", "range") for rule in sized):
        return []
    found: dict[str, Variable] = {}

    def add(name: str, value: str, between: str, why: str) -> None:
        before = environment.get(name)
        now = found[name].value if name in found else before
        joined = f"{now}{between}{value}" if now and between else value
        found[name] = Variable(name, joined, before, why)

    for one in allocators(program):
        if one == "glibc":
            tunables = f"glibc.malloc.hugetlb=1:glibc.malloc.top_pad={TOP_PAD}"
            add("GLIBC_TUNABLES", tunables, ":", "the C library's allocator (glibc 2.35)")
        elif one in _ALLOCATORS:
            _, names, value, between = _ALLOCATORS[one]
            for name in names:
                add(name, value, between, one)
    return list(found.values())


def advised(rules: Sequence[Rule], pools: Mapping[int, int]) -> list[Rule]:
    """The rules that need madvise.

    Rules for pools, and for sizes that all memory has, do not need it.
    """
    has_large = any(rule.size == LARGE for rule in rules)
    return [
        rule
        for rule in rules
        if rule.size not in pools
        and rule.size <= LARGE
        and not (has_large and BASE < rule.size < LARGE)
    ]


def of_pools(
    rules: Sequence[Rule], pools: Mapping[int, int], system: System, environment: Mapping[str, str]
) -> list[Variable]:
    """The variables by which the C library allocates from a pool.

    Raises:
        Error: The rules need several pools or memory that malloc does not allocate, or the pool is
            empty.
    """
    found = {rule.size: rule for rule in rules if rule.size in pools or rule.size > LARGE}
    if not found:
        return []
    if len(found) > 1:
        sizes = ", ".join(text.size(size) for size in found)
        raise Error(
            f"each of these page sizes needs a pool of its own: {sizes}; the C library can use "
            "only one pool: give rules for one of these sizes"
        )
    [(size, rule)] = found.items()
    if rule.what not in ("heap", "mmap", "data"):
        raise Error(
            f"{rule.title}: only the C library's malloc takes pages from a pool: write heap, mmap "
            "or data"
        )
    total, free = system.pools()[size]
    if free == 0 and size not in pools:
        raise Error(
            f"{rule.title}: the pool has {total} pages, none of them free: give --pool "
            f"{shown(size)}=COUNT, or write a number to {system.pool_knob(size)}"
        )
    before = environment.get("GLIBC_TUNABLES")
    value = f"glibc.malloc.hugetlb={size}"
    joined = f"{before}:{value}" if before else value
    return [Variable("GLIBC_TUNABLES", joined, before, "the C library takes pages of the pool")]


def unplaced(rules: Sequence[Rule], set_: Sequence[Variable], program: str) -> list[str]:
    """The effects of the rules that cannot be obtained by variables, in sentences."""
    by_allocator = ("heap", "mmap", "data")
    without = [name for name in allocators(program) if name in _WITHOUT_SWITCH]
    lines = []
    for rule in rules:
        if rule.what not in by_allocator or rule.size < LARGE:
            lines.append(f"{rule.title}: needs ptrace, to call madvise in the program")
        elif without:
            lines.append(
                f"{rule.title}: the program's allocator ({', '.join(without)}) has no setting for "
                "large pages, so the rule needs ptrace"
            )
        elif not set_:
            lines.append(
                f"{rule.title}: the program has no allocator with a setting for large pages"
            )
        elif rule.what != "heap":
            lines.append(
                f"{rule.title}: applied only to memory that the allocator maps; memory that the "
                "program itself maps needs ptrace"
            )
    return lines


class Watch:
    """Takes samples of processes: at their end, and before that when they have the most memory."""

    def __init__(self, rules: Sequence[Rule], system: System, disabled: int | None) -> None:
        self.rules, self.system, self.disabled = rules, system, disabled
        self.before = system.counters()
        self._own = command_of(os.getpid())
        self.found: dict[int, dict[str, Any]] = {}
        self.is_on = True
        """Whether samples are taken. If not, there are only the launcher's own counts."""
        self._most: dict[int, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def end(self, pid: int) -> None:
        """Called at the end of a process, while its memory is still mapped."""
        self._look(pid, "at its end")

    @property
    def documents(self) -> list[dict[str, Any]]:
        """A document for each process. The process with the most memory is first."""
        return sorted(self.found.values(), key=lambda one: -one["resident_bytes"])

    def _look(self, pid: int, moment: str) -> None:
        if not self.is_on:
            return
        changed = grown(self.before, self.system.counters())
        try:
            seen = verify(
                pid, self.rules, system=self.system, grown=changed, disabled=self.disabled or 0,
                moment=moment,
            )  # fmt: skip
        except (Error, WorkError, OSError, ValueError, IndexError):
            # The process has ended meanwhile.
            return
        if seen["command"] == self._own:
            # The child has not executed the program yet.
            return
        with self._lock:
            other = self.found.get(pid)
            if other is None or _replaces(seen, other):
                self.found[pid] = seen

    def _run(self) -> None:
        again = 0.0
        while not self._ended.wait(SAMPLE_SECONDS):
            start = time.perf_counter()
            if start < again or not self.is_on:
                continue
            for pid in descendants(os.getpid()):
                resident = _resident(pid)
                if resident > _MORE * self._most.get(pid, LARGE):
                    self._most[pid] = resident
                    self._look(pid, "at its peak")
            again = start + (time.perf_counter() - start) / SAMPLE_SHARE


def _replaces(seen: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether one sample of a process replaces another one."""
    is_larger = bool(seen["resident_bytes"] * _MORE >= other["resident_bytes"])
    is_same = seen["command"] == other["command"]
    if "end" in other["moment"] and "end" not in seen["moment"]:
        # The sample was begun before, and is complete now.
        return is_same and bool(seen["resident_bytes"] > _MORE * other["resident_bytes"])
    # A process that has executed another program since then is reported with the later program.
    return is_larger or not is_same


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, directly or through other processes."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            children = (task / "children").read_text("ascii").split()
        except OSError:
            continue
        for child in children:
            yield int(child)
            yield from descendants(int(child))


def launch(
    command: Sequence[str],
    rules: Sequence[Rule],
    set_: Sequence[Variable] = (),
    *,
    inherit: bool = False,
    only: bool = False,
    look: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Runs a program by the launcher. Returns the outcome.

    Raises:
        Error: The program cannot be started, or may not be traced.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    plain = [(one.what, one.name, one.range, one.size > BASE) for one in rules]
    found: dict[str, Any] = json.loads(
        _native.launch(
            list(command),
            plain,
            [(one.name, one.value, one.before) for one in set_],
            inherit=inherit,
            only=only,
            # The addresses of a native recording are the same in every run without address
            # randomisation.
            fixed=any(one.what == "range" for one in rules),
            look=look,
        )
    )
    found["rules"] = [
        {"rule": rule.title, "line": rule.line, **got, "error": _error(got["error"])}
        for rule, got in zip(rules, found.pop("got"), strict=True)
    ]
    return found


def _error(number: int) -> str | None:
    return os.strerror(number) if number else None


def untraced(command: Sequence[str], set_: Sequence[Variable]) -> dict[str, Any]:
    """Runs a program with variables only. Returns the outcome."""
    sys.stdout.flush()
    environment = {**os.environ, **{one.name: one.value for one in set_}}
    try:
        process = subprocess.Popen(list(command), env=environment)
    except OSError as error:
        raise Error(f"{command[0]} cannot be run: {error.strerror}") from error
    while True:
        try:
            _, status, used = os.wait4(process.pid, 0)
            break
        except KeyboardInterrupt:
            # The program has the signal too, and decides what to do.
            continue
    code = process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "status": code if code >= 0 else 128 - code,
        "rules": [],
        "notes": [],
        "processes": 1,
        "stops": 0,
        "is_counted": True,
        "usage": usage(used),
    }


def usage(used: resource.struct_rusage) -> dict[str, Any]:
    """The system's counts for a program and for its children that it has waited for."""
    return {
        "user_seconds": used.ru_utime,
        "system_seconds": used.ru_stime,
        "resident_bytes_max": used.ru_maxrss << 10,
        "minor_faults": used.ru_minflt,
        "major_faults": used.ru_majflt,
    }


def dry(
    command: Sequence[str],
    rules: Sequence[Rule],
    set_: Sequence[Variable],
    *,
    changes: Sequence[Change],
    only: bool,
    traced: bool,
) -> str:
    """The settings and calls that would be made. The program is not run."""
    lines = [f"# {' '.join(command)}: nothing was run"]
    lines += [f"echo {value} > {path}  # until the program ends" for path, value in changes]
    lines += [f"export {one.name}={_quoted(one.value)}  # {one.why}" for one in set_]
    if only:
        lines.append("prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED, 0, 0)")
    if not traced:
        return "\n".join(lines)
    if any(one.what == "range" for one in rules):
        lines.append("personality(ADDR_NO_RANDOMIZE)  # ranges are addresses of the recording")
    lines.append("ptrace(PTRACE_SEIZE, PTRACE_O_EXITKILL), seccomp(SECCOMP_SET_MODE_FILTER)")
    for rule in rules:
        advice = "MADV_HUGEPAGE" if rule.size > BASE else "MADV_NOHUGEPAGE"
        when = {
            "heap": "after each brk, which moves to the end of its block of 2M",
            "stack": "before the first instruction, once the stack has grown to its limit",
            "bss": "before the first instruction, and where a library's is mapped",
            "text": "where a file is mapped to be read, and MADV_COLLAPSE",
            "lib": f"where {rule.name} is mapped",
            "range": f"at {rule.range[0]:#x}, or what has {rule.range[1] - rule.range[0]} bytes",
        }.get(rule.what, "after each mmap and mremap of 2M or more")
        lines.append(f"madvise(start, bytes, {advice})  # {rule.title}: {when}")
        if rule.what in ("mmap", "data") and rule.size >= LARGE:
            lines.append(
                f"madvise(start, bytes, MADV_COLLAPSE)  # {rule.title}: where mprotect made an "
                "arena grow, and where mremap moved memory"
            )
    return "\n".join(lines)


def _quoted(value: str) -> str:
    return (
        value if re.fullmatch(r"[\w.:=,/+-]*", value) else "'" + value.replace("'", r"'\''") + "'"
    )
