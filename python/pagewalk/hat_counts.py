"""The counts of a run of `pagewalk hat`, as plain data."""

from typing import Any, NamedTuple


class LockCounts(NamedTuple):
    """Acquisitions, waiting and holding of the locks of one class.

    Attributes:
        acquisitions: How often a lock of the class was acquired.
        contended: How often a processor found the lock held by another processor.
        wait_cycles: Cycles between request and acquisition, summed over all acquisitions that
            waited.
        hold_cycles: Cycles between acquisition and release, summed over all acquisitions.
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
    """How the cycles of all processors were spent; the sum is processors times cycles.

    Attributes:
        work_cycles: Work of the load, of the memory manager and of the HAT layer.
        lock_cycles: Acquiring and releasing locks, including transfers of lines from other
            processors.
        wait_cycles: Waiting for locks and busy descriptors.
        shootdown_cycles: Sending shootdowns, waiting for the answers, flushing caches.
        interrupt_cycles: Answering other processors' shootdowns.
        ended_cycles: From a processor's end until the end of the last processor.
    """

    work_cycles: int
    lock_cycles: int
    wait_cycles: int
    shootdown_cycles: int
    interrupt_cycles: int
    ended_cycles: int


class HatRun(NamedTuple):
    """The counts of a load on a number of processors with a locking scheme.

    Attributes:
        cpus: Number of processors.
        locking: The locking scheme.
        work: The load.
        table: The page table: one per space or, if its name ends in `-shared`, one for all spaces.
        hat_only: Whether the HAT layer was driven alone, without the memory manager above it.
        operations: Number of operations of all processors.
        cycles: Cycles of virtual time until the last processor had ended.
        throughput: Operations per million cycles.
        time: How the cycles of all processors were spent.
        locks: The costs of locks by class. The scheme `global` has the class `hat`. The other
            schemes have `space`, `mmu`, `page` and `hat_resource_mutex`. In `monitor`, `mmu` and
            `page` are logical locks, which are made of flags; `mmu_mutex` and `page_mutex` guard
            these flags. `covering` also has `table`, for tables below the root. The memory manager
            has `vm_space`, `vm_paging`, `vm_files`, `vm_object`, `vm_anon`, `vm_pages`,
            `vm_frames`, and classes for the free lists.
        steals: How often page tables were taken from one space for another.
        table_bytes_peak: The largest size of all page tables together, in bytes.
        document: All of these values, as in the JSON document.
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
    """Times of a load on threads of this host, and of a control run whose threads share nothing.

    Attributes:
        threads: Number of threads.
        locking: The locking scheme. `single` has no locks.
        work: The load.
        table: The page table.
        hat_only: Whether the HAT layer was driven alone, without the memory manager above it.
        nanoseconds: Nanoseconds per operation of one thread. This time, `control_nanoseconds` and
            `control_scaling` are from the same round. It is the judged round whose scaling is the
            median. If no round is judged, it is the round in which the scaling of the control is
            the median.
        control_nanoseconds: Nanoseconds per operation of one thread of the control, in which each
            thread has a HAT layer of its own.
        control_scaling: Throughput of the control on all threads, divided by its throughput on one
            thread.
        acquisitions: How often one thread acquires locks of each class while it executes as many
            operations as a processor does in virtual time. The counts are equal to those in virtual
            time. Empty for `single`.
        judged_rounds: The number of judged rounds. A round is judged if the control's scaling is at
            least 0.85 times the number of threads, repeated timings agree, and a transfer of a
            cache line takes as long at the end as at the beginning. Other rounds say nothing about
            locks.
        scaling: Throughput of the shared layer on all threads, divided by its throughput with a
            single thread: the median of the judged rounds. `None` if no round is judged.
        predicted: The scaling that virtual time predicts from counted instructions and from the
            times of locks and cache lines on this host; `None` if no round is judged, and for loads
            that do other work between their operations.
        document: All of these values, as in the JSON document.
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
