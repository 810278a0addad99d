"""`PageTable`: a machine's page table by itself, and what each operation on it costs."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from pagewalk import _native
from pagewalk.machine import Machine

READ, WRITE, EXECUTE, USER = 1, 2, 4, 8
"""Rights, as bits."""


class Work(NamedTuple):
    """What an operation did.

    Attributes:
        reads: References to the tables that read.
        writes: References that write, initialisation not among them.
        initialised_bytes: Bytes of tables that were initialised.
        misses: References, initialisation among them, that no data cache served.
        cycles: What all of them take in the machine's caches and memory if nothing overlaps.
        instructions: Instructions beside those that make the references: of the refill handler for
            a walk, and else of the kernel's path, nodes of mapping trees among it;
            `crates/machine/src/kernel_path.rs` has each count with its reason. At one instruction
            per cycle, `cycles + instructions` is what the operation takes.
        table_bytes: Bytes of frames taken for tables, less those given back.
        nanoseconds: Time on this host, which means something without the meter.
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
    """What a page table takes, in bytes."""

    table_bytes: int
    """Of nodes, buckets and arrays in use."""
    frame_bytes: int
    """Of frames taken for them."""


class PageTable:
    """The page table of a machine, empty, in a memory of its own.

    >>> table = PageTable("r4700", {"page_table.format": "guarded"})
    >>> space, _ = table.create()
    >>> table.map(space, [0x1000, 0x2000]).writes > 0
    True

    Args:
        machine: A machine, or what `Machine` takes.
        set: Settings to change in it.
        metered: Count each reference; without, operations run at the host's speed and all
            counts but `table_bytes` and `nanoseconds` are zero.

    Raises:
        Error: There is no such machine, or it has no page table.
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
        """A new, empty space: its number, and what making it took."""
        space, work = self._native.create()
        return space, _work(work)

    def destroy(self, space: int) -> Work:
        """Ends a space with all its pages.

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
        """Maps the giver's page at each address to the taker too, each by an IPC.

        A page that the taker has from there already gets the rights that it lacks.

        Raises:
            WorkError: The taker has another page there, or the table cannot hold the address.
        """
        return _work(self._native.hand((giver, taker), addresses, rights))

    def restrict(self, space: int, ranges: Sequence[tuple[int, int]], rights: int) -> Work:
        """Takes all but these rights from what was handed on of the pages in each range.

        Each range is one operation, as L4's unmap of a flexpage; the space keeps its own rights.

        Raises:
            WorkError: There is no such space, or a range wraps.
        """
        return _work(self._native.restrict(space, ranges, rights))

    def unmap(self, space: int, ranges: Sequence[tuple[int, int]]) -> Work:
        """Removes the pages in each range of an address and a number of bytes.

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
        """Looks each address up as a refill for a load does.

        Raises:
            WorkError: A page is not there.
        """
        return _work(self._native.walk(space, addresses))

    @property
    def footprint(self) -> Footprint:
        """What all spaces take."""
        return Footprint(*self._native.footprint())


def _work(text: str) -> Work:
    return Work(**json.loads(text))
