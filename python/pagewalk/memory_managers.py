"""`managers`: which page sizes a program gets under each memory manager.

It also reports why it gets no larger pages, and the cost.

```
 base, with the machine's memory --> most memory that it uses
        |  --memory 80%: of that
 every manager --> one pass over the trace, same memory --> a row each, or why it cannot run
```

A row describes memory at the end of the program that had the most memory (`manager.end` of the
results), and the cost of the whole run.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pagewalk import _native, estimates, here, text
from pagewalk.document import Managed
from pagewalk.machine import Machine
from pagewalk.memory_share import base_alone, share_of, shared, sized
from pagewalk.names import DEFAULT
from pagewalk.progress import Progress, bar
from pagewalk.tabled import Tabled, flat, table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pagewalk import plain
    from pagewalk.formats import Made
    from pagewalk.trace import Trace

OWN = {
    "os.linux": ("linux", "ingens", "hawkeye", "ca", "translation-ranger"),
    "os.ingens": ("ingens",),
    "os.hawkeye": ("hawkeye",),
    "os.ca": ("ca",),
    "os.ranger": ("translation-ranger",),
    "os.reservations": ("freebsd",),
    "os.place": ("irix",),
    "os.coalesced": ("irix",),
    "os.moves_per_us": ("irix",),
}
"""Keys that only some managers have; the other managers refuse them."""
NOTES = (
    "Sizes, reasons, memory and runs are those of the fullest end of a program; misses, references "
    "and times are of the whole run.",
    "Bloat is memory in pages beyond what base has there. It is negative where pages that are only "
    "read share the page of zeros, which base and freebsd do not have.",
    "khugepaged sleeps 10 s between passes, which is longer than most traces: where it is in the "
    "name of a row it sleeps 10 ms. hawkeye's daemon and translation-ranger's run as often.",
    "All rows have the system's clock of instructions, so that daemons run at the same accesses.",
)


class Kind(NamedTuple):
    """The kind of a row of the table: a manager with its settings."""

    name: str
    what: str
    settings: tuple[str, ...]
    keys: tuple[str, ...]


_MARKS = ("os.replacement", "os.marks", "swap.size")
_LINUX = tuple(
    f"os.linux.{key}"
    for key in (
        "enabled",
        "hugepages-16kB.enabled",
        "hugepages-2048kB.enabled",
        "hugepages-1048576kB.enabled",
        "defrag",
        "use_zero_page",
        "fault_around_bytes",
        "min_free_kbytes",
        "watermark_scale_factor",
        "watermark_boost_factor",
        "compaction_proactiveness",
        "extfrag_threshold",
        "khugepaged.pages_to_scan",
        "khugepaged.scan_sleep_millisecs",
        "khugepaged.alloc_sleep_millisecs",
        "khugepaged.max_ptes_none",
        "khugepaged.max_ptes_swap",
        "khugepaged.max_ptes_shared",
        "khugepaged.defrag",
        "cycles_per_ms",
    )
)
_INGENS = (
    "util_threshold",
    "scan_sleep_millisecs",
    "deferred_mode",
    "hot_share",
    "aggressive_below",
)
_HAWKEYE = (
    "faults",
    "sample_millisecs",
    "sleep_millisecs",
    "prezero_blocks",
    "prezero_millisecs",
    "recover_millisecs",
    "recover_below",
    "recover_until",
    "zero_share",
)
KINDS = (
    Kind("base", "base pages alone", ("os.manager=base",), _MARKS),
    Kind(
        "irix, data=2M",
        "sizes that are wished for: 2M for all that is written to",
        ("os.manager=irix", "os.place=data=2M"),
        ("os.place", "os.coalesced", "os.moves_per_us", *_MARKS),
    ),
    Kind(
        "freebsd",
        "reservations that become large pages as they fill",
        ("os.manager=freebsd",),
        ("os.reservations.sizes", "os.reservations.eager", "os.reservations.marks", *_MARKS),
    ),
    Kind(
        "linux, 64K",
        "blocks of 64K at faults, no page of 2M",
        (
            "os.manager=linux",
            "os.linux.enabled=never",
            "os.linux.hugepages-64kB.enabled=always",
        ),
        (*_LINUX, *_MARKS),
    ),
    Kind(
        "linux, madvise",
        "2M at faults where the program asks for it",
        ("os.manager=linux", "os.linux.enabled=madvise"),
        (*_LINUX, *_MARKS),
    ),
    Kind(
        "linux, always",
        "2M at faults wherever it fits",
        ("os.manager=linux", "os.linux.enabled=always"),
        (*_LINUX, *_MARKS),
    ),
    Kind(
        "linux, khugepaged",
        "the same, and khugepaged every 10 ms",
        ("os.manager=linux", "os.linux.khugepaged.scan_sleep_millisecs=10"),
        (*_LINUX, *_MARKS),
    ),
    Kind(
        "linux, defrag",
        "2M at faults, which compact memory where none is free",
        ("os.manager=linux", "os.linux.defrag=always"),
        (*_LINUX, *_MARKS),
    ),
    Kind(
        "linux, 1G",
        "1G at faults wherever it fits, else 2M",
        ("os.manager=linux", "os.linux.hugepages-1048576kB.enabled=always"),
        (*_LINUX, *_MARKS),
    ),
    Kind(
        "ingens",
        "2M where nine tenths are there, by a daemon",
        ("os.manager=ingens",),
        (*(f"os.ingens.{key}" for key in _INGENS), *_LINUX, *_MARKS),
    ),
    Kind(
        "hawkeye",
        "2M where pages are used most, by a daemon every 20 ms",
        (
            "os.manager=hawkeye",
            "os.hawkeye.faults=false",
            "os.hawkeye.sample_millisecs=5",
            "os.hawkeye.sleep_millisecs=5",
            "os.hawkeye.prezero_millisecs=5",
            "os.linux.khugepaged.scan_sleep_millisecs=20",
        ),
        (
            *(f"os.hawkeye.{key}" for key in _HAWKEYE),
            *_LINUX,
            *_MARKS,
        ),
    ),
    Kind(
        "ca",
        "2M at faults, and frames side by side where pages are",
        ("os.manager=ca",),
        ("os.ca.offsets_max", *_LINUX, *_MARKS),
    ),
    Kind(
        "translation-ranger",
        "2M at faults, and a daemon that moves pages side by side",
        (
            "os.manager=translation-ranger",
            "os.ranger.region_bytes_min=2M",
            "os.ranger.period_millisecs=10",
        ),
        (
            "os.ranger.region_bytes_min",
            "os.ranger.period_millisecs",
            "os.ranger.moves",
            *_LINUX,
            *_MARKS,
        ),
    ),
)


class Managers(Managed, Tabled):
    """Programs under every memory manager: the fields of `Managed`, and a table.

    The name of a chart is its title, such as `memory-by-page-size` or `misses`; the names for the
    second trace end in `-2`.
    """

    def __repr__(self) -> str:
        return f"<Managers of {', '.join(self._names())}>"

    def _names(self) -> list[str]:
        return [table["trace"]["name"] for table in self.data["traces"]]

    def to_arrow(self) -> "pa.Table":
        """A row for each trace and manager; memory by page size is in `mapped_by_size_2M`."""
        return table_of(
            [
                {
                    "trace": name,
                    **flat({**row, "runs": None, "settings": " ".join(row["settings"])}),
                }
                for name, table in zip(self._names(), self.data["traces"], strict=True)
                for row in table["rows"]
            ]
        )

    def made(self) -> "Made":
        """The contents of the files that `save` writes."""
        from pagewalk.formats import Made
        from pagewalk.report import managed

        return Made(
            counted=self.to_arrow,
            document=lambda: self.data,
            shown=lambda: managed.shown(self.data),
            charts=lambda: managed.charts(self.data),
        )

    def _repr_html_(self) -> str:
        from pagewalk.report import managed, notebook

        lines = [managed.headline(table) for table in self.data["traces"]]
        title = f"{', '.join(self._names())}: memory managers"
        return notebook.shown(title, lines, [managed.shown(self.data)])


def managers(
    *traces: "Trace | str | os.PathLike[str]",
    machine: str | os.PathLike[str] = DEFAULT,
    set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    aged: tuple[float, float] | None = None,
    memory: str | None = None,
    progress: "Progress | bool | None" = None,
) -> Managers:
    """Runs each of `traces` under every memory manager, on the same machine and memory.

    Args:
        *traces: Traces, or values that `Trace` accepts; not a pipe, because each is read twice.
        machine: As for `Machine`.
        set: Settings to change, as for `Machine`; not `os.manager`. Settings that only some
            managers have, such as `os.linux`, apply to these managers. In the row that is named
            after a setting, this setting is not changed.
        aged: Start with memory in the state after long use: the shares that are free and wired.
        memory: Size of memory: bytes (`64M`), or a share (`80%`) of the peak that `base` uses
            with the machine's own memory. With `aged`, this is the size of the free memory.
        progress: Called with the number of accesses done and of all accesses, for each pass; `True`
            shows a bar.

    Raises:
        Error: There is no such trace or machine, or a setting is wrong for every manager.
        WorkError: A trace is damaged, or `base` cannot run it.
    """
    from pagewalk.trace import Trace

    settings = [f"{k}={v}" for k, v in set.items()] if isinstance(set, Mapping) else list(set)
    if any(setting.partition("=")[0].strip() == "os.manager" for setting in settings):
        raise _native.Error("all managers are compared: leave the setting os.manager out")
    asked = _Asked(os.fspath(machine), settings, aged, memory, share_of(memory))
    opened = [trace if isinstance(trace, Trace) else Trace(trace) for trace in traces]
    tables = []
    for trace in opened:
        if trace.is_pipe:
            raise _native.Error(
                "a pipe can be read only once: import it with `pagewalk import` first"
            )
        with bar(progress, f"managers of {trace.name}") as told:
            tables.append(_table(trace, asked, told))
    described = Machine(machine, [*asked.common, *KINDS[0].settings])
    return Managers(
        {
            "schema": 1,
            "pagewalk": _native.version(),
            "machine": described.name,
            "title": described.description["title"],
            "settings": settings,
            "aged": list(aged) if aged else None,
            "memory": memory,
            "kinds": kinds(),
            "traces": tables,
            "notes": list(NOTES),
        }
    )


def kinds() -> "list[plain.ManagerKind]":
    """All managers of the table, with descriptions and their keys."""
    return [
        {
            "name": kind.name,
            "what": kind.what,
            "settings": list(kind.settings),
            "keys": list(kind.keys),
        }
        for kind in KINDS
    ]


class _Asked(NamedTuple):
    """The parameters that are the same for all managers."""

    machine: str
    settings: list[str]
    aged: tuple[float, float] | None
    memory: str | None
    share: float | None

    def given(self, peak: int) -> list[str]:
        """The settings of memory for all machines.

        `peak` is the peak of the memory that base pages use.
        """
        if self.share is None:
            return sized(self.common, self.memory, self.aged)
        alone = base_alone(self.machine, self.common)
        return shared(alone, self.common, self.share, peak, self.aged)

    def check(self, made: set[str], refused: Mapping[str, str]) -> None:
        """Raises an error if no manager accepts a setting."""
        for setting in self.settings:
            key = setting.partition("=")[0].strip()
            its = [
                kind.name
                for kind in KINDS
                if setting in self.of(kind)
                and not any(own.startswith(f"{key}=") for own in kind.settings)
            ]
            if its and not made.intersection(its):
                raise _native.Error(refused[its[0]])

    @property
    def common(self) -> list[str]:
        """The settings that all managers accept."""
        return [setting for setting in self.settings if _own(setting) is None]

    def of(self, kind: Kind) -> list[str]:
        """The settings for a row, in their order. The row's own settings come last."""
        manager = kind.settings[0].partition("=")[2]
        wanted = (
            setting
            for setting in self.settings
            if manager in OWN.get(_own(setting) or "", (manager,))
        )
        return [*wanted, *kind.settings]


def _own(setting: str) -> str | None:
    """The key of `OWN` to which a setting belongs, if it belongs to one."""
    name = setting.partition("=")[0].strip()
    return next((key for key in OWN if name == key or name.startswith(f"{key}.")), None)


def _table(trace: "Trace", asked: _Asked, progress: Progress | None) -> dict[str, Any]:
    alone = base_alone(asked.machine, asked.common)
    base = alone.run(trace, progress=progress, names=False).data
    peak = base["memory"]["frames_peak_bytes"]
    memory = asked.given(peak)
    made, refused = [], {}
    for kind in KINDS:
        try:
            made.append((kind, _native.Machine(asked.machine, [*asked.of(kind), *memory])))
        except _native.Error as error:
            refused[kind.name] = " ".join(str(error).split())
    asked.check({kind.name for kind, _ in made}, refused)
    machines = [machine for _, machine in made]
    outcomes, _ = _native.sweep_trace(machines, trace.source, trace.reading, 0, progress)
    ran = []
    for (kind, _), (counted, failed) in zip(made, outcomes, strict=True):
        if counted is None:
            refused[kind.name] = " ".join(str(failed).split())
        else:
            ran.append((kind, json.loads(counted)))
    if not ran:
        raise _native.WorkError(next(iter(refused.values())))
    rows = [{**_row(kind, results), **_best(base, results)} for kind, results in ran]
    if rows[0]["manager"] == KINDS[0].name:
        for row in rows:
            row["bloat_bytes"] = row["memory_bytes"] - rows[0]["memory_bytes"]
    return {
        "trace": base["trace"],
        "settings": [*asked.settings, *memory],
        "base_peak_bytes": peak,
        "here": here.is_of(asked.machine, here.processor()),
        "how": getattr(estimates.overlap(base), "how", None),
        "rows": rows,
        "refused": refused,
    }


def _best(base: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, float | None]:
    """The best estimate of the cycles of translation, if as many misses overlap as with `base`."""
    best = estimates.translation(base, {**results, "machine": base["machine"]})
    return {"translation_best_cycles": best}


def _row(kind: Kind, results: Mapping[str, Any]) -> dict[str, Any]:
    manager, time = results["manager"], results["time"]
    end = manager["end"]
    why: dict[str, int] = {}
    for region in manager["page_sizes"]:
        for reason, pages in region["pages"].items():
            why[reason] = why.get(reason, 0) + pages
    kernel = time and time.get("kernel")
    sizes = end["mapped_by_size"]
    mapped = sum(sizes.values())
    base = min(sizes, key=text.bytes_of, default=None)
    return {
        "manager": kind.name,
        "settings": list(kind.settings),
        "mapped_by_size": sizes,
        "large_share": 1 - sizes[base] / mapped if base == "4K" and mapped else float(mapped > 0),
        "why": why,
        "memory_bytes": end["anonymous"] + end["file"] + end["shared"],
        "bloat_bytes": None,
        "swapped_bytes": end["swapped"],
        "tlb_misses": results["walks"]["walks"],
        "references": results["walks"]["references"],
        "translation_cycles": time and time["translation_cycles"],
        "kernel_cycles": kernel and kernel["cycles"],
        "io_cycles": manager["io_cycles"],
        "faults": sum(manager["faults"].values()),
        "work": manager["work"],
        "runs": end["runs"],
    }
