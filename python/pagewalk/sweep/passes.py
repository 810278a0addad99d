"""Passes over the trace, each with some of the designs; here or in the workers of an executor."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pagewalk import _native
from pagewalk.machine import DEFAULT, Machine
from pagewalk.progress import Progress, bar
from pagewalk.sweep import part, rows
from pagewalk.sweep.result import Sweep, spans
from pagewalk.sweep.vary import combinations
from pagewalk.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

DESIGNS_PER_PASS = 512
"""Designs that share one pass over the trace in this process, if they are small enough."""

PASS_BYTES = 2 << 30
"""What the data caches of a pass may take, unless one is told how many designs it has."""

BYTES_A_LINE = 24
"""What a line of a simulated data cache takes: its tag, its age, a fingerprint, a hint."""

DESIGNS_PER_TASK = 32
"""Designs that one task of an executor takes."""

FRONTS_PER_PASS = 16
"""Fronts (TLBs, page tables, mapped pages) that are in memory at once."""

MACHINE = "machine"
"""The key of a sweep that varies over machines; no key of a machine's file is called so."""

TRIES = 3
"""How often a pass is given to an executor whose workers die over it."""

Outcome = tuple[str | None, str | None]


@dataclass(frozen=True)
class Design:
    """A point of the sweep that can be built."""

    key: str
    """What its counts depend on: equal keys, equal counts."""
    digest: str
    settings: dict[str, str]
    machine: Machine


def sweep(
    trace: Trace | str | os.PathLike[str],
    machine: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = DEFAULT,
    *,
    vary: Mapping[str, str | Iterable[object]] = MappingProxyType({}),
    set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    executor: Executor | None = None,
    designs_per_pass: int | None = None,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> Sweep:
    """Runs a trace through every combination of some parameters of a machine.

    Each design counts exactly what `Machine.run` counts for it alone; what designs have in common
    is simulated once.

    Args:
        trace: A trace, or what `Trace` takes.
        machine: As for `Machine`; of several, each is swept, and the table has a column
            `machine`.
        vary: The keys of the machine's file that vary, with their values: a sequence, or a text
            such as `"1..64"`, `"2^0..2^10"` or `"utc,stc"`. The last key varies fastest. The key
            `machine` varies over machines.
        set: What to change in all designs, as for `Machine`.
        output: A Parquet file for the table. What is done is kept beside it under the same name
            with `.part` until it is whole, and an interrupted sweep goes on from there.
        force: Whether `output` may replace a file.
        executor: Where passes run, as `dask.distributed.Client(...).get_executor()`; its workers
            must find the trace and the machine under the same names. This process if absent.
        designs_per_pass: How many designs share a pass over the trace, which is run anew if it is
            interrupted. If absent, as many as fit into memory, up to 512, or 32 in a worker.
        threads: Threads of a pass; all cores here, one in an executor's worker, if absent.
        progress: Called with accesses done and in all; with an executor, with designs. `True`
            shows a bar by tqdm.

    Returns:
        A table with a row per design, in order: its parameters, `machine_digest`, its counts by
        their path in the results (`walks.references`, `tlbs.l1d.misses`), and `error`, which says
        why a design has no counts.

    Raises:
        Error: There is no such trace or machine, or no design at all can be built.
        WorkError: The trace is damaged.
    """
    trace = trace if isinstance(trace, Trace) else Trace(trace)
    if output is not None:
        from pagewalk.output import refuse_existing

        refuse_existing(output, force)
    base = [f"{k}={v}" for k, v in set.items()] if isinstance(set, Mapping) else list(set)
    machines = [os.fspath(machine)] if isinstance(machine, str | os.PathLike) else machine
    for one in machines:
        Machine(one, base)
    several = {MACHINE: [os.fspath(one) for one in machines]} if len(machines) > 1 else {}
    if several and MACHINE in vary:
        raise _native.Error("the machines are given twice: as `machine` and as a key that varies")
    if not several and not vary:
        raise _native.Error("nothing varies: give --vary KEY=VALUES (`vary`), or several machines")
    vary = {**several, **vary}
    settings = combinations(vary)
    first = os.fspath(machines[0])
    built = [_built(trace, first, base, design) for design in settings]
    designs = {one.key: one for one in built if isinstance(one, Design)}
    if not designs:
        raise _native.Error(next(one for one in built if isinstance(one, str)))

    # Nothing tells what comes through standard input from what came the last time.
    done = part.Part(None if trace.is_stdin else output)
    waiting = [one for one in designs.values() if done.get(one.key) is None]
    size = designs_per_pass or _fitting(
        DESIGNS_PER_PASS if executor is None else DESIGNS_PER_TASK, designs.values()
    )
    passes = list(_passes(waiting, size))
    if trace.is_stdin and (len(passes) > 1 or executor is not None):
        raise _native.Error("standard input is read once: `pagewalk import` it, then sweep")
    task = _Task(trace, first, base, threads)
    with bar(progress, f"sweeping {trace.name}") as told:
        finished = (
            _here(task, passes, told) if executor is None else _there(task, passes, executor, told)
        )
        for designs_done, outcomes in finished:
            pairs = zip(designs_done, outcomes, strict=True)
            done.add((one.key, _row(one.settings, one.digest, outcome)) for one, outcome in pairs)

    def row(parameters: dict[str, str], one: Design | str) -> rows.Row:
        if isinstance(one, str):
            return rows.failed(parameters, None, one)
        # Designs that only their parameters tell apart have been run once.
        return {**(done.get(one.key) or {}), **parameters}

    table = rows.table([row(*one) for one in zip(settings, built, strict=True)], list(vary))
    if output is not None:
        _write(table, output, force)
        done.remove()
    return Sweep(table, _document(trace, first, base, table))


def _document(trace: Trace, first: str, base: list[str], table: "pa.Table") -> dict[str, Any]:
    from pagewalk.report.sweeps import document

    varied = spans(table)
    bases = [Machine(str(name), base) for name in varied.get(MACHINE, [first])]
    about = {"name": trace.name, "digest": trace.digest, **trace.header}
    machine = {
        "name": " and ".join(one.name for one in bases),
        "title": "; ".join(one.description["title"] for one in bases),
        "settings": base,
    }
    return document(about, machine, varied, table.to_pylist())


def _built(trace: Trace, machine: str, base: list[str], settings: dict[str, str]) -> Design | str:
    """The design with `settings`, or why it cannot be built."""
    name, assigned = _described(machine, settings)
    try:
        built = Machine(name, base + assigned)
    except _native.Error as error:
        return str(error)
    return Design(part.key(trace, built.digest), built.digest, settings, built)


def _described(machine: str, settings: Mapping[str, str]) -> tuple[str, list[str]]:
    """The machine of a design, `machine` unless that varies, and what is changed in it."""
    assigned = [f"{key}={value}" for key, value in settings.items() if key != MACHINE]
    return settings.get(MACHINE, machine), assigned


def _row(settings: Mapping[str, str], digest: str, outcome: Outcome) -> rows.Row:
    document, error = outcome
    if document is None:
        return rows.failed(settings, digest, error or "")
    return rows.row(settings, digest, json.loads(document))


def _fitting(most: int, designs: Iterable[Design]) -> int:
    """How many of the designs, `most` at most, have data caches that fit into memory at once."""
    largest = max(
        sum(
            size_bytes(cache["size"]) // size_bytes(cache["line"])
            for cache in one.machine.description["cache"].values()
        )
        for one in designs
    )
    return max(1, min(most, PASS_BYTES // max(1, largest * BYTES_A_LINE)))


def size_bytes(text: str) -> int:
    """The bytes of a size as machines' files write them."""
    return int(text[:-1]) << 10 * "BKMGT".index(text[-1])


def _passes(designs: Sequence[Design], size: int) -> Iterator[list[Design]]:
    """The designs in passes, those of one front together."""
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


@dataclass(frozen=True)
class _Task:
    """What all passes of a sweep have in common; a worker gets it with the designs' settings."""

    trace: Trace
    machine: str
    base: list[str]
    threads: int | None

    def outcomes(
        self, designs: list[tuple[str, list[str]]], progress: Progress | None = None
    ) -> tuple[list[Outcome], list[str]]:
        """One pass, in the process where it is called."""
        machines = [_native.Machine(name, self.base + assigned) for name, assigned in designs]
        threads = self.threads or 0
        trace = self.trace
        return _native.sweep_trace(machines, trace.source, trace.reading, threads, progress)


Finished = Iterator[tuple[list[Design], list[Outcome]]]


def _here(task: _Task, passes: list[list[Design]], progress: Progress | None) -> Finished:
    for index, designs in enumerate(passes):
        report = None if progress is None else _part_of(progress, index, len(passes))
        outcomes, task.trace.warnings = task.outcomes(_settings(task.machine, designs), report)
        yield designs, outcomes


def _part_of(progress: Progress, index: int, count: int) -> Progress:
    """Progress of the pass `index` of `count` as progress of all."""

    def report(done: int, total: int | None) -> object:
        return progress(
            done if total is None else done + index * total,
            None if total is None else total * count,
        )

    return report


def _there(
    task: _Task, passes: list[list[Design]], executor: Executor, progress: Progress | None
) -> Finished:
    """Passes in the workers of `executor`, as they are done."""
    task = _Task(task.trace, task.machine, task.base, task.threads or 1)
    total, finished = sum(len(designs) for designs in passes), 0

    def submit(designs: list[Design]) -> "Future[tuple[list[Outcome], list[str]]]":
        return executor.submit(_Task.outcomes, task, _settings(task.machine, designs))

    tries = 0
    while passes:
        try:
            futures = {submit(designs): designs for designs in passes}
        except BrokenExecutor:
            # A pool of processes is lost with one of them: what is left is done here.
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
    """Whether it was the worker that failed, not the work."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"


def _told(error: Exception) -> Exception:
    if not _died(error):
        return error
    return _native.WorkError(
        f"the executor's workers died {TRIES} times over one pass ({error}): give them more "
        "memory, or fewer designs a pass"
    )


def _settings(machine: str, designs: Sequence[Design]) -> list[tuple[str, list[str]]]:
    return [_described(machine, one.settings) for one in designs]


def _write(table: "pa.Table", output: str | os.PathLike[str], force: bool) -> None:
    import pyarrow.parquet as pq

    from pagewalk.output import replacing

    with replacing(output, force) as temporary:
        pq.write_table(table, temporary)
