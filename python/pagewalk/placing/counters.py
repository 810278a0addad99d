"""Hardware counters of a program and of programs that it starts, by `perf_event_open`.

```
 opened on this thread, disabled    child inherits them --execve--> they count until it has ended
                                    what they counted is added to the ones that were opened here
```

Counters are opened before a program is started: each child of this thread inherits them
(`inherit`), and they are enabled when the child executes the program (`enable_on_exec`). If a
processor has fewer counters than were opened, the kernel activates them in turns. Each count is
then scaled by the share of the time in which its counter was active.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

_NUMBER = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_HARDWARE_CACHE = 3
_SOFTWARE = 1
_DTLB, _ITLB = 3, 4
_READ, _WRITE, _MISS = 0, 1, 1
_DISABLED, _INHERIT, _NO_KERNEL, _NO_HYPERVISOR, _ON_EXEC = 1, 1 << 1, 1 << 5, 1 << 6, 1 << 12
_TIMES = 3
"""Flags of `read_format`: also return how long a counter was enabled, and how long it was
active.
"""
_CLOSE_ON_EXEC = 8
_BYTES = 72
"""The size in bytes of version 1 of `perf_event_attr`."""


class Event(NamedTuple):
    """An event to count."""

    name: str
    kind: int
    config: int


class Counters(Protocol):
    """Counts events of the programs that are started between `start` and `stop`."""

    def start(self) -> None:
        """Programs that are started from now on are counted."""

    def stop(self) -> dict[str, int]:
        """Returns the counts by name, of programs that have ended."""


def _cache(cache: int, operation: int) -> int:
    return cache | operation << 8 | _MISS << 16


WALKS = (
    Event("dtlb_load_misses", _HARDWARE_CACHE, _cache(_DTLB, _READ)),
    Event("dtlb_store_misses", _HARDWARE_CACHE, _cache(_DTLB, _WRITE)),
    Event("itlb_misses", _HARDWARE_CACHE, _cache(_ITLB, _READ)),
)
"""Lookups that missed every TLB, each of which is a walk, by the kernel's names for them."""
FAULTS = Event("page_faults", _SOFTWARE, 2)
"""A counter in the kernel's software, which every machine has."""


class Perf:
    """The kernel's counters."""

    def __init__(self, events: Sequence[Event], *, kernel: bool = False) -> None:
        self.events, self._kernel = list(events), kernel
        self._files: list[int] = []

    def start(self) -> None:
        """Opens the counters.

        Raises:
            OSError: The machine has no counters, or they may not be read.
        """
        try:
            for event in self.events:
                self._files.append(_opened(event, kernel=self._kernel))
        except OSError:
            self._close()
            raise

    def stop(self) -> dict[str, int]:
        """Reads and closes them."""
        try:
            found = {}
            for event, file in zip(self.events, self._files, strict=True):
                count, enabled, running = struct.unpack("QQQ", os.read(file, 24))
                found[event.name] = round(count * enabled / running) if running else 0
            return found
        finally:
            self._close()

    def _close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []


def _opened(event: Event, *, kernel: bool) -> int:
    number = _NUMBER.get(platform.machine())
    if number is None:
        raise OSError(
            errno.ENOSYS,
            "the number of the system call perf_event_open is not known for this processor",
        )
    flags = _DISABLED | _INHERIT | _NO_HYPERVISOR | _ON_EXEC | (0 if kernel else _NO_KERNEL)
    attributes = struct.pack(
        "IIQQQQQIIQQ", event.kind, _BYTES, event.config, 0, 0, _TIMES, flags, 0, 0, 0, 0
    )
    call = ctypes.CDLL(None, use_errno=True).syscall
    file = int(call(number, ctypes.c_char_p(attributes), 0, -1, -1, _CLOSE_ON_EXEC))
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return file


def of_walks() -> tuple[Counters | None, str | None]:
    """Counters of walks, or the reason why walks cannot be counted here."""
    counters = Perf(WALKS)
    try:
        counters.start()
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return None, (
                "no walks were counted: perf_event_open is forbidden; write 2 or less to "
                "/proc/sys/kernel/perf_event_paranoid"
            )
        return None, (
            "no walks were counted: this machine shows no counters of TLB misses "
            f"(perf_event_open: {error.strerror})"
        )
    counters.stop()
    return counters, None
