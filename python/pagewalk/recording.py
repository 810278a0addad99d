"""`Recording`: a program, and the settings of its recording."""

import json
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from pagewalk import _native
from pagewalk._native import Error, WorkError
from pagewalk.options import Options, native_path
from pagewalk.output import refuse_existing, refuse_no_trace, write_text
from pagewalk.progress import Progress, bar
from pagewalk.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

_HERE = os.path.dirname(__file__)  # noqa: PTH120

QEMUS = os.path.join(_HERE, "qemu")  # noqa: PTH118
"""The folder of Pagewalk's builds of QEMU, which contain the recorder. There is one for each
instruction set.
"""

PLUGINS = os.path.join(_HERE, "plugins")  # noqa: PTH118
"""The folder of the plugins for other QEMUs, one file for each version of QEMU's plugin interface.

The folder also contains the libraries that report allocations, one for each processor.
"""

_PLUGIN = re.compile(r"pagewalk-recorder-.*\.so")


def record(
    command: Sequence[str],
    output: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Trace:
    """Runs a program and returns its trace.

    Args:
        command: The program and its arguments.
        output: The trace file; by default `PROGRAM.pwt` in the current folder.
        force: Whether a file of that name may be overwritten.
        progress: Called about ten times per second; `True` shows a bar by tqdm.
        options: The other arguments of `Recording`, as in `max_accesses=50_000_000`.

    Raises:
        Error: The program or its recorder cannot be started, or the file exists.
        WorkError: The trace cannot be written, or the program failed: its status is not 0.
    """
    recording = Recording(command, **options)
    path = os.fspath(output or f"{recording.name}.pwt")
    with bar(progress, f"recording {recording.name}") as told:
        outcome = recording.record(path, force, told)
    if outcome["exit_status"] != 0:
        status = outcome["exit_status"]
        raise WorkError(f"{recording.name} exited with status {status}; its trace {path} is kept")
    return Trace(path)


class Recording(Options):
    """A program, and the settings of its recording.

    Attributes:
        command: The program and its arguments. The program is searched in the folders of `PATH`, as
            by a shell.
        skip: Number of accesses to skip before recording begins.
        max_accesses: Number of accesses of each process after which its recording stops; the
            process continues.
        max_bytes: Size of the trace file in bytes at which recording ends. The file may become some
            hundred KB larger. The programs continue.
        ends: Whether the program is killed at the end of the window, because only its trace is of
            interest.
        from_symbol: The function at whose first call recording begins, for all processes. `skip`
            counts from there.
        to_symbol: The function at whose first call after the beginning recording ends, for all
            processes; the call itself is not recorded.
        from_marker: The number of the marker at which recording begins, -1 for any marker; in place
            of `from_symbol`.
        to_marker: The number of the marker at which recording ends, -1 for any marker; in place of
            `to_symbol`.
        instructions: Number of instructions of each process after which its recording ends, at the
            end of the basic block.
        sample: The lengths of a window and of a period in accesses: of each process, only the
            first accesses of every period are recorded.
        one_cpu: Whether the program, and the programs that it starts, run on one processor of this
            computer.
        fetches: Whether to record instruction fetches.
        filter: `none`, or `page16` to leave out accesses that hit in a 16-entry direct-mapped
            filter of pages.
        follow: Whether to record also the programs that the program starts or executes.
        process: The only process to record: its pid, or the name or path of its program.
        calls: Whether to record system calls on files and system calls that block.
        arguments: Whether to record the arguments of programs.
        pages: Whether to record, in a native recording, which page sizes the kernel has given to
            the program, at intervals, when its memory grows, and at its end; with the rights of
            root, frames and sizes between 4K and 2M too.
        allocations: Whether to record each program's allocations and where they are made, by a
            library that is loaded into it. Misses can then be reported by allocation site.
        small: Size in bytes of the address space of a 32-bit program and of the programs that it
            starts, as for a small space.
        sysroot: The folder in which programs and their libraries are looked up, in QEMU.
        tells_all: Whether a live run simulates every access. Otherwise guaranteed hits are only
            counted in the recorded program: the results are the same, and the run takes less time.
        callbacks: Whether the recorder uses only callbacks, as it does in a QEMU other than
            Pagewalk's own: the trace is the same, but recording takes longer.
        engine: `native` to record an x86-64 program, and those that it starts, in their own
            processes; `qemu` to record in QEMU; `auto` to record natively if that is possible,
            and otherwise in QEMU, with a note that says why.
        aslr: Whether the kernel's randomization of the address space stays on in a native
            recording.
        qemu: Another QEMU to record in; it must support plugins, and takes longer.
    """

    command: Sequence[str]
    skip: int = 0
    max_accesses: int | None = None
    max_bytes: int | None = None
    ends: bool = False
    from_symbol: str | None = None
    to_symbol: str | None = None
    from_marker: int | None = None
    to_marker: int | None = None
    instructions: int | None = None
    sample: Sequence[int] | None = None
    one_cpu: bool = False
    fetches: bool = True
    filter: str = "none"
    follow: bool = True
    process: str | None = None
    calls: bool = False
    arguments: bool = True
    pages: bool = False
    allocations: bool = False
    callbacks: bool = False
    engine: str = "auto"
    aslr: bool = False
    qemu: str | os.PathLike[str] | None = None
    tells_all: bool = False
    small: int | None = None
    sysroot: str | os.PathLike[str] | None = None

    @property
    def name(self) -> str:
        """The program's name without its directory."""
        return os.path.basename(self.command[0])  # noqa: PTH119

    def native(self) -> _native.Recording:
        """This recording as an object of the native module.

        Raises:
            Error: There is no such filter, or the program cannot be confined.
        """
        command = list(self.command)
        if not command:
            raise Error("there is no program to run: give its name and its arguments")
        if self._is_confined:
            from pagewalk import confined

            confined.check(self.small, self._sysroot)
            command[0] = confined.found(command[0], self.small, self._sysroot)
        told = self.fields()
        # These two options affect only how the program is started.
        del told["small"]
        told["sysroot"] = self.sysroot is not None
        for edge in ("from", "to"):
            told[edge] = _sign(told.pop(f"{edge}_symbol"), told.pop(f"{edge}_marker"))
        told |= {
            "command": [native_path(part) for part in command],
            "qemu": None if self.qemu is None else native_path(self.qemu),
            "qemus": native_path(QEMUS),
            "plugins": [_beside(name) for name in _plugins()],
            "libraries": native_path(PLUGINS),
            "engine_path": _beside("pagewalk-engine"),
        }
        return _native.Recording(json.dumps(told))

    @property
    def _sysroot(self) -> "Path | None":
        from pathlib import Path

        return None if self.sysroot is None else Path(self.sysroot)

    @property
    def _is_confined(self) -> bool:
        return self.small is not None or self.sysroot is not None

    def surroundings(self) -> AbstractContextManager[None]:
        """The context in which the program must be started."""
        if not self._is_confined:
            return nullcontext()
        from pagewalk import confined

        return confined.surroundings(self.small, self._sysroot)

    @property
    def part(self) -> str | None:
        """Why only a part of the program is recorded. `None` if all of it is recorded."""
        from pagewalk import natively

        return natively.window(
            skip=self.skip,
            max_accesses=self.max_accesses,
            max_bytes=self.max_bytes,
            from_symbol=self.from_symbol,
            to_symbol=self.to_symbol,
            from_marker=self.from_marker is not None,
            to_marker=self.to_marker is not None,
            instructions=self.instructions,
            sample=self.sample,
            end_with_window=self.ends,
            process=self.process,
            no_follow=not self.follow,
            user_filter=self.filter != "none",
        )

    def record(
        self,
        output: str | os.PathLike[str],
        force: bool = False,
        progress: Progress | None = None,
        *,
        native: bool = False,
        native_prepare: str | None = None,
    ) -> dict[str, Any]:
        """Runs the program and writes its trace.

        Ctrl-C in the terminal reaches the program, which may end or handle it; the trace is
        completed in either case.

        Args:
            output: The trace to write, with all processes that the program starts.
            force: Whether `output` may replace a file.
            progress: Called about ten times per second.
            native: Whether the program then runs natively too, with the same standard input. Its
                time, exit status and maps are written to `NAME.native.json` beside the trace.
            native_prepare: A shell command that runs before each of the two runs.

        Returns:
            `exit_status` (128 plus the number of the signal if a signal ended the program, 0 if
            `ends` ended it); `engine`, in which the program ran (`native` or `qemu`); `path`,
            `accesses`, `instructions`, `bytes` and `digest` of the trace; `processes`, in the order
            in which they began (of each: its number in the trace, pid, number of its parent, name,
            command, programs, accesses and instructions); `notes`; `lost`, the parts that are
            missing and why; `native`, if it was requested, as `pagewalk.natively.measure` returns
            it.

        Raises:
            Error: The program or its recorder cannot be started, or `output` is named as a file of
                another format.
            WorkError: The trace cannot be written.
        """
        refuse_no_trace(output)
        if not native:
            return self._record(output, force, progress)
        from pagewalk import natively
        from pagewalk.trace import Trace

        beside = natively.beside(output)
        refuse_existing(beside, force)
        with natively.spooled_stdin() as stdin:
            natively.prepare(native_prepare)
            result = self._record(output, force, progress)
            run = natively.measure(self.command, stdin, native_prepare)
        run |= {
            # The digest is the one that the trace has when it is opened: for several processes, it
            # depends on how they take turns.
            "digest": Trace(output).digest or result["digest"],
            "recorded_status": result["exit_status"],
            "part": self.part,
            "stdin": stdin is not None,
        }
        write_text(beside, json.dumps(run, indent=1) + "\n", force)
        result["native"] = run
        return result

    def _record(
        self, output: str | os.PathLike[str], force: bool, progress: Progress | None
    ) -> dict[str, Any]:
        native = self.native()
        with self.surroundings():
            outcome = _native.record(native, os.fspath(output), force, progress)
        result: dict[str, Any] = json.loads(outcome)
        return result


def _sign(symbol: str | None, marker: int | None) -> dict[str, Any] | None:
    """The symbol or marker at which a window begins or ends.

    A negative marker stands for any marker.
    """
    if symbol is not None:
        return {"symbol": symbol}
    return None if marker is None else {"marker": marker if marker >= 0 else None}


def _plugins() -> list[str]:
    """The paths of the plugins that exist. The plugin for the oldest versions of QEMU is first."""
    names = os.listdir(PLUGINS) if os.path.isdir(PLUGINS) else []  # noqa: PTH112, PTH208
    return sorted(name for name in names if _PLUGIN.fullmatch(name))


def _beside(name: str) -> dict[str, list[int]]:
    return native_path(os.path.join(PLUGINS, name))  # noqa: PTH118
