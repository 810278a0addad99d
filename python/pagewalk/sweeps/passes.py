"""Passes over a trace, each with some of the designs.

They run in this process or in the workers of an executor.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from dataclasses import dataclass

from pagewalk import _native
from pagewalk.machine import Machine
from pagewalk.names import MACHINE
from pagewalk.progress import Progress
from pagewalk.sweeps import part, rows
from pagewalk.trace import Trace

DESIGNS_PER_PASS = 512
"""The number of designs in one pass over the trace in this process, if they are small enough."""

PASS_BYTES = 2 << 30
"""The maximum memory for the data caches of a pass, unless the number of its designs is given."""

BYTES_PER_LINE = 24
"""The bytes per line of a simulated data cache: tag, age, fingerprint and shortcut."""

DESIGNS_PER_TASK = 32
"""The number of designs per task of an executor."""

FRONTS_PER_PASS = 16
"""The number of fronts (TLBs, page tables, mapped pages) that are in memory at once."""

TRIES = 3
"""How often a pass is tried in an executor if workers die while they run it."""

Outcome = tuple[str | None, str | None]


@dataclass(frozen=True)
class Design:
    """A design of the sweep that can be built."""

    digest: str
    """The digest of the machine after its settings. Equal digests give equal counts."""
    settings: dict[str, str]
    machine: Machine
    base: Sequence[str] = ()
    """The settings before the design's own."""


@dataclass(frozen=True)
class Task:
    """The data that all passes over a trace have in common.

    A worker gets these data with the designs' settings.
    """

    trace: Trace
    machine: str
    """The machine, for designs that do not vary over machines."""
    threads: int | None

    def outcomes(
        self, designs: list[tuple[str, list[str]]], progress: Progress | None = None
    ) -> tuple[list[Outcome], list[str]]:
        """Runs one pass in this process."""
        machines = [_native.Machine(name, assigned) for name, assigned in designs]
        threads = self.threads or 0
        trace = self.trace
        return _native.sweep_trace(machines, trace.source, trace.reading, threads, progress)


OPTIONAL = "mmu_cache.optional=true"
"""The setting for a machine whose page table has no upper levels: no MMU cache."""


def built(machine: str, base: Sequence[str], settings: dict[str, str]) -> Design | str:
    """The design with the settings of `base` and then `settings`, or why it cannot be built.

    A design whose page table has no upper levels is built without its MMU cache, so that page
    tables of all formats are in one sweep.
    """
    why = ""
    for more in ((), (OPTIONAL,)):
        name, assigned = described(machine, [*base, *more], settings)
        try:
            made = Machine(name, assigned)
        except _native.Error as error:
            why = why or str(error)
        else:
            return Design(made.digest, settings, made, [*base, *more])
    return why


def count(
    task: Task,
    designs: Sequence[Design],
    done: part.Part,
    *,
    executor: Executor | None,
    size: int | None,
    progress: Progress | None,
) -> None:
    """Counts the designs that are not `done` yet, and adds their rows.

    Args:
        task: The trace, and what the designs have in common.
        designs: The designs. There is one for each digest.
        done: The rows that are done, by key.
        executor: The executor in which passes run. If absent, this process.
        size: The number of designs per pass. If absent, as many as fit into memory.
        progress: Called with the number of accesses done in this process, or of designs done in an
            executor.
    """
    trace = task.trace
    waiting = [one for one in designs if done.get(part.key(trace, one.digest)) is None]
    most = DESIGNS_PER_PASS if executor is None else DESIGNS_PER_TASK
    passes = list(_passes(waiting, size or _fitting(most, designs)))
    if trace.is_pipe and (len(passes) > 1 or executor is not None):
        raise _native.Error("a pipe can be read only once: `pagewalk import` it, then sweep")
    finished = (
        _here(task, passes, progress)
        if executor is None
        else _there(task, passes, executor, progress)
    )
    for counted, outcomes in finished:
        pairs = zip(counted, outcomes, strict=True)
        done.add(
            (part.key(trace, one.digest), _row(one.settings, one.digest, outcome))
            for one, outcome in pairs
        )


def described(
    machine: str, base: Sequence[str], settings: Mapping[str, str]
) -> tuple[str, list[str]]:
    """The machine of a design, which is `machine` if machines do not vary, and its settings."""
    assigned = [f"{key}={value}" for key, value in settings.items() if key != MACHINE]
    return settings.get(MACHINE, machine), [*base, *assigned]


def _row(settings: Mapping[str, str], digest: str, outcome: Outcome) -> rows.Row:
    document, error = outcome
    if document is None:
        return rows.failed(settings, digest, error or "")
    return rows.row(settings, digest, json.loads(document))


def _fitting(most: int, designs: Iterable[Design]) -> int:
    """How many of the designs have data caches that fit into memory at once. At most `most`."""
    largest = max(
        sum(
            size_bytes(cache["size"]) // size_bytes(cache["line"])
            for cache in one.machine.description["cache"].values()
        )
        for one in designs
    )
    return max(1, min(most, PASS_BYTES // max(1, largest * BYTES_PER_LINE)))


def size_bytes(text: str) -> int:
    """The bytes of a size as in machine files."""
    return int(text[:-1]) << 10 * "BKMGT".index(text[-1])


def _passes(designs: Sequence[Design], size: int) -> Iterator[list[Design]]:
    """Divides the designs into passes. Designs with the same front are together."""
    fronts: dict[str, list[Design]] = {}
    for one in designs:
        fronts.setdefault(one.machine.front, []).append(one)
    batch: list[Design] = []
    kinds = 0
    for group in fronts.values():
        kinds += 1
        for one in group:
            if len(batch) >= size or kinds > FRONTS_PER_PASS:
                yield batch
                batch, kinds = [], 1
            batch.append(one)
    if batch:
        yield batch


Finished = Iterator[tuple[list[Design], list[Outcome]]]


def _here(task: Task, passes: list[list[Design]], progress: Progress | None) -> Finished:
    for index, designs in enumerate(passes):
        report = None if progress is None else _part_of(progress, index, len(passes))
        outcomes, task.trace.warnings = task.outcomes(_settings(task.machine, designs), report)
        yield designs, outcomes


def _part_of(progress: Progress, index: int, count: int) -> Progress:
    """The progress of pass `index` of `count` passes, as the progress of all passes."""

    def report(done: int, total: int | None) -> object:
        return progress(
            done if total is None else done + index * total,
            None if total is None else total * count,
        )

    return report


def _there(
    task: Task, passes: list[list[Design]], executor: Executor, progress: Progress | None
) -> Finished:
    """Runs passes in the workers of `executor`. Yields each when it is done."""
    task = Task(task.trace, task.machine, task.threads or 1)
    total, finished = sum(len(designs) for designs in passes), 0

    def submit(designs: list[Design]) -> "Future[tuple[list[Outcome], list[str]]]":
        return executor.submit(Task.outcomes, task, _settings(task.machine, designs))

    tries = 0
    while passes:
        try:
            futures = {submit(designs): designs for designs in passes}
        except BrokenExecutor:
            # A pool of processes cannot be used after one of them has died. The rest is done in
            # this process.
            yield from _here(task, passes, None)
            return
        passes = []
        tries += 1
        try:
            for future in as_completed(futures):
                designs = futures[future]
                try:
                    outcomes, task.trace.warnings = future.result()
                except Exception as error:
                    if not _died(error) or tries == TRIES:
                        raise _told(error) from error
                    passes.append(designs)
                    continue
                finished += len(designs)
                if progress is not None and progress(finished, total) is False:
                    raise KeyboardInterrupt
                yield designs, outcomes
        finally:
            for future in futures:
                future.cancel()


def _died(error: Exception) -> bool:
    """Whether the worker has failed, rather than the work."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"


def _told(error: Exception) -> Exception:
    if not _died(error):
        return error
    return _native.WorkError(
        f"the executor's workers died {TRIES} times over one pass ({error}): give them more "
        "memory, or fewer designs per pass"
    )


def _settings(machine: str, designs: Sequence[Design]) -> list[tuple[str, list[str]]]:
    return [described(machine, one.base, one.settings) for one in designs]
