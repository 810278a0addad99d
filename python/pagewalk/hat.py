r"""Memory management on many processors, under different locks: in virtual time, and on this host.

```
 hat(locking=["global", "monitor"], cpus=[1, 8], work=["tpcb"]) --> [HatRun, ...]
                                       \--document()--> JSON
                                        \--report.hat--> text, charts, HTML
```
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pagewalk import _native
from pagewalk._native import Error
from pagewalk.progress import Progress, bar

(SCHEMES, LOADS, TABLES, SHOOTDOWNS, LOCK_KINDS), CPUS_MAX = _native.hat_names()
MICRO, MT = "micro", "mt"
GROUPS = {
    MICRO: ("fork", "exec", "fault", "brk"),
    MT: tuple(name for name in LOADS if name.startswith("mt-")),
}
"""Names for several loads: K94's Microbench, and threads of one space."""
NOT_OF_THE_LAYER = ("mt-mmap-low", "mt-mmap-high", "kenbus")
"""Loads that ask nothing of the HAT layer alone."""
CPUS = (1, 2, 4, 8, 12)
THREADS = (1, 2)

NO_INTERRUPTS = (
    "shootdowns: a process cannot interrupt another processor, so that they cost nothing here"
)

HAT_ALONE = "the memory manager above the HAT layer and its locks: the loads drive the layer alone"

NOT_MODELLED = (
    "data caches: the line of a lock costs a transfer from another processor, other lines nothing",
    "other locks of a kernel than those of its memory management",
    "the scheduler: each processor has one process",
    "cycles are counted instructions and assumptions (crates/locks/src/costs.rs): orders and "
    "ratios can be claimed, times not",
)


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


def hat(
    *,
    cpus: Sequence[int] = CPUS,
    locking: Sequence[str] = tuple(SCHEMES),
    work: Sequence[str] = ("tpcb",),
    tables: Sequence[str] = ("x86-64",),
    hat_only: bool = False,
    pool_bytes: int | None = None,
    lock_per_list: bool = False,
    shootdowns: str = "interrupts",
    contexts: int | None = None,
    context_threshold: int = 0,
    virtual_caches: bool = False,
    lock_kind: str = "adaptive",
    seed: int = 1,
    progress: Progress | bool | None = None,
) -> list[HatRun]:
    """Runs loads on the memory manager and the HAT layer below it in virtual time.

    Equal arguments give equal counts.

    Args:
        cpus: Numbers of processors.
        locking: Schemes of locks: `global`, `early`, `monitor`, `hashed`, `embedded`, `covering`.
        work: Loads: `fork`, `exec`, `fault`, `brk` (`micro`: these four), `tpcb`, `dma`, `spec`,
            `kenbus`; `mt-low`, `mt-high`, and `mt-mmap`, `mt-mmap-fault`, `mt-fault`, `mt-unmap`
            with `-low` or `-high` (`mt`: all these); or the file of a skeleton
            (`pagewalk.skeleton`).
        tables: Page tables: `x86-64`, `sparc-reference`, `guarded`, `hashed`, `x86-64-shared`,
            `hashed-shared`.
        hat_only: Whether the loads drive the HAT layer alone, without the memory manager above it.
        pool_bytes: Memory for page tables; `None`: as much as is wanted.
        lock_per_list: A lock for each list of free resources, in place of one for all.
        shootdowns: `interrupts`, `lazy` or `broadcast`.
        contexts: Contexts of the hardware, more than there are processors; `None`: without limit.
        context_threshold: While at most so many contexts are in use, the list in the order of
            their use is not kept.
        virtual_caches: Whether caches are indexed by virtual addresses: what is unmapped leaves
            them.
        lock_kind: What a processor does that finds a lock held: `spin`, `adaptive`, `hand-over`,
            `barging`.
        seed: Of the loads' choices.
        progress: Called with the runs done and in all; `True` shows a bar by tqdm.

    Raises:
        Error: There is no such scheme, load or table, or it cannot run so.
    """
    work = loads(work, hat_only=hat_only)
    _check_fit(32, "contexts", contexts or 0, context_threshold)
    _check_fit(32, "processors", *cpus)
    _check_fit(64, "bytes of a pool", pool_bytes or 0)
    _check_fit(64, "seed", seed)
    asked = [
        (load, table, scheme, count)
        for load in work
        for table in tables
        for scheme in locking
        for count in cpus
    ]

    skeletons = _skeletons(work)

    def run(load: str, table: str, scheme: str, count: int) -> HatRun:
        text = _native.hat_run(
            cpus=count,
            scheme=scheme,
            load=Path(load).name if load in skeletons else load,
            skeleton=skeletons.get(load),
            table=table,
            hat_only=hat_only,
            pool_bytes=pool_bytes,
            lock_per_list=lock_per_list,
            shootdowns=shootdowns,
            contexts=contexts,
            context_threshold=context_threshold,
            virtual_caches=virtual_caches,
            lock_kind=lock_kind,
            seed=seed,
        )
        return _run(json.loads(text))

    return _each(asked, run, progress)


class HostRun(NamedTuple):
    """A load on threads of this host, beside a control whose threads share nothing.

    Attributes:
        threads: Threads.
        locking: Scheme of locks; `single` has none.
        work: Load.
        table: Page table.
        hat_only: Whether the HAT layer was driven alone, without the memory manager above it.
        nanoseconds: Median nanoseconds of an operation of one thread.
        control_nanoseconds: The same of the control: each thread has a HAT layer of its own.
        control_scaling: What the control does on all threads over what it does on one.
        acquisitions: How often one thread takes locks of each class in as many operations as a
            processor of virtual time does; it is equal to what it takes there. Empty for `single`.
        judged_rounds: Rounds in which the control reaches 0.85 times its threads, and a line takes
            as long from one to another at the end as at the beginning; in others this host says
            nothing about locks.
        scaling: What the shared layer does on all threads over what the control does on one, the
            median of those rounds; `None` if there is none.
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


def hat_on_host(
    *,
    threads: Sequence[int] = THREADS,
    locking: Sequence[str] = ("single", *SCHEMES),
    work: Sequence[str] = ("fault",),
    tables: Sequence[str] = ("x86-64",),
    hat_only: bool = False,
    rounds: int = 5,
    seed: int = 1,
    progress: Progress | bool | None = None,
) -> list[HostRun]:
    """Runs loads on this host's processors. Times differ from run to run.

    Args:
        threads: Numbers of threads.
        locking: Schemes of locks, and `single`, which has none and runs on one thread alone.
        work: Loads, as for `hat`.
        tables: Page tables, as for `hat`.
        hat_only: As for `hat`.
        rounds: Of each, the shared layer and the control in turn; medians count.
        seed: Of the loads' choices.
        progress: Called with the runs done and in all; `True` shows a bar by tqdm.

    Raises:
        Error: There is no such scheme, load or table.
    """
    work = loads(work, hat_only=hat_only)
    _check_fit(32, "threads", *threads)
    _check_fit(32, "rounds", rounds)
    _check_fit(64, "seed", seed)
    asked = [
        (load, table, scheme, count)
        for load in work
        for table in tables
        for scheme in locking
        for count in threads
        if count == 1 or scheme != "single"
    ]
    if not asked:
        raise Error("`single` has no locks and runs on one thread: add 1 to threads, or a scheme")

    skeletons = _skeletons(work)

    def run(load: str, table: str, scheme: str, count: int) -> HostRun:
        text = _native.hat_run_on_host(
            threads=count,
            scheme=scheme,
            load=Path(load).name if load in skeletons else load,
            skeleton=skeletons.get(load),
            table=table,
            hat_only=hat_only,
            rounds=rounds,
            seed=seed,
        )
        made = json.loads(text)
        named = {**made, "locking": made["scheme"], "work": made["load"]}
        return HostRun(**{name: named[name] for name in HostRun._fields[:-1]}, document=made)

    return _each(asked, run, progress)


def document(
    runs: Sequence[HatRun] | Sequence[HostRun], settings: dict[str, Any]
) -> dict[str, Any]:
    """The runs as one JSON document."""
    on_host = any(isinstance(run, HostRun) for run in runs)
    not_modelled = [NO_INTERRUPTS] if on_host else list(NOT_MODELLED)
    if any(run.hat_only for run in runs):
        not_modelled.append(HAT_ALONE)
    return {
        "schema": 3,
        "pagewalk": _native.version(),
        "on": "host" if on_host else "model",
        "settings": settings,
        "runs": [run.document for run in runs],
        "not_modelled": not_modelled,
    }


def loads(work: Sequence[str], *, hat_only: bool = False) -> list[str]:
    """The loads of these names, each once; of a group, those that can run so.

    Raises:
        Error: A name is of no load, no group and no file.
    """
    named: dict[str, None] = {}
    for name in work:
        if name not in GROUPS and name not in LOADS and not Path(name).is_file():
            if Path(name).name != name or Path(name).suffix:
                raise Error(f"{name}: there is no such file; `pagewalk skeleton` makes one")
            raise Error(
                f"`{name}` names no load: choose of {', '.join(LOADS)}, {MICRO} for "
                f"{', '.join(GROUPS[MICRO])}, {MT} for all mt-..., or give the file of a skeleton"
            )
        those = GROUPS.get(name, (name,))
        if hat_only and name in GROUPS:
            those = tuple(load for load in those if load not in NOT_OF_THE_LAYER)
        named.update(dict.fromkeys(those))
    return list(named)


def _skeletons(work: Sequence[str]) -> dict[str, str]:
    """The text of each skeleton that a load names by its file."""
    texts = {}
    for name in work:
        if name not in LOADS:
            try:
                texts[name] = Path(name).read_text(errors="replace")
            except OSError as error:
                raise Error(f"{name}: cannot be read: {error.strerror}") from error
    return texts


def _check_fit(bits: int, what: str, *numbers: int) -> None:
    """Refuses numbers that are not of so many bits."""
    for number in numbers:
        if not 0 <= number < 1 << bits:
            raise Error(f"{what}: {number} is no number from 0 to 2^{bits} - 1")


Made = TypeVar("Made")


def _each(
    asked: Sequence[tuple[str, str, str, int]],
    run: Callable[[str, str, str, int], Made],
    progress: Progress | bool | None,
) -> list[Made]:
    """Each run in its turn, until `progress` says that it is enough."""
    runs: list[Made] = []
    with bar(progress, "running") as told:
        for done, one in enumerate(asked):
            if told is not None and told(done, len(asked)) is False:
                break
            runs.append(run(*one))
    return runs


def _run(made: dict[str, Any]) -> HatRun:
    locks = {
        name: LockCounts(
            counts["acquisitions"],
            counts["contended"],
            counts["waits"]["cycles"],
            counts["holds"]["cycles"],
        )
        for name, counts in made["locks"].items()
    }
    return HatRun(
        made["cpus"],
        made["scheme"],
        made["load"],
        made["table"],
        made["hat_only"],
        made["operations"],
        made["cycles"],
        made["throughput"],
        TimeUse(**made["time"]),
        locks,
        made["steals"],
        made["table_bytes_peak"],
        made,
    )
