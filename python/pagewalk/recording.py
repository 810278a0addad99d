"""`Recording`: a program and what to record of it."""

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
"""Where the QEMUs with the recorder inside lie, one for each instruction set."""

PLUGINS = os.path.join(_HERE, "plugins")  # noqa: PTH118
"""Where the plugins for other QEMUs lie, one file for each version of QEMU's plugin interface.

Beside them are the libraries that mark allocations, one for each processor."""

_PLUGIN = re.compile(r"pagewalk-recorder-.*\.so")


def record(
    command: Sequence[str],
    output: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Trace:
    """Runs a program under QEMU and gives its trace.

    Args:
        command: The program and its arguments.
        output: The trace file; `PROGRAM.pwt` here if absent.
        force: Whether it may replace a file.
        progress: Called about ten times per second; `True` shows a bar by tqdm.
        options: The other attributes of `Recording`, as in `max_accesses=50_000_000`.

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
    """A program and what to record of it.

    Attributes:
        command: The program and its arguments; found as a shell finds it.
        skip: Accesses to pass over before recording begins.
        max_accesses: Accesses of each process after which recording stops; it runs on.
        max_bytes: Bytes of the file after which recording ends, which may then have some hundred KB
            more; the programs run on.
        ends: Whether it is killed once the window has ended, as nothing but its trace is wanted.
        from_symbol: The function with whose first call recording begins, in all processes; `skip`
            counts from there on.
        to_symbol: The function before whose first call after that it ends, in all processes.
        from_marker: The marker with which it begins instead, -1 for any.
        to_marker: The marker with which it ends instead, -1 for any.
        instructions: Instructions of each process after which recording ends, with their block.
        one_cpu: Whether the program and what it starts run on one processor of this machine.
        fetches: Whether to record the executed blocks.
        filter: `none`, or `page16` for a 16-entry direct-mapped filter of pages.
        follow: Whether what the program executes and starts is recorded too.
        process: The only process to record: its pid, or the name or path of its program.
        calls: Whether to record file and blocking calls.
        arguments: Whether to record the arguments of programs.
        allocations: Whether a library that is loaded into each program marks what it allocates, and
            where: misses are told apart by allocation site then.
        small: Bytes of addresses that the program and what it starts have, as in a small space: a
            program of 32 bits.
        sysroot: The folder in which programs and their libraries are.
        tells_all: Whether a machine that runs beside is told each access, also where those that
            surely hit could be counted where the program runs: the same results, more slowly.
        callbacks: Whether the recorder uses callbacks alone, as it does in another QEMU than
            Pagewalk's own: the same trace, more slowly.
        engine: `qemu`, or `native` for the program's own process: x86-64, one thread, no children.
        aslr: Whether `native` leaves the layout of the address space to chance, as the kernel does.
        qemu: Another QEMU to record in, which must load plugins. Recording takes longer there.
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
    one_cpu: bool = False
    fetches: bool = True
    filter: str = "none"
    follow: bool = True
    process: str | None = None
    calls: bool = False
    arguments: bool = True
    allocations: bool = False
    callbacks: bool = False
    engine: str = "qemu"
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
        """This recording as the native half takes it.

        Raises:
            Error: There is no such filter, or the program cannot be confined.
        """
        command = list(self.command)
        if not command:
            raise Error("there is no program to run: give its name and its arguments")
        if self._is_confined:
            from pagewalk import confined

            confined.check(self.small, self._sysroot)
            if self.engine == "native" and self.sysroot is not None:
                raise Error("--sysroot does not work with --engine native; use --engine qemu")
            command[0] = confined.found(command[0], self.small, self._sysroot)
        told = self.fields()
        # These two are what the program is started in.
        del told["small"], told["sysroot"]
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
        """What the program is started in."""
        if not self._is_confined:
            return nullcontext()
        from pagewalk import confined

        return confined.surroundings(self.small, self._sysroot)

    @property
    def part(self) -> str | None:
        """Why it is not of the whole program, if it is not."""
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
        """Runs the program under QEMU and writes its trace.

        An interrupt from the terminal is meanwhile the program's own affair: it ends or does
        not, as it likes, and its trace is finished in any case.

        Args:
            output: The trace to write, with all processes that the program starts.
            force: Whether `output` may replace a file.
            progress: Called about ten times per second.
            native: Whether the program then runs natively too; its time, exit status and maps
                are kept in `NAME.native.json` beside the trace. Standard input is kept for it.
            native_prepare: A shell command that runs before each of the two runs.

        Returns:
            `exit_status` (128 plus the signal if one ended the program, 0 if `ends` did); `path`,
            `accesses`, `instructions`, `bytes` and `digest` of the trace; `processes` (number in
            it, pid, parent's number, name, command, programs, accesses and instructions of each,
            in the order in which they began); `notes`; `lost`, what is missing and why; `native` if
            it was asked for, as `pagewalk.natively.measure` gives it.

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
            # As it is when the trace is opened: several processes have one of how they run.
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
    """What a window begins or ends with; a marker below 0 is any."""
    if symbol is not None:
        return {"symbol": symbol}
    return None if marker is None else {"marker": marker if marker >= 0 else None}


def _plugins() -> list[str]:
    """The names of the plugins that there are, that for the oldest QEMUs first."""
    names = os.listdir(PLUGINS) if os.path.isdir(PLUGINS) else []  # noqa: PTH112, PTH208
    return sorted(name for name in names if _PLUGIN.fullmatch(name))


def _beside(name: str) -> dict[str, list[int]]:
    return native_path(os.path.join(PLUGINS, name))  # noqa: PTH118
