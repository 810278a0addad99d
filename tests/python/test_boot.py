"""The kernel of `kernel/` boots in QEMU on both architectures, and tries everything that it does.

All schemes of locks, the model test and long streams are for `make torture`.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
ARCHS = ("x86_64", "riscv64")
FULL = "PAGEWALK_TORTURE" in os.environ


def load_runner() -> ModuleType:
    loader = SourceFileLoader("kernel_run", str(ROOT / "kernel/run"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


RUNNER = load_runner()
PARTS = re.findall(
    r'^    \("([a-z-]+)", ', (ROOT / "kernel/user/main.rs").read_text(), re.MULTILINE
)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The kernel for each architecture."""
    folder = tmp_path_factory.mktemp("kernels")
    return {arch: Path(shutil.copy(RUNNER.build(arch), folder / arch)) for arch in ARCHS}


def boot(
    kernel: Path, arch: str, line: str, processors: int = 1, *, count: bool = False
) -> tuple[bool, str]:
    """Whether the kernel has ended well, and what it has said."""
    words = f"processors={processors} {line}"
    command = RUNNER.qemu(arch, kernel, processors, words, count=count)
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


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
def test_each_scheme_of_locks_can_be_chosen() -> None:
    kernel = RUNNER.build("x86_64", "schemes")
    for scheme in ("global", "early", "monitor", "hashed", "embedded", "covering"):
        is_well, said = boot(kernel, "x86_64", f"scheme={scheme}", 4)
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


def counted(kernel: Path, arch: str) -> dict[str, int]:
    is_well, said = boot(kernel, arch, "run=1", count=True)
    assert is_well, said
    return {
        name: int(number)
        for name, number in re.findall(r"^instructions ([a-z0-9-]+) (\d+)", said, re.MULTILINE)
    }


@pytest.mark.parametrize("arch", ARCHS)
def test_instructions_are_those_of_the_newest_record(kernels: dict[str, Path], arch: str) -> None:
    """A fifth more or less, as compilers differ. Who changes a path writes a record."""
    record = json.loads(max((ROOT / "benches/records").glob("*-kernel.json")).read_text())
    now = counted(kernels[arch], arch)
    recorded = {row["path"]: row[arch] for row in record["rows"]}
    assert now.keys() == recorded.keys()
    for path, number in recorded.items():
        assert number * 0.8 < now[path] < number * 1.2, (
            f"{path}: {now[path]} instructions, recorded {number}"
        )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("scheme=none", "no scheme of locks is called none: choose global"),
        ("do=nothing", "the kernel knows no do=nothing: choose threads, judge, stream"),
        ("do=judge omit=all", "the judge leaves out no omit=all: choose here, elsewhere"),
        ("run=7", "the program knows no run 7"),
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
