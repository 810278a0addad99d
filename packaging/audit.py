"""Audits a wheel: whether what its name promises holds on every system that installs it.

```
 name          manylinux_2_N: the glibc at least that is there; abi3, cp310: the Pythons
 native half   processor; libraries that every such system has; symbols of glibc 2.N or older;
               symbols of Python that are stable since 3.10 (abi3audit)
 plugins       likewise: QEMUs of the system load them
 programs      linked with no library
 libraries     preloaded into programs of any processor: linked with no library
 licences      the texts that the GPL asks for, beside the programs
```

PEP 600 says which libraries a system has. `audit` returns what is wrong, a line each.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

BYTES_MAX = 40_000_000
LIBRARIES = {
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
"""Libraries that Rust's standard library links and that a wheel may expect (PEP 600)."""
DYNAMIC = ("pagewalk/_native.abi3.so", "pagewalk/plugins/pagewalk-recorder-*.so")
"""Files that programs of the system load. All other files of a wheel link no library."""
RECORDS = (
    "pagewalk/plugins/pagewalk-engine",
    "pagewalk/plugins/pagewalk-recorder-v1.so",
    "pagewalk/plugins/pagewalk-recorder-v4.so",
    "pagewalk/plugins/pagewalk-allocations-x86_64.so",
    "pagewalk/qemu/qemu-x86_64",
    "pagewalk/qemu/linked",
    "pagewalk/qemu/LICENSE",
    "pagewalk/qemu/COPYING",
    "pagewalk/qemu/COPYING.LIB",
)
"""Files that a recording wheel must have, and an analysing one must not."""


def audit(wheel: Path) -> list[str]:
    """The errors of a wheel."""
    name = re.fullmatch(
        r"pagewalk-[^-]+-cp310-abi3-manylinux_2_(\d+)_(x86_64|aarch64)\.whl", wheel.name
    )
    if name is None:
        return ["its name is not that of a wheel of abi3 for Python 3.10 and a manylinux"]
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder)
        return list(_wrong(wheel, Path(folder), int(name[1]), name[2]))


def _wrong(wheel: Path, tree: Path, glibc: int, processor: str) -> Iterator[str]:
    size = wheel.stat().st_size
    if size > BYTES_MAX:
        yield f"it has {size} bytes, more than {BYTES_MAX}"
    for each in RECORDS:
        if (tree / each).is_file() != (processor == "x86_64"):
            yield f"{each} is {'missing' if processor == 'x86_64' else 'in a wheel for analysis'}"
    for path in sorted(tree.rglob("*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            name = str(path.relative_to(tree))
            yield from (f"{name}: {each}" for each in _wrong_in(path, name, glibc, processor))
    module = tree / "pagewalk/_native.abi3.so"
    command = ["abi3audit", "--strict", "--assume-minimum-abi3", "3.10", str(module)]
    command[0] = str(Path(sys.executable).with_name(command[0]))
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        yield f"pagewalk/_native.abi3.so: {' '.join((ran.stdout + ran.stderr).split())}"


def _wrong_in(path: Path, name: str, glibc: int, processor: str) -> Iterator[str]:
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = [part for part in elf.iter_sections() if isinstance(part, DynamicSection)]
        tags = [tag for part in dynamic for tag in part.iter_tags()]
        needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
        if not any(fnmatch(name, each) for each in DYNAMIC):
            if needed:
                yield f"needs {', '.join(sorted(needed))}, and should need no library"
            return
        machine = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}.get(elf["e_machine"])
        if machine != processor:
            yield f"is for {machine or elf['e_machine']}"
        if needed - LIBRARIES:
            yield f"needs {', '.join(sorted(needed - LIBRARIES))}, which not every system has"
        if any(tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH") for tag in tags):
            yield "looks for libraries in a folder of its own"
        for part in elf.iter_sections():
            if isinstance(part, GNUVerNeedSection):
                for _, versions in part.iter_versions():
                    for version in versions:
                        found = re.fullmatch(r"GLIBC_2\.(\d+)(\.\d+)?", version.name)
                        if found and int(found[1]) > glibc:
                            yield f"needs {version.name}, and glibc 2.{glibc} may be all there is"


def main() -> None:
    """Says what is wrong with wheels, and fails if anything is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, nargs="+")
    wrong = False
    for wheel in parser.parse_args().wheel:
        found = audit(wheel)
        wrong |= bool(found)
        size = f"{wheel.stat().st_size / 1e6:.1f} MB"
        print("\n".join(f"{wheel.name}: {each}" for each in found or [f"no fault found, {size}"]))
    sys.exit(wrong)


if __name__ == "__main__":
    main()
