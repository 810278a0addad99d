r"""Memory management on many processors with different locking schemes.

It runs in virtual time or on this host.

```
 hat(locking=["global", "monitor"], cpus=[1, 8], work=["tpcb"]) --> HatRuns
                                       \--document()--> JSON
                                        \--report.hat--> text, charts, HTML
```
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pagewalk import _native
from pagewalk._native import Error
from pagewalk.hat_counts import HatRun, HostRun, LockCounts, TimeUse
from pagewalk.progress import Progress, bar
from pagewalk.tabled import Tabled, flat, table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pagewalk.formats import Made


LOCKS_SHOWN = 3
"""The default number of classes of locks that the text shows per scheme."""
(SCHEMES, LOADS, TABLES, SHOOTDOWNS, LOCK_KINDS), CPUS_MAX = _native.hat_names()
MICRO, MT = "micro", "mt"
GROUPS = {
    MICRO: ("fork", "exec", "fault", "brk"),
    MT: tuple(name for name in LOADS if name.startswith("mt-")),
}
"""Names that stand for several loads: K94's Microbench, and loads with threads of one space."""
NOT_OF_THE_LAYER = ("mt-mmap-low", "mt-mmap-high", "kenbus")
"""Loads that do not call the HAT layer directly: the layer cannot run alone with them."""
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


One = TypeVar("One", bound=HatRun | HostRun)


class _Runs(list[One], Tabled):
    """Runs, a list that is a table too.

    Attributes:
        document: The JSON document that `pagewalk hat --json` writes.
    """

    title: ClassVar[str]

    def __init__(self, runs: list[One], settings: dict[str, Any]) -> None:
        super().__init__(runs)
        self.document = document(self, settings)

    def to_arrow(self) -> "pa.Table":
        """A row for each run: its counts, with those of locks as `locks_page_contended`."""
        return table_of([flat(_plain(run)) for run in self])

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook

        return notebook.shown(self.title, [], [self.made().shown()])


class HatRuns(_Runs[HatRun]):
    """The runs of `hat`.

    Charts are named after a load and a page table. `tpcb-x86-64` shows the throughput over the
    number of processors, and `tpcb-x86-64-time` shows how the time is spent.
    """

    title = "Memory management on many processors"

    def made(self) -> "Made":
        """The contents of the files that `save` writes."""
        from pagewalk.formats import Made
        from pagewalk.report import hat

        return Made(
            counted=self.to_arrow,
            document=lambda: self.document,
            shown=lambda: hat.table(self),
            charts=lambda: hat.charts(self),
        )


class HostRuns(_Runs[HostRun]):
    """The runs of `hat_on_host`."""

    title = "Memory management on this host"
    nothing_drawn = "there is no chart of this host, which has too few processors for one"

    def made(self) -> "Made":
        """The contents of the files that `save` writes."""
        from pagewalk.formats import Made
        from pagewalk.report import hat

        return Made(
            counted=self.to_arrow,
            document=lambda: self.document,
            shown=lambda: hat.host_table(self),
            charts=dict,
        )


def _plain(run: "HatRun | HostRun") -> dict[str, Any]:
    plain = run._asdict()
    del plain["document"]
    if isinstance(run, HatRun):
        plain["time"] = run.time._asdict()
        plain["locks"] = {name: counts._asdict() for name, counts in run.locks.items()}
    return plain


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
) -> HatRuns:
    """Runs loads on the memory manager, and on the HAT layer below it, in virtual time.

    Equal arguments give equal counts.

    Args:
        cpus: Numbers of processors.
        locking: Locking schemes: `global`, `early`, `monitor`, `hashed`, `embedded`, `covering`.
        work: Loads: `fork`, `exec`, `fault`, `brk` (`micro`: these four), `tpcb`, `dma`, `spec`,
            `kenbus`; `mt-low`, `mt-high`, and `mt-mmap`, `mt-mmap-fault`, `mt-fault`, `mt-unmap`
            with `-low` or `-high` (`mt`: all these); or the file of a skeleton
            (`pagewalk.skeleton`).
        tables: Page tables: `x86-64`, `sparc-reference`, `guarded`, `hashed`, `x86-64-shared`,
            `hashed-shared`.
        hat_only: Whether to run the HAT layer alone, without the memory manager above it.
        pool_bytes: Memory for page tables in bytes; `None`: unlimited.
        lock_per_list: Whether each free list has a lock of its own, in place of one lock for all.
        shootdowns: How TLB entries of other processors are flushed: `interrupts`, `lazy` or
            `broadcast`.
        contexts: Number of hardware contexts (ASIDs), which must be larger than the number of
            processors; `None`: unlimited.
        context_threshold: The list of contexts is kept in LRU order only while more contexts than
            this are in use.
        virtual_caches: Whether caches are indexed by virtual addresses, so that unmapped pages are
            flushed from them.
        lock_kind: What a processor does while it waits for a lock: `spin`, `adaptive`,
            `hand-over`, `barging`.
        seed: Seed of the random choices of the loads.
        progress: Called with the number of runs done and of all runs; `True` shows a bar by tqdm.

    Raises:
        Error: There is no such scheme, load or table, or they cannot be combined.
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
    shared = {
        "hat_only": hat_only,
        "pool_bytes": pool_bytes,
        "lock_per_list": lock_per_list,
        "shootdowns": shootdowns,
        "virtual_caches": virtual_caches,
        "lock_kind": lock_kind,
        "seed": seed,
    }
    limit = None if contexts is None else (contexts, context_threshold)

    def run(load: str, table: str, scheme: str, count: int) -> HatRun:
        part = {"cpus": count, "scheme": scheme, "table": table, **_load(load, skeletons)}
        text = _native.hat_run(json.dumps({**shared, "contexts": limit, **part}))
        return _run(json.loads(text))

    settings = {
        "cpus": list(cpus),
        "locking": list(locking),
        "work": list(work),
        "tables": list(tables),
        **shared,
        "contexts": contexts,
        "context_threshold": context_threshold,
    }
    return HatRuns(_each(asked, run, progress), settings)


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
) -> HostRuns:
    """Runs loads on threads of this computer. Times differ from run to run.

    Args:
        threads: Numbers of threads.
        locking: Locking schemes, and `single`, which has no locks and runs only on one thread.
        work: Loads, as for `hat`.
        tables: Page tables, as for `hat`.
        hat_only: As for `hat`.
        rounds: Number of rounds. Each runs the shared layer and then the control; results are
            medians over the rounds.
        seed: Seed of the random choices of the loads.
        progress: Called with the number of runs done and of all runs; `True` shows a bar by tqdm.

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
        raise Error(
            "`single` has no locks and runs only on one thread: include the count 1 in --threads "
            "(`threads`), or name another locking scheme"
        )

    skeletons = _skeletons(work)
    shared = {"hat_only": hat_only, "rounds": rounds, "seed": seed}

    def run(load: str, table: str, scheme: str, count: int) -> HostRun:
        part = {"threads": count, "scheme": scheme, "table": table, **_load(load, skeletons)}
        text = _native.hat_run_on_host(json.dumps({**shared, **part}))
        made = json.loads(text)
        named = {**made, "locking": made["scheme"], "work": made["load"]}
        return HostRun(**{name: named[name] for name in HostRun._fields[:-1]}, document=made)

    settings = {
        "threads": list(threads),
        "locking": list(locking),
        "work": list(work),
        "tables": list(tables),
        **shared,
    }
    return HostRuns(_each(asked, run, progress), settings)


def document(runs: Sequence[HatRun | HostRun], settings: dict[str, Any]) -> dict[str, Any]:
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
    """The loads with these names, each once. Of a group of loads, only those that can run.

    Raises:
        Error: A name is not that of a load, a group or a file.
    """
    named: dict[str, None] = {}
    for name in work:
        if name not in GROUPS and name not in LOADS and not Path(name).is_file():
            if Path(name).name != name or Path(name).suffix:
                raise Error(
                    f"{name}: there is no such file; `pagewalk skeleton` writes skeleton files"
                )
            raise Error(
                f"`{name}` is not a load: choose from {', '.join(LOADS)}, {MICRO} for "
                f"{', '.join(GROUPS[MICRO])}, {MT} for all mt-..., or give the file of a skeleton"
            )
        those = GROUPS.get(name, (name,))
        if hat_only and name in GROUPS:
            those = tuple(load for load in those if load not in NOT_OF_THE_LAYER)
        named.update(dict.fromkeys(those))
    return list(named)


def _skeletons(work: Sequence[str]) -> dict[str, str]:
    """The text of each skeleton file that is given as a load."""
    texts = {}
    for name in work:
        if name not in LOADS:
            try:
                texts[name] = Path(name).read_text(errors="replace")
            except OSError as error:
                raise Error(f"{name} cannot be read: {error.strerror}") from error
    return texts


def _load(name: str, skeletons: dict[str, str]) -> dict[str, str | None]:
    """A load as the native module expects it: its name, and its text if it is a skeleton."""
    if name in skeletons:
        return {"load": Path(name).name, "skeleton": skeletons[name]}
    return {"load": name, "skeleton": None}


def _check_fit(bits: int, what: str, *numbers: int) -> None:
    """Raises an error for a number that does not fit into `bits` bits."""
    for number in numbers:
        if not 0 <= number < 1 << bits:
            raise Error(f"{what}: {number} is out of range: write a number from 0 to 2^{bits} - 1")


def _each(
    asked: Sequence[tuple[str, str, str, int]],
    run: Callable[[str, str, str, int], One],
    progress: Progress | bool | None,
) -> list[One]:
    """The runs, one after the other, until `progress` returns `False`."""
    runs: list[One] = []
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
