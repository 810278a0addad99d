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

from pagewalk import Error
from pagewalk.systems import alone, guest
from pagewalk.systems.alone import KernelRecording, image

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
    jmp work
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
BEGIN, NOTHING = guest.marker_bytes(guest.BEGIN), guest.marker_bytes(0)
KINDS = ("fetch", "load", "store")
ENDS = {"well": "mov al, 16\n out 0xf4, al", "reset": "lidt [number]\n int3"}


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
    return (
        struct.pack("<III", len(name), 4, kind)
        + name.ljust(-(-len(name) // 4) * 4, b"\0")
        + b"1234"
    )


PVH = note(b"GNU", 3) + note(b"Xen", 18)


def test_an_image_has_segments_of_whole_pages(tmp_path: Path) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(elf(notes=PVH))
    assert alone.is_elf(file) and not alone.is_elf(tmp_path / "none")
    found = image(file)
    assert found.segments == [
        (0xFFFFFFFF80000000, 0x2000, 1 | 4, 0x1000),
        (0xFFFFFFFF80002000, 0x1000, 1 | 2, 0x2000),
    ]
    assert found.entry == 0x34333231 and not found.has_marker


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
        image(file)
    done = pagewalk("record", "--system", "--kernel", file, "-o", tmp_path / "t.pwt")
    assert done.returncode == 2 and f"--kernel {file}: {said}" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("pagewalk: error: ")
    assert not (tmp_path / "t.pwt").exists()


def test_an_emulator_that_is_missing_is_a_line(pagewalk, tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(elf(notes=PVH))
    monkeypatch.setenv("PAGEWALK_QEMU_DIR", str(tmp_path))
    done = pagewalk("record", "--system", "--kernel", file, "-o", tmp_path / "t.pwt")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "there is no QEMU for whole systems" in done.stderr and "make qemu-system" in done.stderr


def test_damaged_files_are_an_error(tmp_path: Path) -> None:
    made, file = random.Random(SEED), tmp_path / "kernel"
    for _ in range(2000):
        damaged = bytearray(elf(notes=PVH))
        for _ in range(made.randrange(1, 8)):
            damaged[made.randrange(4, len(damaged))] = made.randrange(256)
        file.write_bytes(bytes(damaged[: made.randrange(4, len(damaged) + 1)]))
        try:
            image(file)
        except Error as error:
            assert "\n" not in str(error)


def test_flags_that_a_kernel_alone_does_not_have(pagewalk, tmp_path: Path) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(elf(notes=PVH))
    for flags, said in (
        (["--with", "x"], "is booted alone: leave --with out"),
        (["--memory", "1M"], "--memory: a guest has 16 MiB to"),
        (["--cpus", "9"], "--cpus 9: a guest has 1 to 8 processors"),
    ):
        done = pagewalk("record", "--system", "--kernel", file, *flags, "-o", tmp_path / "t.pwt")
        assert done.returncode == 2 and said in done.stderr, done.stderr


@needs_assembler
def test_what_is_recorded_of_a_kernel(machines, pagewalk, tmp_path: Path) -> None:
    file = small_kernel(tmp_path, "well")
    whole = file.with_name("without-markers.elf")
    whole.write_bytes(file.read_bytes().replace(BEGIN, NOTHING))
    found = {}
    for kernel, flags in ((file, []), (whole, []), (file, ["--boot"])):
        trace = tmp_path / f"{kernel.stem}{''.join(flags)}.pwt"
        done = pagewalk("record", "--system", "--kernel", kernel, *flags, "-o", trace)
        assert (done.returncode, done.stdout) == (33, "k"), done.stderr
        found[trace.stem] = json.loads(pagewalk("info", trace, "--json").stdout)
    between, alone_, boot = (found[name] for name in ("well", "without-markers", "well--boot"))
    [data] = [
        region["accesses"]
        for region in between["regions"]
        if region["rights"] == "rw-" and region["pages"]
    ]
    assert data == {"fetch": 0, "load": 1000, "store": 1000}
    # Without a marker that begins it, the recording begins with the kernel; `--boot` adds firmware.
    counts = [
        sum(region["accesses"][kind] for region in one["regions"] for kind in KINDS)
        for one in (between, alone_, boot)
    ]
    assert counts == sorted(counts) and counts[2] > 100_000, counts
    assert "from the kernel's first marker" in between["header"]["notes"][0]
    assert "from the kernel's first instruction" in alone_["header"]["notes"][0]
    # The kernel has lower addresses, and runs on one processor; its symbols are known.
    done = pagewalk("run", tmp_path / "well.pwt", "-m", "epyc-9005", "--by", "function")
    assert done.returncode == 0 and "work" in done.stdout, done.stdout + done.stderr


@needs_assembler
def test_a_kernel_that_resets_its_machine_is_told(machines, tmp_path: Path) -> None:
    file = small_kernel(tmp_path, "reset")
    told = KernelRecording(file, boot=True).record(tmp_path / "t.pwt")
    assert told["accesses"] > 2000 and told["stdout"] == b"k"
    assert any("has reset its machine" in note for note in told["notes"])


@needs_assembler
def test_a_machine_ends_with_the_window(machines, pagewalk, tmp_path: Path) -> None:
    kernel = tmp_path / "endless.elf"
    loops = SMALL.replace("END\n", "0: inc dword ptr [number]\n jmp 0b\n")
    (tmp_path / "endless.s").write_text(loops)
    subprocess.run(["as", "--64", "-o", tmp_path / "endless.o", tmp_path / "endless.s"], check=True)
    link = ["-Ttext=0x100000", "-Tdata=0x102000", "--no-warn-rwx-segments", "-o", kernel]
    subprocess.run(["ld", *link, tmp_path / "endless.o"], check=True)
    trace = tmp_path / "endless.pwt"
    window = ["--max-accesses", "1000", "--end-with-window"]
    done = pagewalk("record", "--system", "--kernel", kernel, *window, "-o", trace)
    assert done.returncode == 0, done.stderr
    found = json.loads(pagewalk("info", trace, "--json").stdout)["accesses"]
    assert sum(found[kind] for kind in KINDS) == 1000


@needs_cargo
def test_our_own_kernel_has_a_report_of_its_translation(machines, pagewalk, tmp_path: Path) -> None:
    """Two recordings of the kernel are nearly equal, and a machine runs them."""
    words = ["processors=1", "scheme=embedded", "run=4", "events=100"]
    told = [
        KernelRecording(built_kernel(), words, memory=128 << 20).record(tmp_path / name)
        for name in ("one.pwt", "two.pwt")
    ]
    assert [one["exit_status"] for one in told] == [33, 33]
    assert told[0]["accesses"] == pytest.approx(told[1]["accesses"], rel=0.001)
    assert told[0]["stdout"].count(b"\nstep ") > 20
    names = [process["name"] for process in told[0]["processes"]]
    assert "kernel" in names and any(name.startswith("space 0x") for name in names)
    page = tmp_path / "report.html"
    done = pagewalk(
        "run", tmp_path / "one.pwt", "-m", "epyc-9005", "--by", "function", "--html", page
    )
    assert done.returncode == 0, done.stderr
    # The functions of this kernel are those of the crates that it is made of.
    assert "pagetable" in done.stdout or "kernel::" in done.stdout, done.stdout
    assert "kernel (r-x) of the kernel" in page.read_text()


# The words of the kernel's command line, and its processors.
CHECKED = {
    "everything": ("run=0", 1),
    "attack": ("run=3 events=20 seed={seed}", 1),
    "attack on four": ("run=3 events=20 seed={seed}", 4),
    "judge": ("do=judge events=300 seed={seed}", 1),
    "judge on two": ("do=judge events=300 seed={seed}", 2),
}


@needs_cargo
@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
@pytest.mark.parametrize("name", CHECKED)
def test_each_access_of_our_own_kernel_has_the_translation_of_qemu(
    machines, name: str, tmp_path: Path
) -> None:
    line, cpus = CHECKED[name]
    words = [f"processors={cpus}", "scheme=embedded", *line.format(seed=SEED).split()]
    recording = KernelRecording(built_kernel(), words, memory=128 << 20, cpus=cpus, check=True)
    told = recording.record(tmp_path / "t.pwt")
    assert told["exit_status"] == 33, told["stdout"]
    [compared] = [note for note in told["notes"] if "compared" in note]
    print(compared)
    assert compared.endswith(": 0 differ"), told["notes"]
    assert int(compared.split()[0]) > 1_000_000
