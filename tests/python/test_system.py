"""The events of translation that `qemu-system-x86_64` reports while Linux boots and works in it.

The checker inside (`qemu/pagewalk/check.c`) compares each fill with QEMU's TLB, with its
walk for debuggers and with the machine's memory. `make torture` builds this QEMU and runs them.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "qemu"))

import build  # noqa: E402

FULL = "PAGEWALK_TORTURE" in os.environ
SEED = int(os.environ.get("PAGEWALK_TORTURE_SEED", "53"))
pytestmark = pytest.mark.skipif(not FULL, reason="`make torture` runs it")

INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /tmp /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
export PATH=/bin
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /tmp
mount -t devtmpfs devtmpfs /dev 2>/dev/null
echo always >/sys/kernel/mm/transparent_hugepage/enabled

# Shells, files and programs.
for i in $(seq 30); do
    dd if=/bin/pages of=/tmp/copy bs=4k 2>/dev/null
    gzip -c /tmp/copy | gunzip -c | cmp - /bin/pages || echo "wrong: gzip"
    seq 2000 | sort -r | sort -n | tail -1 | grep -qx 2000 || echo "wrong: sort"
    tar -cf - -C / bin/pages init | tar -xf - -C /tmp
    find /proc/self /sys/kernel -type f >/tmp/found 2>/dev/null
done

for processor in $(grep -o '^processor' /proc/cpuinfo); do
    seed=$((${seed:-SEED} + 1))
    pages ROUNDS $seed /tmp/pages.$seed &
done
wait
echo "processors $(grep -c ^processor /proc/cpuinfo)"
echo "levels $(grep -qw la57 /proc/cpuinfo && echo 5 || echo 4)"
grep -E '^(pgfault|thp_fault_alloc|nr_tlb_)' /proc/vmstat
echo "timer $(awk '$1 == "LOC:" { print $2 + $3 }' /proc/interrupts)"
echo done
poweroff -f
"""


@dataclass(frozen=True)
class Packages:
    """What a machine needs, from the distribution's packages or from variables."""

    kernel: Path
    busybox: Path
    firmware: Path


def need(path: Path, otherwise: str) -> Path:
    if not path.exists():
        pytest.fail(f"there is no {path}: {otherwise}", pytrace=False)
    return path


def said(*command: object, cwd: Path | None = None) -> str:
    """What a command says; the test fails with one line if the command fails."""
    line = list(map(str, command))
    if shutil.which(line[0]) is None:
        pytest.fail(f"{line[0]} is missing; {BY_HAND}", pytrace=False)
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode != 0:
        why = (done.stderr.strip() or "no reason given").splitlines()[-1]
        pytest.fail(f"`{' '.join(line)}` failed: {why}; {BY_HAND}", pytrace=False)
    return done.stdout


FETCHED = {
    "PAGEWALK_KERNEL": ("linux-image-cloud-amd64", "./boot/vmlinuz-*"),
    "PAGEWALK_BUSYBOX": ("busybox-static", "*/bin/busybox"),
    "PAGEWALK_FIRMWARE": ("seabios", "./usr/share/seabios/bios-256k.bin"),
}
"""Variables that name a file, and else the package and the file in it that are fetched by apt."""
BY_HAND = f"set {', '.join(FETCHED)} to a kernel for x86-64, a static busybox and a bios-256k.bin"


def fetched(variable: str, folder: Path) -> Path:
    """The file that a variable names, or the one of a package."""
    if variable in os.environ:
        return need(Path(os.environ[variable]), f"{variable} names it")
    package, pattern = FETCHED[variable]
    to = folder / package
    if not to.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            found = said("apt-cache", "depends", "--important", package).splitlines()
            # The newest kernel is what this package depends on.
            images = [line.split()[-1] for line in found if "Depends: linux-image-" in line]
            said("apt-get", "download", *(images or [package])[:1], cwd=Path(scratch))
            [file] = Path(scratch).glob("*.deb")
            out = Path(scratch) / "out"
            out.mkdir()
            script = 'dpkg-deb --fsys-tarfile "$0" | tar -x -C "$1" --wildcards "$2"'
            said("sh", "-c", script, file, out, pattern)
            out.rename(to)
    return next(path for path in to.rglob(Path(pattern).name) if path.is_file())


@pytest.fixture(scope="module")
def packages() -> Packages:
    folder = build.cache() / "guest"
    return Packages(*(fetched(variable, folder) for variable in FETCHED))


@pytest.fixture(scope="module")
def qemu() -> Path:
    folder = Path(os.environ.get("PAGEWALK_QEMU_DIR", build.PACKAGE)) / "system"
    return need(folder / "qemu-system-x86_64", "`make qemu-system` builds it")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("pages") / "pages"
    if shutil.which("gcc") is None:
        pytest.fail("gcc is missing: `make test` installs it", pytrace=False)
    source = Path(__file__).parent / "pages.c"
    subprocess.run(["gcc", "-O2", "-static", "-o", program, source], check=True)
    return program


def archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    """An initial file system for Linux, in cpio's format `newc`: modes and contents by names."""
    written = bytearray()
    for inode, (name, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], 1):
        device = (5, 1) if mode & 0o170000 == 0o020000 else (0, 0)
        terminated = name.encode() + b"\0"
        numbers = [inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(terminated), 0]
        written += b"070701" + b"".join(b"%08X" % number for number in numbers) + terminated
        written += b"\0" * (-len(written) % 4) + content
        written += b"\0" * (-len(written) % 4)
    return bytes(written)


def checked(
    qemu: Path, packages: Packages, pages: Path, folder: Path, rounds: int, *options: str
) -> tuple[dict[str, int], dict[str, str]]:
    """Boots Linux under the checker: what was checked, and what the machine says of itself."""
    init = INIT.replace("ROUNDS", str(rounds)).replace("SEED", str(SEED))
    initrd = folder / "initrd"
    initrd.write_bytes(
        archive(
            {
                "dev": (0o040755, b""),
                "dev/console": (0o020600, b""),
                "bin": (0o040755, b""),
                "bin/busybox": (0o100755, packages.busybox.read_bytes()),
                "bin/pages": (0o100755, pages.read_bytes()),
                "init": (0o100755, init.encode()),
            }
        )
    )
    counts = folder / "counts.json"
    command = [
        qemu, "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio",
        "-no-reboot", "-machine", "pc", "-m", "1G", "-L", qemu.parent, "-bios", packages.firmware,
        "-kernel", packages.kernel, "-initrd", initrd,
        # A busy host does not keep the time that the kernel's check of its timer asks for.
        "-append", "console=ttyS0 quiet panic=-1 no_timer_check",
        "-plugin", f"pagewalk,check={counts}", *options,
    ]  # fmt: skip
    line = list(map(str, command))
    done = subprocess.run(
        line, stdin=subprocess.DEVNULL, capture_output=True, timeout=3600, check=False
    )
    serial = done.stdout.decode(errors="replace").replace("\r", "")
    print(serial[-2000:])
    assert done.returncode == 0, done.stderr.decode()
    assert "wrong:" not in serial
    lines = [said.split(maxsplit=1) for said in serial.splitlines() if " " in said]
    assert serial.count("pages: ok") == serial.count("pages: seed") > 0
    assert "\ndone\n" in serial
    document = json.loads(counts.read_text())
    print(json.dumps(document, indent=2))
    assert document["differences"] == 0, done.stderr.decode()
    assert done.stderr == b""
    return document, dict(lines)


def covers(counts: dict[str, int], machine: dict[str, str]) -> None:
    """Whether all kinds of events came, and as many as the machine counted itself."""
    for name in (
        "pages of 4K", "pages of 2M", "loads", "stores", "fetches", "by user", "without paging",
        "faults", "writes of CR0", "writes of CR4", "pages invalidated",
    ):  # fmt: skip
        assert counts[name] > 0, name
    assert counts["by user"] < counts["fills"]
    assert counts["compared with QEMU's TLB"] == counts["fills"]
    assert counts["exceptions"] >= counts["faults"] >= int(machine["pgfault"])
    assert counts["interrupts"] >= int(machine["timer"]) > 0
    assert counts["flushes"] >= counts["writes of CR3"] / 2 > 1000


def test_ten_million_fills_equal_qemus_own_answer(
    qemu: Path, packages: Packages, pages: Path, tmp_path: Path
) -> None:
    processor = "max,la57=off"
    counts, machine = checked(qemu, packages, pages, tmp_path, 350, "-cpu", processor)
    covers(counts, machine)
    assert machine["levels"] == "4"
    assert counts["fills"] >= 10_000_000
    assert counts["compared with QEMU's walk"] == counts["fills"]
    assert counts["entries compared with memory"] == counts["entries"]


def test_page_tables_of_five_levels(
    qemu: Path, packages: Packages, pages: Path, tmp_path: Path
) -> None:
    # Linux maps memory by pages of 1G where a whole aligned gigabyte exists.
    options = ["-cpu", "max", "-m", "2100M"]
    counts, machine = checked(qemu, packages, pages, tmp_path, 100, *options)
    covers(counts, machine)
    assert machine["levels"] == "5"
    assert counts["pages of 1G"] > 0
    assert counts["entries compared with memory"] == counts["entries"]


@pytest.mark.parametrize("threads", ["single", "multi"])
def test_two_processors(
    qemu: Path, packages: Packages, pages: Path, tmp_path: Path, threads: str
) -> None:
    options = ["-smp", "2", "-accel", f"tcg,thread={threads}", "-cpu", "max,la57=off"]
    counts, machine = checked(qemu, packages, pages, tmp_path, 100, *options)
    covers(counts, machine)
    assert machine["processors"] == "2"
    assert (counts["entries compared with memory"] > 0) == (threads == "single")
