"""The parts of a mapping that are in memory, by page size.

They are found by PAGEMAP_SCAN, pagemap and kpageflags.

```
 PAGEMAP_SCAN   Linux 6.7, no rights needed: ranges that are present, and those mapped by 2M
 pagemap        a word per page: present or not; frame numbers for root alone
 kpageflags     root: which frames begin and continue a large folio, so sizes below 2M
```

A page of 64K is 16 entries of the page table that map one folio in order. smaps does not count such
pages. In this module, a folio counts as a page of the folio's size if all of it is mapped in order.
"""

import array
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

BASE = 4096
LARGE = 2 << 20
"""The size of a page that one entry of the second level maps on x86-64."""

_SCAN = 0xC0606610
"""`_IOWR('f', 16, struct pm_scan_arg)` of include/uapi/linux/fs.h, 96 bytes."""
_PRESENT, _SWAPPED, _ZERO, _HUGE = 1 << 3, 1 << 4, 1 << 5, 1 << 6
_REGIONS = 4096
"""The maximum number of ranges that one call returns."""

_HEAD, _TAIL = 1 << 15, 1 << 16
"""Bits of kpageflags: KPF_COMPOUND_HEAD, KPF_COMPOUND_TAIL."""


class Range(NamedTuple):
    """A part of a mapping whose pages are all in the same state."""

    start: int
    end: int
    huge: bool
    """Whether entries of 2M map this part."""


class UnsupportedError(OSError):
    """The kernel has no PAGEMAP_SCAN."""


def present(pid: int, start: int, end: int) -> list[Range]:
    """The ranges in memory between two addresses of a process, by PAGEMAP_SCAN.

    Pages that are mapped to the page of zeros are left out.

    Raises:
        UnsupportedError: The kernel is older than Linux 6.7.
        OSError: The process has ended, or may not be examined.
    """
    file = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return list(_scan(file, start, end))
    finally:
        os.close(file)


def _scan(file: int, start: int, end: int) -> Iterator[Range]:
    vector = array.array("Q", bytes(24 * _REGIONS))
    where = vector.buffer_info()[0]
    while start < end:
        argument = bytearray(
            struct.pack(
                "<12Q", 96, 0, start, end, 0, where, _REGIONS, 0,
                _ZERO, _PRESENT | _ZERO, 0, _PRESENT | _HUGE,
            )
        )  # fmt: skip
        try:
            found = fcntl.ioctl(file, _SCAN, argument)
        except OSError as error:
            if error.errno in (25, 22):
                raise UnsupportedError(error.errno, "this kernel has no PAGEMAP_SCAN") from error
            raise
        for at in range(found):
            first, last, categories = vector[3 * at : 3 * at + 3]
            yield Range(first, last, bool(categories & _HUGE))
        # The kernel's `walk_end` is not used: it is the end for the kernel's internal buffer of 512
        # ranges.
        if found < _REGIONS:
            return
        start = vector[3 * found - 2]


def words(pid: int, start: int, end: int) -> list[Range]:
    """The ranges in memory, from the words of pagemap. This is for kernels without PAGEMAP_SCAN.

    pagemap does not show whether a page is large, so `huge` is always false.
    """
    found: list[Range] = []
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:  # noqa: PTH123
        file.seek(start // BASE * 8)
        at = start
        while at < end:
            entries = array.array("Q", file.read(min((end - at) // BASE * 8, 1 << 20)))
            if not entries:
                break
            for entry in entries:
                if entry >> 63:
                    if found and found[-1].end == at:
                        found[-1] = found[-1]._replace(end=at + BASE)
                    else:
                        found.append(Range(at, at + BASE, False))
                at += BASE
    return found


def folios(pid: int, ranges: list[Range]) -> dict[int, int] | None:
    """The number of bytes by the size of the mapped folio, for ranges without large entries.

    `None` without root's rights, which are needed to read frame numbers.
    """
    sizes: dict[int, int] = {}
    try:
        with (
            open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap,  # noqa: PTH123
            open("/proc/kpageflags", "rb", buffering=0) as flags,  # noqa: PTH123
        ):
            for start, end, huge in ranges:
                if huge:
                    continue
                pagemap.seek(start // BASE * 8)
                entries = array.array("Q", pagemap.read((end - start) // BASE * 8))
                frames = [entry & (1 << 55) - 1 if entry >> 63 else 0 for entry in entries]
                if frames and not any(frames):
                    return None
                for size, bytes_ in _sizes(frames, flags.fileno()).items():
                    sizes[size] = sizes.get(size, 0) + bytes_
    except PermissionError:
        return None
    return sizes


def _sizes(frames: list[int], flags: int) -> dict[int, int]:
    """The number of bytes by folio size, for adjacent pages with these frames.

    0 stands for no frame.
    """
    sizes: dict[int, int] = {}
    at = 0
    while at < len(frames):
        if frames[at] == 0:
            at += 1
            continue
        # Adjacent frames, and the kernel's flags of each.
        many = 1
        while at + many < len(frames) and frames[at + many] == frames[at] + many:
            many += 1
        row = array.array("Q", os.pread(flags, 8 * (many + 1), 8 * frames[at]))
        first = 0
        while first < many:
            length = 1
            if first < len(row) and row[first] & _HEAD:
                while first + length < len(row) and row[first + length] & _TAIL:
                    length += 1
                # The adjacent frames end in the middle of the folio, so only a part of the folio is
                # mapped here.
                length = length if first + length <= many else 1
            size = length * BASE
            sizes[size] = sizes.get(size, 0) + size
            first += length
        at += many
    return sizes
