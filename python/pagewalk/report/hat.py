"""Runs of `pagewalk hat` as text, as charts, and as a page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report.model import Cell, Figure, Sheet, Table, Value

if TYPE_CHECKING:
    from pagewalk.hat_counts import HatRun, HostRun
    from pagewalk.report.charts import Chart


def render(document: dict[str, Any], runs: Sequence["HatRun"]) -> str:
    """The page of the runs, as the text of an HTML file."""
    from pagewalk.report import page

    return page.render_sheet(sheet(document, runs), [[one] for one in charts(runs).values()])


def render_host(document: dict[str, Any], runs: Sequence["HostRun"]) -> str:
    """The page of runs on the host: a table."""
    from pagewalk.report import page

    settings = document["settings"]
    notes = [f"Not modelled: {line}" for line in document["not_modelled"]]
    notes += _prices(runs)
    if any(run.scaling is None for run in runs):
        notes.append(NONE)
    return page.render_sheet(
        Sheet(
            title="Memory management on this host",
            subtitle="Threads on one HAT layer beside threads that share nothing",
            figures=[],
            table=host_table(runs),
            facts=[(name, _said(settings[name])) for name in ("hat_only", "rounds", "seed")],
            notes=notes,
            version=document["pagewalk"],
            document=document,
        ),
        [],
    )


def host_table(runs: Sequence["HostRun"]) -> Table:
    """A table of the shared layer and its control."""
    head, rows = _host_table(runs)
    return Table("The shared layer and its control", head, rows, [False, *[True] * 6])


def charts(runs: Sequence["HatRun"]) -> "dict[str, Chart]":
    """Throughput over processors, and the uses of time, by load and page table."""
    from pagewalk.report import charts

    drawn = {}
    for group in _groups(runs):
        name = f"{group[0].work}-{group[0].table}"
        drawn[name] = charts.scaling(_throughput(group))
        drawn[f"{name}-time"] = charts.time_use(_time(group))
    return drawn


_FACTS = {
    "hat_only": "the HAT layer alone",
    "shootdowns": "shootdowns",
    "contexts": "contexts",
    "context_threshold": "contexts without an order",
    "virtual_caches": "virtual caches",
    "lock_kind": "kind of locks",
    "lock_per_list": "a lock for each list",
    "pool_bytes": "pool of page tables, in bytes",
    "seed": "seed",
}


def _said(setting: object) -> str:
    """A setting, in words."""
    if setting is None:
        return "without limit"
    if isinstance(setting, bool):
        return "yes" if setting else "no"
    return str(setting)


def sheet(document: dict[str, Any], runs: Sequence["HatRun"]) -> Sheet:
    """The page's data: two figures per load and page table, and the cost of locks."""
    settings = document["settings"]
    first, more = _waited(_histograms(runs))
    return Sheet(
        title="Memory management on many processors",
        subtitle="Operations per million cycles of virtual time",
        figures=[of(group) for group in _groups(runs) for of in (_throughput, _time)],
        table=first,
        more=more,
        finding=[finding(group) for group in _groups(runs)],
        facts=[(what, _said(settings[name])) for name, what in _FACTS.items()],
        notes=[f"Not modelled: {line}" for line in document["not_modelled"]],
        version=document["pagewalk"],
        document=document,
    )


def summary(runs: Sequence["HatRun"], top: int) -> str:
    """Text for a terminal: the finding, throughput, and the locks with the longest waits.

    Args:
        runs: The runs.
        top: How many classes of locks of each scheme are shown.
    """
    parts = []
    for group in _groups(runs):
        parts.append(text.paragraph(finding(group), "", "  "))
        cpus = list(dict.fromkeys(run.cpus for run in group))
        schemes = list(dict.fromkeys(run.locking for run in group))
        rate = {(run.locking, run.cpus): run.throughput for run in group}
        first = f"{group[0].work}, {group[0].table}: operations per million cycles"
        head = [first, *(str(count) for count in cpus)]
        rows = [[name, *(f"{rate[name, count]:.4g}" for count in cpus)] for name in schemes]
        parts.append(text.table(head, rows))
        most = [run for run in group if run.cpus == max(cpus)]
        on = _processors(max(cpus))
        head = [f"time of {on}, in %", *PARTS.values()]
        rows = [[run.locking, *(_share(run, part) for part in PARTS)] for run in most]
        parts.append(text.table(head, rows))
        head = [f"locks on {on}", "taken", "found held", "mean wait", "mean hold"]
        rows = [row for run in most for row in _lock_rows(run)[:top]]
        classes = sum(len(_lock_rows(run)) for run in most)
        left = classes - len(rows)
        more = (
            f"\n  … and {text.plural(left, 'row')} more: --top N shows N of a scheme"
            if left
            else ""
        )
        parts.append(text.table(head, rows) + more)
    return "\n\n".join([*parts, "waits and holds in cycles of virtual time"])


NONE = (
    "none: threads that share nothing do not scale on this host now, or its processors were "
    "elsewhere from one moment to the next, so that what the shared layer does says nothing about "
    "its locks"
)


def host_summary(runs: Sequence["HostRun"]) -> str:
    """Runs on the host as text: times, and the scaling if the control scales."""
    head, rows = _host_table(runs)
    parts = [text.table(head, rows), *_prices(runs)]
    if any(run.scaling is None for run in runs):
        parts.append(NONE)
    return "\n\n".join(parts)


def _prices(runs: Sequence["HostRun"]) -> list[str]:
    """The times of locks and cache lines on this host, in a sentence."""
    found = [run.document["prices"] for run in runs if run.document["prices"]]
    if not found:
        return []
    lock, line, release, handover, pause = (
        sorted(one[name] for one in found)[len(found) // 2]
        for name in ("lock_ns", "transfer_ns", "release_ns", "handover_ns", "pause_ns")
    )
    return [
        f"predicted with what this host takes: {lock:.1f} ns to take or give back a lock, "
        f"{line:.0f} ns for a line that another thread wrote, {release:.0f} ns to give back a lock "
        f"that another spins for, and {handover:.0f} to {handover + pause:.0f} ns until that one "
        "has it"
    ]


def _host_table(runs: Sequence["HostRun"]) -> tuple[list[str], list[list[Any]]]:
    head = [
        "load, table, locks",
        "threads",
        "ns per operation",
        "control",
        "control scales",
        "scales",
        "predicted",
    ]
    rows = [
        [
            f"{run.work}, {run.table}, {run.locking}",
            str(run.threads),
            f"{run.nanoseconds:.0f}",
            f"{run.control_nanoseconds:.0f}",
            f"{run.control_scaling:.2f}",
            "none" if run.scaling is None else f"{run.scaling:.2f}",
            "" if run.predicted is None else f"{run.predicted:.2f}",
        ]
        for run in runs
    ]
    return head, rows


def finding(group: Sequence["HatRun"]) -> str:
    """The finding of the runs of one load and page table, in a sentence or two."""
    least, most = (end(run.cpus for run in group) for end in (min, max))
    rate = {(run.locking, run.cpus): run.throughput for run in group}
    shown = [run for run in group if run.cpus == most]
    best = max(shown, key=lambda run: run.throughput)
    worst = max(shown, key=lambda run: _part(run, "wait_cycles"))
    on = _processors(most)
    said = f"{group[0].work}, {group[0].table}: "
    if most > least:
        gain = best.throughput / max(rate[best.locking, least], 1e-9)
        said += (
            f"{on} do {gain:.2f} times the work of {_processors(least)} under {best.locking}"
            f"{', the best of these schemes' if len(shown) > 1 else ''}."
        )
    else:
        said += f"{best.throughput:.4g} operations per million cycles under {best.locking}."
    waits = _part(worst, "wait_cycles")
    if not waits:
        return f"{said} Nobody waits for a lock."
    name, _ = max(worst.locks.items(), key=lambda one: one[1].wait_cycles)
    verb = "wait" if most > 1 else "waits"
    return (
        f"{said} Under {worst.locking} {on} {verb} for locks in {text.percent(waits)} of the time, "
        f"mostly for {name}."
    )


def _lock_rows(run: "HatRun") -> list[list[str]]:
    """The classes of locks, those with the longest total waits first."""
    by_wait = sorted(run.locks.items(), key=lambda one: (-one[1].wait_cycles, -one[1].acquisitions))
    return [
        [
            f"{run.locking}: {name}",
            text.count(counts.acquisitions),
            text.percent(counts.contended_share),
            f"{counts.wait_cycles / max(counts.contended, 1):.0f}",
            f"{counts.hold_cycles / max(counts.acquisitions, 1):.0f}",
        ]
        for name, counts in by_wait
        if counts.acquisitions
    ]


def _throughput(runs: Sequence["HatRun"]) -> Figure:
    rows = [{"scheme": run.locking, "cpus": run.cpus, "throughput": run.throughput} for run in runs]
    most = max(run.cpus for run in runs)
    least = min(run.cpus for run in runs)
    rate = {(run.locking, run.cpus): run.throughput for run in runs}
    schemes = list(dict.fromkeys(run.locking for run in runs))
    gains = [f"{rate[name, most] / rate[name, least]:.2f} under {name}" for name in schemes]
    sentence = (
        f"On {most} processors the throughput is this many times that on {least}: "
        f"{', '.join(gains)}."
    )
    if most == least:
        rates = [f"{rate[name, most]:.4g} under {name}" for name in schemes]
        sentence = f"Operations per million cycles on {most} processors: {', '.join(rates)}."
    return Figure(f"{runs[0].work} on {runs[0].table} page tables", sentence, rows, _table(runs))


PARTS = {
    "work_cycles": "work",
    "lock_cycles": "locks",
    "wait_cycles": "waiting for locks",
    "shootdown_cycles": "shootdowns",
    "interrupt_cycles": "answering them",
    "ended_cycles": "ended",
}
"""The parts of processors' time, and their names in a chart."""


def _part(run: "HatRun", part: str) -> float:
    share: float = getattr(run.time, part) / max(run.cycles * run.cpus, 1)
    return share


def _share(run: "HatRun", part: str) -> str:
    return f"{100 * _part(run, part):.1f}"


def _processors(count: int) -> str:
    return f"{count} processor{'s' if count > 1 else ''}"


def _time(runs: Sequence["HatRun"]) -> Figure:
    """The uses of time on the largest number of processors, by scheme."""
    most = max(run.cpus for run in runs)
    shown = [run for run in runs if run.cpus == most]
    rows = [
        {"scheme": run.locking, "part": said, "order": order, "share": _part(run, part)}
        for run in shown
        for order, (part, said) in enumerate(PARTS.items())
    ]
    waits = {run.locking: _part(run, "wait_cycles") for run in shown}
    worst = max(waits, key=lambda name: waits[name])
    on = _processors(most)
    sentence = (
        f"Under {worst}, {on} {'wait' if most > 1 else 'waits'} for locks in "
        f"{text.percent(waits[worst])} of the time, which is most."
        if waits[worst]
        else "Nobody waits for a lock."
    )
    head = ["Locks", *(f"{said[:1].upper()}{said[1:]}" for said in PARTS.values())]
    cells: list[list[Cell]] = [
        [run.locking, *(Value(text.percent(_part(run, part)), _part(run, part)) for part in PARTS)]
        for run in shown
    ]
    table = Table("Shares of the processors' cycles", head, cells, [False, *[True] * len(PARTS)])
    return Figure(f"Where the time of {runs[0].work} goes on {on}", sentence, rows, table)


def table(runs: Sequence["HatRun"]) -> Table:
    """The cost of locks for every load and page table."""
    costs = _table(runs)
    rows: list[list[Cell]] = [
        [run.work, run.table, *row] for run, row in zip(runs, costs.rows, strict=True)
    ]
    head = ["Load", "Page table", *costs.head]
    return Table(costs.caption, head, rows, [False, False, *costs.numeric])


def _table(runs: Sequence["HatRun"]) -> Table:
    head = [
        "Locks", "Processors", "Operations per Mcycle", "Locks taken per operation",
        "Waited per operation", "Most contended", "found held",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for run in runs:
        made = run.document
        name, worst = max(run.locks.items(), key=lambda item: item[1].contended_share)
        rows.append(
            [
                run.locking,
                Value(str(run.cpus), run.cpus),
                Value(f"{run.throughput:.4g}", run.throughput),
                _number(made["acquisitions_per_operation"]),
                _number(made["wait_cycles_per_operation"]),
                name,
                Value(text.percent(worst.contended_share), worst.contended_share),
            ]
        )
    return Table("What the locks cost", head, rows, [False, *[True] * 4, False, True])


def _histograms(runs: Sequence["HatRun"]) -> Table:
    """Waiting and holding times of each class of locks, in the run with most processors."""
    head = [
        "Load, locks", "Processors", "Found held", "Waits", "half within", "99 % within", "Longest",
        "Holds", "half within", "99 % within", "Longest",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for group in _groups(runs):
        most = max(run.cpus for run in group)
        for run in (run for run in group if run.cpus == most):
            for name, counts in run.document["locks"].items():
                cells: list[Cell] = [f"{run.work}, {run.locking}: {name}", Value(str(most), most)]
                held = counts["contended_share"]
                cells.append(Value(text.percent(held), held))
                for of in (counts["waits"], counts["holds"]):
                    cells.append(Value(text.count(of["count"]), of["count"]))
                    cells.extend(_within(of["buckets"], share) for share in (0.5, 0.99, 1.0))
                rows.append(cells)
    return Table("Waits and holds in cycles", head, rows, [False, *[True] * 10])


def _waited(whole: Table) -> tuple[Table, Table | None]:
    """Two tables: the classes of locks that were waited for, and the other classes."""
    waits = [isinstance(row[3], Value) and bool(row[3].exact) for row in whole.rows]
    if all(waits) or not any(waits):
        return whole, None
    first, rest = (
        [row for row, waited in zip(whole.rows, waits, strict=True) if waited is wanted]
        for wanted in (True, False)
    )
    others = whole._replace(caption="Locks that nobody waited for; holds in cycles", rows=rest)
    return whole._replace(rows=first), others


def _within(buckets: Sequence[int], share: float) -> Value:
    """The power of two below which this share of the values lies. Buckets end at powers of two."""
    wanted, seen = share * sum(buckets), 0
    for number, count in enumerate(buckets):
        seen += count
        if count and seen >= wanted:
            return Value(text.count(1 << number), 1 << number)
    return Value("", 0)


def _number(value: float) -> Value:
    return Value(f"{value:.4g}", value)


def _groups(runs: Sequence["HatRun"]) -> list[list["HatRun"]]:
    keys = list(dict.fromkeys((run.work, run.table) for run in runs))
    return [[run for run in runs if (run.work, run.table) == key] for key in keys]
