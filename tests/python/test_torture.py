"""The recorder against programs that make trouble, and against being killed.

`make torture` runs all kinds and forty kills; the tests run some of each.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

FULL = "PAGEWALK_TORTURE" in os.environ
SEED = int(os.environ.get("PAGEWALK_TORTURE_SEED", "18"))

KINDS = (
    "forks", "vforks", "spawns", "execs", "threads", "churn", "demon", "timers", "faults",
    "closed", "children", "homeless", "nameless", "orphans", "zombies", "sockets", "maps", "deep",
    "thread-exec", "thread-exit", "thread-fork", "stopped", "code", "long-arguments", "locked",
    "shared", "killed", "aborted", "no-such",
)  # fmt: skip
SHELL = {
    "pipeline": "yes | head -1000 | sort | uniq -c | tr -d ' '",
    "broken pipe": "yes | head -1; echo ${PIPESTATUS:-none}",
    "background": "(sleep 0.3; echo late) & echo early; wait",
    "exec": "exec sh -c 'exec sh -c \"echo deep; exit 31\"'",
    "few descriptors": "ulimit -n 24; echo a | cat | cat; exit 32",
    "no output": "exec >&-; exit 33",
    "deleted folder": 'd=$(mktemp -d); cd "$d"; rmdir "$d"; ls; echo still here; exit 34',
    "version manager": "exec env -u NOTHING python3 -c 'print(6 * 7)'",
}
SMOKE = {
    "vforks", "execs", "demon", "closed", "nameless", "orphans", "thread-exec", "locked",
    "aborted", "exec", "few descriptors", "no output",
}  # fmt: skip


@pytest.fixture(scope="module")
def torture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or pytest.fail("gcc is missing: `make test` installs it")
    program = tmp_path_factory.mktemp("torture") / "torture"
    source = Path(__file__).parent / "torture.c"
    subprocess.run([compiler, "-O1", "-w", "-pthread", "-o", program, source], check=True)
    return program


def commands(torture: Path, folder: Path) -> dict[str, list[str]]:
    kinds = {kind: [str(torture), kind, str(folder / "said")] for kind in KINDS}
    kinds["execs"].pop()
    return kinds | {name: ["sh", "-c", script] for name, script in SHELL.items()}


def outcome(command: list[str], folder: Path, *before: object) -> tuple[int, bytes]:
    """Status and output of a command, and whatever it left in its file."""
    said = folder / "said"
    said.unlink(missing_ok=True)
    done = subprocess.run(
        [*map(str, before), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    # Natively, whoever looks must wait for what goes on in the background.
    deadline = time.monotonic() + 10
    while "demon" in command and not said.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return status, done.stdout + (said.read_bytes() if said.exists() else b"")


@pytest.mark.parametrize("kind", [*KINDS, *SHELL])
def test_a_program_does_what_it_does_without_us(
    torture: Path, tmp_path: Path, pagewalk: Callable[..., subprocess.CompletedProcess[str]],
    kind: str,
) -> None:  # fmt: skip
    if not FULL and kind not in SMOKE:
        pytest.skip("`make torture` runs it")
    command = commands(torture, tmp_path)[kind]
    trace = tmp_path / "t.pwt"
    expected = outcome(command, tmp_path)
    options = ["-m", "pagewalk", "record", "-o", trace, "--"]
    assert outcome(command, tmp_path, sys.executable, *options) == expected
    info = pagewalk("info", "--json", "-", trace)
    assert info.returncode == 0, info.stderr
    document = json.loads(info.stdout)
    assert sum(document["accesses"].values()) > 10_000
    assert sum(process["accesses"] for process in document["processes"]) == sum(
        document["accesses"].values()
    )
    assert {path.name for path in tmp_path.iterdir()} <= {"t.pwt", "said"}


def test_whatever_is_killed_the_rest_is_readable(
    torture: Path, tmp_path: Path, pagewalk: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(40 if FULL else 2):
        folder = tmp_path / str(chance.random())
        folder.mkdir()
        trace = folder / "t.pwt"
        script = f"for i in 1 2 3; do {torture} churn; {torture} sockets; done; {torture} timers"
        process = subprocess.Popen(
            [sys.executable, "-m", "pagewalk", "record", "-o", trace, "--", "sh", "-c", script],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(0.5 + 3 * chance.random())
        how = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        process.send_signal(how)
        process.wait(timeout=120)
        part = folder / "t.pwt.part"
        left = {path.name for path in folder.iterdir()}
        assert left <= ({"t.pwt", "t.pwt.part"} if how == signal.SIGKILL else {"t.pwt"}), left
        for path in (trace, part):
            if path.exists():
                info = pagewalk("info", "--keep-going", "--json", "-", path)
                assert info.returncode == 0, f"{how}: {info.stderr}"
        # Nobody goes on for ever.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = subprocess.run(
                ["pgrep", "-g", str(process.pid)], capture_output=True, check=False
            )
            if not found.stdout:
                break
            time.sleep(0.1)
        assert not found.stdout, "what was recorded does not end"
