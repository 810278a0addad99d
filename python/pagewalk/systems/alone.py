"""A recording of a kernel alone: an ELF file that QEMU boots by its PVH note, without Linux.

```
 kernel's ELF file --> segments, which are the regions of its image; symbols
                   --> QEMU -kernel, with the words of its command line
 kernel --> serial line --> standard output
        --> first instruction, or a marker --> recording --> the machine's end, or a marker
```

Nothing is known of the kernel's tasks. Address spaces are told apart by their root (CR3).
"""

import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk._native import Error
from pagewalk.options import native_path
from pagewalk.output import refuse_no_trace
from pagewalk.systems import guest, machine, packages, recording

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

_BEGIN = guest.marker_bytes(guest.BEGIN)


@dataclass(frozen=True)
class Image:
    """What is known of a kernel from its ELF file.

    Args:
        segments: The parts of the image in whole pages: first address, size in bytes, rights, and
            offset in the file.
        entry: The address of the first instruction, at which there is no page table yet.
        has_marker: Whether the file has a marker that begins a recording.
    """

    segments: list[tuple[int, int, int, int]]
    entry: int
    has_marker: bool


def is_elf(path: str | os.PathLike[str]) -> bool:
    """Whether the file exists and is an ELF file."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def image(path: Path) -> Image:
    """What is known of a kernel.

    Raises:
        Error: QEMU cannot boot the file.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Error(f"--kernel {path}: cannot be read: {error.strerror}") from error
    try:
        if content[4] != 2 or struct.unpack_from("<H", content, 18)[0] != _X86_64:
            raise Error(f"--kernel {path}: is not for x86-64: only 64-bit kernels can be recorded")
        parts = list(_parts(content))
        notes = [note for part in parts if part[0] == _NOTES for note in _notes(content, part)]
        if any(part[3] + part[6] > 1 << 64 for part in parts):
            raise IndexError
    except (struct.error, IndexError, OverflowError) as error:
        raise Error(f"--kernel {path}: is a damaged ELF file: link the kernel again") from error
    if any(owner == b"Linux\0" for owner, _, _ in notes):
        raise Error(f"--kernel {path}: is Linux as an ELF file: give its bzImage instead")
    entries = [text for owner, kind, text in notes if (owner, kind) == _PVH and len(text) >= 4]
    if not entries:
        raise Error(
            f"--kernel {path}: has no PVH note, by which QEMU boots an ELF file: add one "
            "(XEN_ELFNOTE_PHYS32_ENTRY), as in Pagewalk's kernel/src/arch/x86_64/boot.s"
        )
    segments = []
    for kind, flags, offset, start, _, _, size, _ in parts:
        if kind == _LOAD and size > 0:
            within = start % _PAGE
            rights = (flags >> 2 & 1) | (flags & 2) | (flags & 1) << 2
            pages = -(-(size + within) // _PAGE) * _PAGE
            segments.append((start - within, pages, rights, max(offset - within, 0)))
    return Image(segments, int.from_bytes(entries[0][:4], "little"), _BEGIN in content)


def _parts(content: bytes) -> Iterator[tuple[int, ...]]:
    head = _HEAD.unpack_from(content)
    at, each, count = head[5], head[9], head[10]
    for index in range(count):
        yield _PART.unpack_from(content, at + index * each)


def _notes(content: bytes, part: tuple[int, ...]) -> Iterator[tuple[bytes, int, bytes]]:
    at, end = part[2], part[2] + part[5]
    while at + _NOTE.size <= end:
        owner, size, kind = _NOTE.unpack_from(content, at)
        at += _NOTE.size
        text = at + -(-owner // 4) * 4
        yield content[at : at + owner], kind, content[text : text + size]
        at = text + -(-size // 4) * 4


@dataclass(frozen=True)
class KernelRecording:
    """A kernel to record without a system around it.

    Args:
        kernel: The kernel, an ELF file for x86-64 with a PVH note.
        words: The words of its command line.
        initrd: A file that the kernel gets as a module.
        memory: The size of the machine's memory in bytes.
        cpus: The number of the machine's processors. With one processor, the machine's clock counts
            instructions, and two recordings of a kernel differ only at their ends.
        boot: Whether recording begins with the machine's firmware, and not with the kernel: at a
            marker of the kernel, if it has one that begins a recording, and else at its first
            instruction.
        fetches: Whether to record instruction fetches.
        skip: Number of accesses to leave out at the beginning.
        max_accesses: Number of accesses after which recording ends.
        ends: Whether the machine is stopped when `max_accesses` accesses have been recorded.
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
    ends: bool = False
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
            As `Recording.record`. `exit_status` is QEMU's status, and `stdout` has the bytes that
            the kernel wrote to its first serial line.

        Raises:
            Error: QEMU cannot boot the kernel, or something that the machine needs is missing.
            WorkError: The trace cannot be written.
        """
        refuse_no_trace(output)
        known = image(self.kernel)
        if self.initrd is not None and not Path(self.initrd).is_file():
            raise Error(f"--initrd {self.initrd}: there is no such file")
        with tempfile.TemporaryDirectory(prefix="pagewalk-") as folder:
            written = Path(folder) / "serial"
            session = machine.Session(self._line(), "while it is recorded", written)
            begins = [] if self.boot or known.has_marker else [f"entry={known.entry:#x}"]
            told = {
                "command": [native_path(word) for word in (self.name, *self.words)],
                "kernel": self.name,
                "qemu": str(machine.qemu()),
                "arguments": [native_path(word) for word in session.line],
                "facts": [*begins, *(["check=on"] if self.check else [])],
                "image": native_path(str(self.kernel.absolute())),
                "segments": known.segments,
                "regions": [],
                "boot": self.boot,
                "fetches": self.fetches,
                "callbacks": self.callbacks,
                "skip": self.skip,
                "max_accesses": self.max_accesses,
                "ends": self.ends,
                "notes": self._notes(known),
            }
            reasons: list[str] = []

            def steer() -> None:
                session.greet()
                session.ask("cont")
                reasons.append(session.reason())

            result = recording.run(session, told, steer, output, force=force, progress=progress)
            stdout = written.read_bytes()
        if "guest-reset" in reasons:
            result["notes"].append(
                "the kernel has reset its machine, as a triple fault does; the machine is not "
                "started again"
            )
        return result | {"stdout": stdout, "stderr": b""}

    def _line(self) -> list[str]:
        """QEMU's arguments."""
        roms = packages.option_rom().parent
        line = machine.common(self.memory, self.cpus, packages.firmware())
        line += ["-L", str(roms), "-S", "-device", EXIT_PORT, "-kernel", str(self.kernel)]
        line += ["-append", " ".join(self.words)] if self.words else []
        return line + (["-initrd", self.initrd] if self.initrd is not None else [])

    def _notes(self, known: Image) -> list[str]:
        begins = "marker" if known.has_marker else "instruction"
        what = "from the start of the machine" if self.boot else f"from the kernel's first {begins}"
        return [
            f"a kernel recorded in QEMU: {self.name}, {what}; {text.size(self.memory)} of memory; "
            f"{recording.clock(self.cpus)}",
            recording.PROCESSOR_NOTE,
        ]
