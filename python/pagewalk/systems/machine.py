"""QEMU for a guest: its command line, its monitor, and snapshots.

```
 Python <--socket pair--> QEMU's monitor (QMP)       stop, migrate, cont, quit
        <--socket pair--- QEMU's serial line         what the kernel says
 file   ----descriptor--> QEMU                       a snapshot to go on from
```

Snapshots can be read only by the user (0600). They are in the cache, under a hash of everything
that determines them.
"""

import hashlib
import json
import os
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagewalk import text
from pagewalk._native import Error, WorkError
from pagewalk.systems.packages import Packages, cache

FOLDER_VARIABLE = "PAGEWALK_QEMU_DIR"
PROCESSOR = "max,la57=off,-erms,-fsrm,-rdrand,-rdseed"
"""The guest's processor, without page tables of five levels and without random numbers from
hardware.
"""
APPEND = "console=ttyS0 quiet panic=-1 nokaslr no_timer_check rdinit=/pw/init"
ICOUNT = "shift=1,sleep=off,align=off"
"""The clock of a single processor: each instruction takes 2 ns."""
PATIENCE = 600.0
"""If a guest reaches no marker for this number of seconds, it counts as hung."""
OUTPUT_BYTES = 1 << 30
"""The size in bytes of the disk for the command's output. Its file takes only as much space as is
written.
"""
KEPT = 6
"""The number of snapshots that are kept. They are those that were used last."""


def qemu() -> Path:
    """The QEMU for whole systems.

    Raises:
        Error: There is no QEMU for whole systems.
    """
    folder = os.environ.get(FOLDER_VARIABLE) or Path(__file__).parents[1] / "qemu"
    path = Path(folder) / "system" / "qemu-system-x86_64"
    if not path.is_file():
        raise Error(
            f"{path}: there is no QEMU for whole systems; wheels do not contain it: run "
            "`make qemu-system` in Pagewalk's source tree to build it"
        )
    return path


def common(memory: int, cpus: int, firmware: Path) -> list[str]:
    """QEMU's arguments for a machine with `memory` bytes and `cpus` processors."""
    line = [
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", "pc", "-accel", "tcg,thread=single", "-cpu", PROCESSOR,
        "-m", f"{memory >> 20}M", "-smp", str(cpus),
        "-rtc", "base=2020-01-01,clock=vm",
        "-L", str(qemu().parent), "-bios", str(firmware),
    ]  # fmt: skip
    return line + (["-icount", ICOUNT] if cpus == 1 else [])


@dataclass(frozen=True)
class Machine:
    """A machine, without its disks."""

    packages: Packages
    initrd: Path
    memory: int
    cpus: int
    append: str = ""

    def arguments(self, how: str) -> list[str]:
        """QEMU's arguments.

        `how` is passed to the guest's script and selects what the script runs.
        """
        append = f"{APPEND} pagewalk={how} {self.append}".strip()
        line = common(self.memory, self.cpus, self.packages.firmware)
        line += ["-kernel", str(self.packages.kernel), "-initrd", str(self.initrd)]
        return [*line, "-append", append]

    def key(self) -> str:
        """A hash of all properties of the machine."""
        files = (qemu(), self.packages.firmware, self.packages.kernel, self.initrd)
        # The paths of files are not a part of the key.
        places = {*map(str, files), str(qemu().parent)}
        words = [word for word in self.arguments("restored") if word not in places]
        about = hashlib.sha256(json.dumps(words).encode())
        for path in files:
            about.update(hashlib.sha256(path.read_bytes()).digest())
        return about.hexdigest()[:32]


@dataclass
class Session:
    """A QEMU that is running or will be started by other code: its monitor and its serial line.

    The serial line leads to this process, or to the file `written`. A guest that writes much needs
    a file: a full socket makes it wait for as long as this process takes to read.
    """

    line: list[str]
    name: str
    written: Path | None = None
    _said: bytearray = field(default_factory=bytearray)
    _kept: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Creates the monitor and the serial line."""
        self._monitor, monitor = socket.socketpair()
        self._serial, serial = socket.socketpair()
        self._ends = [monitor, serial]
        for end, name in ((monitor, "monitor"), (serial, "serial")):
            end.set_inheritable(True)
            file = self.written if name == "serial" else None
            to = f"socket,fd={end.fileno()}" if file is None else f"file,path={_escaped(file)}"
            self.line += ["-chardev", f"{to},id={name}"]
        self.line += ["-mon", "chardev=monitor,mode=control", "-serial", "chardev:serial"]
        self._buffer = b""
        self._reader = threading.Thread(target=self._listen, daemon=True)

    def disks(self, payload: Path, output: Path) -> None:
        """Gives the guest its two disks. The guest may write only to the second one."""
        for name, path, only in (("payload", payload, "on"), ("output", output, "off")):
            drive = f"if=none,id={name},format=raw,read-only={only},file={_escaped(path)}"
            self.line += ["-drive", drive, "-device", f"virtio-blk-pci,drive={name}"]

    def restores(self, snapshot: Path) -> None:
        """Makes the machine continue from a snapshot."""
        file = snapshot.open("rb")
        os.set_inheritable(file.fileno(), True)
        self._kept.append(file)
        self.line += ["-add-fd", f"fd={file.fileno()},set=1", "-incoming", "file:/dev/fdset/1"]

    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that QEMU inherits."""
        return tuple(one.fileno() for one in [*self._ends, *self._kept])

    def begun(self) -> None:
        """Called when QEMU is running. Begins to read the serial line."""
        self._reader.start()

    def _listen(self) -> None:
        with suppress(OSError):
            while data := self._serial.recv(1 << 16):
                self._said += data
                del self._said[: -(1 << 20)]

    def let_go(self) -> None:
        """Closes this process's copies of QEMU's descriptors, so that it detects QEMU's end."""
        for end in self._ends:
            end.close()

    def close(self) -> None:
        """Closes all descriptors."""
        for one in [*self._ends, *self._kept, self._monitor, self._serial]:
            with suppress(OSError):
                one.close()

    def ended(self) -> None:
        """Called when QEMU has ended. Reads the rest of what it sent."""
        self.let_go()
        self._reader.join(timeout=10)

    @property
    def serial(self) -> str:
        """The text that the guest wrote to the serial line."""
        return self._said.decode(errors="replace").replace("\r", "")

    def _message(self, until: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0:
                raise WorkError(self.why("does not reach the next marker"))
            self._monitor.settimeout(min(left, 1.0))
            try:
                data = self._monitor.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            if not data:
                raise WorkError(self.why("ended before it reached the next marker"))
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def why(self, what: str) -> str:
        """An error that contains the last line that the kernel has printed."""
        lines = [line for line in self.serial.splitlines() if line.strip()]
        last = f"; the last line of its console is `{lines[-1].strip()[:200]}`" if lines else ""
        return f"the guest {what} ({self.name}){last}"

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Gives a command to QEMU's monitor, and returns the answer."""
        request: dict[str, Any] = {"execute": command}
        if arguments:
            request["arguments"] = arguments
        self._monitor.sendall(json.dumps(request).encode() + b"\n")
        until = time.monotonic() + PATIENCE
        while True:
            message = self._message(until)
            if "return" in message:
                found = message["return"]
                return found if isinstance(found, dict) else {}
            if "error" in message:
                raise WorkError(f"QEMU refuses `{command}`: {message['error'].get('desc')}")

    def greet(self) -> None:
        """Waits for QEMU's monitor."""
        until = time.monotonic() + PATIENCE
        while "QMP" not in self._message(until):
            pass
        self.ask("qmp_capabilities")

    def go(self) -> None:
        """Continues a restored machine."""
        until = time.monotonic() + PATIENCE
        while (status := self.ask("query-status").get("status")) == "inmigrate":
            if time.monotonic() > until:
                raise WorkError(self.why("was not restored in time"))
            time.sleep(0.01)
        if status != "running":
            self.ask("cont")

    def wait(self) -> None:
        """Waits until the guest reaches its next pause."""
        until = time.monotonic() + PATIENCE
        while self._message(until).get("event") != "STOP":
            pass

    def reason(self) -> str:
        """Waits until the machine ends. Returns the reason that QEMU's monitor names, if any."""
        while True:
            try:
                message = self._message(float("inf"))
            except WorkError:
                return ""
            if message.get("event") == "SHUTDOWN":
                return str(message["data"]["reason"])

    def save(self, to: Path) -> None:
        """Writes a snapshot."""
        part = to.with_suffix(f".{os.getpid()}.part")
        try:
            before = os.umask(0o077)
            try:
                part.touch(mode=0o600)
            finally:
                os.umask(before)
            self.ask(
                "migrate-set-parameters", **{"max-bandwidth": 1 << 40, "downtime-limit": 100000}
            )
            self.ask("migrate", uri=f"file:{part}")
            until = time.monotonic() + PATIENCE
            while (about := self.ask("query-migrate")).get("status") != "completed":
                if about.get("status") in ("failed", "cancelled") or time.monotonic() > until:
                    free = _free(to.parent)
                    raise WorkError(
                        f"{to.parent}: no snapshot could be written ({about.get('error-desc')}); "
                        f"{text.size(free)} are free there: make room, or set XDG_CACHE_HOME"
                    )
                time.sleep(0.01)
            part.replace(to)
        finally:
            part.unlink(missing_ok=True)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _escaped(path: Path) -> str:
    """A path, escaped for use as the value of an option of QEMU."""
    return str(path).replace(",", ",,")


def snapshots() -> Path:
    """The folder of snapshots."""
    folder = cache() / "snapshots"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def snapshot(key: str) -> Path:
    """The path of the snapshot with this key, which may not exist yet.

    The oldest other snapshots are removed.
    """
    folder = snapshots()
    wanted = folder / key
    if wanted.exists():
        os.utime(wanted)
    for path in folder.glob("*.part"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > 3600:
                path.unlink()
    found = sorted(
        (path for path in folder.iterdir() if path.suffix != ".part"),
        key=lambda path: path.stat().st_mtime,
    )
    for path in found[: max(len(found) - KEPT, 0)]:
        if path != wanted:
            path.unlink(missing_ok=True)
    return wanted


def run(session: Session, plugin: bool = True) -> "subprocess.Popen[bytes]":
    """Starts QEMU without a recording. With `plugin`, QEMU stops at the guest's pauses."""
    line = [str(qemu()), *session.line]
    if plugin:
        line += ["-plugin", "pagewalk,markers=on"]
    child = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=session.descriptors(),
    )
    session.begun()
    session.let_go()
    return child
