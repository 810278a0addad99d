"""A recording of a kernel alone: an ELF file that QEMU boots by its PVH note, without Linux.

```
 kernel's ELF file --> segments, which are the regions of its image; symbols
                   --> QEMU -kernel, with the words of its command line
 kernel --> serial line --> standard output
        --> markers, or the machine's start --> recording --> the machine's end
```

Nothing is known of the kernel's tasks. Address spaces are told apart by their root (CR3).
"""

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk._native import Error
from pagewalk.options import native_path
from pagewalk.output import refuse_no_trace
from pagewalk.systems import machine, packages, recording

if TYPE_CHECKING:
    from pagewalk.progress import Progress

LEAST = 16 << 20
"""The least memory of a machine in bytes."""
EXIT_PORT = "isa-debug-exit,iobase=0xf4,iosize=1"
"""The device by which a kernel ends its machine. QEMU's status is twice the byte that the kernel
writes to the port, plus 1.
"""
_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_PART = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_LOAD, _NOTES = 1, 4
_X86_64 = 62
_PVH = (b"Xen\0", 18)
"""The owner and the kind of the note with the address at which QEMU enters a kernel."""
_PAGE = 4096

Segment = tuple[int, int, int, int]
"""A part of the image: its first address, size in bytes, rights, and offset in the file."""


def is_elf(path: str | os.PathLike[str]) -> bool:
    """Whether the file exists and is an ELF file."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def segments(path: Path) -> list[Segment]:
    """The parts of a kernel's image in whole pages.

    Raises:
        Error: QEMU cannot boot the file.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Error(f"--kernel {path}: cannot be read: {error.strerror}") from error
    damaged = Error(f"--kernel {path}: is a damaged ELF file: link the kernel again")
    try:
        if content[4] != 2 or struct.unpack_from("<H", content, 18)[0] != _X86_64:
            raise Error(f"--kernel {path}: is not for x86-64: only 64-bit kernels can be recorded")
        parts = list(_parts(content))
        notes = [note for part in parts if part[0] == _NOTES for note in _notes(content, part)]
    except (struct.error, IndexError) as error:
        raise damaged from error
    if any(owner == b"Linux\0" for owner, _ in notes):
        raise Error(f"--kernel {path}: is Linux as an ELF file: give its bzImage instead")
    if _PVH not in notes:
        raise Error(
            f"--kernel {path}: has no PVH note, by which QEMU boots an ELF file: add one "
            "(XEN_ELFNOTE_PHYS32_ENTRY), as in Pagewalk's kernel/src/arch/x86_64/boot.s"
        )
    found = []
    for kind, flags, offset, start, _, _, size, _ in parts:
        if kind == _LOAD and size > 0:
            within = start % _PAGE
            rights = (flags >> 2 & 1) | (flags & 2) | (flags & 1) << 2
            size = -(-(size + within) // _PAGE) * _PAGE
            found.append((start - within, size, rights, max(offset - within, 0)))
    return found


def _parts(content: bytes) -> Iterator[tuple[int, ...]]:
    head = _HEAD.unpack_from(content)
    at, each, count = head[5], head[9], head[10]
    for index in range(count):
        yield _PART.unpack_from(content, at + index * each)


def _notes(content: bytes, part: tuple[int, ...]) -> Iterator[tuple[bytes, int]]:
    at, end = part[2], part[2] + part[5]
    while at + _NOTE.size <= end:
        owner, size, kind = _NOTE.unpack_from(content, at)
        at += _NOTE.size
        yield content[at : at + owner], kind
        at += -(-owner // 4) * 4 + -(-size // 4) * 4


@dataclass(frozen=True)
class KernelRecording:
    """A kernel to record without a system around it.

    Args:
        kernel: The kernel, an ELF file for x86-64 with a PVH note.
        words: The words of its command line.
        initrd: A file that the kernel gets as a module.
        memory: The size of the machine's memory in bytes.
        cpus: The number of the machine's processors. With one processor, two recordings of the same
            kernel are equal.
        boot: Whether recording begins with the machine, and not at a marker that the kernel runs.
        fetches: Whether to record instruction fetches.
        skip: Number of accesses to leave out at the beginning.
        max_accesses: Number of accesses after which recording ends.
        callbacks: Whether the recorder uses only callbacks.
        check: Whether each load and store is compared with QEMU's own TLB.
    """

    kernel: Path
    words: Sequence[str] = ()
    initrd: str | None = None
    memory: int = 1 << 30
    cpus: int = 1
    boot: bool = False
    fetches: bool = True
    skip: int = 0
    max_accesses: int | None = None
    callbacks: bool = False
    check: bool = False

    def __post_init__(self) -> None:
        """Raises an error if there is no such machine."""
        recording.check_machine(self.memory, self.cpus, LEAST)

    @property
    def name(self) -> str:
        """The kernel's name without its directory."""
        return self.kernel.name

    def record(
        self,
        output: str | os.PathLike[str],
        force: bool = False,
        progress: "Progress | None" = None,
    ) -> dict[str, Any]:
        """Boots the kernel and writes the trace of its machine, until the machine ends.

        Returns:
            As `Recording.record`. `exit_status` is QEMU's status, and `stdout` has the last MiB
            that the kernel wrote to its first serial line, as bytes.

        Raises:
            Error: QEMU cannot boot the kernel, or something that the machine needs is missing.
            WorkError: The trace cannot be written.
        """
        refuse_no_trace(output)
        parts = segments(self.kernel)
        if self.initrd is not None and not Path(self.initrd).is_file():
            raise Error(f"--initrd {self.initrd}: there is no such file")
        session = machine.Session(self._line(), "while it is recorded")
        told = {
            "command": [native_path(word) for word in (self.name, *self.words)],
            "kernel": self.name,
            "qemu": str(machine.qemu()),
            "arguments": [native_path(word) for word in session.line],
            "facts": ["check=on"] if self.check else [],
            "image": native_path(str(self.kernel.absolute())),
            "segments": parts,
            "regions": [],
            "boot": self.boot,
            "fetches": self.fetches,
            "callbacks": self.callbacks,
            "skip": self.skip,
            "max_accesses": self.max_accesses,
            "notes": self._notes(),
        }
        reasons: list[str] = []

        def steer() -> None:
            session.greet()
            session.ask("cont")
            reasons.append(session.reason())

        result = recording.run(session, told, output, force, progress, steer)
        if "guest-reset" in reasons:
            result["notes"].append(
                "the kernel has reset its machine, as a triple fault does; the machine is not "
                "started again"
            )
        if result["accesses"] == 0 and not self.boot:
            result["notes"].append(
                "the kernel has run no marker that begins a recording: --boot records from the "
                "start of the machine"
            )
        return result | {"stdout": session.written, "stderr": b""}

    def _line(self) -> list[str]:
        """QEMU's arguments."""
        roms = packages.option_rom().parent
        line = machine.common(self.memory, self.cpus, packages.firmware())
        line += ["-L", str(roms), "-S", "-device", EXIT_PORT, "-kernel", str(self.kernel)]
        line += ["-append", " ".join(self.words)] if self.words else []
        return line + (["-initrd", self.initrd] if self.initrd is not None else [])

    def _notes(self) -> list[str]:
        what = "from the start of the machine" if self.boot else "from a marker of the kernel"
        return [
            f"a kernel recorded in QEMU: {self.name}, {what}; {text.size(self.memory)} of memory; "
            f"{recording.clock(self.cpus)}",
            recording.PROCESSOR_NOTE,
        ]
