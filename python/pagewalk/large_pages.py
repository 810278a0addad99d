"""The code that a user must write on Linux so that a region of a program gets large pages.

It depends on the region's backing. Observed on Linux 6.18, where
`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise` and `shmem_enabled` is `never`:

```
 private memory, bss       MADV_HUGEPAGE before the first touch
   come in when mapped     MADV_COLLAPSE, as no advice can come first (MAP_LOCKED, mlockall, ...)
   locked afterwards       MADV_HUGEPAGE before the mlock
 heap of brk               a tunable of the C library
 stacks                    MADV_HUGEPAGE once they have their size; for threads it takes back what
                           MAP_STACK means since 6.7
 shared memory             MADV_COLLAPSE once it is filled; MADV_HUGEPAGE alone does nothing
 files, not written to     MADV_COLLAPSE, if the kernel has CONFIG_READ_ONLY_THP_FOR_FS
 other mappings of files   nothing
 MAP_HUGETLB               nothing: it has them
```

The rules are those of `__thp_vma_allowable_orders` and `file_thp_enabled` (mm/huge_memory.c), of
`shmem_allowable_huge_orders` (mm/shmem.c) and of `_calc_vm_trans(flags, MAP_STACK, VM_NOHUGEPAGE)`
(include/linux/mman.h).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pagewalk import text

KNOBS = "/sys/kernel/mm/transparent_hugepage"
"""The folder of Linux's knobs for large pages."""
CPP = (".cc", ".cpp", ".cxx", ".c++", ".C", ".hh", ".hpp", ".hxx", ".h++", ".H", ".tcc", ".ipp")
"""Endings of the names of C++ files."""
CONTAINERS = {
    "_Vector_base": "vector",
    "_Deque_base": "deque",
    "_Hashtable": "unordered_map",
    "_Rb_tree": "map",
    "_List_base": "list",
    "basic_string": "string",
}
"""For internal classes of the C++ library: the container to which each belongs."""
CONTIGUOUS = ("vector", "string")
"""Containers whose elements are adjacent, in one block of memory."""
PMR = (
    *CONTIGUOUS,
    *("deque", "list", "forward_list", "map", "multimap", "set", "multiset"),
    *("unordered_map", "unordered_multimap", "unordered_set", "unordered_multiset"),
)
"""Containers that have an alias in `std::pmr`."""

C_CODE = """\
#include <stdlib.h>
#include <sys/mman.h>

void *allocate_large(size_t bytes)
{
    size_t page = PAGE;
    size_t whole = (bytes + page - 1) / page * page;
    void *p = aligned_alloc(page, whole);
    if (p) madvise(p, whole, MADV_HUGEPAGE);
    return p;
}
"""
"""C code that allocates a block of large pages. PAGE stands for the bytes of a large page. `free`
gives the block back.
"""
CPP_CODE = """\
#include <cstdlib>
#include <memory_resource>
#include <new>
#include <sys/mman.h>

class LargePages : public std::pmr::memory_resource {
    void *do_allocate(std::size_t bytes, std::size_t) override
    {
        std::size_t page = PAGE;
        std::size_t whole = (bytes + page - 1) / page * page;
        void *p = std::aligned_alloc(page, whole);
        if (!p) throw std::bad_alloc();
        madvise(p, whole, MADV_HUGEPAGE);
        return p;
    }
    void do_deallocate(void *p, std::size_t, std::size_t) override
    {
        std::free(p);
    }
    bool do_is_equal(const memory_resource &other) const noexcept override
    {
        return this == &other;
    }
};
"""
"""A memory resource of C++17 whose blocks consist of large pages."""


class Written(NamedTuple):
    """The code that a user writes."""

    line: str
    """One line with the place and the code."""
    code: str | None
    """A function or a class that the line uses."""


def why_none(region: Mapping[str, Any]) -> str | None:
    """Why no code can give a region of results large pages on Linux.

    `None` if there is such code.
    """
    match region.get("backing"):
        case "hugetlb":
            return "it has large pages already (MAP_HUGETLB), which are not counted as such here"
        case "shared-file":
            return (
                "Linux gives large pages to no shared mapping of a file on a disk, whatever "
                "madvise asks for; a file in a tmpfs that is mounted with huge=advise, or "
                "anonymous memory that the file is read into, can have them"
            )
        case "private-file" if "w" in region["rights"]:
            return (
                "Linux gives large pages to no private, writable mapping of a file, whatever "
                "madvise asks for"
            )
        case "private-of-shared":
            return (
                "Linux gives large pages to no private mapping of shared memory, whatever madvise "
                "asks for"
            )
    return None


def written(region: Mapping[str, Any], size: str, site: Mapping[str, Any] | None) -> Written:
    """The code with which `region` of results gets pages of `size`.

    Args:
        region: A region of results for which `why_none` has no reason.
        size: The page size.
        site: The allocation site for which the region was allocated, if it is known.
    """
    where = None if site is None else _where(site)
    if site is not None and not region.get("mapped_by_site"):
        return _allocated(site, where or region["name"], size)
    name, length = region["name"], region["bytes"]
    line = f"{where}: " if where else ""
    ask = f"madvise(p, {length}, MADV_HUGEPAGE)"
    collapse = f"madvise(p, {length}, MADV_COLLAPSE) (Linux 6.1)"
    match region.get("backing"):
        case "heap":
            found = "environment: GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
        case "stack":
            found = (
                "start of main: write to the lowest byte that the stack will have, then "
                "madvise(lowest, n, MADV_HUGEPAGE): what is not mapped yet takes no advice"
            )
        case "thread-stack":
            found = (
                "start of the thread: madvise(lowest, n, MADV_HUGEPAGE) for the stack that "
                "pthread_getattr_np reports; without this call, MAP_STACK forbids large pages "
                "(Linux 6.7)"
            )
        case "bss":
            found = f"start of main: {ask} on {name}"
        case "shared-memory":
            found = (
                f"{line}once the mapping of {length} bytes is filled, {collapse}. MADV_HUGEPAGE "
                f"does nothing for shared memory unless {_shared_knob(region)}. MAP_HUGETLB takes "
                "pages of a pool (vm.nr_hugepages) instead"
            )
        case "private-file":
            file, page = name.rpartition(" (")[0], text.bytes_of(size)
            linked = f"-Wl,-z,max-page-size={page}"
            found = (
                f"linking {file}: {linked}; start of main: {collapse}, which takes a kernel with "
                "CONFIG_READ_ONLY_THP_FOR_FS"
                if "x" in region["rights"]
                else f"{line}mmap {file} where its place and the address are multiples of {page} "
                f"(if it is a program or a library, link it with {linked}), then {collapse}, "
                "while nobody has the file open for writing; the kernel needs "
                "CONFIG_READ_ONLY_THP_FOR_FS"
            )
        case _ if region.get("populated") == "when-mapped":
            found = (
                f"{line}after the mmap of {length} bytes, {collapse}: MAP_LOCKED, MAP_POPULATE or "
                "mlockall brings in base pages before any advice can be given"
            )
        case _ if region.get("populated") == "when-locked":
            found = f"{line}between the mmap of {length} bytes and its mlock, {ask}"
        case _:
            found = f"{line}after the mmap of {length} bytes, before it is touched: {ask}"
            found += "" if line else "; --allocations records its line"
    return Written(found, None)


def _shared_knob(region: Mapping[str, Any]) -> str:
    """The setting that MADV_HUGEPAGE needs to have an effect."""
    name = region["name"]
    if name.endswith(")") and not name.startswith(("memfd:", "zero (", "SYSV")):
        return "its tmpfs is mounted with huge=advise"
    return f"{KNOBS}/shmem_enabled is advise (usual: never)"


def _where(site: Mapping[str, Any]) -> str | None:
    """The line of the user's source that allocates, and the library's line to which it leads."""
    stack = site["stack"]
    if site["own"] is None:
        return None
    own = stack[site["own"]]
    inner = next((one for one in stack[: site["own"]] if one["line"] is not None), None)
    behind = f" (by {_base(inner['file'])}:{inner['line']})" if inner else ""
    return f"{own['file']}:{own['line']}{behind}"


def _allocated(site: Mapping[str, Any], where: str, size: str) -> Written:
    """The code for a block of an allocator."""
    page = text.bytes_of(size)
    once = site["bytes"] // max(site["allocations"], 1)
    container = container_of(site)
    if container in CONTIGUOUS:
        line = f"{where}: a std::pmr::{container} on LargePages"
        of = "" if container == "string" else "<T>"
        use = f"LargePages large;\nstd::pmr::{container}{of} data(&large);\n"
        return Written(line, _sized(f"{CPP_CODE}\n{use}", page))
    if container is not None:
        line = f"{where}: a std::pmr::{container} on a pool on LargePages"
        use = (
            "LargePages large;\n"
            "std::pmr::monotonic_buffer_resource arena(16 * PAGE, &large);\n"
            "std::pmr::unsynchronized_pool_resource pool(&arena);\n"
            f"std::pmr::{container}<...> data(&pool);\n"
        )
        return Written(line, _sized(f"{CPP_CODE}\n{use}", page))
    whole = -(-once // page) * page
    if _is_cpp(site):
        line = (
            f"{where}: p = ::operator new({whole}, std::align_val_t({page})), then "
            f"madvise(p, {whole}, MADV_HUGEPAGE)"
        )
        return Written(line, _sized(CPP_CODE, page))
    line = f"{where}: p = aligned_alloc({page}, {whole}), then madvise(p, {whole}, MADV_HUGEPAGE)"
    return Written(line, _sized(C_CODE, page))


def container_of(site: Mapping[str, Any]) -> str | None:
    """The container of the C++ library that allocates at a site, by its name in `std`."""
    frames: Sequence[Mapping[str, Any]] = site["stack"]
    found = None
    of_std = re.compile(r"(?:[\w ]+ )?std::(?:__cxx11::|__1::|__debug::)?(\w+)<")
    # The user has called the outermost function of the library.
    for frame in frames[: len(frames) if site["own"] is None else site["own"]]:
        match = of_std.match(frame["function"] or "")
        name = CONTAINERS.get(match[1], match[1]) if match else None
        found = name if name in PMR else found
    return found


def _is_cpp(site: Mapping[str, Any]) -> bool:
    own = site["stack"][site["own"]]["file"] if site["own"] is not None else ""
    return own.endswith(CPP)


def _sized(code: str, page: int) -> str:
    return re.sub(r"\bPAGE\b", str(page), code)


def _base(path: str) -> str:
    return path.rpartition("/")[2]
