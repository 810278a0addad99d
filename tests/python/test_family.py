"""Families of processes, recorded as they run: pipelines, servers, shims; live and stored."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagewalk import Results, Trace
from pagewalk.report import render, tables

PIPELINE = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
/* pipeline BYTES WRITE READ: one child writes so many bytes, the other reads them. */
static char buffer[1 << 20];
int main(int argc, char **argv)
{
    long bytes = atol(argv[1]), write_bytes = atol(argv[2]), read_bytes = atol(argv[3]), done = 0;
    int ends[2];
    if (pipe(ends)) return 1;
    if (fork() == 0) {
        close(ends[0]);
        for (; done < bytes; done += write_bytes)
            if (write(ends[1], buffer, write_bytes) != write_bytes) _exit(2);
        _exit(0);
    }
    if (fork() == 0) {
        close(ends[1]);
        for (; done < bytes; done += read_bytes)
            for (long got = 0, now; got < read_bytes; got += now)
                if ((now = read(ends[0], buffer + got, read_bytes - got)) <= 0) _exit(3);
        _exit(read(ends[0], buffer, 1) != 0);
    }
    close(ends[0]);
    close(ends[1]);
    int first, second;
    return wait(&first) < 0 || wait(&second) < 0 || first || second;
}
"""

SPAWNER = """
#include <spawn.h>
#include <sys/wait.h>
/* Spawns its arguments, a program each, one after the other. */
int main(int argc, char **argv)
{
    for (int at = 1; at < argc; at++) {
        char *none[] = {0}, *command[] = {argv[at], 0};
        int pid, status;
        if (posix_spawn(&pid, argv[at], 0, 0, command, none)) return 1;
        if (waitpid(pid, &status, 0) != pid || status) return 2;
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    folder = tmp_path_factory.mktemp("compiled")

    def compile_(name: str, source: str) -> Path:
        (folder / f"{name}.c").write_text(source)
        subprocess.run(["gcc", "-O1", f"{name}.c", "-o", name], cwd=folder, check=True)
        return folder / name

    return compile_


@pytest.fixture(scope="module")
def pipeline(compiled) -> Path:
    return compiled("pipeline", PIPELINE)


def run(pagewalk, *arguments: object) -> dict[str, Any]:
    """The results document of a run on the small machine."""
    done = pagewalk("run", *arguments, "-m", "tlb-only", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


K = 1024


@pytest.mark.parametrize(
    ("sizes", "capacity"),
    [
        ((1024 * K, 4 * K, 4 * K), 64 * K),
        ((1024 * K, 4 * K, 4 * K), 16 * K),
        ((256 * K, 1 * K, 8 * K), 64 * K),
        ((512 * K, 128 * K, 4 * K), 64 * K),
    ],
)
def test_a_recorded_pipeline_switches_as_arithmetic_says(
    pagewalk, pipeline: Path, tmp_path: Path, sizes: tuple[int, int, int], capacity: int
) -> None:
    trace = tmp_path / "t.pwt"
    done = pagewalk("record", "--calls", "-o", trace, "--", pipeline, *sizes)
    assert done.returncode == 0, done.stderr
    # The parent waits for its children. Each time the pipe is full and there is more to write the
    # producer waits, and the consumer each time it is empty before the end. Then both end.
    fills = sizes[0] // capacity
    # The quantum is so long that it ends no turn, so only waits and ends do.
    switches = run(pagewalk, f"mix:quantum=1G,pipe={capacity // K}K,{trace}")["switches"]
    assert switches["by_cause"] == {"blocked": 1 + 2 * (fills - 1), "ended": 2, "quantum": 0}
    assert switches["unexplained"] == 0
    # In the order of the recording they took turns as two processors of the host let them.
    stamps = run(pagewalk, f"mix:order=stamps,{trace}")["switches"]
    assert stamps["order"] == "stamps" and stamps["by_cause"]["recorded"] >= 3


def test_a_live_family_counts_what_its_recording_does(pagewalk, compiled, tmp_path: Path) -> None:
    # posix_spawn's parent waits for its child to execute a program, and then for its end.
    command = ["env", "-i", compiled("spawner", SPAWNER), "/bin/true", "/bin/ls", "/bin/true"]
    # A parent continues as soon as its child executes a program. The kernel chooses which of the
    # two runs first, and the contents of TLBs depend on this choice, so the recording and the run
    # are repeated.
    for attempt in range(8):
        trace = tmp_path / f"{attempt}.pwt"
        assert pagewalk("record", "-o", trace, "--", *command).returncode == 0
        stored = run(pagewalk, f"mix:order=stamps,{trace}")
        counts = tmp_path / f"{attempt}.json"
        done = pagewalk("run", "-m", "tlb-only", "--json", counts, "--", *command)
        assert done.returncode == 0, done.stderr
        live = json.loads(counts.read_text())
        for what in ("accesses", "instructions", "faults"):
            assert live[what] == stored[what], what
        if live["tlbs"] == stored["tlbs"]:
            break
    for what in ("tlbs", "walks"):
        assert live[what] == stored[what], what
    assert len(live["trace"]["processes"]) == 4
    # The name of a region includes its process, since several processes have a stack.
    for results in (live, stored):
        names = {region["name"] for region in results["regions"]}
        stacks = {
            "stack of spawner (0)",
            "stack of true (1)",
            "stack of ls (2)",
            "stack of true (3)",
        }
        assert {name for name in names if name.startswith("stack")} == stacks
    # Each child runs until its `execve`, its parent until it waits, the child to its end.
    assert live["switches"] == stored["switches"]
    assert live["switches"]["order"] == "stamps"
    assert live["switches"]["by_cause"] == {"recorded": 3 * 4}
    assert "in order `stamps`" in done.stderr


def test_two_recordings_count_the_same_in_blocking_order(
    pagewalk, pipeline: Path, tmp_path: Path
) -> None:
    found = []
    for name in ("a.pwt", "b.pwt"):
        command = ["env", "-i", pipeline, 256 * K, 4 * K, 4 * K]
        done = pagewalk("record", "--calls", "-o", tmp_path / name, "--", *command)
        assert done.returncode == 0, done.stderr
        found.append(run(pagewalk, tmp_path / name))
    for what in ("accesses", "tlbs", "walks", "faults", "switches"):
        assert found[0][what] == found[1][what], what


def test_a_shim_s_program_is_what_is_recorded(pagewalk, program: Path, tmp_path: Path) -> None:
    # The shim is a script as in version managers: it asks another script for the program's path,
    # and executes the program by `env`.
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in (
        ("where", f"#!/bin/sh\necho {program}\n"),
        ("touch", f'#!/usr/bin/env sh\nexec {tools}/exec "$(basename "$0")" "$@"\n'),
        ("exec", f'#!/bin/sh\nfound=$({tools}/where "$1")\nshift\nexec env "$found" "$@"\n'),
    ):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    trace = tmp_path / "t.pwt"
    done = pagewalk("record", "-o", trace, "--", tools / "touch", 3)
    assert done.returncode == 3 and done.stdout == "touched\n", done.stderr
    info = json.loads(pagewalk("info", trace, "--json").stdout)
    names = [part["command"][0].rpartition("/")[2] for part in info["processes"][0]["programs"]]
    assert names[-2:] == ["env", "touch"] and len(names) >= 4
    # The program itself, by its name: live, and of the recording.
    touched = 8 * 1024
    for arguments in ([f"{trace}", "--process", program], ["--process", program]):
        command = [] if len(arguments) == 3 else ["--", tools / "touch", 3]
        out = tmp_path / f"{len(arguments)}.json"
        done = pagewalk("run", *arguments, "-m", "tlb-only", "--json", out, *command)
        assert done.returncode == (3 if command else 0), done.stderr
        stores = json.loads(out.read_text())["accesses"]["store"]
        assert stores > touched


def test_a_server_and_its_clients(pagewalk, tmp_path: Path) -> None:
    server = """
import os, socket, sys
clients = 3
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    for _ in range(clients):
        if os.fork() == 0:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(sys.argv[1])
                client.sendall(b"x" * 1000)
                assert client.recv(100) == b"1000"
            os._exit(0)
    for _ in range(clients):
        with server.accept()[0] as client:
            got = 0
            while got < 1000:
                got += len(client.recv(100))
            client.sendall(str(got).encode())
    assert all(os.wait()[1] == 0 for _ in range(clients))
"""
    (tmp_path / "server.py").write_text(server)
    trace = tmp_path / "t.pwt"
    python = Path(sys.executable).resolve()
    command = [python, "-S", "-E", tmp_path / "server.py", tmp_path / "socket"]
    done = pagewalk("record", "--calls", "-o", trace, "--", *command)
    assert done.returncode == 0, done.stderr
    data = run(pagewalk, trace, "--check")
    assert len(data["trace"]["processes"]) == 4
    switches = data["switches"]
    # Of a socket's call it is known only how long it took, here or there less than a wait's 20 us.
    assert switches["order"] == "blocking" and switches["by_cause"]["blocked"] >= 3
    assert switches["by_cause"]["ended"] >= 3
    # The report shows both kinds of switches.
    processes, causes = tables.processes(data), tables.switches(data)
    assert processes is not None and causes is not None
    assert [row[1] for row in processes.rows] == [
        str(process["number"]) for process in data["trace"]["processes"]
    ]
    assert "python" in str(processes.rows[0][0])
    assert [row[0] for row in causes.rows] == [
        "A call waited", "A program ended", "A quantum ended",
    ]  # fmt: skip
    page = render([Results(data)])
    assert "Switches between programs" in page and "<h3>Processes</h3>" in page


def test_children_of_vfork_are_processes_of_their_own_in_exports(
    pagewalk, compiled, tmp_path: Path
) -> None:
    command = [compiled("spawner", SPAWNER), "/bin/true"]
    trace = tmp_path / "t.pwt"
    assert pagewalk("record", "-o", trace, "--", *command).returncode == 0
    counts = {
        process["number"]: process["accesses"] for process in Trace(trace).info()["processes"]
    }
    for name in (trace, f"mix:order=stamps,{trace}"):
        seen = dict.fromkeys(counts, 0)
        for batch in Trace(name).batches():
            for number in batch["process"].to_pylist():
                seen[number] += 1
        assert seen == counts
    done = pagewalk("export", "csv", trace, "-o", tmp_path / "t.csv")
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "t.csv").read_text().splitlines()[1:]
    assert sum(row.endswith(",1") for row in rows) == counts[1]
