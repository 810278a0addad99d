"""The tests beside the kernel write the system's knobs back, however they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[1] / "kernel"
TEST = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import knobs

def main():
    with knobs.kept(Path(sys.argv[2]), [Path(knob) for knob in sys.argv[4:]]):
        for knob in sys.argv[4:]:
            Path(knob).write_text("changed")
        print("changed", flush=True)
        match sys.argv[3]:
            case "fails": raise ValueError("no kernel is like that")
            case "exits": sys.exit(3)
            case "is aborted": os.abort()
            case "waits": time.sleep(60)
    return 0

sys.exit(knobs.run(main))
"""


class Knobs:
    """Two files in the place of knobs, and a journal."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal.json"
        self.knobs = [folder / "enabled", folder / "sleep"]
        self.knobs[0].write_text("always [madvise] never\n")
        self.knobs[1].write_text("10000\n")

    def test(self, what: str) -> subprocess.Popen[str]:
        """A test that has changed the knobs, and then does `what`."""
        test = subprocess.Popen(
            [sys.executable, "-c", TEST, KERNEL, self.journal, what, *self.knobs],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert test.stdout is not None
        assert test.stdout.readline() == "changed\n"
        return test

    def values(self) -> list[str]:
        return [knob.read_text().strip() for knob in self.knobs]

    def come_back(self) -> bool:
        """Whether the knobs are as they were within ten seconds, and the journal is gone."""
        deadline = time.monotonic() + 10
        while self.journal.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.values() == ["madvise", "10000"] and not self.journal.exists()


@pytest.fixture
def knobs(tmp_path: Path) -> Knobs:
    return Knobs(tmp_path)


@pytest.mark.parametrize("ending", ["ends", "fails", "exits", "is aborted"])
def test_a_test_that_ends_leaves_the_knobs_as_they_were(knobs: Knobs, ending: str) -> None:
    knobs.test(ending).wait()
    assert knobs.come_back()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_test_that_is_told_to_end_does_too(knobs: Knobs, number: signal.Signals) -> None:
    test = knobs.test("waits")
    assert knobs.values() == ["changed", "changed"]
    assert json.loads(knobs.journal.read_text())[str(knobs.knobs[0])] == "madvise"
    test.send_signal(number)
    assert test.wait(timeout=10) != 0
    assert knobs.come_back()


def test_a_journal_that_is_left_is_written_back_by_the_next_test(knobs: Knobs) -> None:
    test = knobs.test("waits")
    watcher = Path(f"/proc/{test.pid}/task/{test.pid}/children").read_text().split()
    assert len(watcher) == 1
    os.kill(int(watcher[0]), signal.SIGKILL)
    test.kill()
    test.wait()
    time.sleep(0.1)
    assert knobs.values() == ["changed", "changed"]
    knobs.test("ends").wait()
    assert knobs.come_back()


def test_two_tests_do_not_change_the_knobs_at_once(knobs: Knobs) -> None:
    first = knobs.test("waits")
    second = subprocess.run(
        [sys.executable, "-c", TEST, KERNEL, knobs.journal, "ends", *knobs.knobs],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    assert second.stderr == f"another test changes the knobs: {knobs.journal} is its journal\n"
    assert knobs.values() == ["changed", "changed"]
    first.terminate()
    first.wait()
    assert knobs.come_back()
