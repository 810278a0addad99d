"""The kernel's settings and counts: knobs of large pages, counters, pools, memory groups.

Everything is read from files, so that a test can use another folder in place of `/`.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pagewalk.large_pages import KNOBS
from pagewalk.placing.pages import BASE, LARGE

THP = KNOBS.lstrip("/")
POOLS = "sys/kernel/mm/hugepages"
_CHOSEN = re.compile(r"\[([\w+]+)\]")

_COUNTERS = ("anon_fault_alloc", "anon_fault_fallback", "anon_fault_fallback_charge")
_UNLIMITED = 1 << 62
LARGE_FOLIOS = {
    "ext4": (6, 16), "xfs": (5, 18), "erofs": (6, 2), "afs": (6, 0), "bcachefs": (6, 7),
}  # fmt: skip
"""File systems that keep files in large folios (they call `mapping_set_large_folios`), each with
the first Linux version in which it does so.
"""


class Knob(NamedTuple):
    """A file of the kernel, with its contents."""

    path: str
    value: str

    def line(self, value: str) -> str:
        """The shell command that changes the knob."""
        return f"echo {value} > {self.path}"


class Limit(NamedTuple):
    """The limit of memory of a group of processes (cgroup)."""

    path: str
    """The knob with the limit."""
    bytes: int
    used: int


class System:
    """The kernel's settings as they are now."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.root = Path(root)
        self._kept: dict[str, str | None] | None = None
        self._sizes: list[int] | None = None

    def still(self) -> "System":
        """The kernel's settings at one moment: each file is read only once."""
        moment = System(self.root)
        moment._kept = {}
        return moment

    def read(self, path: str) -> str | None:
        """A file's text. `None` if the file does not exist."""
        if self._kept is not None and path in self._kept:
            return self._kept[path]
        try:
            text = (self.root / path.lstrip("/")).read_text("utf-8", "replace").strip()
        except OSError:
            text = None
        if self._kept is not None:
            self._kept[path] = text
        return text

    def knob(self, path: str) -> Knob | None:
        """A knob with its value.

        If the file lists all possible values, this is the value in brackets.
        """
        text = self.read(path)
        if text is None:
            return None
        chosen = _CHOSEN.search(text)
        return Knob(f"/{path.lstrip('/')}", chosen[1] if chosen else text)

    def enabled(self) -> Knob | None:
        """Which anonymous memory has large pages: `always`, `madvise` or `never`."""
        return self.knob(f"{THP}/enabled")

    def size_knob(self, size: int, shared: bool = False) -> Knob | None:
        """The knob of one page size."""
        name = "shmem_enabled" if shared else "enabled"
        return self.knob(f"{THP}/hugepages-{size >> 10}kB/{name}")

    def allowed(self, size: int) -> str:
        """`always`, `madvise` or `never` for anonymous pages of a size.

        `inherit` is replaced by its meaning.
        """
        top = self.enabled()
        if top is None:
            return "never"
        own = self.size_knob(size)
        if own is None:
            # Before Linux 6.8 there was only one size, with one knob.
            return top.value if size == LARGE else "never"
        return top.value if own.value == "inherit" else own.value

    def sizes(self) -> list[int]:
        """The page sizes that anonymous memory can have here without pools, smallest first."""
        if self._sizes is not None:
            return self._sizes
        folder = self.root / THP
        found = [BASE]
        if self.enabled() is not None:
            found.append(int(self.read(f"{THP}/hpage_pmd_size") or LARGE))
        try:
            names = [one.name for one in folder.iterdir()]
        except OSError:
            names = []
        for name in names:
            if one := re.fullmatch(r"hugepages-(\d+)kB", name):
                found.append(int(one[1]) << 10)
        sizes = sorted(set(found))
        if self._kept is not None:
            self._sizes = sizes
        return sizes

    def pools(self) -> dict[int, tuple[int, int]]:
        """For each pool, by page size: the number of its pages, and how many of them are free."""
        found = {}
        for folder in sorted((self.root / POOLS).glob("hugepages-*kB")):
            size = int(folder.name[10:-2]) << 10
            total = int(self.read(f"{POOLS}/{folder.name}/nr_hugepages") or 0)
            free = int(self.read(f"{POOLS}/{folder.name}/free_hugepages") or 0)
            found[size] = total, free
        return found

    def pool_knob(self, size: int) -> str:
        """The knob that fills a pool."""
        return f"/{POOLS}/hugepages-{size >> 10}kB/nr_hugepages"

    def counters(self) -> dict[str, int]:
        """The outcomes of faults that requested 2M, of all processes since the system's start."""
        folder = f"{THP}/hugepages-{LARGE >> 10}kB/stats"
        found = {name: int(self.read(f"{folder}/{name}") or 0) for name in _COUNTERS}
        if self.read(f"{folder}/{_COUNTERS[0]}") is None:
            # Before Linux 6.8.
            rows = dict(line.split() for line in (self.read("proc/vmstat") or "").splitlines())
            found = {
                name: int(rows.get(f"thp_{name.removeprefix('anon_')}", 0)) for name in _COUNTERS
            }
        return found

    def free_blocks(self) -> int:
        """Free memory in blocks of 2M or more, in units of 2M, from /proc/buddyinfo."""
        orders = 9
        blocks = 0
        for line in (self.read("proc/buddyinfo") or "").splitlines():
            counts = [int(word) for word in line.split()[4:]]
            blocks += sum(count << at for at, count in enumerate(counts[orders:]))
        return blocks

    def limit(self, pid: int) -> Limit | None:
        """The memory group of a process that has the least free memory.

        `None` if no group has a limit.
        """
        limits = [one for one in self._limits(pid) if one.bytes < _UNLIMITED]
        return min(limits, key=lambda one: one.bytes - one.used, default=None)

    def _limits(self, pid: int) -> list[Limit]:
        found = []
        for line in (self.read(f"proc/{pid}/cgroup") or "").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, group = rest.partition(":")
            if controllers == "":
                names, tops = ("memory.max", "memory.current"), ("sys/fs/cgroup",)
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes"
                tops = ("sys/fs/cgroup/memory",)
            else:
                continue
            for top in tops:
                folder = f"{top}{group}".rstrip("/")
                while len(folder) >= len(top):
                    most, used = (self.read(f"{folder}/{name}") for name in names)
                    if most is not None and used is not None and most.isdecimal():
                        found.append(Limit(f"/{folder}/{names[0]}", int(most), int(used)))
                    folder = folder.rpartition("/")[0]
        return found

    def file_system(self, pid: int, path: str) -> tuple[str, str] | None:
        """The type and the options of the file system that contains a path of a process."""
        best: tuple[int, str, str] | None = None
        for line in (self.read(f"proc/{pid}/mountinfo") or "").splitlines():
            left, _, right = line.partition(" - ")
            place = left.split()[4].replace("\\040", " ")
            kind, _, options = right.split(" ", 2)
            inside = place in ("/", path) or path.startswith(f"{place}/")
            # If several file systems are mounted at the same place, the last one is used.
            if inside and (best is None or len(place) >= best[0]):
                best = len(place), kind, options
        return None if best is None else best[1:]

    def version(self) -> tuple[int, int]:
        """The version of Linux."""
        found = re.match(r"(\d+)\.(\d+)", self.read("proc/sys/kernel/osrelease") or "0.0")
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def status(self, pid: int) -> dict[str, str]:
        """The rows of /proc/PID/status."""
        rows = (self.read(f"proc/{pid}/status") or "").splitlines()
        return {key: value.strip() for key, _, value in (row.partition(":") for row in rows)}

    def is_guest(self) -> bool:
        """Whether this system runs on a hypervisor. It cannot see the hypervisor's pages."""
        flags = re.search(r"^flags\s*:(.*)$", self.read("proc/cpuinfo") or "", re.MULTILINE)
        return flags is not None and "hypervisor" in flags[1].split()


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much counters grew."""
    return {name: after[name] - before.get(name, 0) for name in after}
