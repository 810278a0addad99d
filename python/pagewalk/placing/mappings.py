"""The mappings of a process: `/proc/PID/smaps`, with the kind of memory of each."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pagewalk._native import Error, WorkError

ANONYMOUS, BSS, HEAP, STACK, THREAD_STACK = "anonymous", "bss", "heap", "stack", "thread-stack"
SHARED, PRIVATE_OF_SHARED = "shared-memory", "private-of-shared"
SHARED_FILE, PRIVATE_FILE, HUGETLB, OTHER = "shared-file", "private-file", "hugetlb", "other"
OWN = (ANONYMOUS, BSS, HEAP, STACK, THREAD_STACK)
"""The kinds of memory that have no file and are private to one process."""

_GUARD_MAX = 1 << 20
"""The maximum size in bytes of the guard below a thread's stack."""
_HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) (\S+) (\d+) *(.*)")
_POOL = ("/anon_hugepage", "/dev/hugepages/")
_SHARED = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV")
_KINDS = {"[heap]": HEAP, "[stack]": STACK}


class Mapping(NamedTuple):
    """A mapping: a line of smaps, and the rows below this line."""

    start: int
    end: int
    rights: str
    """The rights as smaps writes them: `rw-p`, `r-xs`."""
    offset: int
    """The offset in the mapping's file, in bytes."""
    path: str
    kind: str
    """The backing of its memory, by the names that `backing` has for regions in results."""
    flags: frozenset[str]
    """VmFlags: `hg` for MADV_HUGEPAGE, `nh` for MADV_NOHUGEPAGE, `ht` for a page of a pool."""
    bytes_of: dict[str, int]
    """All rows of smaps that are in kB, in bytes: `Rss`, `AnonHugePages`, ..."""

    @property
    def bytes(self) -> int:
        """The length of the mapping in bytes."""
        return self.end - self.start

    @property
    def resident(self) -> int:
        """The number of bytes in memory, including bytes in pages of a pool."""
        pool = self.bytes_of.get("Shared_Hugetlb", 0) + self.bytes_of.get("Private_Hugetlb", 0)
        return self.bytes_of.get("Rss", 0) + pool

    @property
    def huge(self) -> int:
        """The number of bytes that are mapped by entries of 2M, as smaps counts them."""
        keys = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")
        return sum(self.bytes_of.get(key, 0) for key in keys)

    @property
    def file(self) -> str:
        """The name of its file without the folder. Empty if it has no file."""
        path = self.path.removesuffix(" (deleted)")
        return path.rpartition("/")[2] if path.startswith("/") else ""

    @property
    def name(self) -> str:
        """The name of the mapping in a table."""
        if self.kind in (HEAP, STACK):
            return self.kind
        if self.kind in (ANONYMOUS, BSS, THREAD_STACK):
            what = self.kind.replace("-", " ")
            return f"{what} at {self.start:#x}"
        if self.kind == HUGETLB and not self.file.startswith("anon_hugepage"):
            return f"{self.file} (pool)"
        if self.kind == HUGETLB:
            return f"pool at {self.start:#x}"
        name = self.path if self.path.startswith("/memfd:") else self.file or self.path
        return f"{name.removeprefix('/')} ({self.rights[:3]})"


def read(pid: int) -> list[Mapping]:
    """The mappings of a process, by address.

    Raises:
        Error: The process does not exist, or may not be examined.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text("utf-8", "replace").splitlines()
    except PermissionError as error:
        raise WorkError(
            f"process {pid} may not be examined: it belongs to another user, or has more rights "
            "than you: run this as its user or as root"
        ) from error
    except OSError as error:
        raise Error(f"there is no process {pid}: it has ended, or the number is wrong") from error
    return list(parsed(lines))


def of_a_program(pid: int) -> list[Mapping]:
    """The mappings of a process, which must have at least one.

    Raises:
        Error: The process has no mappings, does not exist, or may not be examined.
    """
    found = read(pid)
    if not found:
        raise Error(
            f"process {pid} has no memory of its own: it is a kernel thread, or it has ended"
        )
    return found


def parsed(lines: Iterable[str]) -> Iterator[Mapping]:
    """The mappings of smaps."""
    found: Mapping | None = None
    before: Mapping | None = None
    for line in lines:
        if head := _HEAD.match(line):
            if found is not None:
                yield found
            before, found = found, _headed(head, found)
        elif found is None:
            continue
        elif line.startswith("VmFlags:"):
            flags = frozenset(line.split()[1:])
            found = found._replace(flags=flags, kind=_kind(found, flags, before))
        else:
            key, _, value = line.partition(":")
            if value.endswith(" kB"):
                found.bytes_of[key] = int(value.split()[0]) << 10
    if found is not None:
        yield found


def _headed(head: "re.Match[str]", before: Mapping | None) -> Mapping:
    start, end, offset = (int(head[at], 16) for at in (1, 2, 4))
    bare = Mapping(start, end, head[3], offset, head[7].strip(), OTHER, frozenset(), {})
    return bare._replace(kind=_kind(bare, bare.flags, before))


def _kind(one: Mapping, flags: frozenset[str], before: Mapping | None) -> str:
    """The backing of a mapping; `before` is the mapping below it."""
    path, shared = one.path, one.rights.endswith("s")
    if "ht" in flags or path.startswith(_POOL):
        return HUGETLB
    if path in _KINDS:
        return _KINDS[path]
    if path.startswith(_SHARED):
        return SHARED if shared else PRIVATE_OF_SHARED
    if path.startswith("[anon_shmem:"):
        return SHARED
    if path.startswith("/"):
        return SHARED_FILE if shared else PRIVATE_FILE
    if path and not path.startswith("[anon:"):
        return OTHER
    if "w" not in one.rights or before is None or before.end != one.start:
        return ANONYMOUS
    # A mapping with MAP_STACK has the flag `nh`, and a guard without rights below it (Linux 6.7).
    if "nh" in flags and before.rights == "---p" and before.bytes <= _GUARD_MAX:
        return THREAD_STACK
    # The writable part of the file ends in the middle of a page. Zeros of the program follow it.
    of_file = before.kind in (PRIVATE_FILE, BSS) and "w" in before.rights
    return BSS if of_file and not path else ANONYMOUS
