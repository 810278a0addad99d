"""A processor of Bochs switches between small spaces as `hat::small` says, and checks their limits.

More events, each way to revoke slots, and what is left out on purpose are for `make torture`.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FULL = "PAGEWALK_TORTURE" in os.environ


def load() -> ModuleType:
    loader = SourceFileLoader("segments_run", str(ROOT / "segments/run"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


RUNNER = load()
needs_bochs = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in RUNNER.TOOLS), reason="Bochs or its tools are missing"
)
needs_qemu = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in (RUNNER.QEMU, "as", "ld")), reason="QEMU is missing"
)
needs_torture = pytest.mark.skipif(not FULL, reason="`make torture` runs it")


@pytest.fixture(scope="module")
def scripts() -> Path:
    """The program that writes scripts."""
    return Path(RUNNER.build_scripts())


def number(said: str, what: str) -> int:
    """A number that the machine has printed."""
    [line] = [line for line in said.splitlines() if line.startswith(f"{what} ")]
    return int(line.removeprefix(what), 16)


@needs_bochs
def test_limits_are_checked(scripts: Path) -> None:
    expected, said = RUNNER.run(scripts, [1, 300, "purge"])
    assert RUNNER.WELL in said, said
    assert number(said, "protection faults") > 0 and number(said, "stack faults") > 0
    assert number(said, "root loads") == int(expected.split()[1])


@needs_qemu
def test_qemu_checks_no_limits(scripts: Path) -> None:
    _, said = RUNNER.run(scripts, [1, 300, "purge"], qemu=True)
    assert "expected 0000000d" in said or "expected 0000000c" in said, said


@needs_bochs
@needs_torture
@pytest.mark.parametrize("revoke", RUNNER.REVOKE)
@pytest.mark.parametrize("schedule", RUNNER.SCHEDULE)
@pytest.mark.parametrize("seed", range(2, 6))
def test_random_switches(scripts: Path, revoke: str, schedule: str, seed: int) -> None:
    slot = (4, 8, 64)[seed % 3]
    words = [seed, 4000, revoke, f"schedule={schedule}", f"slot={slot}"]
    expected, said = RUNNER.run(scripts, words)
    assert RUNNER.WELL in said, said
    words = expected.split()
    counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    # Who comes first keeps its slot.
    assert (counts["revoked"] == 0) == (schedule == "first-come")
    assert counts["promoted"] > 0 and counts["copies"] > 0
    assert number(said, "root loads") == counts["loads"]


@needs_bochs
@needs_torture
@pytest.mark.parametrize("omit", RUNNER.OMIT)
def test_what_is_left_out_is_found(scripts: Path, omit: str) -> None:
    """`copies` is a fault of the kernel Hazelnut, whose other two are not possible here: a switch
    to the large space whose root is loaded would load it again, which the ping-pong counts; and a
    space that gets no slot would take another's with it, which the example compares.
    """
    _, said = RUNNER.run(scripts, [1, 4000, "purge", f"omit={omit}"])
    assert "found: " in said and RUNNER.WELL not in said, said


@needs_bochs
@pytest.mark.parametrize("pair", RUNNER.PAIRS if FULL else ["mixed"])
def test_root_loads_are_those_of_the_simulator(scripts: Path, pair: str) -> None:
    row = RUNNER.ping_pong(scripts, pair)
    assert row["simulator"] == row["processor"]
    assert row["simulator"] == (row["switches"] if pair == "large" else 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "bochs is missing: `make torture`"), (["--qemu"], "qemu-system-i386 is missing: ")],
)
def test_an_emulator_that_is_missing_is_a_line(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "segments/run", *arguments],
        env={**os.environ, "PATH": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"segments/run: {said}") and ran.stderr.count("\n") == 1


def test_a_word_that_is_wrong_is_a_line(scripts: Path, tmp_path: Path) -> None:
    for arguments, said in [
        (["1", "10", "never"], "the policy is not never: choose purge, versioned, groups"),
        (["1", "10", "purge", "schedule=x"], "the schedule is not x: choose lru, frequent, "),
        (["1", "10", "purge", "slot=2"], "a slot cannot have 2 MiB: take a power of two from 4, "),
        (["1", "10", "purge", "slot=6"], "a slot cannot have 6 MiB: take a power of two from 4, "),
        (["1", "10", "purge", "slot=128"], "16 slots of 128 MiB do not end below the kernel's "),
        (["1", "10", "purge", "limit=1"], "there is no limit: choose omit, schedule or slot"),
        (["ping-pong", "10", "huge"], "two spaces are not huge: choose large, small or mixed"),
    ]:
        command = [scripts, tmp_path, *arguments]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        assert ran.returncode == 1 and ran.stderr.startswith(f"error: {said}")
        assert ran.stderr.count("\n") == 1
