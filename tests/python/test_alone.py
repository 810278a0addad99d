"""`pagewalk record --system --kernel` with an ELF file: a kernel that is booted alone.

A recording needs the QEMU that `make qemu-system` builds, and two packages that apt fetches;
without them its tests are skipped.
"""

import json
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from pagewalk import Error, Machine, Trace
from pagewalk.systems import alone, machine, packages
from pagewalk.systems.alone import KernelRecording, segments

ROOT = Path(__file__).resolve().parents[2]
FULL = "PAGEWALK_TORTURE" in os.environ
SEED = int(os.environ.get("PAGEWALK_TORTURE_SEED", "67"))
needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is missing")
needs_assembler = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("as", "ld")), reason="the assembler is missing"
)
# A kernel without page tables: it makes 1000 loads and 1000 stores between two markers.
SMALL = """
    .intel_syntax noprefix
    .section .note.pvh, "a", @note
    .long 4, 4, 18
    .asciz "Xen"
    .long _start
    .text
    .code32
    .globl _start
    .type _start, @function
_start:
    mov ecx, 1000
    .byte 0x0f, 0x1f, 0x84, 0x00, 1, 0x00, 0x57, 0x50
    .type work, @function
work:
    mov eax, [number]
    mov [number], eax
    loop work
    .byte 0x0f, 0x1f, 0x84, 0x00, 2, 0x00, 0x57, 0x50
    mov dx, 0x3f8
    mov al, 0x6b
    out dx, al
END
    .data
number: .long 0
"""
ENDS = {"well": "mov al, 16\n out 0xf4, al", "reset": "lidt [number]\n int3"}


@pytest.fixture(scope="session")
def machines() -> None:
    """Skips a test where the QEMU for whole systems, or what a kernel alone needs, is missing."""
    try:
        machine.qemu()
        packages.firmware()
        packages.option_rom()
    except Error as error:
        pytest.skip(str(error))


def built_kernel() -> Path:
    """The kernel of `kernel/` for x86-64."""
    target = ROOT / "target" / "kernels" / "kernel"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    command = ["cargo", "build", "--quiet", "--target", "x86_64-unknown-none"]
    subprocess.run(command, cwd=ROOT / "kernel", env=environment, check=True)
    return target / "x86_64-unknown-none" / "debug" / "kernel"


def small_kernel(folder: Path, end: str) -> Path:
    """A small kernel in assembly, which ends as `ENDS` says."""
    source, file = folder / "small.s", folder / f"{end}.elf"
    source.write_text(SMALL.replace("END\n", f"    {ENDS[end]}\n"))
    subprocess.run(["as", "--64", "-o", folder / "small.o", source], check=True)
    link = ["-Ttext=0x100000", "-Tdata=0x102000", "--no-warn-rwx-segments", "-o", file]
    subprocess.run(["ld", *link, folder / "small.o"], check=True)
    return file


def elf(*, notes: bytes, of: int = 62, bits: int = 2) -> bytes:
    """An ELF file with a segment for code, one for data, and one with notes."""
    parts = [
        (1, 5, 0x1000, 0xFFFFFFFF80000000, 0x1234),
        (1, 6, 0x2010, 0xFFFFFFFF80002010, 0x10),
        (4, 4, 0x100, 0, len(notes)),
    ]
    head = b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, of, 1, 0, 64, 0, 0, 64, 56, len(parts), 64, 0, 0)
    for kind, flags, offset, start, size in parts:
        head += struct.pack("<IIQQQQQQ", kind, flags, offset, start, start, size, size, 4)
    return head.ljust(0x100, b"\0") + notes


def note(owner: bytes, kind: int) -> bytes:
    """A note with a description of four bytes."""
    name = owner + b"\0"
    return struct.pack("<III", len(name), 4, kind) + name.ljust(-(-len(name) // 4) * 4, b"\0") + b"1234"


PVH = note(b"GNU", 3) + note(b"Xen", 18)


def test_segments_are_whole_pages(tmp_path: Path) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(elf(notes=PVH))
    assert alone.is_elf(file) and not alone.is_elf(tmp_path / "none")
    assert segments(file) == [
        (0xFFFFFFFF80000000, 0x2000, 1 | 4, 0x1000),
        (0xFFFFFFFF80002000, 0x1000, 1 | 2, 0x2000),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (elf(notes=PVH, of=3), "is not for x86-64"),
        (elf(notes=PVH, bits=1), "is not for x86-64"),
        (elf(notes=note(b"GNU", 3)), "has no PVH note"),
        (elf(notes=PVH + note(b"Linux", 0x100)), "is Linux as an ELF file: give its bzImage"),
        (elf(notes=PVH)[:100], "is a damaged ELF file"),
    ],
)
def test_a_file_that_qemu_cannot_boot_is_a_line(
    content: bytes, said: str, pagewalk, tmp_path: Path
) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(content)
    with pytest.raises(Error, match=said):
        segments(file)
    done = pagewalk("record", "--system", "--kernel", file, "-o", tmp_path / "t.pwt")
    assert done.returncode == 2 and f"--kernel {file}: {said}" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("pagewalk: error: ")
    assert not (tmp_path / "t.pwt").exists()


def test_damaged_files_are_an_error(tmp_path: Path) -> None:
    made, file = random.Random(SEED), tmp_path / "kernel"
    for _ in range(2000):
        damaged = bytearray(elf(notes=PVH))
        for _ in range(made.randrange(1, 8)):
            damaged[made.randrange(4, len(damaged))] = made.randrange(256)
        file.write_bytes(bytes(damaged[: made.randrange(4, len(damaged) + 1)]))
        try:
            segments(file)
        except Error as error:
            assert "\n" not in str(error)


def test_flags_that_a_kernel_alone_does_not_have(pagewalk, tmp_path: Path) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(elf(notes=PVH))
    for flags, said in (
        (["--with", "x"], "is booted alone: leave --with out"),
        (["--memory", "1M"], "--memory: a guest has 16.0 MiB to"),
        (["--cpus", "9"], "--cpus 9: a guest has 1 to 8 processors"),
    ):
        done = pagewalk("record", "--system", "--kernel", file, *flags, "-o", tmp_path / "t.pwt")
        assert done.returncode == 2 and said in done.stderr, done.stderr


@needs_assembler
def test_markers_of_a_kernel_begin_and_end_the_recording(machines, pagewalk, tmp_path: Path) -> None:
    file, counts = small_kernel(tmp_path, "well"), []
    for flags in ([], ["--boot"]):
        trace, told = tmp_path / "t.pwt", tmp_path / "t.json"
        done = pagewalk(
            "record", "--system", "--kernel", file, *flags, "-f", "-o", trace, "--json", told
        )
        assert (done.returncode, done.stdout) == (33, "k"), done.stderr
        counts.append(json.loads(told.read_text()))
    [between, all_] = counts
    assert 2000 <= between["accesses"] < all_["accesses"]
    # It is in the lower half, and has the names of its symbols there.
    found = Machine("epyc-9005", []).run(Trace(trace)).data
    assert any(region["name"].endswith(file.name) for region in found["regions"]), found["regions"]


@needs_assembler
def test_a_kernel_that_resets_its_machine_is_told(machines, tmp_path: Path) -> None:
    file = small_kernel(tmp_path, "reset")
    told = KernelRecording(file, boot=True).record(tmp_path / "t.pwt")
    assert told["accesses"] > 2000 and told["stdout"] == b"k"
    assert any("has reset its machine" in note for note in told["notes"])
