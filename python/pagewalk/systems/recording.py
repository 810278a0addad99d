"""A recording of a whole system: the kernel and all programs, while one command runs."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import _native, text
from pagewalk._native import Error, WorkError
from pagewalk.options import native_path
from pagewalk.output import refuse_no_trace
from pagewalk.systems import guest, kernel, machine, payload
from pagewalk.systems.packages import cache, find, version_of

if TYPE_CHECKING:
    from pagewalk.progress import Progress

_IMAGE = "kernel"
"""The name of the file with the kernel's symbols, and of its region."""
LEAST, MOST = 256 << 20, 3 << 30
"""The limits of a guest's memory in bytes. With more memory, a PC has some of it above its
devices.
"""
CPUS_MAX = 8


PROCESSOR_NOTE = (
    "the processor's own accesses are not recorded: its reads of page tables, of which the trace "
    "has the addresses, and what it pushes on an exception"
)


def check_machine(memory: int, cpus: int, least: int) -> None:
    """Raises an error if a machine cannot have `memory` bytes or `cpus` processors."""
    if not least <= memory <= MOST:
        raise Error(
            f"--memory: a guest has {text.size(least)} to {text.size(MOST)}, not "
            f"{text.size(memory)}"
        )
    if not 1 <= cpus <= CPUS_MAX:
        raise Error(f"--cpus {cpus}: a guest has 1 to {CPUS_MAX} processors")


def clock(cpus: int) -> str:
    """How time passes in a machine with `cpus` processors."""
    return (
        "one processor, whose clock counts instructions: 2 ns each"
        if cpus == 1
        else f"{cpus} processors, which took turns on one of the host"
    )


def run(
    session: machine.Session,
    told: dict[str, Any],
    steer: Callable[[], None],
    output: str | os.PathLike[str],
    *,
    force: bool,
    progress: "Progress | None",
) -> dict[str, Any]:
    """Records a machine until its QEMU ends, while `steer` talks to QEMU's monitor.

    If the recorder has stopped the machine at the end of the window, `exit_status` is 0.
    """
    session.begun()
    trouble: list[Exception] = []

    def steered() -> None:
        try:
            steer()
        except (Error, WorkError, OSError) as error:
            trouble.append(error)

    steering = threading.Thread(target=steered, daemon=True)
    steering.start()
    try:
        said = _native.record_system(json.dumps(told), os.fspath(output), force, progress)
        session.ended()
        steering.join(timeout=10)
    finally:
        session.close()
    result: dict[str, Any] = json.loads(said)
    if trouble and result["accesses"] == 0:
        raise trouble[0]
    if _is_stopped(told, result):
        result["exit_status"] = 0
    return result


def _is_stopped(told: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether the recorder has stopped the machine at the end of the window."""
    most = told["max_accesses"]
    return bool(told["ends"]) and most is not None and result["accesses"] >= most


class SystemRecording:
    """A command to run in a whole system that is recorded.

    Args:
        command: The command and its arguments.
        kernel: The kernel, a bzImage. The default is the kernel of the distribution's package for
            clouds.
        initrd: An initial file system, whose files are added to those of the guest.
        memory: The size of the guest's memory in bytes.
        cpus: The number of the guest's processors. With one processor, two recordings of the same
            command are equal.
        more: Other files and folders that the guest gets at the same paths.
        stdin: The command's standard input. The default is this process's standard input.
        boot: Whether the boot of the kernel is recorded too.
        fetches: Whether to record instruction fetches.
        skip: Number of accesses to leave out at the beginning.
        max_accesses: Number of accesses after which recording ends.
        ends: Whether the guest is stopped when `max_accesses` accesses have been recorded. There is
            no output then.
        callbacks: Whether the recorder uses only callbacks. The trace is the same, but recording
            takes longer.
        append: More words for the kernel's command line.
        check: Whether each load and store is compared with QEMU's own TLB. This takes long. A note
            says how many differ in physical address or page size.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        kernel: str | None = None,
        initrd: str | None = None,
        memory: int = 1 << 30,
        cpus: int = 1,
        more: Sequence[str] = (),
        stdin: bytes | None = None,
        boot: bool = False,
        fetches: bool = True,
        skip: int = 0,
        max_accesses: int | None = None,
        ends: bool = False,
        callbacks: bool = False,
        append: str = "",
        check: bool = False,
    ) -> None:
        if not command:
            raise Error("there is no command to run: give its name and its arguments")
        check_machine(memory, cpus, LEAST)
        self.command = list(command)
        self.kernel, self.initrd, self.append = kernel, initrd, append
        self.memory, self.cpus, self.more = memory >> 20 << 20, cpus, list(more)
        self.boot, self.fetches, self.skip = boot, fetches, skip
        self.max_accesses, self.callbacks, self.check = max_accesses, callbacks, check
        self.ends, self.stdin = ends, stdin

    @property
    def name(self) -> str:
        """The command's name without its directory."""
        return os.path.basename(self.command[0])  # noqa: PTH119

    def record(
        self,
        output: str | os.PathLike[str],
        force: bool = False,
        progress: "Progress | None" = None,
    ) -> dict[str, Any]:
        """Runs the command in a guest and writes the trace of the whole system.

        The output of the command is returned when it has ended.

        Returns:
            As `Recording.record`, with the `exit_status` of the command, and its output: `stdout`
            and `stderr`, as bytes.

        Raises:
            Error: Something that the guest needs is missing.
            WorkError: The guest did not finish, or the trace cannot be written.
        """
        refuse_no_trace(output)
        machine.qemu()
        stdin = self.stdin
        if stdin is None:
            stdin = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
        folder = tempfile.TemporaryDirectory(prefix="pagewalk-")
        try:
            return self._record(Path(folder.name), stdin, output, force, progress)
        finally:
            folder.cleanup()

    def _record(
        self,
        folder: Path,
        stdin: bytes,
        output: str | os.PathLike[str],
        force: bool,
        progress: "Progress | None",
    ) -> dict[str, Any]:
        packages = find(self.kernel)
        disk, written = folder / "payload", folder / "output"
        payload.pack(self.command, stdin, self.more, disk)
        _empty(written)
        initrd = folder / "initrd"
        own = b"" if self.initrd is None else _read("--initrd", self.initrd)
        # Linux unpacks several archives one after the other. Each must begin at a multiple of four
        # bytes.
        initrd.write_bytes(own + b"\0" * (-len(own) % 4) + guest.initial(packages))
        made = machine.Machine(packages, initrd, self.memory, self.cpus, self.append)
        known = _kernel(made, folder)
        if self.boot:
            session = machine.Session(made.arguments("boot"), "while it boots")
        else:
            session = machine.Session(made.arguments("restored"), "while it is recorded")
            session.restores(_snapshots(made, disk, folder))
        session.disks(disk, written)
        version = version_of(packages.kernel)
        told = {
            "command": [native_path(word) for word in self.command],
            "kernel": f"Linux {version}".strip(),
            "qemu": str(machine.qemu()),
            "arguments": [native_path(word) for word in session.line],
            "facts": [*known.facts, *(["check=on"] if self.check else [])],
            "image": native_path(str(known.image)),
            "segments": [known.segment],
            "regions": kernel.REGIONS,
            "boot": self.boot,
            "fetches": self.fetches,
            "callbacks": self.callbacks,
            "skip": self.skip,
            "max_accesses": self.max_accesses,
            "ends": self.ends,
            "notes": self._notes(version),
        }

        def steer() -> None:
            session.greet()
            if not self.boot:
                session.go()

        result = run(session, told, steer, output, force=force, progress=progress)
        if _is_stopped(told, result):
            return result | {"stdout": b"", "stderr": b""}
        return result | _output(written, session)

    def _notes(self, version: str) -> list[str]:
        what = "from the start of the machine" if self.boot else "from a marker before the command"
        return [
            f"a whole system recorded in QEMU: Linux {version} and its programs, {what}; "
            f"{text.size(self.memory)} of memory; {clock(self.cpus)}",
            PROCESSOR_NOTE,
        ]


def _read(flag: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Error(f"{flag}: {path} cannot be read: {error.strerror}") from error


def _empty(disk: Path) -> None:
    with disk.open("wb") as file:
        file.truncate(machine.OUTPUT_BYTES)


@dataclass(frozen=True)
class _Kernel:
    """The known facts about a kernel: the recorder's arguments, and the file with its symbols."""

    facts: list[str]
    image: Path
    segment: tuple[int, int, int, int]


def _kernel(made: machine.Machine, folder: Path) -> _Kernel:
    """The known facts about the kernel. The kernel runs once to report them."""
    key = hashlib.sha256(made.packages.kernel.read_bytes() + guest.INIT.encode()).hexdigest()[:32]
    kept = cache() / "kernels" / key
    if not (kept / "symbols").is_file():
        disk, none = folder / "facts", folder / "none"
        _empty(disk)
        none.write_bytes(bytes(1 << 20))
        session = machine.Session(made.arguments("facts"), "while it reports its symbols")
        session.disks(none, disk)
        _to_end(session, plugin=False)
        with _opened(disk, session) as tar, tempfile.TemporaryDirectory(dir=cache()) as scratch:
            for name in ("symbols", "types"):
                with contextlib.suppress(KeyError):
                    content = tar.extractfile(f"./{name}")
                    (Path(scratch) / name).write_bytes(content.read() if content else b"")
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("types", "symbols"):
                found = Path(scratch) / name
                content = found.read_bytes() if found.is_file() else b""
                (kept / name).write_bytes(content)
            kernel.symbol_file((kept / "symbols").read_text(errors="replace"), kept / _IMAGE)
    types, symbols = (kept / "types").read_bytes(), (kept / "symbols").read_text(errors="replace")
    facts = kernel.facts(types, symbols)
    return _Kernel(facts, kept / _IMAGE, kernel.image(symbols))


def _snapshots(made: machine.Machine, disk: Path, folder: Path) -> Path:
    """The snapshot of the machine before the command. It has booted, and contains the payload."""
    booted = machine.snapshot(made.key())
    if not booted.exists():
        none = folder / "empty"
        none.write_bytes(bytes(1 << 20))
        session = machine.Session(made.arguments("restored"), "while it boots")
        _pause(session, none, folder, booted)
    key = hashlib.sha256(made.key().encode() + hashlib.sha256(disk.read_bytes()).digest())
    ready = machine.snapshot(key.hexdigest()[:32])
    if not ready.exists():
        session = machine.Session(made.arguments("restored"), "while it unpacks the command")
        session.restores(booted)
        _pause(session, disk, folder, ready, restored=True)
    return ready


def _pause(
    session: machine.Session, disk: Path, folder: Path, to: Path, restored: bool = False
) -> None:
    """Runs a machine until its next pause and writes a snapshot of the machine."""
    output = folder / "scratch"
    _empty(output)
    session.disks(disk, output)
    child = machine.run(session)
    try:
        session.greet()
        if restored:
            session.go()
        session.wait()
        session.save(to)
        session.ask("quit")
        child.wait(timeout=60)
    except WorkError as error:
        raise _with_words(child, error) from error
    finally:
        child.kill()
        child.wait()
        session.close()


def _to_end(session: machine.Session, plugin: bool) -> None:
    child = machine.run(session, plugin)
    try:
        session.greet()
        _, said = child.communicate(timeout=machine.PATIENCE)
        if child.returncode != 0:
            raise WorkError(f"QEMU failed: {said.decode(errors='replace').strip()[-300:]}")
    except subprocess.TimeoutExpired as error:
        raise WorkError(session.why("does not end")) from error
    finally:
        child.kill()
        child.wait()
        session.close()


def _with_words(child: "subprocess.Popen[bytes]", error: WorkError) -> WorkError:
    """The error, with QEMU's messages if QEMU has ended."""
    child.kill()
    said = child.stderr.read().decode(errors="replace").strip() if child.stderr else ""
    return WorkError(f"{error}; QEMU said `{said.splitlines()[-1]}`") if said else error


@contextlib.contextmanager
def _opened(disk: Path, session: machine.Session) -> Any:
    """The tar that the guest has written to its disk."""
    try:
        with tarfile.open(disk, "r:") as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise WorkError(session.why("ended without its output")) from error


def _output(disk: Path, session: machine.Session) -> dict[str, Any]:
    """The command's output and exit status."""
    found: dict[str, bytes] = {}
    with _opened(disk, session) as tar:
        for name in ("stdout", "stderr", "status"):
            with contextlib.suppress(KeyError):
                file = tar.extractfile(f"./{name}")
                found[name] = file.read() if file else b""
    if "status" not in found:
        raise WorkError(session.why("ended without the command's status"))
    return {
        "exit_status": int(found["status"] or b"0"),
        "stdout": found.get("stdout", b""),
        "stderr": found.get("stderr", b""),
    }
