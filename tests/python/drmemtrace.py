"""DynamoRIO's final traces, byte by byte from their layout, in every container they come in;
and a decoder of what Pagewalk exports.

A record is 12 bytes: type 2, size 2, address 8. A marker is a record of type 28 whose size says
which and whose address is its value.
"""

import io
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

SYSTEM_CALL = 1 << 32
MMAP, MUNMAP = 9, 11


def record(kind: int, size: int, addr: int) -> bytes:
    return struct.pack("<HHQ", kind, size, addr)


def marker(which: int, value: int) -> bytes:
    return record(28, which, value)


def instruction(pc: int, size: int = 4) -> bytes:
    return record(10, size, pc)


def load(addr: int, size: int = 8) -> bytes:
    return record(0, size, addr)


def store(addr: int, size: int = 8) -> bytes:
    return record(1, size, addr)


def time(stamp: int, processor: int = 0) -> bytes:
    return marker(2, stamp) + marker(3, processor)


def start(tid: int, pid: int, version: int = 7) -> bytes:
    """The records before the first time: version, x86-64, thread, process, lines, chunks, pages."""
    return b"".join(
        [
            record(25, 0, version), marker(12, version), marker(9, 0x40), record(22, 4, tid),
            record(24, 4, pid), marker(10, 64), marker(20, 10_000_000), marker(18, 4096),
        ]
    )  # fmt: skip


def end(tid: int) -> bytes:
    return record(23, 4, tid) + record(26, 0, 0)


def call(number: int, arguments: Sequence[int], result: int) -> bytes:
    """A system call that was recorded with its arguments and its result."""
    function = marker(4, SYSTEM_CALL + number)
    return (
        function + b"".join(marker(6, value) for value in arguments) + function + marker(7, result)
    )


def schedule(*entries: tuple[int, int]) -> bytes:
    """Threads and the times from which they may run."""
    return b"".join(struct.pack("<4Q", tid, stamp, 0, 0) for tid, stamp in entries)


def zipped(*members: bytes) -> bytes:
    """A zip with a member a chunk."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, member in enumerate(members):
            archive.writestr(f"chunk.{number:04}", member)
    return file.getvalue()


def lz4(data: bytes) -> bytes:
    """An lz4 frame."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def snappy(data: bytes) -> bytes:
    """Framed snappy: a marker, then chunks of type 0, length 3, masked checksum 4, data."""
    out = [b"\xff\x06\x00\x00sNaPpY"]
    for at in range(0, len(data), 1 << 16):
        piece = data[at : at + (1 << 16)]
        checksum = crc32c(piece)
        masked = ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFF_FFFF
        body = struct.pack("<I", masked) + pa.compress(piece, codec="snappy", asbytes=True)
        out.append(b"\x00" + len(body).to_bytes(3, "little") + body)
    return b"".join(out)


def crc32c(data: bytes) -> int:
    """CRC-32 of Castagnoli's polynomial, reflected, a bit at a time."""
    remainder = 0xFFFF_FFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F6_3B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFF_FFFF


WHOLE_SYSTEM = 0x40000
"""The bit of the file type that says that the kernel and all programs are in the trace."""

_FETCHES = {10, 48, 49}


@dataclass
class Decoded:
    """A file, decoded by DynamoRIO's description of its records alone."""

    filetype: int = 0
    interrupts: int = 0
    instructions: list[tuple[int, int, int | None]] = field(default_factory=list)
    """Address, length and physical address of each instruction."""
    data: list[tuple[str, int, int, int | None]] = field(default_factory=list)
    """Kind, address, size and physical address of each load and store."""
    order: list[int] = field(default_factory=list)
    """For each load and store, the number of instructions up to its own."""
    processes: set[int] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)


def decoded(content: bytes) -> Decoded:
    """Decodes a final trace; pages with markers are kept by process, as a TLB keeps them."""
    out = Decoded()
    pages: dict[tuple[int, int], int] = {}
    pid, tid, physical = -1, -1, None
    for kind, size, addr in struct.iter_unpack("<HHQ", content):
        frame = pages.get((pid, addr >> 12))
        located = None if frame is None else frame + (addr & 0xFFF)
        if kind == 22:
            # A thread is followed by its process.
            tid, pid = addr, -1
        elif kind == 24:
            pid = addr
        elif kind == 28 and size == 9:
            out.filetype = addr
        elif kind == 28 and size == 15:
            physical = addr
        elif kind == 28 and size == 17:
            assert physical is not None and physical % 4096 == addr % 4096 == 0
            pages[pid, addr >> 12], physical = physical, None
        elif kind == 28 and size == 16:
            pages.pop((pid, addr >> 12), None)
        elif kind == 28 and size == 43:
            out.interrupts += 1
        elif kind in (0, 1):
            out.data.append(("load" if kind == 0 else "store", addr, size, located))
            out.order.append(len(out.instructions))
        elif kind in _FETCHES:
            assert pid >= 0 and tid >= 0
            out.processes.add(pid)
            out.threads.add(tid)
            out.instructions.append((addr, size, located))
        else:
            assert kind in (23, 25, 26, 29) or (kind == 28 and size in (2, 3, 10, 12, 18)), (
                kind, size,
            )  # fmt: skip
    return out
