"""What `pagewalk attach` refuses in one line, and what it does not have to refuse."""

import ctypes
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import run_command
from test_attach import PROGRAM, Running
from test_attach_torture import children

from pagewalk import Trace

TORTURE = bool(os.environ.get("PAGEWALK_TORTURE"))
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

SIMPLE = r"""
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Prints numbers; before, it does what the first argument says. */
int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "hidden")) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    struct timespec time = { 0, 5000000 };
    for (long number = 0;; number++) {
        if (!strcmp(how, "vfork") && number == 20) {
            /* Until it ends, its parent does not stop for anybody. */
            pid_t child = vfork();
            if (child == 0) {
                struct timespec seconds = { 6, 0 };
                nanosleep(&seconds, 0);
                _exit(0);
            }
        }
        if (!strcmp(how, "fork") && number % 20 == 0) {
            pid_t child = fork();
            if (child == 0) how = "";
        }
        char line[64];
        int bytes = snprintf(line, sizeof line, "%d %ld\n", getpid(), number);
        if (write(1, line, bytes) != bytes) return 1;
        nanosleep(&time, 0);
    }
}
"""
TRACER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (ptrace(PTRACE_SEIZE, atoi(argv[1]), 0, 0)) return 1;
    puts("traces");
    fflush(stdout);
    for (;;) pause();
}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that everybody may read, with the programs of this file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for program, text, options in (
            ("runs", PROGRAM, ["-no-pie", "-pthread"]),
            ("simple", SIMPLE, ["-static"]),
            ("traces", TRACER, []),
        ):
            (folder / f"{program}.c").write_text(text)
            command = ["gcc", "-O1", *options, "-o", program, f"{program}.c"]
            subprocess.run(command, cwd=folder, check=True)
        yield folder


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts a command that prints lines."""
    all_: list[Running] = []

    def start(*command: str | Path) -> Running:
        all_.append(Running(list(command), tmp_path / f"{len(all_)}.out"))
        return all_[-1]

    yield start
    for running in all_:
        for child in children(running.pid):
            os.kill(child, signal.SIGKILL)
        running.process.kill()
        running.process.wait()


def as_nobody(*command: object) -> list[str]:
    """The command as another user, who may read the folders that the package is in."""
    look = [f"--{one}-caps=+dac_read_search" for one in ("inh", "ambient")]
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", *ids, *look, *map(str, command)]


def refused(pid: int, *flags: str, before: Callable[..., list[str]] = lambda *one: [*one]) -> str:
    """The one line by which a process is refused, while the process goes on as before."""

    def maps() -> str:
        return Path(f"/proc/{pid}/maps").read_text()

    mapped = maps()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        trace = Path(folder) / "t.pwt"
        words = [sys.executable, "-m", "pagewalk", "attach", str(pid), *flags, "-o", str(trace)]
        done = subprocess.run(before(*words), capture_output=True, text=True, check=False, cwd="/")
        assert not list(Path(folder).iterdir())
    assert done.returncode == 2, done
    assert done.stderr.startswith(f"pagewalk: error: process {pid}: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert maps() == mapped
    return done.stderr


def only_child(pid: int) -> int:
    until = time.monotonic() + 20
    while not (found := children(pid)):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found[0]


@needs_root
def test_a_process_of_another_user(programs: Path, started) -> None:
    running = started(programs / "runs", "2")
    told = refused(running.pid, before=as_nobody)
    assert "it is another user's: run pagewalk as that user or as root" in told
    running.goes_on()


@needs_root
def test_a_process_that_forbids_it(programs: Path, started, tmp_path: Path) -> None:
    running = started(*as_nobody(programs / "simple", "hidden"))
    told = refused(running.pid, before=as_nobody)
    assert "it forbids others to look at it (PR_SET_DUMPABLE)" in told and "as root" in told
    running.goes_on()
    # Root may.
    done = run_command(["attach", running.pid, "--seconds", "0.1", "-o", tmp_path / "t.pwt"])
    assert done.returncode == 0, done.stderr
    running.goes_on()


@needs_root
def test_root_attaches_to_a_process_of_another_user(
    programs: Path, started, tmp_path: Path
) -> None:
    running = started(*as_nobody(programs / "runs", "3"))
    before = running.maps()
    done = run_command(["attach", running.pid, "--seconds", "0.2", "-o", tmp_path / "t.pwt"])
    assert done.returncode == 0, done.stderr
    assert sum(Trace(tmp_path / "t.pwt").info()["accesses"].values()) > 0
    assert running.maps() == before
    running.goes_on()
    # So may that user.
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        words = ["attach", str(running.pid), "--seconds", "0.2", "-o", f"{folder}/t.pwt"]
        command = as_nobody(sys.executable, "-m", "pagewalk", *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    running.goes_on()


FILTERS = """
import ctypes, struct, time
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
program = Program(1, ctypes.addressof(allow))
assert libc.prctl(22, 2, ctypes.byref(program)) == 0
number = 0
while True:
    print(number, flush=True)
    number += 1
    time.sleep(0.005)
"""


def test_a_program_that_filters_its_system_calls(started) -> None:
    running = started(sys.executable, "-c", FILTERS)
    assert "it filters its system calls (seccomp)" in refused(running.pid)
    running.goes_on()


@needs_root
def test_a_process_in_a_container(programs: Path, started, tmp_path: Path) -> None:
    inside = started("chroot", programs, "/simple")
    told = refused(inside.pid)
    assert "it runs in a container, or with another root directory: run pagewalk in there" in told
    inside.goes_on()
    apart = started("unshare", "--pid", "--fork", programs / "simple")
    assert "it runs in a container" in refused(only_child(apart.pid))
    apart.goes_on()
    # What has only other mounts can open the recording.
    mounts = started("unshare", "--mount", programs / "simple")
    done = run_command(["attach", mounts.pid, "--seconds", "0.1", "-o", tmp_path / "t.pwt"])
    assert done.returncode == 0, done.stderr
    mounts.goes_on()


def test_a_32_bit_program(started, tmp_path: Path) -> None:
    (tmp_path / "simple.c").write_text(SIMPLE)
    compiler = ["i686-linux-gnu-gcc", "-O1", "-static", "-o", tmp_path / "simple"]
    subprocess.run([*compiler, tmp_path / "simple.c"], check=True)
    running = started(tmp_path / "simple")
    told = refused(running.pid)
    assert "it is a program for i386" in told and "`pagewalk record` it" in told
    running.goes_on()


def test_a_process_that_is_traced(programs: Path, started) -> None:
    # It gets no signals, which would stop it for its tracer.
    running = started(programs / "simple")
    command = [programs / "traces", str(running.pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tracer:
        assert tracer.stdout is not None and tracer.stdout.readline() == "traces\n"
        try:
            told = refused(running.pid)
            running.goes_on()
        finally:
            tracer.kill()
        assert f"process {tracer.pid} traces it already: end that (a debugger, strace)" in told
    running.goes_on()


def test_a_parent_that_waits_in_vfork(programs: Path, started, tmp_path: Path) -> None:
    running = started(programs / "simple", "vfork")
    only_child(running.pid)
    told = refused(running.pid)
    assert "does not stop, as it waits for a child that it has started by vfork" in told
    running.goes_on()
    done = run_command(["attach", running.pid, "--seconds", "0.1", "-o", tmp_path / "t.pwt"])
    assert done.returncode == 0, done.stderr
    running.goes_on()


def test_one_that_ends_at_any_moment(programs: Path, tmp_path: Path) -> None:
    """It is recorded to its end, or one line says that it has ended."""
    seed = 5903
    chance = random.Random(seed)
    for turn in range(40 if TORTURE else 6):
        running = Running([programs / "runs", "7"], tmp_path / "runs.out")
        command = [sys.executable, "-m", "pagewalk", "attach", str(running.pid), "-q", "--force"]
        with subprocess.Popen(
            [*command, "-o", tmp_path / "t.pwt"], stderr=subprocess.PIPE, text=True
        ) as it:
            time.sleep(chance.uniform(0, 0.6))
            running.process.kill()
            running.process.wait()
            _, told = it.communicate(timeout=60)
        assert it.returncode in (0, 2), (seed, turn, told)
        if it.returncode == 2:
            assert told.count("\n") == 1 and told.startswith("pagewalk: error: "), (
                seed,
                turn,
                told,
            )
            assert "ended" in told or "no such process" in told, (seed, turn, told)
        (tmp_path / "t.pwt").unlink(missing_ok=True)


def test_one_that_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        until = time.monotonic() + 10
        while ") Z" not in Path(f"/proc/{ended.pid}/stat").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        assert "it has ended: give a process that runs" in refused(ended.pid)


class Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def without_pagemap_scan() -> None:
    """Makes the kernel refuse PAGEMAP_SCAN for this process, as a kernel that does not know it."""
    load, equal, answer = 0x20, 0x15, 0x06
    enotty, ioctl, scan = 0x0005_0000 + 25, 16, 0xC060_6610
    steps = (
        (load, 0, 0, 0), (equal, 0, 3, ioctl), (load, 0, 0, 24), (equal, 0, 1, scan),
        (answer, 0, 0, enotty), (answer, 0, 0, 0x7FFF_0000),
    )  # fmt: skip
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = Program(len(steps), ctypes.addressof(text))
    libc = ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program)):
        os._exit(99)


def test_a_kernel_without_pagemap_scan_records_no_page_sizes(
    programs: Path, started, tmp_path: Path
) -> None:
    running = started(programs / "runs", "2")
    words = ["attach", str(running.pid), "--pages", "--seconds", "0.2", "-o", tmp_path / "t.pwt"]
    done = subprocess.run(
        [sys.executable, "-m", "pagewalk", *map(str, words)],
        capture_output=True, text=True, check=False, preexec_fn=without_pagemap_scan,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the sizes of its pages are not recorded: this kernel has no PAGEMAP_SCAN" in done.stderr
    document = Trace(tmp_path / "t.pwt").info()
    assert not document.get("snapshots") and sum(document["accesses"].values()) > 0
    running.goes_on()


def test_a_process_that_is_stopped_meanwhile_is_left_stopped(
    programs: Path, started, tmp_path: Path
) -> None:
    running = started(programs / "runs", "7")
    before = running.maps()
    words = ["attach", str(running.pid), "-q", "--seconds", "1", "-o", str(tmp_path / "t.pwt")]
    with subprocess.Popen([sys.executable, "-m", "pagewalk", *words]) as it:
        until = time.monotonic() + 30
        while "memfd:pagewalk-code" not in running.maps():
            assert time.monotonic() < until
            time.sleep(0.02)
        running.process.send_signal(signal.SIGSTOP)
        assert it.wait(60) == 0
    assert running.maps() == before
    state = Path(f"/proc/{running.pid}/stat").read_text().rpartition(") ")[2]
    assert state.startswith("T"), state
    running.process.send_signal(signal.SIGCONT)
    running.goes_on()


def test_children_of_the_recording_go_on_and_can_be_attached_to(
    programs: Path, started, tmp_path: Path
) -> None:
    running = started(programs / "simple", "fork")
    before, old = running.maps(), set(children(running.pid))
    done = run_command(["attach", running.pid, "--seconds", "1", "-o", tmp_path / "t.pwt"])
    assert done.returncode == 0, done.stderr
    assert running.maps() == before

    def numbers(pid: int) -> list[int]:
        lines = [line.split() for line in running.lines()[:-1]]
        return [int(words[1]) for words in lines if words[0] == str(pid)]

    def goes_on(pid: int) -> None:
        seen, until = len(numbers(pid)), time.monotonic() + 30
        while len(numbers(pid)) < seen + 3:
            assert time.monotonic() < until
            time.sleep(0.02)
        found = numbers(pid)
        assert found == list(range(found[0], found[0] + len(found)))

    forked = [
        child for child in children(running.pid)
        if child not in old and "ff0000" in Path(f"/proc/{child}/maps").read_text()
    ]  # fmt: skip
    assert forked, "none was forked while it was recorded"
    child = forked[0]
    goes_on(child)
    for turn in range(2):
        done = run_command(
            ["attach", child, "--seconds", "0.2", "--force", "-o", tmp_path / "c.pwt"]
        )
        assert done.returncode == 0, done.stderr
        assert ("an earlier recording's engine" in done.stderr) == (turn == 0), done.stderr
        assert sum(Trace(tmp_path / "c.pwt").info()["accesses"].values()) > 0
        left = Path(f"/proc/{child}/maps").read_text()
        assert "pagewalk" not in left and "ff00000" not in left
        goes_on(child)
    goes_on(running.pid)
