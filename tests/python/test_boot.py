"""The kernel of `kernel/` boots in QEMU on both architectures, and tries everything that it does.

All schemes of locks, the model test, long streams, random command lines and Bochs are for `make
torture`.
"""

import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
ARCHS = ("x86_64", "riscv64")
FULL = "PAGEWALK_TORTURE" in os.environ
SCHEMES = ("global", "early", "monitor", "hashed", "embedded", "covering")
# What the kernel runs beside: machines of `machines/`, with the kernel's manager.
BESIDE = {
    "x86_64": ["epyc-9005"],
    "riscv64": [
        "xiangshan-kunminghu",
        "page_table.format=sv39",
        "walker.tracks_dirty=true",
    ],
}
BESIDE_OWN = ["os.manager=base", "memory.size=64M", "swap.size=8M", "swap.io_cycles=1"]


def load(path: str) -> ModuleType:
    loader = SourceFileLoader(path.replace("/", "_").removesuffix(".py"), str(ROOT / path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


RUNNER, BENCH = load("kernel/run"), load("benches/kernel.py")
PARTS = re.findall(
    r'^    \("([a-z-]+)", ', (ROOT / "kernel/user/main.rs").read_text(), re.MULTILINE
)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The kernel for each architecture."""
    folder = tmp_path_factory.mktemp("kernels")
    return {arch: Path(shutil.copy(RUNNER.build(arch), folder / arch)) for arch in ARCHS}


def boot(
    kernel: Path,
    arch: str,
    line: str,
    processors: int = 1,
    *,
    count: bool = False,
    memory: int = 128,
) -> tuple[bool, str]:
    """Whether the kernel has ended well, and what it has said."""
    words = f"processors={processors} {line}"
    command = RUNNER.qemu(arch, kernel, processors, words, count=count, memory=memory)
    ran = subprocess.run(
        command,
        check=False,
        capture_output=True,
        timeout=300,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    return ran.returncode == RUNNER.WELL[arch], ran.stdout + ran.stderr


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("processors", [1, 2])
def test_everything_is_tried(kernels: dict[str, Path], arch: str, processors: int) -> None:
    is_well, said = boot(kernels[arch], arch, "run=0", processors)
    assert is_well, said
    assert f"{processors} processors of {processors}" in said
    assert re.findall(r"^ok ([a-z-]+)", said, re.MULTILINE) == PARTS
    assert (f"processor {processors - 1} does not answer" in said) == (processors > 1)


@pytest.mark.parametrize("arch", ARCHS)
def test_boots_in_less_than_a_third_of_a_second(kernels: dict[str, Path], arch: str) -> None:
    """The least of some boots, as tests run side by side."""
    seconds = []
    for _ in range(12):
        begun = time.monotonic()
        is_well, said = boot(kernels[arch], arch, "run=2")
        assert is_well and "1 processors of 1" in said, said
        seconds.append(time.monotonic() - begun)
        if seconds[-1] < 0.3:
            return
    pytest.fail(f"{min(seconds):.2f} seconds")


def test_lines_are_few() -> None:
    """Of the kernel, its programs in tests/boot, and `run`: with comments, without empty lines."""

    def lines(folder: str) -> int:
        found = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        own = [path for path in found if "target" not in path.parts]
        code = [path for path in own if path.suffix in {".rs", ".s", ".ld"} or path.name == "run"]
        texts = (path.read_text() for path in code)
        return sum(1 for text in texts for line in text.splitlines() if line.strip())

    assert lines("kernel") + lines("tests/boot") <= 6000
    assert all(lines(f"kernel/src/arch/{arch}") <= 1200 for arch in ARCHS)


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
@pytest.mark.parametrize("arch", ARCHS)
def test_each_scheme_of_locks_can_be_chosen(arch: str) -> None:
    kernel = RUNNER.build(arch, "schemes")
    for scheme in SCHEMES:
        is_well, said = boot(kernel, arch, f"scheme={scheme}", 4)
        assert is_well and f"scheme {scheme}" in said, said


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("processors", [1, 2])
def test_processors_do_what_pagetable_says(
    kernels: dict[str, Path], arch: str, processors: int
) -> None:
    is_well, said = boot(kernels[arch], arch, "do=judge events=150", processors)
    assert is_well and "judged: " in said, said


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("omitted", "processors"), [("here", 1), ("elsewhere", 2)])
def test_a_flush_that_is_left_out_is_found(
    kernels: dict[str, Path], arch: str, omitted: str, processors: int
) -> None:
    is_well, said = boot(kernels[arch], arch, f"do=judge omit={omitted}", processors)
    assert not is_well
    assert re.search(
        rf"^found: event \d+, .*processor {processors - 1} has ", said, re.MULTILINE
    ), said


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
def test_the_model_test_has_the_digest_of_the_host() -> None:
    target = ROOT / "target/kernels"
    command = ["cargo", "build", "--quiet", "--profile=kernel", "--example", "boot-vm"]
    command += ["--features=boot", "--package", "pagewalk-vm", "--target-dir", str(target)]
    subprocess.run(command, cwd=ROOT, check=True)
    example = target / "kernel/examples/boot-vm"
    host = subprocess.run([example], check=True, capture_output=True, text=True).stdout.strip()
    for arch in ARCHS:
        is_well, said = boot(RUNNER.build(arch, "stream"), arch, "do=stream")
        assert is_well and f"digest {host}" in said, said


@pytest.fixture(scope="module")
def beside() -> Path:
    """The program that makes a machine do what the kernel has done."""
    command = ["cargo", "build", "--quiet", "--workspace", "--example", "beside"]
    command += ["--exclude", "engine", "--exclude", "trace"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "debug/examples/beside"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_machine_does_the_same(kernels: dict[str, Path], beside: Path, arch: str) -> None:
    """Faults, accessed and dirty bits, frames, and the bytes of tables, after each step."""
    for seed in range(1, 20 if FULL else 3):
        line = f"run=4 seed={seed} events={2000 if FULL else 300}"
        is_well, said = boot(kernels[arch], arch, line)
        assert is_well, said
        command = [beside, *BESIDE[arch], *BESIDE_OWN]
        ran = subprocess.run(command, input=said, check=False, capture_output=True, text=True)
        assert "steps are alike" in ran.stdout, f"{line}: {ran.stderr}"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_bit_that_changes_is_found(kernels: dict[str, Path], beside: Path, arch: str) -> None:
    """Faults, bits and frames are as in the machine still: the bytes of tables differ."""
    is_well, said = boot(kernels[arch], arch, "run=5 seed=1 events=300")
    assert is_well, said
    command = [beside, *BESIDE[arch], *BESIDE_OWN]
    ran = subprocess.run(command, input=said, check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    step = re.match(
        r"error: step \d+, store .*: the kernel has (.*), but the machine has (.*)$", ran.stderr
    )
    assert step, ran.stderr
    kernel, machine = (re.sub(r"bytes: [0-9a-f]+", "", done) for done in step.groups())
    assert kernel == machine


@pytest.mark.parametrize("arch", ARCHS)
def test_instructions_are_those_of_the_newest_record(kernels: dict[str, Path], arch: str) -> None:
    """A fifth more or less, as compilers differ. Who changes a path writes a record."""
    record = json.loads(max((ROOT / "benches/records").glob("*-kernel.json")).read_text())
    now = BENCH.counted(RUNNER, kernels[arch], arch)
    recorded = {row["path"]: row[arch] for row in record["rows"]}
    assert now.keys() == recorded.keys()
    for path, number in recorded.items():
        assert number * 0.8 < now[path] < number * 1.2, (
            f"{path}: {now[path]} instructions, recorded {number}"
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run=2"], "kernel/run: qemu-system-x86_64 is missing: `make tools` installs it"),
        (["--bochs"], "kernel/run: grub-mkrescue is missing: `make torture` installs it"),
        (["--bochs", "--arch", "riscv64"], "kernel/run: Bochs has x86-64 alone"),
    ],
)
def test_an_emulator_that_is_missing_is_a_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_bytes(b"")
    monkeypatch.setattr(RUNNER, "build", lambda *_: kernel)
    monkeypatch.setattr("sys.argv", ["kernel/run", *arguments])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        RUNNER.main()
    assert str(ended.value.code).startswith(said) and "\n" not in str(ended.value.code)


def test_the_newest_record_has_the_table_of_the_readme() -> None:
    record = json.loads(max((ROOT / "benches/records").glob("*-kernel.json")).read_text())
    assert BENCH.table_of(record["rows"]) == BENCH.in_readme()
    simulated = {row["path"] for row in record["rows"] if row["simulated-x86_64"] is not None}
    assert simulated == {"task", "prot1", "protn"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("scheme=none", "no scheme of locks is called none: choose global"),
        ("do=nothing", "the kernel knows no do=nothing: choose threads, judge, stream"),
        ("do=judge omit=all", "the judge leaves out no omit=all: choose here, elsewhere"),
        ("run=7", "the program knows no run 7"),
        ("memory=3", "there is too little memory"),
        ("frames=10", "there is too little memory"),
    ],
)
def test_a_word_that_is_wrong_is_an_error(kernels: dict[str, Path], line: str, said: str) -> None:
    is_well, found = boot(kernels["x86_64"], "x86_64", line)
    assert not is_well and said in found, found


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
def test_long_streams_are_judged(kernels: dict[str, Path]) -> None:
    for arch in ARCHS:
        for seed in range(2, 12):
            is_well, said = boot(
                kernels[arch], arch, f"do=judge events=3000 seed={seed}", 1 + seed % 4
            )
            assert is_well, said


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
@pytest.mark.parametrize("processors", [1, 2, 4])
def test_bochs_runs_everything(kernels: dict[str, Path], processors: int) -> None:
    line = f"processors={processors}"
    said = RUNNER.bochs(kernels["x86_64"], processors, line, seconds=600)
    assert RUNNER.WELL_SAID in said, said
    assert f"{processors} processors of {processors}" in said
    assert re.findall(r"^ok ([a-z-]+)", said, re.MULTILINE) == PARTS


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
def test_bochs_boots_within_five_seconds(kernels: dict[str, Path]) -> None:
    seconds = []
    for _ in range(3):
        begun = time.monotonic()
        assert RUNNER.WELL_SAID in RUNNER.bochs(kernels["x86_64"], 1, "run=2")
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 5


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
def test_walks_of_bochs_make_the_references_of_pagetable(
    kernels: dict[str, Path], tmp_path: Path
) -> None:
    """The kernel says what it expects; Bochs' debugger says what its processor refers to."""
    commands = "c\ntrace-mem on\nc\ntrace-mem off\n" * 400 + "c\n"
    out = tmp_path / "out"
    said = RUNNER.bochs(
        kernels["x86_64"],
        1,
        "do=judge events=300 seed=3 told=1 late=1",
        seconds=600,
        commands=commands,
        output=out,
    )
    assert RUNNER.WELL_SAID in said, said
    root, start, end = (
        int(word, 16) for word in re.search(r"^tables (.*)$", said, re.MULTILINE)[1].split()
    )
    expected = [line.split()[3:] for line in said.splitlines() if line.startswith("walk ")]
    # Bochs writes accessed and dirty bits after it has read all levels.
    expected = [sorted(references, key=lambda of: of[0]) for references in expected]
    found = []
    for window in re.split(r"^.*Magic breakpoint.*$", out.read_text(), flags=re.MULTILINE)[1::2]:
        references = re.findall(r"^\[CPU0 (RD|WR)\]: PHY 0x([0-9a-f]+)", window, re.MULTILINE)
        places = [(what, int(at, 16)) for what, at in references]
        # References to the kernel's half of the root are not part of a walk.
        mine = [
            (what, at)
            for what, at in places
            if start <= at < end and not root + 2048 <= at < root + 4096
        ]
        named = [f"{'w' if what == 'WR' else 'r'}{at:x}" for what, at in mine]
        found.append(sorted(named, key=lambda of: of[0]))
    assert len(expected) > 100 and expected == found


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
def test_attackers_end_and_the_kernel_does_not(kernels: dict[str, Path]) -> None:
    """Random calls and accesses, on random machines; PAGEWALK_BOOTS says how many."""
    boots = int(os.environ.get("PAGEWALK_BOOTS", "60"))
    seed = int(os.environ.get("PAGEWALK_BOOTS_SEED", "1"))
    by_arch = {arch: RUNNER.build(arch, "schemes") for arch in ARCHS[:1]} if boots > 20 else {}
    for number in range(seed, seed + boots):
        choice = random.Random(number)
        arch = choice.choice(ARCHS)
        kernel = by_arch.get(arch, kernels[arch])
        scheme = choice.choice(SCHEMES) if arch in by_arch else "embedded"
        processors, memory = choice.randint(1, 4), choice.choice([24, 32, 48, 64, 128, 256, 1200])
        line = choice.choice(
            [
                f"run=3 seed={number} events={choice.randint(1, 30)}",
                f"run=3 seed={number} events=10 frames={choice.choice([64, 100, 200, 400, 4000])}",
                f"do=judge events={choice.randint(1, 1500)} seed={number}",
                f"run=4 seed={number} events={choice.randint(1, 2000)}",
                f"run=0 frames={choice.choice([64, 128, 300, 700, 5000])}",
                f"memory={choice.randint(1, 40)} run={choice.randint(2, 4)}",
                f"memory={2**64 - 1} frames={2**64 - 1 - number} run=2",
                f"frames={choice.randint(1, 200)} run={choice.randint(2, 4)}",
            ]
        )
        line += choice.choice(["", "", " processors=9", " nonsense =7 memory=", " seed=-1"])
        is_well, said = boot(kernel, arch, f"scheme={scheme} {line}", processors, memory=memory)
        where = f"boot {number}: {arch}, {processors} processors, {memory} MiB, {scheme}, {line}"
        assert "the kernel has a defect" not in said, f"{where}: {said[-2000:]}"
        # If memory is small, the kernel may stop a program. It reports this and ends.
        is_small = any(word in said for word in ("too little memory", "needs more memory"))
        assert is_well or is_small or "frames=" in line or "memory=" in line, f"{where}: {said}"
