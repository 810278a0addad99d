"""The kernel, the busybox and the firmware of a system.

They are from packages of the distribution, which are downloaded once.

On other distributions, variables name the files: `PAGEWALK_KERNEL`, `PAGEWALK_BUSYBOX`,
`PAGEWALK_FIRMWARE`, and for a kernel alone `PAGEWALK_PVH`.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pagewalk._native import Error

BUSYBOX, FIRMWARE, KERNEL = "PAGEWALK_BUSYBOX", "PAGEWALK_FIRMWARE", "PAGEWALK_KERNEL"
OPTION_ROM = "PAGEWALK_PVH"
FETCHED = {
    KERNEL: ("linux-image-cloud-amd64", ("./boot/vmlinuz-*", "*/virtio*.ko*")),
    BUSYBOX: ("busybox-static", ("*/bin/busybox",)),
    FIRMWARE: ("seabios", ("./usr/share/seabios/bios-256k.bin",)),
    OPTION_ROM: ("qemu-system-data", ("./usr/share/qemu/pvh.bin",)),
}
"""For each file: the variable that may name it, and otherwise the package and the files in it that
are downloaded.

The first pattern is for the file that the variable names.
"""


@dataclass(frozen=True)
class Packages:
    """The files of a system, and the folder with the modules of its kernel, if there are any."""

    kernel: Path
    busybox: Path
    firmware: Path
    modules: Path | None


def cache() -> Path:
    """The folder for packages and snapshots, which only the user may access."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "pagewalk" / "system"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def firmware() -> Path:
    """SeaBIOS.

    Raises:
        Error: The file is missing, or cannot be downloaded.
    """
    return _file(FIRMWARE)


def option_rom() -> Path:
    """QEMU's code that enters a kernel by its PVH note.

    Raises:
        Error: The file is missing, or cannot be downloaded.
    """
    return _file(OPTION_ROM)


def find(kernel: str | None) -> Packages:
    """The files of a system with its own kernel or with that of the distribution.

    Raises:
        Error: A file is missing, or cannot be downloaded.
    """
    busybox, firmware = _file(BUSYBOX), _file(FIRMWARE)
    if kernel is not None:
        path = Path(kernel)
        if not path.is_file():
            raise Error(f"--kernel {kernel}: there is no such file: name a bzImage for x86-64")
        return Packages(path, busybox, firmware, _modules_of(path))
    path = _file(KERNEL)
    folder = path.parent.parent / "lib" / "modules"
    fetched = next(iter(sorted(folder.glob("*"))), None) if folder.is_dir() else None
    return Packages(path, busybox, firmware, fetched or _modules_of(path))


def _modules_of(kernel: Path) -> Path | None:
    """The folder with modules for the kernel's version.

    It is beside the kernel, or installed on this system.
    """
    version = version_of(kernel)
    for root in (kernel.parent.parent, kernel.parent, Path("/")):
        folder = root / "lib" / "modules" / version
        if folder.is_dir():
            return folder
    return None


def version_of(kernel: Path) -> str:
    """The version that a bzImage names in its header.

    Raises:
        Error: The file is not a kernel for x86-64.
    """
    head = kernel.read_bytes()[: 1 << 16]
    if head[0x202:0x206] != b"HdrS":
        raise Error(
            f"{kernel} is not a bzImage of Linux for x86-64: give a kernel image, such as "
            "/boot/vmlinuz"
        )
    at = int.from_bytes(head[0x20E:0x210], "little") + 0x200
    words = head[at : at + 128].split(b"\0")[0].split()
    return words[0].decode(errors="replace") if words else ""


def _file(variable: str) -> Path:
    if variable in os.environ:
        path = Path(os.environ[variable])
        if not path.is_file():
            raise Error(f"{path}, which {variable} names, is not a file")
        return path
    package, patterns = FETCHED[variable]
    to = cache() / "packages" / package
    if not to.is_dir():
        _fetch(package, patterns, to)
    return next(path for path in sorted(to.rglob(Path(patterns[0]).name)) if path.is_file())


def _fetch(package: str, patterns: tuple[str, ...], to: Path) -> None:
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        found = _said("apt-cache", "depends", "--important", package).splitlines()
        # This package depends on the newest kernel.
        images = [line.split()[-1] for line in found if "Depends: linux-image-" in line]
        _said("apt-get", "download", *(images or [package])[:1], cwd=Path(scratch))
        [file] = Path(scratch).glob("*.deb")
        out = Path(scratch) / "out"
        out.mkdir()
        script = 'dpkg-deb --fsys-tarfile "$0" | tar -x -C "$1" --wildcards "${@:2}"'
        _said("bash", "-c", script, file, out, *patterns)
        out.rename(to)


def _said(*command: object, cwd: Path | None = None) -> str:
    by_hand = (
        f"set {KERNEL}, {BUSYBOX} and {FIRMWARE} to a kernel for x86-64, a static busybox and a "
        "bios-256k.bin"
    )
    line = list(map(str, command))
    if shutil.which(line[0]) is None:
        raise Error(
            f"{line[0]} is not installed, but is needed to download the packages of a system: "
            f"{by_hand}"
        )
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode != 0:
        why = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise Error(f"`{' '.join(line[:3])}` failed: {why}; {by_hand}")
    return done.stdout
