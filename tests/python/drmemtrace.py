"""DynamoRIO's final traces, byte by byte from their layout, in every container they come in.

A record is 12 bytes: type 2, size 2, address 8. A marker is a record of type 28 whose size says
which and whose address is its value.
"""

import io
import struct
import zipfile
from collections.abc import Sequence

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
