r"""`Lab`: the traces and runs of experiments. Each is made once and kept in a cache.

```
 program --> CACHE/traces/NAME-CONTENT.pwt --> machine, settings --> CACHE/runs/CONTENT.json
             program, version, inputs, length    trace, machine, this build of Pagewalk
```

The name of each file contains a digest of everything that determines its contents, so no file is
ever out of date. The CPU seconds for making a file are stored beside it. So it is known how long an
experiment takes without a cache.
"""

import functools
import hashlib
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

from pagewalk import _native
from pagewalk._native import Error, WorkError
from pagewalk.machine import Machine
from pagewalk.page_table import PageTable
from pagewalk.progress import ProgressLine
from pagewalk.recording import Recording
from pagewalk.reproduce import programs
from pagewalk.reproduce.experiment import read_toml
from pagewalk.systems import guest
from pagewalk.systems.packages import find, version_of
from pagewalk.systems.recording import SystemRecording
from pagewalk.trace import Trace

SYSTEM_BYTES = 2 << 30
"""The memory of a whole system that is recorded."""

SMALL = 10_000_000
"""The number of accesses that are recorded for a smoke run."""

PLACE = "/tmp/lab-"
"""The path by which a program in the cache is started, without its last eight characters."""

Results = dict[str, Any]
"""A results document as in `Results.data`, but without counts by region or over time."""


class Lab:
    """Programs, designs, and a cache of traces and results.

    Args:
        experiments: The folder of the experiments.
        cache: The folder for traces and runs. If it is not given, `~/.cache/pagewalk`.
        install: Whether to install packages that are missing.

    Attributes:
        placement: The seed of the order in which frames are allocated. `None`: the lowest frame
            first.
        folder: The folder of the experiments.
        used: The programs used since `clear`, with their versions and lengths.
        inputs: The digest of each trace that was used.
        kept_seconds: The CPU seconds that results from the cache took when they were computed.
    """

    def __init__(self, experiments: Path, cache: Path | None = None, install: bool = False) -> None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.cache = (cache or home / "pagewalk").absolute()
        self.install = install
        self.placement: int | None = None
        self.used: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
        self.kept_seconds = 0.0
        self.folder = experiments
        self._sources = experiments.parent / "workloads"
        self._programs = programs.load(experiments / "programs.toml")
        self._designs: dict[str, dict[str, Any]] = read_toml(experiments / "designs.toml")

    def clear(self) -> None:
        """Empties `used`, `inputs` and `kept_seconds`."""
        self.used.clear()
        self.inputs.clear()
        self.kept_seconds = 0.0

    def bench(self, machine: str, design: str, *, metered: bool = True) -> PageTable:
        """The page table of `machine` with a design, and with the current placement of frames.

        Raises:
            Error: There is no such machine or design.
        """
        return PageTable(machine, [*self.settings(design), *self._placed()], metered=metered)

    def _placed(self) -> list[str]:
        return [] if self.placement is None else [f"memory.placement={self.placement}"]

    def program(self, name: str) -> programs.Program:
        """The program `name`. `fastcgi@20` stands for `fastcgi` with 20 in place of its `{value}`.

        Raises:
            Error: `programs.toml` has no program with this name.
        """
        base, _, value = name.partition("@")
        if base not in self._programs:
            raise Error(f"there is no program `{base}` in experiments/programs.toml")
        return self._programs[base].given(value) if value else self._programs[base]

    def settings(self, design: str) -> list[str]:
        """The settings of a design for a machine, as for `--set`.

        Raises:
            Error: `designs.toml` has no design with this name.
        """
        if design not in self._designs:
            raise Error(f"there is no design `{design}` in experiments/designs.toml")
        words = {True: "true", False: "false"}
        return [f"{key}={words.get(value, value) if isinstance(value, bool) else value}"
                for key, value in self._designs[design].items()]  # fmt: skip

    def trace(self, name: str, accesses: int, fetches: bool = True, system: bool = False) -> Trace:
        """The trace of a program's first `accesses` accesses after those that it skips.

        `name` may also be a generator, as in `generate:join,table=16G`. With `system`, a whole
        system that runs the program is recorded, and the kernel's accesses count too.

        Raises:
            Error: The program is not installed.
            WorkError: The program cannot be recorded.
        """
        if name.startswith("generate:"):
            self.used[name] = self.inputs[name] = f"{accesses} accesses"
            return Trace(f"{name},accesses={accesses}")
        program = self.program(name)
        command, stdin, version = program.ready(self.cache, self._sources, self.install)
        if accesses >= SMALL:
            accesses = max(accesses, program.accesses)
        # A small recording skips no accesses, so that it does not take long.
        skip = program.skip if accesses >= SMALL else min(program.skip, accesses)
        root = program.root(self.cache, self.install)
        linux = f"Linux {version_of(find(None).kernel)}" if system else ""
        kernel = [linux, SYSTEM_BYTES, guest.INIT] if system else []
        known = programs.digest(
            version, program, accesses, skip, fetches, PLACE, *program.confined, *kernel
        )
        path = self.cache / "traces" / f"{name}{'-system' * system}-{known}.pwt"

        def record(part: Path) -> None:
            began = cpu_seconds()
            with (
                _streams(stdin),
                _place(known if system else None) as place,
                _within(place / "empty") if system else _environment(),
                ProgressLine(f"recording {name}") as progress,
            ):
                words, sysroot = _reached(self.cache, place, command, root)
                window: dict[str, Any] = {
                    "skip": skip, "max_accesses": accesses, "ends": True, "fetches": fetches,
                }  # fmt: skip
                recording: Recording | SystemRecording
                if system:
                    files = re.findall(rf"{PLACE}\w+/inputs/[\w.-]+", " ".join(words))
                    recording = SystemRecording(
                        words, more=files, stdin=Path(stdin).read_bytes(), memory=SYSTEM_BYTES,
                        **window,
                    )  # fmt: skip
                else:
                    recording = Recording(
                        words, calls=program.calls, small=program.small, sysroot=sysroot,
                        # The saved numbers are from programs in QEMU, whose processor has no AVX.
                        one_cpu=bool(program.i386), engine="qemu", **window,
                    )  # fmt: skip
                _check_whole(recording.record(part, True, progress), name, accesses)
            took.write_text(f"{cpu_seconds() - began:.2f}\n", encoding="ascii")

        took = path.with_suffix(".seconds")
        if path.exists():
            self.kept_seconds += float(took.read_text(encoding="ascii"))
        trace = Trace(programs.kept(path, record))
        told = f"{name} with the kernel" if system else name
        self.inputs[told] = trace.digest or ""
        versions = f"{version}, {linux}" if system else version
        self.used[told] = f"{versions}, {trace.accesses} accesses, skipped {skip}"
        return trace

    def warmed(self, trace: Trace, accesses: int, spread: int | None = None) -> Trace:
        """The trace, whose first `accesses` accesses are simulated without being counted.

        If the trace has fewer than two times `accesses` accesses, its first half is not counted.
        With `spread`, its mappings are moved apart by this number of bytes.
        """
        if not accesses and spread is None:
            return trace
        accesses = min(accesses, (trace.accesses or 2 * accesses) // 2)
        return Trace(trace.source, warmup=accesses, spread=spread)

    def runs(self, trace: Trace, machine: str, settings: Sequence[Sequence[str]]) -> list[Results]:
        """The results of `trace` on `machine` after each of `settings`, in their order.

        `machine` is a built-in one, or a file in the folder of the experiments.

        Results that are not in the cache are computed in one pass over the trace.

        Raises:
            Error: There is no such machine, or a setting is wrong.
            WorkError: The trace is damaged, or a run failed.
        """
        path = self.folder / machine
        name = path if machine.endswith(".toml") else machine
        devices = [Machine(name, [*changes, *self._placed()]) for changes in settings]
        paths = [self._kept_at(trace, device) for device in devices]
        missing = {
            path: device for path, device in zip(paths, devices, strict=True) if not path.exists()
        }
        made = []
        if missing:
            label = f"{trace.name.split('-')[0]} on {len(missing)} designs of {machine}"
            began = cpu_seconds()
            with ProgressLine(label) as progress:
                natives = [device.native for device in missing.values()]
                outcomes, _ = _native.sweep_trace(natives, trace.source, trace.reading, 0, progress)
            seconds = (cpu_seconds() - began) / len(missing)
            for path, (document, error) in zip(missing, outcomes, strict=True):
                if document is None:
                    raise WorkError(f"{trace.name} on {machine}: {error}")
                text = f'{{"seconds": {seconds:.4f}, "results": {document}}}'
                programs.kept(path, functools.partial(_write, text))
            made = list(missing)
        kept = {path: json.loads(path.read_text(encoding="utf-8")) for path in paths}
        self.kept_seconds += sum(one["seconds"] for at, one in kept.items() if at not in made)
        return [kept[path]["results"] for path in paths]

    def _kept_at(self, trace: Trace, device: Machine) -> Path:
        # How many accesses are not counted is not a part of a trace's contents.
        window = [trace.options["warmup"]] if trace.options["warmup"] else []
        known = programs.digest(trace.digest or trace.source, device.digest, _build(), *window)
        return self.cache / "runs" / f"{known}.json"


def _check_whole(recorded: dict[str, Any], name: str, accesses: int) -> None:
    """Checks that no signal ended the program before all requested accesses were recorded."""
    signal = recorded["exit_status"] - 128
    if signal <= 0 or recorded["accesses"] >= accesses:
        return
    if signal in (SIGINT, SIGTERM):
        raise WorkError("interrupted")
    raise WorkError(f"recording {name}: the program was ended by signal {signal}")


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


@contextmanager
def _streams(stdin: str) -> Iterator[None]:
    """A context within which programs that are started read `stdin`. Their output is discarded."""
    sys.stdout.flush()
    kept = [os.dup(0), os.dup(1)]
    try:
        for number, (path, flags) in enumerate([(stdin, os.O_RDONLY), (os.devnull, os.O_WRONLY)]):
            opened = os.open(path, flags)
            os.dup2(opened, number)
            os.close(opened)
        yield
    finally:
        for number, old in enumerate(kept):
            os.dup2(old, number)
            os.close(old)


@contextmanager
def _environment() -> Iterator[None]:
    """A context within which programs are started with the same few variables on every computer.

    The length of the variables determines where the stack of a program begins.
    """
    kept = dict(os.environ)
    named = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LC_ALL": "C"}
    # By these variables, recording finds a QEMU and a plugin other than those of the package.
    named |= {name: kept[name] for name in ("PAGEWALK_PLUGIN", "PAGEWALK_QEMU_DIR") if name in kept}
    try:
        os.environ.clear()
        os.environ.update(named)
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@contextmanager
def _place(known: str | None) -> Iterator[Path]:
    """A folder that exists within the context.

    Its name has the same length everywhere. With `known`, it is always the same: the kernel's
    accesses depend on the names of files.
    """
    if known is None:
        with tempfile.TemporaryDirectory(prefix=Path(PLACE).name, dir=Path(PLACE).parent) as made:
            yield Path(made)
        return
    place = Path(f"{PLACE}{known[:8]}")
    # A process that was killed may have left it behind.
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        shutil.rmtree(place)


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    """A context within which the new `folder` is the current one: a whole system gets its files."""
    folder.mkdir()
    kept = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(kept)


def _reached(
    cache: Path, place: Path, command: Sequence[str], root: Path | None
) -> tuple[list[str], Path | None]:
    """`command` and `root`, with paths in `cache` replaced by paths in `place`.

    A program's path and arguments are stored at the beginning of its stack, like its environment.
    The program is copied, because QEMU resolves links and passes the resulting path to it.
    """
    (place / "bin").mkdir()
    (place / "inputs").symlink_to(cache / "inputs")
    program = Path(command[0])
    if program.is_relative_to(cache):
        shutil.copy(program, place / "bin")
    for tool in _tools(cache, command):
        shutil.copytree(tool, place / tool.relative_to(cache))
    if root is not None:
        (place / "root").symlink_to(root)
    words = [word.replace(f"{cache}/", f"{place}/") for word in command]
    return words, None if root is None else place / "root"


def _tools(cache: Path, command: Sequence[str]) -> list[Path]:
    """The folders of the tools that `command` names, for instance in a shell script."""
    names = re.findall(rf"{re.escape(str(cache))}/tools/([\w-]+)/", " ".join(command))
    return [cache / "tools" / name for name in dict.fromkeys(names)]


def cpu_seconds() -> float:
    """The CPU seconds of this process, its threads, and the processes for which it has waited."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@functools.cache
def _build() -> str:
    """A digest of the native module, because another build may count differently."""
    return hashlib.sha256(Path(_native.__file__).read_bytes()).hexdigest()[:12]
