"""Confines 32-bit programs to a small range of addresses, for small spaces (U02 section 3.3).

```
 0             a third: stack, libraries, mmap     128M: program, heap        SMALL
 |-------------|-----------------------------------|--------------------------|
```

`qemu-i386` reserves this range of addresses for the program, and refuses it other addresses. It
places the stack, libraries and other mappings from a third of the range upwards. Programs and their
libraries may be in a separate folder, into which `dpkg-deb -x` has unpacked them.
"""

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagewalk import text
from pagewalk._native import Error

LEAST, MOST = 64 << 20, 2 << 30
"""Limits of the range in bytes: the smallest for a program with libraries, and the largest slot."""
_HEAD = 20
_X86 = b"\x03\x00"
_FILE = struct.Struct("<28xI10xHH6x")
"""Fields of a 32-bit ELF header: the offset, size and number of its program headers."""
_SEGMENT = struct.Struct("<I4xI8xI")
"""Fields of a program header: its type, its address, its bytes in memory."""
_LOAD = 1
_PLACES = ("usr/local/bin", "usr/bin", "bin", "usr/sbin", "sbin", "usr/games")


def check(small: int | None, sysroot: Path | None) -> None:
    """Checks the arguments.

    Raises:
        Error: The bytes do not fit a slot, or there is no such folder.
    """
    if small is not None and (not LEAST <= small <= MOST or small & (small - 1)):
        raise Error(
            f"--small: {text.size(small)} is not the size of a slot: write a power of two from 64M "
            "to 2G"
        )
    if sysroot is not None and not sysroot.is_dir():
        raise Error(f"--sysroot {sysroot}: there is no such folder")


def found(command: str, small: int | None, sysroot: Path | None) -> str:
    """The path of the program `command`, inside the folder if one is given.

    Raises:
        Error: The program does not exist, or it cannot be confined.
    """
    path = command
    if sysroot is not None and "/" not in command:
        inside = shutil.which(command, path=_path(sysroot))
        if inside is None:
            raise Error(
                f"{command}: there is no such program in {sysroot}: unpack its package there"
            )
        path = inside
    elif "/" not in command:
        path = shutil.which(command) or command
    if small is not None and (why := _unfit(Path(path))):
        raise Error(
            f"--small: {path} is {why}, and only programs of 32 bits, for i386, can be confined: "
            "unpack 32-bit packages into a folder and name it with --sysroot"
        )
    end = _end(Path(path)) if small is not None else 0
    if small is not None and end > small:
        most = "no slot is that large, so link it at a lower address"
        if end <= MOST:
            slot = (1 << (end - 1).bit_length()) >> 20
            most = f"give it --small {slot}M, or link it at a lower address"
        raise Error(
            f"--small: {path} is linked up to {end:#x}, and a slot of {text.size(small)} ends at "
            f"{small:#x}: {most}"
        )
    return path


def _unfit(path: Path) -> str:
    """Why the program cannot be confined. Empty if it can be confined, or if it does not exist."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return ""
    if head[:4] != b"\x7fELF":
        return ""
    if head[4] == 2:
        return "a program of 64 bits"
    return "" if head[18:20] == _X86 else "for another processor"


def _end(path: Path) -> int:
    """The end address of the program's image, from its program headers.

    0 if it is not a 32-bit program.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_FILE.size)
            if len(head) < _FILE.size or head[:5] != b"\x7fELF\x01":
                return 0
            headers, bytes_of_one, count = _FILE.unpack(head)
            file.seek(headers)
            rows = [file.read(bytes_of_one) for _ in range(count)]
    except OSError:
        return 0
    segments = [_SEGMENT.unpack_from(row) for row in rows if len(row) >= _SEGMENT.size]
    return max((start + size for kind, start, size in segments if kind == _LOAD), default=0)


def _path(sysroot: Path) -> str:
    return os.pathsep.join(str(sysroot.absolute() / place) for place in _PLACES)


@contextmanager
def surroundings(small: int | None, sysroot: Path | None) -> Iterator[None]:
    """A context within which QEMUs confine their programs, and look for libraries in the folder."""
    kept = dict(os.environ)
    try:
        if small is not None:
            os.environ["QEMU_RESERVED_VA"] = hex(small)
        if sysroot is not None:
            os.environ["QEMU_LD_PREFIX"] = str(sysroot.absolute())
            path = kept.get("PATH", "/usr/bin:/bin")
            os.environ["PATH"] = f"{_path(sysroot)}{os.pathsep}{path}"
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
