"""`pagewalk attach` to a program that checks itself, and operators that are killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command import run_command

from pagewalk import Trace

TORTURE = bool(os.environ.get("PAGEWALK_TORTURE"))
SOURCE = Path(__file__).parent / "torture.c"
KINDS = (
    "sums", "alarms", "profiles", "ends", "masks", "starts", "reads", "waits", "naps", "pings",
    "accepts", "sigwaits", "forks", "vforks", "faults",
)  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("torture") / "torture"
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, SOURCE], check=True)
    return program


class Checked:
    """The program of torture.c with threads of some kinds."""

    def __init__(self, program: Path, kinds: tuple[str, ...], output: Path) -> None:
        self.output = output
        with output.open("w") as file:
            self.process = subprocess.Popen([program, *kinds], stdout=file)
        self.pid = self.process.pid
        self.lines(2)

    def lines(self, more: int) -> list[list[str]]:
        """Waits for as many lines more."""
        before, until = len(self.output.read_text().splitlines()), time.monotonic() + 60
        while True:
            assert self.process.poll() is None, f"it has ended with {self.process.returncode}"
            lines = self.output.read_text().splitlines()
            if len(lines) > before + more:
                return [line.split() for line in lines[:-1]]
            assert time.monotonic() < until, "it stands still"
            time.sleep(0.02)

    def goes_on(self) -> None:
        """That nothing was wrong, and that it goes on."""
        _, bad, _, line = self.lines(2)[-1]
        assert bad == "0", f"{bad} results were wrong, the first one in line {line} of torture.c"

    def no_kind_stands_still(self) -> None:
        """That all kinds have worked in a second of the last ones."""
        until = time.monotonic() + 30
        # Of the seconds that had begun before, nothing is known.
        self.lines(60)
        while self.lines(1)[-1][2] == "0":
            assert time.monotonic() < until, "a kind of thread stands still"

    def files(self) -> list[str]:
        """Its mappings of files; its heap and the stacks of its threads change by themselves."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return [line for line in lines if "/" in line or "[v" in line]

    def holds_nothing(self) -> bool:
        """Whether nothing is where the engine was."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        starts = (int(line.partition("-")[0], 16) for line in lines)
        return not any(0x0FF0_0000_0000 <= start < 0x1400_0000_0000 for start in starts)


@pytest.fixture
def checked(program: Path, tmp_path: Path) -> Iterator[Callable[..., Checked]]:
    """Starts the program with threads of these kinds."""
    all_: list[Checked] = []

    def start(*kinds: str) -> Checked:
        all_.append(Checked(program, kinds, tmp_path / f"{len(all_)}.out"))
        return all_[-1]

    yield start
    for one in all_:
        one.process.kill()
        one.process.wait()


def attach(pid: int, trace: Path, *flags: object) -> "subprocess.CompletedProcess[str]":
    return run_command(["attach", pid, "--force", "-o", trace, *flags])


@pytest.mark.parametrize(
    "kinds", [KINDS, *(((kind,) for kind in KINDS) if TORTURE else ())], ids="-".join
)
def test_threads_calls_and_signals_go_on_with_right_results(
    checked, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    seed = 59
    chance = random.Random(seed)
    running = checked(*kinds)
    before = running.files()
    for turn in range(50 if TORTURE else 4):
        seconds = chance.choice([0.02, 0.1, 0.4])
        done = attach(running.pid, tmp_path / "t.pwt", "-q", "--seconds", seconds)
        assert done.returncode == 0 and not done.stderr, (seed, turn, done.stderr)
        assert running.files() == before and running.holds_nothing()
        running.goes_on()
    running.no_kind_stands_still()


def children(pid: int) -> list[int]:
    """The processes that the threads of a process have started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def operator(pagewalk: int) -> int:
    """The process that operates for a pagewalk."""
    until = time.monotonic() + 60
    while True:
        for child in children(pagewalk):
            with suppress(OSError):
                if b"_native.operate" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
        assert time.monotonic() < until
        time.sleep(0.005)


def recorder(pid: int, trace: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "pagewalk", "attach", str(pid), "--force", "-o", str(trace)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def is_recorded(pid: int) -> None:
    until = time.monotonic() + 60
    while "memfd:pagewalk-code" not in Path(f"/proc/{pid}/maps").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    """Whether a process has not ended yet; its parent may not have asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


KILLED = ("sums", "masks", "waits", "naps", "reads", "starts")
"""Kinds that go on in the engine without an operator."""


def test_an_operator_that_is_killed_has_a_successor(checked, tmp_path: Path) -> None:
    running = checked(*KILLED)
    before = running.files()
    with recorder(running.pid, tmp_path / "t.pwt") as it:
        is_recorded(running.pid)
        time.sleep(0.2)
        os.kill(operator(it.pid), signal.SIGKILL)
        _, told = it.communicate(timeout=60)
    assert it.returncode == 0
    assert "was killed, and another one took the engine out" in told
    assert running.files() == before and running.holds_nothing()
    assert sum(Trace(tmp_path / "t.pwt").info()["accesses"].values()) > 1000
    running.goes_on()
    running.no_kind_stands_still()


def test_what_killed_ones_have_left_is_taken_out_by_the_next(checked, tmp_path: Path) -> None:
    """Pagewalk and its operator are killed, at random moments after the engine has begun."""
    seed = 5902
    chance = random.Random(seed)
    running = checked(*KILLED)
    before = running.files()
    for turn in range(40 if TORTURE else 3):
        with recorder(running.pid, tmp_path / "t.pwt") as it:
            its_operator = operator(it.pid)
            # Before that, a kill could harm a thread that executes calls for the operator.
            is_recorded(running.pid)
            time.sleep(chance.uniform(0, 0.5))
            # The operator would take the engine out.
            os.kill(its_operator, signal.SIGSTOP)
            it.kill()
            it.wait()
            os.kill(its_operator, signal.SIGKILL)
        while is_there(its_operator):
            time.sleep(0.001)
        # It may stand still until then.
        done = attach(running.pid, tmp_path / "t.pwt", "--seconds", "0.1")
        assert done.returncode == 0, (seed, turn, done.stderr)
        assert running.files() == before and running.holds_nothing(), (seed, turn)
        running.goes_on()
    running.no_kind_stands_still()
