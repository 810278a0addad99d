"""`PageTable`: a machine's page table alone, and the cost of each operation on it."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from pagewalk import _native
from pagewalk.machine import Machine

READ, WRITE, EXECUTE, USER = 1, 2, 4, 8
"""Rights, each as a bit."""


class Work(NamedTuple):
    """The work of an operation.

    Attributes:
        reads: Read references to the tables.
        writes: Write references to the tables, without those of initialisation.
        initialised_bytes: Bytes of tables that were initialised.
        misses: References that no data cache served, including references of initialisation.
        cycles: Cycles of all references in the machine's caches and memory, if none overlap.
        instructions: Instructions other than those that make the references. For a walk, they are
            instructions of the refill handler; otherwise those of the kernel's path, including its
            work on nodes of mapping trees. `crates/machine/src/kernel_path.rs` has each count with
            its reason. At one instruction per cycle, the operation takes `cycles + instructions`.
        table_bytes: Bytes of frames allocated for tables, minus those freed.
        nanoseconds: Time on this host; it is meaningful only if `metered` is false.
    """

    reads: int
    writes: int
    initialised_bytes: int
    misses: int
    cycles: int
    instructions: int
    table_bytes: int
    nanoseconds: int


class Footprint(NamedTuple):
    """The memory of a page table, in bytes."""

    table_bytes: int
    """The total size of the nodes, buckets and arrays in use, in bytes."""
    frame_bytes: int
    """The total size of the frames that are allocated for them, in bytes."""


class PageTable:
    """The page table of a machine. It is empty, in a separate memory.

    >>> table = PageTable("r4700", {"page_table.format": "guarded"})
    >>> space, _ = table.create()
    >>> table.map(space, [0x1000, 0x2000]).writes > 0
    True

    Args:
        machine: A machine, or a value that `Machine` accepts.
        set: Settings to change in it.
        metered: Whether each reference is counted. If not, operations run at the host's speed, and
            all counts except `table_bytes` and `nanoseconds` are zero.

    Raises:
        Error: There is no such machine, or the machine has no page table.
    """

    def __init__(
        self,
        machine: Machine | str,
        set: dict[str, object] | Sequence[str] = (),  # noqa: A002
        *,
        metered: bool = True,
    ) -> None:
        machine = machine if isinstance(machine, Machine) else Machine(machine, set)
        self._native = _native.PageTable(machine.native, metered)

    def create(self) -> tuple[int, Work]:
        """Creates an empty space; returns its number and the work."""
        space, work = self._native.create()
        return space, _work(work)

    def destroy(self, space: int) -> Work:
        """Deletes a space with all its pages.

        Raises:
            WorkError: There is no such space.
        """
        return _work(self._native.destroy(space))

    def map(self, space: int, addresses: Sequence[int]) -> Work:
        """Maps a page at each address, one by one.

        Raises:
            WorkError: A page is there already, or the table cannot hold the address.
        """
        return _work(self._native.map(space, addresses))

    def hand(self, giver: int, taker: int, addresses: Sequence[int], rights: int) -> Work:
        """Maps the giver's page at each address to the taker too, each page by an IPC.

        If the taker already has the page from this giver, the page gets the missing rights.

        Raises:
            WorkError: The taker has another page there, or the table cannot hold the address.
        """
        return _work(self._native.hand((giver, taker), addresses, rights))

    def restrict(self, space: int, ranges: Sequence[tuple[int, int]], rights: int) -> Work:
        """Limits the rights of the mappings that were handed on from the pages in each range.

        The mappings keep only those of their rights that `rights` has.
        Each range is one operation, as in L4's unmap of a flexpage. The space keeps its own rights.

        Raises:
            WorkError: There is no such space, or a range wraps.
        """
        return _work(self._native.restrict(space, ranges, rights))

    def unmap(self, space: int, ranges: Sequence[tuple[int, int]]) -> Work:
        """Removes the pages in each range. A range is an address and a number of bytes.

        Raises:
            WorkError: A range ends inside a page, or wraps.
        """
        return _work(self._native.unmap(space, ranges))

    def protect(self, space: int, ranges: Sequence[tuple[int, int]], rights: int) -> Work:
        """Gives the pages in each range these rights, each range by one operation.

        Raises:
            WorkError: A range ends inside a page, or wraps.
        """
        return _work(self._native.protect(space, ranges, rights))

    def walk(self, space: int, addresses: Sequence[int]) -> Work:
        """Looks up each address as a refill for a load does.

        Raises:
            WorkError: A page is not mapped.
        """
        return _work(self._native.walk(space, addresses))

    @property
    def footprint(self) -> Footprint:
        """The memory of the page tables of all spaces."""
        return Footprint(*self._native.footprint())


def _work(text: str) -> Work:
    return Work(**json.loads(text))
