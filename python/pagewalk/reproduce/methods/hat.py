"""Loads on memory management under locks, in virtual time (K94 section 5.3).

Parameters: `work`, `locking` and `cpus` as for `pagewalk.hat`; optionally `tables`, `hat_only`,
`lock_kind` and `shootdowns`; `without`, pairs of a table and a scheme that do not work together;
and `measure`, one of:

* `throughput`: operations per million cycles, with a row per load, scheme and table and a column
  per number of processors. A part that is the same in all rows is left out of their names;
* `gain`: by how many per cent an operation takes less time under `locking[1]` than under
  `locking[0]`, with a row per load and a column per number of processors;
* `contention`: for a single number of processors, with a row per class of locks: `held`, the share
  of acquisitions that found the lock held, in per cent; `taken`, acquisitions per operation;
  `waited`, cycles waited per operation. In the rows `all SCHEME`, `taken` counts the mutexes of
  all classes, and `waited` only the HAT layer's locks;
* `pools`: the throughput of one load, with a row for each of `pools` (name, scheme, bytes or 0 for
  no limit);
* `lock_kinds`: the throughput with a row per load, scheme and kind of lock (`lock_kinds`);
* `shootdowns`: the throughput with a row per kind of shootdown;
* `contexts`: the throughput for each of `contexts` (name, number of contexts or 0 for no limit,
  threshold).
"""

from typing import Any

from pagewalk.hat_counts import HatRun
from pagewalk.hat_runs import SHOOTDOWNS, hat
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table


def measure(parameters: dict[str, Any], _: Lab) -> Table:
    """The table that `parameters["measure"]` selects."""
    return _MEASURES[parameters["measure"]](parameters)


def _runs(parameters: dict[str, Any], **other: Any) -> list[HatRun]:
    asked: dict[str, Any] = {
        "cpus": parameters["cpus"],
        "locking": parameters.get("locking", []),
        "work": parameters["work"],
        "tables": parameters.get("tables", ["x86-64"]),
        "hat_only": parameters.get("hat_only", False),
        "lock_kind": parameters.get("lock_kind", "adaptive"),
        "shootdowns": parameters.get("shootdowns", "interrupts"),
    }
    asked.update(other)
    without = {(table, scheme) for table, scheme in parameters.get("without", [])}
    if not without:
        return hat(**asked)
    return [
        run
        for work in asked["work"]
        for table in asked["tables"]
        for run in hat(
            **{
                **asked,
                "work": [work],
                "tables": [table],
                "locking": [name for name in asked["locking"] if (table, name) not in without],
            }
        )
    ]


def _throughput(parameters: dict[str, Any]) -> Table:
    runs = _runs(parameters)
    several = [len(parameters.get(key, [0])) > 1 for key in ("work", "tables", "locking")]
    table = Table([str(count) for count in parameters["cpus"]])
    for run in runs:
        parts = zip((run.work, run.table, run.locking), several, strict=True)
        name = " ".join(part for part, shown in parts if shown) or run.work
        table.rows.setdefault(name, []).append(run.throughput)
    return table


def _gain(parameters: dict[str, Any]) -> Table:
    before, after = parameters["locking"]
    rate = {(run.work, run.locking, run.cpus): run.throughput for run in _runs(parameters)}
    table = Table([str(count) for count in parameters["cpus"]])
    for work in parameters["work"]:
        table.rows[work] = [
            100 * (1 - rate[work, before, count] / rate[work, after, count])
            for count in parameters["cpus"]
        ]
    return table


def _contention(parameters: dict[str, Any]) -> Table:
    table = Table(["held", "taken", "waited"])
    for run in _runs(parameters):
        for name, counts in run.locks.items():
            table.rows[name] = [
                100 * counts.contended_share,
                counts.acquisitions / run.operations,
                counts.wait_cycles / run.operations,
            ]
        mutexes = [
            counts.acquisitions
            for name, counts in run.locks.items()
            if name not in (_LOGICAL if run.locking == "monitor" else _SHARED)
        ]
        waits = [
            counts.wait_cycles for name, counts in run.locks.items() if not name.startswith("vm_")
        ]
        table.rows[f"all {run.locking}"] = [
            None,
            sum(mutexes) / run.operations,
            sum(waits) / run.operations,
        ]
    return table


_SHARED = ("space", "vm_paging")
"""Reader/writer locks."""
_LOGICAL = (*_SHARED, "mmu", "page")
"""Reader/writer locks, and locks that are made of flags."""


def _contexts(parameters: dict[str, Any]) -> Table:
    table = Table([str(count) for count in parameters["cpus"]])
    for name, contexts, threshold in parameters["contexts"]:
        runs = _runs(parameters, contexts=contexts or None, context_threshold=threshold)
        table.rows[name] = [run.throughput for run in runs]
    return table


def _lock_kinds(parameters: dict[str, Any]) -> Table:
    table = Table([str(count) for count in parameters["cpus"]])
    for kind in parameters["lock_kinds"]:
        for run in _runs(parameters, lock_kind=kind):
            name = f"{run.work} {run.locking}, {kind}"
            table.rows.setdefault(name, []).append(run.throughput)
    return table


def _shootdowns(parameters: dict[str, Any]) -> Table:
    table = Table([str(count) for count in parameters["cpus"]])
    for kind in SHOOTDOWNS:
        table.rows[kind] = [run.throughput for run in _runs(parameters, shootdowns=kind)]
    return table


def _pools(parameters: dict[str, Any]) -> Table:
    table = Table([str(count) for count in parameters["cpus"]])
    for name, scheme, size in parameters["pools"]:
        runs = _runs(parameters, locking=[scheme], pool_bytes=size or None)
        table.rows[name] = [run.throughput for run in runs]
    return table


_MEASURES = {
    "throughput": _throughput,
    "gain": _gain,
    "contention": _contention,
    "pools": _pools,
    "contexts": _contexts,
    "lock_kinds": _lock_kinds,
    "shootdowns": _shootdowns,
}
