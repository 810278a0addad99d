"""What a run of `pagewalk hat` has counted, as plain data."""

from typing import Any, NamedTuple


class LockCounts(NamedTuple):
    """What the locks of one class have cost.

    Attributes:
        acquisitions: How often one was taken.
        contended: How often it was found held by another processor.
        wait_cycles: Cycles from asking to having, of all that waited.
        hold_cycles: Cycles from having to giving back, of all.
    """

    acquisitions: int
    contended: int
    wait_cycles: int
    hold_cycles: int

    @property
    def contended_share(self) -> float:
        """Share of the acquisitions that found the lock held."""
        return self.contended / max(self.acquisitions, 1)


class TimeUse(NamedTuple):
    """Where the cycles of all processors have gone; the sum is processors times cycles.

    Attributes:
        work_cycles: Work: the load's own, the memory manager's and the HAT layer's.
        lock_cycles: Locks taken and given back, lines that another processor had among it.
        wait_cycles: Waiting for locks and busy descriptors.
        shootdown_cycles: Sending shootdowns, waiting for the answers, flushing caches.
        interrupt_cycles: Answering other processors' shootdowns.
        ended_cycles: After the processor's own end, until that of the last.
    """

    work_cycles: int
    lock_cycles: int
    wait_cycles: int
    shootdown_cycles: int
    interrupt_cycles: int
    ended_cycles: int


class HatRun(NamedTuple):
    """A load on a number of processors under a scheme of locks.

    Attributes:
        cpus: Processors.
        locking: Scheme of locks.
        work: Load.
        table: Page table, one per space or one for all (`-shared`).
        hat_only: Whether the HAT layer was driven alone, without the memory manager above it.
        operations: Operations of all processors.
        cycles: Cycles of virtual time until the last processor had ended.
        throughput: Operations per million cycles.
        time: Where the cycles of all processors have gone.
        locks: By class: `hat` of the scheme `global`; `space`, `mmu`, `page` and
            `hat_resource_mutex` of the others; `mmu_mutex` and `page_mutex` of `monitor`, which
            guard flags, where `mmu` and `page` are the logical locks made of them; `table` of
            `covering`, for tables below the root; and `vm_...` of
            the memory manager: `vm_space`, `vm_paging`, `vm_files`, `vm_object`, `vm_anon`,
            `vm_pages`, `vm_frames` and its free lists.
        steals: How often a space lost its page tables to another.
        table_bytes_peak: Bytes of page tables when they were most.
        document: Everything, as in the JSON document.
    """

    cpus: int
    locking: str
    work: str
    table: str
    hat_only: bool
    operations: int
    cycles: int
    throughput: float
    time: TimeUse
    locks: dict[str, LockCounts]
    steals: int
    table_bytes_peak: int
    document: dict[str, Any]


class HostRun(NamedTuple):
    """A load on threads of this host, beside a control whose threads share nothing.

    Attributes:
        threads: Threads.
        locking: Scheme of locks; `single` has none.
        work: Load.
        table: Page table.
        hat_only: Whether the HAT layer was driven alone, without the memory manager above it.
        nanoseconds: Nanoseconds of an operation of one thread. This and the next two are of one
            round: the judged one with the median scaling, or where none is judged, the one whose
            control scales the median.
        control_nanoseconds: Nanoseconds of an operation of one thread of the control, in which each
            thread has a HAT layer of its own.
        control_scaling: What the control does on all threads over what it does on one.
        acquisitions: How often one thread takes locks of each class in as many operations as a
            processor of virtual time does; it is equal to what it takes there. Empty for `single`.
        judged_rounds: Rounds in which the control reaches 0.85 times its threads, what was timed
            twice took equally long, and a line takes as long from one thread to another at the end
            as at the beginning; in others this host says nothing about locks.
        scaling: What the shared layer does on all threads over what one thread does alone, the
            median of the judged rounds; `None` if there is none.
        predicted: What virtual time says of that, from counted instructions and what locks and
            lines take on this host; `None` where no round is judged, and for loads that do other
            work between their operations.
        document: Everything, as in the JSON document.
    """

    threads: int
    locking: str
    work: str
    table: str
    hat_only: bool
    nanoseconds: float
    control_nanoseconds: float
    control_scaling: float
    acquisitions: dict[str, int]
    judged_rounds: int
    scaling: float | None
    predicted: float | None
    document: dict[str, Any]
