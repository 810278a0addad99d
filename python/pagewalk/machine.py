"""`Machine`: simulated hardware and a simulated operating system, built from a description."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pagewalk import _native
from pagewalk.names import DEFAULT
from pagewalk.progress import Progress, bar
from pagewalk.tabled import Tabled, table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pagewalk.formats import Made
    from pagewalk.recording import Recording
    from pagewalk.results import Results
    from pagewalk.trace import Trace


def aged(free: float, wired: float, seed: int = 1) -> str:
    """The setting with which a machine begins with memory as it is after long use.

    Args:
        free: The share of the machine's frames that is free.
        wired: The share of frames that is in use and unmovable. The rest is in use and movable.
        seed: Seed of the random choice of frames.
    """
    return f"memory.aged={{ free = {float(free)}, wired = {float(wired)}, seed = {seed} }}"


class Builtin(NamedTuple):
    """A machine that comes with Pagewalk."""

    name: str
    title: str
    source: str
    text: str
    """The machine's TOML file, as text."""
    mmu_cache: list[dict[str, Any]]
    """The arrays of its MMU cache, as `Machine.mmu_cache_arrays`."""


def machines() -> list[Builtin]:
    """The machines that come with Pagewalk, the papers' first."""
    found = []
    for name, text in _native.builtin_machines():
        machine = Machine(name)
        title, source = machine.description["title"], machine.description["source"]
        found.append(Builtin(name, title, source, text, machine.mmu_cache_arrays))
    return found


class Machine(Tabled):
    """A machine that traces run on.

    Args:
        name_or_path: A built-in machine's name (`machines()`) or the path of a TOML file.
        set: Settings to change, such as `{"tlb.l1d.entries": 128}` or `["tlb.l1d.entries=128"]`.

    Raises:
        Error: There is no such machine, or its description is wrong: the message names the
            file, the line and the key.
    """

    def __init__(
        self,
        name_or_path: str | os.PathLike[str] = DEFAULT,
        set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    ) -> None:
        settings = [f"{k}={v}" for k, v in set.items()] if isinstance(set, Mapping) else list(set)
        self.given = os.fspath(name_or_path)
        """The built-in name, or the path of the file."""
        self._settings = settings
        self._native = _native.Machine(self.given, settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return Machine, (self.given, self._settings)

    def __repr__(self) -> str:
        return f"Machine({self.name!r})"

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook

        return notebook.machine(self.name, self.description)

    def to_arrow(self) -> "pa.Table":
        """A table with a row for each key of each part of the machine.

        Its columns are `part`, `key`, `value` and the part's `source`.
        """
        from pagewalk.report.data import parts

        rows = [
            {"part": part.name, "key": key, "value": value, "source": part.source}
            for part in parts(self.description)
            for key, value in part.facts
        ]
        return table_of(rows)

    def made(self) -> "Made":
        """The content of the files that `save` writes.

        The chart shows how much memory the entries of each TLB can map, by page size.
        """
        from pagewalk.advice import page_sizes
        from pagewalk.formats import Made
        from pagewalk.report import notebook
        from pagewalk.report.charts import reach

        return Made(
            counted=self.to_arrow,
            document=lambda: self.description,
            shown=lambda: notebook.parts_table(self.description),
            charts=lambda: {"reach": reach(self.description, page_sizes(self.description))},
        )

    @property
    def native(self) -> _native.Machine:
        """The object of the native module for this machine."""
        return self._native

    @property
    def name(self) -> str:
        """The name of the machine."""
        return self._native.name

    @property
    def notes(self) -> list[str]:
        """The additions of the settings to the machine's file, as sentences."""
        return [
            f"the settings add `{table}`, which {self.name} does not have"
            for table in self._native.added
        ]

    @property
    def digest(self) -> str:
        """SHA-256 of the description after the settings."""
        return self._native.digest

    @property
    def front(self) -> str:
        """SHA-256 of the part of the description that determines the misses of the TLBs.

        If machines have the same value, a sweep simulates this part once for all of them; they
        differ only in caches and walker.
        """
        return self._native.front

    @property
    def description(self) -> dict[str, Any]:
        """The whole description after the settings, with the keys and units of the machine file."""
        result: dict[str, Any] = json.loads(self._native.description())
        return result

    @property
    def mmu_cache_arrays(self) -> list[dict[str, Any]]:
        """The arrays of the machine's MMU cache. Empty if it has no MMU cache.

        Each array has `level`, the page-table level whose entries it holds (all levels if absent),
        `entries`, `ways`, and `tag_bits` and `data_bits` per entry, if these are fixed (B10 table
        4.1).
        """
        arrays: list[dict[str, Any]] = json.loads(self._native.mmu_cache_arrays())
        return arrays

    def run(
        self,
        trace: "Trace | str | os.PathLike[str]",
        check: bool = False,
        progress: Progress | bool | None = None,
        *,
        names: bool = True,
        advice: bool = False,
    ) -> "Results":
        """Simulates all of `trace` on the machine. The interpreter's lock is released meanwhile.

        Args:
            trace: A trace, or a value that `Trace` accepts.
            check: Check each translation against the page table, and check that counts agree with
                each other; slower.
            progress: Called about ten times per second; `True` shows a bar by tqdm.
            names: Whether to look up the function and the line of each miss, in the debug
                information of the programs. Allocation sites always have their names.
            advice: Whether the results recommend how to reduce the misses (`advice`). This needs
                LRU curves of a sample of the pages, which takes up to 15 % more time.

        Raises:
            WorkError: The trace is damaged, the machine is out of frames, or a check failed.
        """
        from pagewalk import estimates, natively
        from pagewalk.advice import advise, page_sizes
        from pagewalk.results import Results
        from pagewalk.trace import Trace

        trace = trace if isinstance(trace, Trace) else Trace(trace)
        sizes = page_sizes(self.description) if advice else []
        with bar(progress, f"{trace.name} on {self.name}") as told:
            document, warnings, samples = self._native.run(
                trace.source, trace.reading, check, told, names, sizes
            )
        results = Results(_named(document, trace.name))
        advise(results.data, sizes, samples)
        results.data["trace"]["notes"] += warnings
        run = natively.stored(trace)
        if run is not None:
            limits = {key: trace.options[key] for key in natively.LIMITS}
            part = run.get("part") or natively.window(**limits)
            results.data["native"] = natively.told(results.data["time"], run, part)
        results.data["estimate"] = estimates.share(results.data, self.given)
        trace.warnings = warnings
        if not any(results.data["accesses"].values()):
            trace.warnings = [*warnings, f"{trace.name} holds no access: nothing was simulated"]
        return results

    def run_live(
        self,
        recording: "Recording",
        check: bool = False,
        progress: Progress | None = None,
        warmup: int = 0,
        *,
        native: bool = False,
        native_prepare: str | None = None,
        names: bool = True,
        advice: bool = False,
    ) -> "tuple[Results, int, list[str]]":
        """Runs a program and simulates it at the same time; no trace is stored.

        Args:
            recording: The program, and what to record of it.
            check: As for `run`.
            progress: As for `run`.
            warmup: Number of recorded accesses at the beginning that are simulated and not counted.
            native: Whether the program then runs natively too, with the same standard input; its
                measurements are `native` in the results.
            native_prepare: A shell command that runs before each of the two runs.
            names: As for `run`.
            advice: As for `run`.

        Returns:
            The results, whose `trace.live` lists what could not be recorded; the program's exit
            status, which is 128 plus the number of the signal if a signal ended the program, and 0
            if `ends` ended it; notes on how the program was recorded.

        Raises:
            Error: The program cannot be recorded.
            WorkError: The recording or the run failed later.
        """
        from pagewalk import estimates

        if not native:
            found = self._run_live(recording, check, progress, warmup, names=names, advice=advice)
            found[0].data["estimate"] = estimates.share(found[0].data, self.given)
            return found
        from pagewalk import natively

        with natively.spooled_stdin() as stdin:
            natively.prepare(native_prepare)
            results, status, notes = self._run_live(
                recording, check, progress, warmup, names=names, advice=advice
            )
            run = natively.measure(recording.command, stdin, native_prepare)
        run["recorded_status"], run["stdin"] = status, stdin is not None
        part = recording.part or natively.window(warmup=warmup)
        results.data["native"] = natively.told(results.data["time"], run, part)
        results.data["estimate"] = estimates.share(results.data, self.given)
        return results, status, notes

    def _run_live(
        self,
        recording: "Recording",
        check: bool,
        progress: Progress | None,
        warmup: int,
        *,
        names: bool,
        advice: bool,
    ) -> "tuple[Results, int, list[str]]":
        from pagewalk.advice import advise, page_sizes
        from pagewalk.results import Results

        native = recording.native()
        sizes = page_sizes(self.description) if advice else []
        with recording.surroundings():
            document, status, notes, samples = self._native.run_live(
                native, warmup, check, progress, names, sizes
            )
        results = Results(_named(document, recording.name))
        advise(results.data, sizes, samples)
        return results, status, notes


def _named(document: str, name: str) -> dict[str, Any]:
    """The parsed results, with the name that the user has given the trace."""
    data: dict[str, Any] = json.loads(document)
    data["trace"] = {"name": name, **{k: v for k, v in data["trace"].items() if k != "name"}}
    return data
