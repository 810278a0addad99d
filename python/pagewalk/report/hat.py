"""Runs of `pagewalk hat` as text, as charts, and as a page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report.model import Cell, Figure, Sheet, Table, Value

if TYPE_CHECKING:
    from pagewalk.hat import HatRun, HostRun
    from pagewalk.report.charts import Chart


def render(document: dict[str, Any], runs: Sequence["HatRun"]) -> str:
    """The page of the runs, as the text of an HTML file."""
    from pagewalk.report import page

    return page.render_sheet(sheet(document, runs), [[one] for one in charts(runs).values()])


def charts(runs: Sequence["HatRun"]) -> "dict[str, Chart]":
    """Throughput over processors, by load and page table."""
    from pagewalk.report import charts

    return {
        f"{group[0].work}-{group[0].table}": charts.scaling(_throughput(group))
        for group in _groups(runs)
    }


def sheet(document: dict[str, Any], runs: Sequence["HatRun"]) -> Sheet:
    """The page's data: a figure per load and page table, and what the locks cost."""
    settings = document["settings"]
    facts = [
        (name, str(settings[name]))
        for name in (
            "hat_only",
            "shootdowns",
            "contexts",
            "context_threshold",
            "virtual_caches",
            "lock_kind",
            "lock_per_list",
            "pool_bytes",
            "seed",
        )
    ]
    return Sheet(
        title="Memory management on many processors",
        subtitle="Operations per million cycles of virtual time",
        figures=[_throughput(group) for group in _groups(runs)],
        table=_histograms(runs),
        facts=facts,
        notes=[f"Not modelled: {line}" for line in document["not_modelled"]],
        version=document["pagewalk"],
        document=document,
    )


def summary(runs: Sequence["HatRun"]) -> str:
    """The runs as text for a terminal: throughput, then the contention of each class of locks."""
    parts = []
    for group in _groups(runs):
        cpus = list(dict.fromkeys(run.cpus for run in group))
        schemes = list(dict.fromkeys(run.locking for run in group))
        rate = {(run.locking, run.cpus): run.throughput for run in group}
        first = f"{group[0].work}, {group[0].table}: operations per million cycles"
        head = [first, *(str(count) for count in cpus)]
        rows = [[name, *(f"{rate[name, count]:.4g}" for count in cpus)] for name in schemes]
        parts.append(text.table(head, rows))
        most = [run for run in group if run.cpus == max(cpus)]
        head = [f"locks on {max(cpus)} processors", "taken", "found held", "wait", "hold"]
        parts.append(text.table(head, [row for run in most for row in _lock_rows(run)]))
    return "\n\n".join(parts)


def host_summary(runs: Sequence["HostRun"]) -> str:
    """Runs on the host as text: times, and scaling where the control scales."""
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
    text_of = text.table(head, rows)
    if any(run.scaling is None for run in runs):
        text_of += (
            "\n\nnone: threads that share nothing do not scale on this host now, so that what the "
            "shared layer does says nothing about its locks"
        )
    return text_of


def _lock_rows(run: "HatRun") -> list[list[str]]:
    return [
        [
            f"{run.locking}: {name}",
            text.count(counts.acquisitions),
            text.percent(counts.contended_share),
            f"{counts.wait_cycles / max(counts.contended, 1):.0f}",
            f"{counts.hold_cycles / max(counts.acquisitions, 1):.0f}",
        ]
        for name, counts in run.locks.items()
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
    return Figure(f"{runs[0].work} on {runs[0].table} page tables", sentence, rows, _table(runs))


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
    """How long each class of locks was waited for and held, where a run has most processors."""
    head = [
        "Load, locks", "Processors", "Waits", "half within", "99 % within", "Longest",
        "Holds", "half within", "99 % within", "Longest",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for group in _groups(runs):
        most = max(run.cpus for run in group)
        for run in (run for run in group if run.cpus == most):
            for name, counts in run.document["locks"].items():
                cells: list[Cell] = [f"{run.work}, {run.locking}: {name}", Value(str(most), most)]
                for of in (counts["waits"], counts["holds"]):
                    cells.append(Value(text.count(of["count"]), of["count"]))
                    cells.extend(_within(of["buckets"], share) for share in (0.5, 0.99, 1.0))
                rows.append(cells)
    return Table("Waits and holds in cycles", head, rows, [False, *[True] * 9])


def _within(buckets: Sequence[int], share: float) -> Value:
    """The power of two that so large a share lies below; buckets end at powers of two."""
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
