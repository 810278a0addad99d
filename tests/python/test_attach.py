"""`pagewalk attach`: a part of a running program is recorded, and the program goes on as before."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagewalk import Trace

TORTURE = bool(os.environ.get("PAGEWALK_TORTURE"))
ROUNDS = 50 if TORTURE else 1
KILLS = 40 if TORTURE else 3
ENGINE_MEMORY = range(0x0FF0_0000_0000, 0x0FF0_0400_0000)
"""Where the engine's code would be; its other memory is where the program has none."""

PROGRAM = """
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
static volatile long bad, began, rounds[256];
static char stack[65536];
static void on_signal(int s) {
    char here;
    if (&here < stack || &here >= stack + sizeof stack) bad++;
}
static volatile long cells[1024];
__attribute__((noinline)) void fill(void) { for (int i = 0; i < 1024; i++) cells[i] = i; }
__attribute__((noinline)) void work(void) {
    volatile long *own = malloc(8192);
    for (int i = 0; i < 2000; i++) own[i & 1023] = i;
    if (own[1999 & 1023] != 1999) bad++;
    free((void *)own);
}
static void *run(void *arg) {
    long me = (long)arg;
    int poll = epoll_create1(0);
    struct epoll_event event;
    __sync_fetch_and_add(&began, 1);
    for (;;) {
        struct timespec time = { 0, 2000000 };
        if (me % 3 == 0 && nanosleep(&time, 0)) bad++;
        if (me % 3 == 1 && epoll_wait(poll, &event, 1, 50) < 0) bad++;
        if (me % 3 == 2) { work(); usleep(500); }
        rounds[me]++;
    }
}
int main(int argc, char **argv) {
    int count = atoi(argv[1]);
    stack_t alternate = { stack, 0, sizeof stack };
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaltstack(&alternate, 0);
    sigaction(SIGUSR1, &action, 0);
    pthread_t thread;
    for (long i = 1; i < count; i++) pthread_create(&thread, 0, run, (void *)i);
    while (began < count - 1) usleep(1000);
    for (long round = 0;; round++) {
        fill();
        for (int i = 0; i < 20; i++) work();
        raise(SIGUSR1);
        printf("%ld %ld\\n", round, bad);
        fflush(stdout);
        usleep(2000);
    }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attach")
    (folder / "runs.c").write_text(PROGRAM)
    command = ["gcc", "-O1", "-no-pie", "-pthread", "runs.c", "-o", "runs"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "runs"


class Running:
    """A program that prints a line for each of its rounds."""

    def __init__(self, command: list[str | Path], output: Path) -> None:
        self.output = output
        with output.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file)
        self.pid = self.process.pid
        self.goes_on()

    def maps(self) -> str:
        return Path(f"/proc/{self.pid}/maps").read_text()

    def is_in_the_way(self) -> bool:
        """Whether the program has memory where the engine's would be."""
        starts = (int(line.split("-")[0], 16) for line in self.maps().splitlines())
        return any(start in ENGINE_MEMORY for start in starts)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def lines(self) -> list[str]:
        return self.output.read_text().splitlines()

    def goes_on(self) -> None:
        """Waits for two more lines."""
        before, until = len(self.lines()), time.monotonic() + 30
        while len(self.lines()) < before + 3:
            assert self.process.poll() is None, "it has ended"
            assert time.monotonic() < until, "it stands still"
            time.sleep(0.01)

    def settled(self) -> str:
        """The maps, once the engine is gone."""
        until = time.monotonic() + 30
        while "memfd:pagewalk" in self.maps() and time.monotonic() < until:
            time.sleep(0.02)
        return self.maps()


@pytest.fixture
def started(program: Path, tmp_path: Path) -> Iterator[Callable[[int], Running]]:
    """Starts the program with a number of threads."""
    all_: list[Running] = []

    def start(threads: int) -> Running:
        all_.append(Running([program, str(threads)], tmp_path / f"{len(all_)}.out"))
        time.sleep(0.2)
        return all_[-1]

    yield start
    for running in all_:
        running.end()


@pytest.mark.parametrize("threads", [1, 7, 200])
def test_a_program_goes_on_as_if_nothing_had_been(
    pagewalk, started, tmp_path: Path, threads: int
) -> None:
    running = started(threads)
    for _ in range(ROUNDS):
        before = running.maps()
        done = pagewalk(
            "attach", running.pid, "--seconds", "0.3", "--force", "-o", tmp_path / "t.pwt"
        )
        assert done.returncode == 0, done.stderr
        assert running.maps() == before
        # How many depends on how busy the machine is.
        assert sum(Trace(tmp_path / "t.pwt").info()["accesses"].values()) > 0
    os.kill(running.pid, signal.SIGUSR1)
    running.goes_on()
    assert running.lines()[-2].split()[1] == "0", "no call was interrupted"


@pytest.mark.parametrize(
    ("flags", "accesses"),
    [
        (["--max-accesses", "100k"], 100_000),
        (["--from-symbol", "work", "--max-accesses", "30k"], 30_000),
        (["--from-symbol", "work", "--skip", "1M", "--max-accesses", "30k"], 30_000),
        (["--sample", "10k/100k", "--max-accesses", "55k"], 55_000),
    ],
)
def test_windows_have_their_accesses(
    pagewalk, started, tmp_path: Path, flags: list[str], accesses: int
) -> None:
    running = started(1)
    before = running.maps()
    done = pagewalk("attach", running.pid, *flags, "-o", tmp_path / "t.pwt")
    assert done.returncode == 0, done.stderr
    assert running.maps() == before
    assert sum(Trace(tmp_path / "t.pwt").info()["accesses"].values()) == accesses
    running.goes_on()


def rows(trace: Path) -> list[tuple[int, str]]:
    return [
        row
        for batch in Trace(trace).batches()
        for row in zip(batch["addr"].to_pylist(), batch["kind"].to_pylist(), strict=True)
    ]


def test_a_window_is_that_of_a_whole_recording(
    pagewalk, program: Path, started, tmp_path: Path
) -> None:
    """One call of a function, attached to, recorded alone, and cut from a whole recording."""
    listed = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    symbols = [line.split() for line in listed.splitlines()]
    places = {words[2]: int(words[0], 16) for words in symbols if len(words) == 3}
    window = ["--from-symbol", "fill", "--to-symbol", "work"]
    running = started(1)
    done = pagewalk("attach", running.pid, *window, "-o", tmp_path / "a.pwt")
    assert done.returncode == 0, done.stderr
    record = ["record", "--engine", "native", "--end-with-window"]
    for name, flags in (("r", window), ("w", ["--to-symbol", "work"])):
        done = pagewalk(*record, *flags, "-o", tmp_path / f"{name}.pwt", "--", program, "1")
        assert done.returncode == 0, done.stderr
    attached, recorded, whole = (rows(tmp_path / f"{name}.pwt") for name in "arw")
    cut = whole[whole.index((places["fill"], "fetch")) :]
    assert len(cut) > 2000
    assert recorded == cut
    # The stack is elsewhere in a program that is not recorded from its beginning.
    own = [[row for row in part if row[0] < 1 << 32] for part in (attached, cut)]
    assert own[0] == own[1] and len(attached) == len(cut)


def test_a_pagewalk_that_is_killed_leaves_the_program_whole(
    program: Path, started, tmp_path: Path
) -> None:
    chance = random.Random(7)
    running = started(7)
    before = running.maps()
    for _ in range(KILLS):
        command = [sys.executable, "-m", "pagewalk", "attach", str(running.pid), "-q", "--force"]
        with subprocess.Popen(
            [*command, "-o", tmp_path / "t.pwt"], stderr=subprocess.DEVNULL
        ) as it:
            time.sleep(chance.uniform(0.1, 1.2))
            it.kill()
        running.goes_on()
        time.sleep(0.1)
        assert running.settled() == before
    running.goes_on()
    assert running.lines()[-2].split()[1] == "0"


def test_a_program_that_ends_meanwhile_is_recorded_to_its_end(pagewalk, tmp_path: Path) -> None:
    code = "import sys\nprint(1, flush=True)\nsys.stdin.read(1)\nsum(range(10**5))"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as it:
        assert it.stdout is not None and it.stdin is not None
        assert it.stdout.readline() == "1\n"
        recorder = subprocess.Popen(
            [sys.executable, "-m", "pagewalk", "attach", str(it.pid), "-q", "-o",
             tmp_path / "t.pwt"],
        )  # fmt: skip
        until = time.monotonic() + 60
        while "memfd:pagewalk-code" not in Path(f"/proc/{it.pid}/maps").read_text():
            assert time.monotonic() < until
            time.sleep(0.02)
        it.stdin.write("x")
        it.stdin.close()
        assert it.wait(60) == 0
        assert recorder.wait(60) == 0
    assert sum(Trace(tmp_path / "t.pwt").info()["accesses"].values()) > 100_000


def test_redis_under_load_answers_all(pagewalk, tmp_path: Path) -> None:
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is not here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [server, "--port", str(port), "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path) as it:
        try:
            answered(port, 1)
            before = redis_maps(it.pid)
            for _ in range(ROUNDS):
                recorder = subprocess.Popen(
                    [sys.executable, "-m", "pagewalk", "attach", str(it.pid), "--seconds", "1",
                     "-q", "--force", "-o", tmp_path / "r.pwt"],
                )  # fmt: skip
                answered(port, 3000)
                assert recorder.wait(60) == 0
                answered(port, 500)
                assert redis_maps(it.pid) == before
        finally:
            it.kill()


def redis_maps(pid: int) -> list[str]:
    """Its mappings of files: its heap grows by itself."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "/" in line or "vdso" in line]


def answered(port: int, count: int) -> None:
    """Increments a number of redis that often, and checks each answer."""
    until = time.monotonic() + 30
    while True:
        try:
            client = socket.create_connection(("127.0.0.1", port), timeout=20)
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)
    with client, client.makefile("rb") as answers:
        client.sendall(b"DEL n\r\n")
        answers.readline()
        for expected in range(1, count + 1):
            client.sendall(b"INCR n\r\n")
            assert answers.readline() == b":%d\r\n" % expected


GO = """
package main

import ("fmt"; "os"; "sync"; "time")

func main() {
    work := make(chan int)
    done := make(chan int)
    for i := 0; i < 8; i++ {
        go func() {
            for n := range work {
                cells := make([]int, 1000)
                for k := range cells { cells[k] = n + k }
                done <- cells[999]
            }
        }()
    }
    var lock sync.Mutex
    for round := 0; ; round++ {
        bad := 0
        go func() { for i := 0; i < 100; i++ { work <- i } }()
        sum := 0
        for i := 0; i < 100; i++ { sum += <-done }
        if sum != 100*999+4950 { bad++ }
        lock.Lock()
        fmt.Fprintln(os.Stdout, round, bad)
        lock.Unlock()
        time.Sleep(2 * time.Millisecond)
    }
}
"""

JAVA = """
import java.util.*;
import java.util.concurrent.*;

public class Rounds {
    public static void main(String[] arguments) throws Exception {
        ExecutorService all = Executors.newFixedThreadPool(4);
        for (int round = 0; ; round++) {
            List<Future<Integer>> found = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                final int of = i;
                found.add(all.submit(() -> {
                    Map<Integer, String> map = new HashMap<>();
                    for (int k = 0; k < 500; k++) map.put(k, "x" + k * of);
                    return map.get(499).length();
                }));
            }
            int sum = 0;
            for (Future<Integer> one : found) sum += one.get();
            System.out.println(round + " " + (sum == 35 ? 0 : sum));
            System.out.flush();
            Thread.sleep(2);
        }
    }
}
"""


def go_server(folder: Path) -> list[str | Path]:
    (folder / "rounds.go").write_text(GO)
    environment = {**os.environ, "GOCACHE": str(folder / "cache"), "GOFLAGS": "-mod=mod"}
    subprocess.run(["go", "build", "rounds.go"], cwd=folder, env=environment, check=True)
    return [folder / "rounds"]


def java_program(folder: Path) -> list[str | Path]:
    (folder / "Rounds.java").write_text(JAVA)
    subprocess.run(["javac", "Rounds.java"], cwd=folder, check=True)
    return ["java", "-cp", folder, "Rounds"]


@pytest.mark.parametrize(
    ("tool", "made", "wait"), [("go", go_server, 0.5), ("javac", java_program, 3)]
)
def test_runtimes_with_threads_and_signals_of_their_own_go_on(
    pagewalk, tmp_path: Path, tool: str, made: Callable[[Path], list[str | Path]], wait: float
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not here")
    command = made(tmp_path)
    running = Running(command, tmp_path / "rounds.out")
    # Go's heap begins at a random address.
    while running.is_in_the_way():
        running.end()
        running = Running(command, tmp_path / "rounds.out")
    try:
        time.sleep(wait)
        for _ in range(ROUNDS):
            flags = ["--seconds", "0.7", "--force", "-o", tmp_path / "t.pwt"]
            done = pagewalk("attach", running.pid, *flags)
            assert done.returncode == 0, done.stderr
            assert "pagewalk" not in running.maps()
            assert sum(Trace(tmp_path / "t.pwt").info()["accesses"].values()) > 1000
            running.goes_on()
        assert {line.split()[1] for line in running.lines()[:-1]} == {"0"}
    finally:
        running.end()


AT_ADDRESS = """
import ctypes, itertools, sys, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
sizes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mmap.argtypes = sizes
at = int(sys.argv[1], 16)
private_anonymous_fixed_noreplace = 0x100022
assert libc.mmap(at, 4 << 20, 3, private_anonymous_fixed_noreplace, -1, 0) == at
bad = 0
for round in itertools.count():
    ctypes.memset(at, round % 256, 4096)
    bad += ctypes.string_at(at, 4096) != bytes([round % 256]) * 4096
    print(round, bad, flush=True)
    time.sleep(0.002)
"""


def test_memory_where_the_engine_would_be_is_left_alone(pagewalk, tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_ADDRESS]
    running = Running([*command, "0xff000100000"], tmp_path / "rounds.out")
    try:
        before = running.maps()
        done = pagewalk("attach", running.pid, "-o", tmp_path / "t.pwt")
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert "it has memory at 0xff000100000" in done.stderr
        assert running.maps() == before
        running.goes_on()
    finally:
        running.end()
    # The engine finds other addresses for the rest.
    for at in ("0x100000000000", "0x102ee1e00000", "0x120000600000"):
        running = Running([*command, at], tmp_path / "rounds.out")
        try:
            before = running.maps()
            flags = ["--seconds", "0.3", "--force", "-o", tmp_path / "t.pwt"]
            done = pagewalk("attach", running.pid, *flags)
            assert done.returncode == 0, done.stderr
            assert running.maps() == before
            running.goes_on()
            assert running.lines()[-2].split()[1] == "0"
            regions = Trace(tmp_path / "t.pwt").info()["regions"]
            assert int(at, 16) in {region["start"] for region in regions}
        finally:
            running.end()


def test_what_cannot_be_attached_to_is_one_line(pagewalk, started, tmp_path: Path) -> None:
    def refused(pid: object, *flags: str) -> str:
        done = pagewalk("attach", pid, *flags, "-o", tmp_path / "t.pwt")
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("pagewalk: error: ")
        assert not (tmp_path / "t.pwt").exists()
        return done.stderr

    assert "there is no such process" in refused(999_999_999 % (1 << 22))
    if Path("/proc/2").exists():
        assert "its program cannot be seen" in refused(2)
    done = pagewalk("attach", "redis")
    assert done.returncode == 2 and "is not a process" in done.stderr
    running = started(2)
    others = {int(task.name) for task in Path(f"/proc/{running.pid}/task").iterdir()}
    others.remove(running.pid)
    assert f"it is a thread of process {running.pid}" in refused(others.pop())
    running.process.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    assert "it is stopped by a signal" in refused(running.pid)
    running.process.send_signal(signal.SIGCONT)
    running.goes_on()
    first = subprocess.Popen(
        [sys.executable, "-m", "pagewalk", "attach", str(running.pid), "-q", "--seconds", "3",
         "-o", tmp_path / "first.pwt"],
    )  # fmt: skip
    until = time.monotonic() + 20
    while "memfd:pagewalk" not in running.maps() and time.monotonic() < until:
        time.sleep(0.02)
    told = refused(running.pid)
    assert "another pagewalk records it" in told or "traces it already" in told
    assert first.wait(30) == 0
    running.goes_on()
