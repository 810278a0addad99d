"""`sweep`: simulates traces on every combination of some parameters of a machine, as one table."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pagewalk import _native
from pagewalk.machine import Machine
from pagewalk.memory_share import memory_settings
from pagewalk.names import DEFAULT, MACHINE, MEANS, TRACE
from pagewalk.sweeps.vary import combinations

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa

    from pagewalk.progress import Progress
    from pagewalk.sweeps.passes import Design
    from pagewalk.sweeps.result import Sweep
    from pagewalk.sweeps.rows import Row
    from pagewalk.trace import Trace


def sweep(
    trace: "Trace | str | os.PathLike[str] | Sequence[Trace | str | os.PathLike[str]]",
    machine: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = DEFAULT,
    *,
    vary: Mapping[str, str | Iterable[object]] = MappingProxyType({}),
    set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    normalize: Mapping[str, object] = MappingProxyType({}),
    mean: str = "geometric",
    aged: tuple[float, float] | None = None,
    memory: str | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    save: "Callable[[Sweep], object] | None" = None,
    executor: "Executor | None" = None,
    designs_per_pass: int | None = None,
    threads: int | None = None,
    progress: "Progress | bool | None" = None,
) -> "Sweep":
    """Simulates one or several traces on every combination of some parameters of a machine.

    The counts of each design are exactly those of `Machine.run` for this design. Parts that designs
    have in common are simulated only once.

    Args:
        trace: A trace, or a value that `Trace` accepts, or several of these. With several, the
            table has a column `trace`, and the text and the page have the mean over the traces.
        machine: As for `Machine`, or several of these. With several, each is swept, and the table
            has a column `machine`.
        vary: The keys of the machine file that vary, with their values: a sequence, or a text such
            as `"1..64"`, `"2^0..2^10"` or `"utc,stc"`. The last key varies fastest. The key
            `machine` varies over machines.
        set: Settings to change in all designs, as for `Machine`.
        normalize: Keys that vary, each with one of its values. The text, the charts and the
            document's `comparison` then show each design relative to the design that has these
            values and is equal in all other keys. The table has the counts.
        mean: The mean over several traces in the text, the charts and `comparison`: `geometric`,
            `arithmetic` or `none`.
        aged: Start with memory in the state after long use: the shares that are free and wired.
        memory: Size of memory, as for `memory_settings`. A share is of the peak that `base` uses
            for each trace on each machine, with the keys that vary left out. If a machine needs
            these keys, they have the values of the first design that can be built.
        output: A file for the table, in the format of its name as for `Sweep.save`. Designs that
            are done are kept beside it, in a file with the suffix `.part`, from which an
            interrupted sweep continues.
        force: Whether `output` may be overwritten.
        save: The function that writes `output`. If absent: `Sweep.save`.
        executor: The executor of the passes, such as `dask.distributed.Client(...).get_executor()`;
            its workers must find the trace and the machine under the same names. If absent, this
            process.
        designs_per_pass: The number of designs that are simulated in one pass over the trace; an
            interrupted sweep repeats the pass that it was in. If absent, as many as fit into
            memory, up to 512, or 32 in a worker.
        threads: The number of threads of a pass; if absent, all cores here, and one in a worker of
            an executor.
        progress: Called with the number of accesses done and of all accesses, for each trace; with
            an executor, with numbers of designs. `True` shows a bar by tqdm.

    Returns:
        A table with a row per design, in order: its parameters, `machine_digest`, its counts by
        their path in the results (`walks.references`, `tlbs.l1d.misses`), and `error`, which says
        why a design has no counts.

    Raises:
        Error: There is no such trace or machine, or no design at all can be built.
        WorkError: A trace is damaged.
    """
    from pagewalk.formats import end
    from pagewalk.output import refuse_existing
    from pagewalk.progress import bar
    from pagewalk.sweeps import passes
    from pagewalk.sweeps.part import Part, key

    traces = _traces(trace)
    if output is not None:
        end(output)
        refuse_existing(output, force)
    base = [f"{k}={v}" for k, v in set.items()] if isinstance(set, Mapping) else list(set)
    machines = [os.fspath(machine)] if isinstance(machine, str | os.PathLike) else machine
    several = {MACHINE: [os.fspath(name) for name in machines]} if len(machines) > 1 else {}
    if several and MACHINE in vary:
        raise _native.Error(
            "the machines are given twice, as `machine` and as a key that varies: leave one out"
        )
    if not several and not vary and len(traces) == 1:
        raise _native.Error("nothing varies: give --vary KEY=VALUES (`vary`), or several machines")
    vary = {**several, **vary}
    settings = combinations(vary)
    base_design = _base(normalize, mean, settings)
    _varies_alone(vary, memory, aged)
    first = os.fspath(machines[0])
    names = list(dict.fromkeys(design.get(MACHINE, first) for design in settings))
    bases = {name: _whole(name, base, settings) for name in names}

    # It is not known whether a pipe delivers the same trace as the last time.
    done = Part(None if any(one.is_pipe for one in traces) else output)
    built: list[list[passes.Design | str]] = []
    given: list[dict[str, list[str]]] = []
    for one in traces:
        with bar(progress, f"sweeping {one.name}") as told:
            given.append(
                {
                    name: memory_settings(
                        one, name, set=bases[name], aged=aged, memory=memory, progress=told
                    )
                    for name in names
                }
            )
            built.append(
                [
                    passes.built(first, [*base, *given[-1][design.get(MACHINE, first)]], design)
                    for design in settings
                ]
            )
            designs = {one.digest: one for one in built[-1] if isinstance(one, passes.Design)}
            if not designs:
                raise _native.Error(next(one for one in built[-1] if isinstance(one, str)))
            passes.count(
                passes.Task(one, first, threads),
                list(designs.values()),
                done,
                executor=executor,
                size=designs_per_pass,
                progress=told,
            )

    from pagewalk.sweeps import rows

    def row(of: "Trace", parameters: dict[str, str], design: "Design | str") -> "Row":
        named = {TRACE: _names(traces)[traces.index(of)]} if len(traces) > 1 else {}
        if isinstance(design, str):
            return rows.failed({**named, **parameters}, None, design)
        # Designs that differ only in their parameters, but describe equal machines, were run once.
        counted = done.get(key(of, design.digest)) or {}
        return {**named, **counted, **parameters}

    keys = [*([TRACE] if len(traces) > 1 else []), *vary]
    every = [
        row(of, *one)
        for of, its in zip(traces, built, strict=True)
        for one in zip(settings, its, strict=True)
    ]
    table = rows.table(every, keys)
    asked = {"memory": memory, "aged": list(aged) if aged else None}
    whole = [Machine(name, bases[name]) for name in names]
    about = {
        "name": " and ".join(one.name for one in whole),
        "title": "; ".join(one.description["title"] for one in whole),
        "settings": base,
        **{key: value for key, value in asked.items() if value is not None},
    }
    swept = _swept(traces, about, table, normalize=base_design, mean=mean, given=given)
    if output is not None:
        save(swept) if save else swept.save(output, force)
        done.remove()
    return swept


def _traces(
    given: "Trace | str | os.PathLike[str] | Sequence[Trace | str | os.PathLike[str]]",
) -> "list[Trace]":
    from pagewalk.trace import Trace

    several = [given] if isinstance(given, Trace | str | os.PathLike) else list(given)
    traces = [one if isinstance(one, Trace) else Trace(one) for one in several]
    if not traces:
        raise _native.Error("there is no trace to sweep: give one or more")
    names = _names(traces)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise _native.Error(f"{twice[0]} is given twice: give each trace once")
    return traces


def _names(traces: "Sequence[Trace]") -> list[str]:
    """The names of the traces. If two traces have the same name, the paths of the traces."""
    names = [one.name for one in traces]
    return names if len({*names}) == len(names) else [one.source for one in traces]


def _base(
    given: Mapping[str, object], mean: str, designs: Sequence[Mapping[str, str]]
) -> dict[str, str]:
    """The values of the design with which the other designs are compared.

    Raises:
        Error: A key does not vary, or not over that value, or there is no such mean.
    """
    if mean not in MEANS:
        raise _native.Error(f"--mean {mean}: choose one of {', '.join(MEANS)}")
    base = {name: str(value) for name, value in given.items()}
    for name, value in base.items():
        values = list(dict.fromkeys(design[name] for design in designs if name in design))
        if not values:
            raise _native.Error(
                f"--normalize-to {name}: this key does not vary; "
                f"the keys that vary: {', '.join(designs[0]) or 'none'}"
            )
        if value not in values:
            shown = ", ".join(values[:8])
            raise _native.Error(f"--normalize-to {name}={value}: choose a value of --vary: {shown}")
    return base


def _whole(name: str, base: list[str], settings: Sequence[dict[str, str]]) -> list[str]:
    """Settings that complete the machine `name`.

    They are `base`, or those of its first design that can be built.

    A part of the machine may be described by `base` and by the varying keys together.

    Raises:
        Error: None of its designs can be built; says why the first cannot.
    """
    from pagewalk.sweeps import passes

    with suppress(_native.Error):
        Machine(name, base)
        return base
    reasons = []
    for design in settings:
        if design.get(MACHINE, name) == name:
            made = passes.built(name, base, design)
            if isinstance(made, passes.Design):
                return passes.described(name, base, design)[1]
            reasons.append(made)
    raise _native.Error(reasons[0])


def _swept(
    traces: "Sequence[Trace]",
    machine: Mapping[str, Any],
    table: "pa.Table",
    *,
    normalize: Mapping[str, str],
    mean: str,
    given: Sequence[Mapping[str, list[str]]],
) -> "Sweep":
    from pagewalk.report.sweeps import document
    from pagewalk.sweeps.result import Sweep, spans

    varied = spans(table)
    about: list[dict[str, Any]] = [
        {"name": name, "digest": one.digest, **one.header, **_memory(its)}
        for name, one, its in zip(_names(traces), traces, given, strict=True)
    ]
    return Sweep(table, document(about, machine, varied, table.to_pylist(), normalize, mean=mean))


def _memory(given: Mapping[str, list[str]]) -> dict[str, Any]:
    """The settings of memory for a trace on each machine, if `memory` was requested."""
    return {"memory_settings": dict(given)} if any(given.values()) else {}


def _varies_alone(
    vary: Mapping[str, object], memory: str | None, aged: tuple[float, float] | None
) -> None:
    for key, asked in (("memory.size", memory), ("memory.aged", aged)):
        if asked is not None and any(name in (key, "memory") for name in vary):
            raise _native.Error(
                f"{key} is given with --vary and for all designs: leave one of the two out"
            )
