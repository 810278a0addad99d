import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_window_that_never_began_and_a_script_are_told_in_words(
    pagewalk, program: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "t.pwt"
    done = pagewalk("record", "-o", trace, "--skip", "10G", "-q", "--", program)
    assert done.returncode == 0
    assert done.stderr == (
        "pagewalk: warning: no access was recorded: the programs made fewer than the 10000000000 "
        "accesses that --skip leaves out\n"
    )
    done = pagewalk("run", trace, "-m", "tlb-only")
    assert "holds no access: nothing was simulated" in done.stderr
    assert "No access ran." in done.stdout and "Nothing to do" not in done.stdout
    shim = tmp_path / "shim"
    shim.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    shim.chmod(0o755)
    told = "warning: shim is a script: with --no-follow its interpreter alone is recorded"
    done = pagewalk("record", "--force", "-o", trace, "--no-follow", "--", shim)
    assert told in done.stderr
    assert told not in pagewalk("record", "--force", "-o", trace, "--", shim).stderr


def test_output_and_status_are_the_program_s_own(pagewalk, program: Path, tmp_path: Path) -> None:
    done = pagewalk("record", "-o", tmp_path / "t.pwt", "--", program, "7")
    assert done.returncode == 7
    assert done.stdout == "touched\n"
    assert "t.pwt: " in done.stderr and "accesses in" in done.stderr
    assert names(tmp_path) == ["t.pwt"]


def test_the_trace_is_named_after_the_program(pagewalk, program: Path, tmp_path: Path) -> None:
    assert pagewalk("record", "--", program, cwd=tmp_path).returncode == 0
    assert names(tmp_path) == ["touch.pwt"]


def test_json_says_what_was_recorded(pagewalk, program: Path, tmp_path: Path) -> None:
    done = pagewalk(
        "record", "-o", tmp_path / "t.pwt", "--json", tmp_path / "t.json", "--", program, "3"
    )
    outcome = json.loads((tmp_path / "t.json").read_text())
    assert done.returncode == outcome["exit_status"] == 3
    assert outcome["accesses"] > 8 * 1024
    assert outcome["bytes"] == (tmp_path / "t.pwt").stat().st_size


def test_an_existing_trace_is_kept_and_the_program_not_run(
    pagewalk, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "t.pwt").write_text("old")
    done = pagewalk("record", "-o", tmp_path / "t.pwt", "--", program)
    assert done.returncode == 2 and "exists" in done.stderr and done.stdout == ""
    assert (tmp_path / "t.pwt").read_text() == "old"


def not_executable(folder: Path) -> Path:
    (folder / "plain").write_text("text")
    return folder / "plain"


def for_another_processor(folder: Path) -> Path:
    header = bytearray(64)
    header[:20] = b"\x7fELF\x02\x02\x01" + bytes(9) + b"\x00\x02\x00\x16"
    (folder / "s390").write_bytes(header)
    (folder / "s390").chmod(0o755)
    return folder / "s390"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (lambda folder: "no-such-program", "no such program"),
        (lambda folder: folder, "directory"),
        (not_executable, "may not be executed"),
        (for_another_processor, "program for"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(pagewalk, tmp_path: Path, command, words: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for how in (["record", "-o", tmp_path / "t.pwt"], ["run"]):
        done = pagewalk(*how, "--", command(folder))
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("pagewalk: error: ") and done.stderr.count("\n") == 1
        assert words in done.stderr
    assert names(tmp_path) == ["bin"]


def test_a_live_run_counts_what_a_stored_one_does(
    pagewalk, program: Path, recorded: Path, tmp_path: Path
) -> None:
    live = pagewalk("run", "--json", tmp_path / "live.json", "--", program, "5")
    assert live.returncode == 5, live.stderr
    assert live.stdout == "touched\n"
    assert "TLBs" in live.stderr
    counted = json.loads((tmp_path / "live.json").read_text())
    stored = json.loads(pagewalk("run", recorded, "--json").stdout)
    touched = [
        max(region["pages"] for region in document["regions"]) for document in (counted, stored)
    ]
    assert touched[0] == touched[1] and 1024 <= touched[0] < 1040
    # The two runs differ only by one more argument on the stack.
    for kind, number in stored["accesses"].items():
        assert counted["accesses"][kind] == pytest.approx(number, rel=0.05)


def test_an_interrupt_is_the_program_s_and_its_trace_is_whole(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pagewalk", "record", "-o", tmp_path / "t.pwt", "--", "sleep", "60"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(3)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "t.pwt: " in error and "Traceback" not in error
    assert names(tmp_path) == ["t.pwt"]


def test_a_file_ends_near_its_largest_size(pagewalk, program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    sizes = []
    for limit in ([], ["--max-bytes", "10k"]):
        command = ["record", "-q", "--force", "-o", trace, *limit, "--"]
        done = pagewalk(*command, sys.executable, "-c", "print(sum(range(300000)))")
        assert (done.returncode, done.stdout) == (0, "44999850000\n")
        sizes.append(trace.stat().st_size)
        assert pagewalk("run", trace, "-m", "tlb-only", "--check").returncode == 0
    # A chunk of a million accesses would be some 400 kB.
    assert sizes[0] > 1_000_000 and 10_000 < sizes[1] < 250_000


def test_limits_are_kept(pagewalk, program: Path, tmp_path: Path) -> None:
    done = pagewalk(
        "record", "-o", tmp_path / "t.pwt", "--max-accesses", "10k", "--no-fetch",
        "--json", tmp_path / "t.json", "--", program,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads((tmp_path / "t.json").read_text())
    assert outcome["accesses"] == pytest.approx(10_000, abs=5000)
    info = json.loads(pagewalk("info", tmp_path / "t.pwt", "--json").stdout)
    assert info["accesses"]["fetch"] == 0


def test_a_recording_is_one_file_with_all_its_processes(pagewalk, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    script = "/bin/ls / >/dev/null; /bin/true; exec /bin/ls /"
    done = pagewalk("record", "-o", trace, "--json", tmp_path / "t.json", "--", "sh", "-c", script)
    assert done.returncode == 0 and "3 processes, the largest" in done.stderr
    assert names(tmp_path) == ["t.json", "t.pwt"]
    outcome = json.loads((tmp_path / "t.json").read_text())
    programs = [
        [program["command"][0].rpartition("/")[2] for program in process["programs"]]
        for process in outcome["processes"]
    ]
    assert programs == [["sh", "ls"], ["sh", "ls"], ["sh", "true"]]
    assert [process["parent"] for process in outcome["processes"]] == [None, 0, 0]
    text = pagewalk("info", trace).stdout
    assert "Processes" in text and "/bin/true" in text
    info = json.loads(pagewalk("info", trace, "--json").stdout)
    counts = [process["accesses"] for process in info["processes"]]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == outcome["accesses"] == sum(info["accesses"].values())
    for document in (outcome, info):
        instructions = sum(process["instructions"] for process in document["processes"])
        assert instructions == document["instructions"] == outcome["instructions"]
    assert all(
        process["parent_accesses"] > 0 for process in info["processes"] if "parent" in process
    )
    # A single process is selected, by its name and by its number.
    alone = json.loads(pagewalk("info", trace, "--json", "--process", "true").stdout)
    number = outcome["processes"][2]
    assert sum(alone["accesses"].values()) == number["accesses"]
    one = json.loads(pagewalk("run", trace, "--json", "--process", number["pid"]).stdout)
    all_ = json.loads(pagewalk("run", trace, "--json", "--check").stdout)
    assert sum(one["accesses"].values()) == number["accesses"]
    assert sum(all_["accesses"].values()) == outcome["accesses"]
    assert len(all_["trace"]["processes"]) == 3
    # These values match no process or several.
    for wanted, words in (
        ("cc1", "no process `cc1`; its processes are "),
        ("ls", "2 processes are called"),
    ):
        done = pagewalk("run", trace, "--process", wanted)
        assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    done = pagewalk("record", "-o", tmp_path / "n.pwt", "--process", "cc1", "--", "true")
    assert done.returncode == 1 and "no process ran as `cc1`" in done.stderr
    assert names(tmp_path) == ["t.json", "t.pwt"]


def test_a_live_run_follows_as_a_recording_does(pagewalk, tmp_path: Path) -> None:
    # No shell: that reads a table by the digits of its child's pid.
    command = ["env", "-i", "/usr/bin/setsid", "--fork", "--wait", "/bin/true"]
    assert pagewalk("record", "-o", tmp_path / "t.pwt", "--", *command).returncode == 0
    stored = json.loads(pagewalk("run", tmp_path / "t.pwt", "--json").stdout)
    for more, count in (([], 2), (["--no-follow"], 1)):
        done = pagewalk("run", *more, "--json", tmp_path / "live.json", "--force", "--", *command)
        assert done.returncode == 0, done.stderr
        live = json.loads((tmp_path / "live.json").read_text())
        assert len(live["trace"]["processes"]) == count
        instructions = sum(process["instructions"] for process in live["trace"]["processes"])
        assert instructions == live["instructions"]
        if not more:
            assert live["accesses"] == stored["accesses"]


def test_two_recordings_have_one_digest(pagewalk, tmp_path: Path) -> None:
    # No shell: that reads a table by the digits of its child's pid.
    digests = []
    for _ in range(2):
        done = pagewalk(
            "record", "-o", tmp_path / "t.pwt", "--force", "--json", tmp_path / "t.json",
            "--", "env", "-i", "/usr/bin/setsid", "--fork", "--wait", "/bin/true",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        digests.append(json.loads((tmp_path / "t.json").read_text())["digest"])
        (tmp_path / "t.json").unlink()
    assert digests[0] == digests[1]


def test_names_and_places_that_are_no_files(pagewalk, program: Path, tmp_path: Path) -> None:
    done = pagewalk("record", "-o", "-", "--", program, cwd=tmp_path)
    assert done.returncode == 2 and "standard output" in done.stderr and names(tmp_path) == []
    odd = os.fsdecode(b"odd-\xff.pwt")
    done = pagewalk("record", "-o", odd, "--", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path) == [odd]
    done = pagewalk("info", odd, cwd=tmp_path)
    assert done.returncode == 2 and "UTF-8" in done.stderr and "bug" not in done.stderr
    (tmp_path / odd).rename(tmp_path / "t.pwt")
    command = [sys.executable, "-m", "pagewalk", "info", tmp_path / "t.pwt"]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "standard output is closed" in done.stderr


def test_a_long_command_is_shortened(pagewalk, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    assert pagewalk("record", "-o", trace, "--", "true", *["x" * 100] * 1000).returncode == 0
    assert max(map(len, pagewalk("info", trace).stdout.splitlines())) < 500
    done = pagewalk("record", "-o", trace, "--force", "--no-arguments", "--", "true", "secret")
    assert done.returncode == 0
    assert b"secret" not in trace.read_bytes()
    info = json.loads(pagewalk("info", trace, "--json").stdout)
    assert info["header"]["command"] == ["true"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_us_alone_reaches_the_program(number: signal.Signals, tmp_path: Path) -> None:
    # Without a terminal, SIGHUP may be ignored.
    process = subprocess.Popen(
        ["env", "--default-signal=HUP", sys.executable, "-m", "pagewalk", "record",
         "-o", tmp_path / "t.pwt", "--", "sleep", "60"],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    time.sleep(3)
    process.send_signal(number)
    assert process.wait(timeout=30) == 128 + number
    assert names(tmp_path) == ["t.pwt"]


@pytest.mark.parametrize("command", ["record", "run"])
def test_children_in_the_background_are_waited_for(command: str, tmp_path: Path) -> None:
    out, wake, left = tmp_path / "out", tmp_path / "wake", tmp_path / "left"
    files = {"record": ["-o", out], "run": ["-m", "tlb-only", "--json", out]}[command]
    script = f"(until [ -e {wake} ]; do sleep 0.2; done) & echo > {left}; exit 4"
    whole = [sys.executable, "-m", "pagewalk", command, "--force", *files]

    def begun(*options: str) -> "subprocess.Popen[bytes]":
        for file in (wake, left):
            file.unlink(missing_ok=True)
        process = subprocess.Popen(
            [*whole, *options, "--", "sh", "-c", script], stderr=subprocess.DEVNULL
        )
        while not left.exists():
            assert process.poll() is None
            time.sleep(0.05)
        return process

    waits = begun()
    with pytest.raises(subprocess.TimeoutExpired):
        waits.wait(timeout=2)
    wake.touch()
    assert waits.wait(timeout=60) == 4
    assert begun("--no-follow").wait(timeout=60) == 4
    wake.touch()
    ended = begun()
    time.sleep(0.5)
    ended.send_signal(signal.SIGTERM)
    assert ended.wait(timeout=60) == 4
    wake.touch()


def test_a_signal_ends_a_native_run(tmp_path: Path) -> None:
    # It ends at once where it is recorded, and has no such file after that.
    (tmp_path / "first").touch()
    number = tmp_path / "number"
    script = f"rm {tmp_path}/first 2>/dev/null && exit; echo $$ > {number}; exec sleep 60"
    process = subprocess.Popen(
        [sys.executable, "-m", "pagewalk", "record", "--native", "-o", tmp_path / "t.pwt",
         "--", "sh", "-c", script],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not number.exists() or not number.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM and "error: terminated" in error
    assert names(tmp_path) == ["number", "t.pwt"]
    # The process is killed. Its entry in /proc disappears when init has waited for it.
    recorded, last = Path(f"/proc/{int(number.read_text())}"), time.monotonic() + 30
    while recorded.exists():
        assert time.monotonic() < last
        time.sleep(0.05)
