"""The reasons why memory does not have the requested page sizes: a closed list.

Each reason has its meaning, the knob or the call that decides, and the change to make. A part of a
mapping gets the first reason that applies. The reasons are ordered from causes that always apply to
causes that depend on chance:

```
 the place     smaller-than-page, unaligned
 the kind      thread-stack, private-file, file-system
 the wish      advised-against, no-advice
 the process   prctl
 the kernel    knob
 the memory    pool-empty, cgroup-limit, no-free-block
 the time      khugepaged
 beneath       host
```

Sources: `__thp_vma_allowable_orders`, `file_thp_enabled` (mm/huge_memory.c), `alloc_anon_folio`
(mm/memory.c), `hpage_collapse_scan_pmd` (mm/khugepaged.c), `_calc_vm_trans` for MAP_STACK
(include/linux/mman.h) of Linux 6.18.
"""

from typing import NamedTuple

from pagewalk.placing import mappings
from pagewalk.placing.mappings import Mapping
from pagewalk.placing.pages import LARGE
from pagewalk.placing.rules import shown
from pagewalk.placing.system import LARGE_FOLIOS, THP, System

REASONS = (
    "smaller-than-page", "unaligned", "thread-stack", "private-file", "file-system",
    "advised-against", "no-advice", "prctl", "knob", "pool-empty", "cgroup-limit", "no-free-block",
    "khugepaged", "host",
)  # fmt: skip
"""All reasons."""


class Why(NamedTuple):
    """A reason, with the setting of this system that causes it."""

    reason: str
    """One of `REASONS`."""
    means: str
    """The meaning of the reason, in a sentence."""
    knob: str | None
    """The file or the call that decides, with its value."""
    change: str | None
    """The command that changes the setting. `None` if no command helps."""


class Process(NamedTuple):
    """The known facts about a process, except its mappings."""

    pid: int
    disabled: int | None
    """The value of `prctl(PR_GET_THP_DISABLE)`: 0, 1, or 3 for all memory without advice; `None` if
    it is unknown.
    """
    fallback: int
    """The number of faults that got no block of 2M while the process was observed."""
    charge: int
    """The number of faults to which a memory group (cgroup) refused 2M in that time."""
    tunables: str
    """`GLIBC_TUNABLES` in its environment."""


def smaller(one: Mapping, size: int) -> Why:
    """The reason for a mapping that is too small for a page of this size."""
    return Why(
        "smaller-than-page",
        f"these mappings have no room for a page of {shown(size)}",
        None,
        _grow(one),
    )


def unaligned(one: Mapping, size: int) -> Why:
    """The reason for bytes at an end of a mapping, outside of its aligned blocks."""
    return Why(
        "unaligned",
        f"these bytes lie at an end of the mapping, outside of the blocks that begin at multiples "
        f"of {shown(size)}",
        None,
        f"map it at a multiple of {shown(size)}, in whole pages of that size: "
        f"aligned_alloc({size}, n)"
        if one.kind in (mappings.ANONYMOUS, mappings.SHARED)
        else None,
    )


def _grow(one: Mapping) -> str | None:
    match one.kind:
        case mappings.HEAP:
            return "GLIBC_TUNABLES=glibc.malloc.top_pad=67108864, so that brk grows by 64 MiB"
        case mappings.STACK:
            return "pagewalk place stack=2M -- CMD, which has the stack grow first"
        case mappings.ANONYMOUS:
            return "map more at once: one mapping instead of several small ones"
    return None


def large(one: Mapping, process: Process, system: System, has_rule: bool) -> Why:
    """Why blocks of 2M of a mapping that are partly in memory are not large pages."""
    return (
        _of_kind(one, process, system)
        or _of_wish(one, process, system, has_rule)
        or _of_knobs(one, process, system)
        or _of_memory(process, system)
        or _of_time(system)
    )


def _of_kind(one: Mapping, process: Process, system: System) -> Why | None:
    if one.kind == mappings.THREAD_STACK:
        return Why(
            "thread-stack",
            "stacks of threads are mapped with MAP_STACK, which means MADV_NOHUGEPAGE since Linux "
            "6.7",
            "VmFlags: nh",
            "in the thread: madvise(lowest, n, MADV_HUGEPAGE) for the stack that "
            "pthread_getattr_np reports",
        )
    writable = "w" in one.rights
    if one.kind == mappings.PRIVATE_OF_SHARED or (one.kind == mappings.PRIVATE_FILE and writable):
        return Why(
            "private-file",
            "Linux copies a private, writable mapping of a file page by page, in base pages",
            None,
            "read the file into anonymous memory instead of mapping it",
        )
    if one.kind in (mappings.PRIVATE_FILE, mappings.SHARED_FILE):
        found = system.file_system(process.pid, one.path)
        kind = found[0] if found else "unknown"
        since = LARGE_FOLIOS.get(kind)
        if since is None or system.version() < since:
            means = f"{kind} is not known to keep files in large folios on Linux {_version(system)}"
        else:
            means = (
                f"{kind} keeps what it reads in folios as large as it reads at once, and no advice "
                "makes these larger where the kernel has no CONFIG_READ_ONLY_THP_FOR_FS"
            )
        return Why(
            "file-system",
            means,
            f"file system {kind}",
            "put the file on a tmpfs: mount -t tmpfs -o huge=advise tmpfs DIR, and advise it "
            "(MADV_HUGEPAGE)",
        )
    return None


def _version(system: System) -> str:
    return ".".join(map(str, system.version()))


def _of_wish(one: Mapping, process: Process, system: System, has_rule: bool) -> Why | None:
    if "nh" in one.flags:
        return Why(
            "advised-against",
            "the program asked for base pages here: madvise(MADV_NOHUGEPAGE)",
            "VmFlags: nh",
            "remove that call from the program, or the setting of its allocator that makes the "
            "call",
        )
    is_own = one.kind != mappings.SHARED
    if is_own and process.disabled == 3 and "hg" not in one.flags:
        return Why(
            "prctl",
            "prctl(PR_SET_THP_DISABLE, PR_THP_DISABLE_EXCEPT_ADVISED) allows large pages only in "
            "advised memory, and this memory is not advised",
            "PR_GET_THP_DISABLE: 3",
            "do not start it with `place --only`, or name this memory in a rule",
        )
    if is_own and "hg" not in one.flags and system.allowed(LARGE) == "madvise" and has_rule:
        return Why(
            "no-advice",
            "a rule requests large pages here, but the memory is not advised (MADV_HUGEPAGE): "
            "`pagewalk place` did not start the program, or the memory was mapped in parts of "
            "less than 2M",
            f"/{THP}/enabled = madvise",
            "pagewalk place RULES -- CMD; for what is there already, place RULES -p PID",
        )
    return None


def _of_knobs(one: Mapping, process: Process, system: System) -> Why | None:
    if process.disabled == 1:
        return Why(
            "prctl",
            "prctl(PR_SET_THP_DISABLE) switched large pages off: the process has called it, or "
            "the program that started the process",
            "/proc/PID/status: THP_enabled: 0",
            "start it without that call: systemd's MemoryTHP=, a container's runtime, redis's "
            "disable-thp",
        )
    if one.kind == mappings.SHARED:
        return _of_shared(one, process, system)
    top, own = system.enabled(), system.size_knob(LARGE)
    if top is None:
        return Why("knob", "this kernel has no large pages", "CONFIG_TRANSPARENT_HUGEPAGE", None)
    if system.allowed(LARGE) == "never":
        knob = own if own is not None and own.value == "never" else top
        return Why(
            "knob",
            "the kernel gives no program large pages of this size",
            f"{knob.path} = {knob.value}",
            knob.line("madvise"),
        )
    return None


def _of_shared(one: Mapping, process: Process, system: System) -> Why | None:
    """The reason for shared memory and for files in a tmpfs.

    Shared memory has separate knobs; a tmpfs has a mount option.
    """
    if not one.path.startswith(("/memfd:", "/SYSV", "/dev/zero", "[")):
        found = system.file_system(process.pid, one.path.removesuffix(" (deleted)"))
        options = found[1].split(",") if found else []
        huge = next((word for word in options if word.startswith("huge=")), "huge=never")
        if huge in ("huge=never", "huge=advise") and not (huge[5:] == "advise" and _is_hg(one)):
            return Why(
                "knob",
                "the tmpfs that the file is in gives no large pages by itself",
                f"mount option {huge}",
                "mount -o remount,huge=advise DIR, and madvise(MADV_HUGEPAGE)",
            )
        return None
    knob = system.knob(f"{THP}/shmem_enabled")
    own = system.size_knob(LARGE, shared=True)
    if own is not None and own.value != "inherit":
        knob = own
    if (
        knob is None
        or knob.value in ("never", "deny")
        or (knob.value == "advise" and not _is_hg(one))
    ):
        path, value = (knob.path, knob.value) if knob else (f"/{THP}/shmem_enabled", "absent")
        return Why(
            "knob",
            "shared memory has a knob of its own, which gives it no large pages",
            f"{path} = {value}",
            f"echo advise > {path}, and madvise(MADV_HUGEPAGE); or MADV_COLLAPSE once it is filled",
        )
    return None


def _is_hg(one: Mapping) -> bool:
    return "hg" in one.flags


def _of_memory(process: Process, system: System) -> Why | None:
    limit = system.limit(process.pid)
    if process.charge > 0 or (limit is not None and limit.bytes - limit.used < LARGE):
        path = limit.path if limit else "memory.max of its cgroup"
        value = f" = {limit.bytes}" if limit else ""
        return Why(
            "cgroup-limit",
            "the memory group of the process has no room for 2M at once",
            f"{path}{value}",
            f"echo {2 * limit.bytes} > {path}" if limit else f"a larger value in {path}",
        )
    if process.fallback > 0 or system.free_blocks() == 0:
        knob = system.knob(f"{THP}/defrag")
        return Why(
            "no-free-block",
            "no block of 2M was free when the page was touched, and the fault did not make one "
            "free",
            f"{knob.path} = {knob.value}" if knob else "/proc/buddyinfo",
            (knob.line("defer+madvise") if knob else "")
            + "; or free some first: echo 1 > /proc/sys/vm/compact_memory",
        )
    return None


def _of_time(system: System) -> Why:
    folder = f"/{THP}/khugepaged"
    none = system.knob(f"{folder}/max_ptes_none")
    scan = system.knob(f"{folder}/pages_to_scan")
    sleep = system.knob(f"{folder}/scan_sleep_millisecs")
    most = none.value if none else "?"
    return Why(
        "khugepaged",
        "base pages were here first: the memory was touched before it was advised, or while its "
        "mapping was smaller than a block. Only khugepaged makes them large: it looks at "
        f"{scan.value if scan else '?'} pages every {sleep.value if sleep else '?'} ms, and leaves "
        f"blocks of which more than {most} of 512 pages were never touched",
        f"{folder}/max_ptes_none = {most}",
        "pagewalk place RULES -p PID collapses them at once (MADV_COLLAPSE)",
    )


def pool(size: int, system: System) -> Why:
    """The reason if pages of a pool were requested and the pool was empty."""
    total, free = system.pools().get(size, (0, 0))
    knob = system.pool_knob(size)
    return Why(
        "pool-empty",
        f"the pool of pages of {shown(size)} has {total}, and {free} of them are free",
        f"{knob} = {total}",
        f"echo {total + 64} > {knob}",
    )


def host() -> Why:
    """The reason in a guest.

    A page of 2M in its page table may consist of 4K pages in the host's page table.
    """
    return Why(
        "host",
        "this system is a guest: if its host backs a page of 2M by base pages, the TLB holds base"
        " pages. No file of the guest shows that; a page of 2M then still saves one reference per"
        " walk",
        "CPU flag hypervisor",
        "pagewalk calibrate, which measures what a walk takes for each size",
    )
