"""The recorder against programs that make trouble, and against being killed.

`make torture` runs all kinds and forty kills; the tests run some of each.
"""

import contextlib
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
from typing import Any

import pytest

from pagewalk.trace import Trace

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
    # In a native run, the test must wait for the process in the background.
    deadline = time.monotonic() + 10
    while "demon" in command and not said.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return status, done.stdout + (said.read_bytes() if said.exists() else b"")


@pytest.mark.parametrize("engine", ["qemu", "native"])
@pytest.mark.parametrize("kind", [*KINDS, *SHELL])
def test_a_program_does_what_it_does_without_us(
    torture: Path, tmp_path: Path, pagewalk: Callable[..., subprocess.CompletedProcess[str]],
    kind: str, engine: str,
) -> None:  # fmt: skip
    if not FULL and kind not in SMOKE:
        pytest.skip("`make torture` runs it")
    command = commands(torture, tmp_path)[kind]
    trace = tmp_path / "t.pwt"
    expected = outcome(command, tmp_path)
    options = ["-m", "pagewalk", "record", "--engine", engine, "-o", trace, "--"]
    assert outcome(command, tmp_path, sys.executable, *options) == expected
    info = pagewalk("info", "--json", "-", trace)
    assert info.returncode == 0, info.stderr
    document = json.loads(info.stdout)
    assert sum(document["accesses"].values()) > 10_000
    assert sum(process["accesses"] for process in document["processes"]) == sum(
        document["accesses"].values()
    )
    assert {path.name for path in tmp_path.iterdir()} <= {"t.pwt", "said"}


def marked(mark: str) -> list[int]:
    """The running processes whose environment has `mark`, in whatever session or group they are."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def ends(mark: str) -> bool:
    """Whether all processes with `mark` in their environment end within a minute."""
    deadline = time.monotonic() + 60
    while marked(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def started(command: list[object], mark: str) -> subprocess.Popen[bytes]:
    """A recording whose processes all have `mark` in their environment."""
    name, _, value = mark.partition("=")
    return subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, name: value},
    )


@pytest.mark.parametrize("engine", ["qemu", "native"])
def test_whatever_is_killed_the_rest_is_readable(
    torture: Path,
    tmp_path: Path,
    pagewalk: Callable[..., subprocess.CompletedProcess[str]],
    engine: str,
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(40 if FULL else 2):
        folder = tmp_path / str(chance.random())
        folder.mkdir()
        trace = folder / "t.pwt"
        script = f"for i in 1 2 3; do {torture} churn; {torture} sockets; done; {torture} timers"
        front = [sys.executable, "-m", "pagewalk", "record", "--engine", engine, "-o", trace]
        mark = f"TORTURE={folder}"
        process = started([*front, "--", "sh", "-c", script], mark)
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
        assert ends(mark), "what was recorded does not end"


TEXT = "".join(
    f"{number * 7919 % 10007} word{number % 97} {'x' * (number % 13)}\n" for number in range(900)
)
PROGRAMS = (
    "true", "echo a b", "printf %05d 42", "cat text", "tac text", "rev text", "nl text", "wc text",
    "sort text", "sort -n text", "uniq text", "head -5 text", "tail -5 text", "cut -c3-9 text",
    "fold -w 9 text", "paste text text", "comm text text", "join text text", "cmp text text",
    "diff text other", "od -x text", "base64 text", "cksum text", "md5sum text", "sha256sum text",
    "sum text", "split -l 300 text", "expr 7 * 191", "factor 600851475143", "seq 2000",
    "tr a-z A-Z", "grep -E wor?d[0-9]1 text", "sed s/word/xyz/g text",
    "awk {n+=$1}END{print(n)} text",
    "gzip -9 -n -k -f text", "xz -k -f text", "tar cf - text", "dd if=text bs=512 status=none",
    "ls /", "perl -e print(join(q(),sort(map{$_*7%91}(1..900))))",
    "/usr/bin/python3 -S -c print(sorted(str(i)for(i)in(range(900))))",
    "sqlite3 :memory: select(length(hex(zeroblob(9999))))",
)  # fmt: skip
"""Programs that do the same each time, as words between spaces."""
FEW = {"true", "sort text", "gzip -9 -n -k -f text"}


REPEATABLE = {**os.environ, "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "LC_ALL": "C"}
"""The environment in which they do."""


def torture_command(words: str) -> list[str]:
    """The words of one of the programs; skips the test where it is not asked for or installed."""
    if not FULL and words not in FEW:
        pytest.skip("`make torture` runs it")
    command = words.split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return command


def folder_with_texts(folder: Path) -> Path:
    """A new folder with the files that the programs read."""
    folder.mkdir()
    (folder / "text").write_text(TEXT)
    (folder / "other").write_text(TEXT.replace("7", "8"))
    return folder


@pytest.mark.parametrize("words", PROGRAMS)
def test_stores_in_translated_code_record_what_callbacks_record(
    tmp_path: Path, pagewalk: Callable[..., subprocess.CompletedProcess[str]], words: str
) -> None:
    command = torture_command(words)
    traces = []
    for options in (["--engine", "qemu"], ["--callbacks"]):
        # Each run has its own folder, so that the second run finds no files of the first.
        folder = folder_with_texts(tmp_path / str(len(traces)))
        traces.append(tmp_path / f"{folder.name}.pwt")
        recording = ["record", "-q", "-o", traces[-1], *options, "--", *command]
        done = pagewalk(*recording, cwd=folder, env=REPEATABLE, input=TEXT)
        assert done.returncode in {0, 1}, done.stderr
    assert rows_differ(*traces) is None


@pytest.mark.parametrize("words", PROGRAMS)
def test_programs_give_in_the_engine_what_they_give_alone(
    tmp_path: Path, pagewalk: Callable[..., subprocess.CompletedProcess[str]], words: str
) -> None:
    command = torture_command(words)
    trace = tmp_path / "t.pwt"
    outcomes: list[tuple[int, str, dict[str, bytes]]] = []
    for front in ([], ["record", "-q", "--engine", "native", "-o", trace, "--"]):
        folder = folder_with_texts(tmp_path / str(len(outcomes)))
        if front:
            done = pagewalk(*front, *command, cwd=folder, env=REPEATABLE, input=TEXT)
        else:
            done = subprocess.run(
                command,
                cwd=folder,
                env=REPEATABLE,
                input=TEXT,
                capture_output=True,
                text=True,
                check=False,
            )
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        outcomes.append((done.returncode, done.stdout, files))
    assert outcomes[0] == outcomes[1], done.stderr
    assert Trace(trace).accesses > 10_000


def test_whatever_is_killed_the_engine_leaves_nothing_behind(
    tmp_path: Path, pagewalk: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
    for _ in range(40 if FULL else 2):
        folder = tmp_path / str(chance.random())
        folder.mkdir()
        trace = folder / "t.pwt"
        command = [sys.executable, "-m", "pagewalk", "record", "--engine", "native", "-o", trace]
        mark = f"TORTURE={folder}"
        process = started([*command, "--", "sh", "-c", script], mark)
        time.sleep(0.2 + 2 * chance.random())
        how = chance.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        process.send_signal(how)
        process.wait(timeout=120)
        left = {path.name for path in folder.iterdir()}
        assert left <= ({"t.pwt", "t.pwt.part"} if how == signal.SIGKILL else {"t.pwt"}), left
        for path in folder.iterdir():
            info = pagewalk("info", "--keep-going", "--json", "-", path)
            # If the recording is killed before its first chunk, its file has no accesses.
            assert info.returncode == 0 or how == signal.SIGKILL, f"{how}: {info.stderr}"
            assert "Traceback" not in info.stderr
        assert ends(mark), "what was recorded does not end"


def rows_differ(one: Path, other: Path) -> int | None:
    """The first row of a part in which two traces differ; `None` if they are equal."""
    sources = [Trace(path).batches() for path in (one, other)]
    rest: list[Any] = [next(source, None) for source in sources]
    at = 0
    while None not in rest:
        rows = min(side.num_rows for side in rest)
        first, second = (side.slice(0, rows) for side in rest)
        if not first.equals(second):
            return at
        at += rows
        rest = [side.slice(rows) for side in rest]
        rest = [
            next(source, None) if side.num_rows == 0 else side
            for side, source in zip(rest, sources, strict=True)
        ]
    return None if rest == [None, None] else at
