r"""`Lab`: where an experiment gets its traces and its runs, each made once and kept.

```
 program --> CACHE/traces/NAME-CONTENT.pwt --> machine, settings --> CACHE/runs/CONTENT.json
             program, version, inputs, length    trace, machine, this build of Pagewalk
```

A name is a digest of all that decides about the contents, so nothing here is ever stale.
"""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

from pagewalk import _native
from pagewalk._native import Error, WorkError
from pagewalk.machine import Machine
from pagewalk.progress import ProgressLine
from pagewalk.recording import Recording
from pagewalk.reproduce import programs
from pagewalk.reproduce.experiment import read_toml
from pagewalk.trace import Trace

SMALL = 10_000_000
"""Accesses of a recording that is made for a quick look."""

Results = dict[str, Any]
"""A results document as `Results.data` has it, without what is by region or over time."""


class Lab:
    """Programs, designs, and a cache for what is made of them.

    Args:
        experiments: The folder of the experiments.
        cache: Where to keep traces and runs; `~/.cache/pagewalk` if not given.
        install: Whether to install packages that are missing.
    """

    def __init__(self, experiments: Path, cache: Path | None = None, install: bool = False) -> None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.cache = (cache or home / "pagewalk").absolute()
        self.install = install
        self.used: dict[str, str] = {}
        self._experiments = experiments
        self._sources = experiments.parent / "workloads"
        self._programs = programs.load(experiments / "programs.toml")
        self._designs: dict[str, dict[str, Any]] = read_toml(experiments / "designs.toml")

    def program(self, name: str) -> programs.Program:
        """The program called `name`.

        Raises:
            Error: `programs.toml` has none of that name.
        """
        if name not in self._programs:
            raise Error(f"there is no program `{name}` in experiments/programs.toml")
        return self._programs[name]

    def settings(self, design: str) -> list[str]:
        """What a design changes in a machine, as `--set` takes it.

        Raises:
            Error: `designs.toml` has none of that name.
        """
        if design not in self._designs:
            raise Error(f"there is no design `{design}` in experiments/designs.toml")
        return [f"{key}={value}" for key, value in self._designs[design].items()]

    def trace(self, name: str, accesses: int, fetches: bool = True) -> Trace:
        """The trace of a program's first `accesses` accesses after those it skips.

        `name` may also be a generator, as in `generate:join,table=16G`.

        Raises:
            Error: The program is not installed.
            WorkError: It cannot be recorded.
        """
        if name.startswith("generate:"):
            self.used[name] = f"{accesses} accesses"
            return Trace(f"{name},accesses={accesses}")
        program = self.program(name)
        command, stdin, version = program.ready(self.cache, self._sources, self.install)
        # A small recording does not wait for what it would skip.
        skip = program.skip if accesses >= SMALL else min(program.skip, accesses)
        known = programs.digest(version, program, accesses, skip, fetches)
        path = self.cache / "traces" / f"{name}-{known}.pwt"

        def record(part: Path) -> None:
            recording = Recording(
                command, skip=skip, max_accesses=accesses, ends=True, fetches=fetches
            )
            with _streams(stdin), ProgressLine(f"recording {name}") as progress:
                _check_whole(recording.record(part, True, progress), name, accesses)

        trace = Trace(programs.kept(path, record))
        self.used[name] = f"{version}, {trace.accesses} accesses, skipped {skip}"
        return trace

    def runs(self, trace: Trace, machine: str, settings: Sequence[Sequence[str]]) -> list[Results]:
        """The results of `trace` on `machine` after each of `settings`, in their order.

        `machine` is a built-in one, or a file in the folder of the experiments.

        Those that are not in the cache are made in one pass over the trace.

        Raises:
            Error: There is no such machine, or a setting is wrong.
            WorkError: The trace is damaged, or a run failed.
        """
        path = self._experiments / machine
        name = path if machine.endswith(".toml") else machine
        devices = [Machine(name, changes) for changes in settings]
        paths = [self._kept_at(trace, device) for device in devices]
        missing = {
            path: device for path, device in zip(paths, devices, strict=True) if not path.exists()
        }
        if missing:
            label = f"{trace.name.split('-')[0]} on {len(missing)} designs of {machine}"
            with ProgressLine(label) as progress:
                natives = [device.native for device in missing.values()]
                outcomes, _ = _native.sweep_trace(natives, trace.source, trace.reading, 0, progress)
            for path, (document, error) in zip(missing, outcomes, strict=True):
                if document is None:
                    raise WorkError(f"{trace.name} on {machine}: {error}")
                programs.kept(path, functools.partial(_write, document))
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    def _kept_at(self, trace: Trace, device: Machine) -> Path:
        known = programs.digest(trace.digest or trace.source, device.digest, _build())
        return self.cache / "runs" / f"{known}.json"


def _check_whole(recorded: dict[str, Any], name: str, accesses: int) -> None:
    """That no signal ended the program before its recording was as long as it should be."""
    signal = recorded["exit_status"] - 128
    if signal <= 0 or recorded["traces"][0]["accesses"] >= accesses:
        return
    if signal in (SIGINT, SIGTERM):
        raise WorkError("interrupted")
    raise WorkError(f"recording {name}: signal {signal} ended the program")


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


@contextmanager
def _streams(stdin: str) -> Iterator[None]:
    """Programs started meanwhile read `stdin` and print to nowhere."""
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


@functools.cache
def _build() -> str:
    """A digest of the native half: another build may count otherwise."""
    return hashlib.sha256(Path(_native.__file__).read_bytes()).hexdigest()[:12]
