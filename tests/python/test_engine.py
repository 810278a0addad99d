"""`--engine native`: programs give what they give, and traces say how they were recorded."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "true": (["/bin/true"], b""),
    "gzip": (["gzip", "-9", "-n", "-c"], b"a text that is compressed\n" * 3000),
    "sqlite3": (
        ["sqlite3", ":memory:", "select sum(value * value) from generate_series(1, 2000);"],
        b"",
    ),
    "python3": (
        [
            "/usr/bin/python3",
            "-I",
            "-S",
            "-c",
            "print(sum(i * i for i in range(2000)), 2.5 ** 0.5, {1: 'a'})",
        ],
        b"",
    ),
    "sh": (
        ["/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; echo $i; exit 3"],
        b"",
    ),
    "awk": (["awk", "{ n += length($0) } END { print n, sqrt(n) }"], b"some words\n" * 500),
    "sort": (["sort", "-n"], b"".join(b"%d\n" % (i * 7919 % 1000) for i in range(1000))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_they_give_by_themselves(pagewalk, name: str, tmp_path: Path) -> None:
    command, given = PROGRAMS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    trace, outcome = tmp_path / "t.pwt", tmp_path / "t.json"
    text = given.decode()
    alone = subprocess.run(command, input=given, capture_output=True, check=False)
    recorded = subprocess.run(
        [
            sys.executable,
            "-m",
            "pagewalk",
            "record",
            "-q",
            "--engine",
            "native",
            "-o",
            trace,
            "--json",
            outcome,
            "--",
            *command,
        ],
        input=given,
        capture_output=True,
        check=False,
    )
    assert (recorded.returncode, recorded.stdout) == (alone.returncode, alone.stdout), text[:20]
    told = json.loads(outcome.read_text())
    assert told["engine"] == "native" and told["accesses"] > 10_000 and told["lost"] == []
    shown = pagewalk("info", trace)
    assert "natively by Pagewalk's engine" in shown.stdout
    assert "QEMU" not in shown.stdout


FAMILIES = {
    "pipeline": "for i in 1 2 3; do echo $i | sed s/1/x/ | tr 2 y; done; exit 5",
    "substitution": "a=$(ls / | sort -r | head -3); echo $a; (echo in a subshell; exit 3); echo $?",
    "script": 'printf \'#!/bin/sh -e\necho "$0" "$@" | wc -w\n\' > s; chmod +x s; ./s one two',
    "missing": "./no-such-program; echo $?; command -v no-such-program; true",
    "background": "sleep 0.01 & wait $!; kill -TERM $$",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_give_what_they_give_by_themselves(name: str, tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", FAMILIES[name]]
    folders = [tmp_path / "alone", tmp_path / "recorded"]
    for folder in folders:
        folder.mkdir()
    alone = subprocess.run(command, cwd=folders[0], capture_output=True, check=False)
    trace, outcome = tmp_path / "t.pwt", tmp_path / "t.json"
    options = ["record", "-q", "--engine", "native", "-o", trace, "--json", outcome, "--"]
    front = [sys.executable, "-m", "pagewalk", *options]
    recorded = subprocess.run([*front, *command], cwd=folders[1], capture_output=True, check=False)
    # If a signal ends a program, the exit status is 128 plus the number of the signal.
    status = alone.returncode if alone.returncode >= 0 else 128 - alone.returncode
    assert (recorded.returncode, recorded.stdout) == (status, alone.stdout), recorded.stderr
    told = json.loads(outcome.read_text())
    assert told["engine"] == "native" and told["lost"] == [] and len(told["processes"]) > 1
    assert not any("unrecorded" in note for note in told["notes"]), told["notes"]


def test_children_that_are_not_followed_run_by_themselves(pagewalk, tmp_path: Path) -> None:
    trace, outcome = tmp_path / "t.pwt", tmp_path / "t.json"
    script = "echo a | sed s/a/b/; (echo c; exit 4); echo $?"
    done = pagewalk(
        *("record", "--engine", "native", "--no-follow", "-o", trace, "--json", outcome),
        *("--", "/bin/sh", "-c", script),
    )
    assert (done.returncode, done.stdout) == (0, "b\nc\n4\n"), done.stderr
    assert len(json.loads(outcome.read_text())["processes"]) == 1


def test_a_trace_and_a_live_run_give_the_same(pagewalk, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    assert pagewalk("record", "--engine", "native", "-o", trace, "--", "/bin/true").returncode == 0
    stored, live = tmp_path / "stored.json", tmp_path / "live.json"
    assert pagewalk("run", trace, "-m", "tlb-only", "--json", stored).returncode == 0
    done = pagewalk(
        "run", "--engine", "native", "-m", "tlb-only", "--json", live, "--", "/bin/true"
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(path.read_text())["trace"]["processes"] for path in (stored, live)]
    assert [process["instructions"] for process in found[0]] == [
        process["instructions"] for process in found[1]
    ]


def test_what_it_does_not_record_is_one_line_and_leaves_nothing(pagewalk, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    script = "import ctypes; ctypes.CDLL(None).personality(0x400000)"  # READ_IMPLIES_EXEC
    done = pagewalk(
        *("record", "--engine", "native", "-o", trace, "--", "/usr/bin/python3", "-c", script)
    )
    assert done.returncode == 1
    assert "makes all of its memory executable" in done.stderr and "--engine qemu" in done.stderr
    assert done.stderr.count("\n") == 1 and list(tmp_path.iterdir()) == []
    done = pagewalk("record", "--engine", "native", "--sysroot", "/", "-o", trace, "--", "true")
    assert "--sysroot does not work with --engine native" in done.stderr and done.returncode == 2
    assert done.stderr.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_a_program_that_is_killed_loses_nothing_that_it_did(pagewalk, tmp_path: Path) -> None:
    trace, outcome = tmp_path / "t.pwt", tmp_path / "t.json"
    script = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; kill -KILL $$"
    options = ["--force", "--engine", "native", "-o", trace, "--json", outcome]
    done = pagewalk("record", *options, "--", "/bin/sh", "-c", script)
    assert done.returncode == 128 + signal.SIGKILL
    whole = json.loads(outcome.read_text())
    script = script.replace("kill -KILL $$", "kill -0 $$")
    done = pagewalk("record", *options, "--", "/bin/sh", "-c", script)
    assert done.returncode == 0
    ended = json.loads(outcome.read_text())
    # The call that kills is the last that it does; without it there is the end of the shell.
    assert 0 < ended["instructions"] - whole["instructions"] < 20_000


def test_a_recording_is_repeated_but_with_aslr(pagewalk, tmp_path: Path) -> None:
    # The program prints the address of an object on the heap, because the program itself may be
    # linked at a fixed address.
    says = ["/usr/bin/python3", "-I", "-S", "-c", "print(id([]))"]
    if shutil.which(says[0]) is None:
        pytest.skip("there is no Python of the system")
    addresses = []
    for more in ([], [], ["--aslr"], ["--aslr"]):
        trace = tmp_path / "t.pwt"
        options = ["--engine", "native", *more, "--force", "-o", trace]
        done = pagewalk("record", *options, "--", *says)
        assert done.returncode == 0, done.stderr
        addresses.append(int(done.stdout))
    assert addresses[0] == addresses[1]
    assert len(set(addresses)) == 3, addresses
