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
    assert outcome["traces"][0]["accesses"] > 8 * 1024
    assert outcome["traces"][0]["bytes"] == (tmp_path / "t.pwt").stat().st_size


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
    unseen = "what the program starts, by fork or exec, runs unseen"
    assert unseen in counted["not_modelled"] and unseen not in stored["not_modelled"]
    # One more argument on the stack is all that differs between the two.
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


def test_limits_are_kept(pagewalk, program: Path, tmp_path: Path) -> None:
    done = pagewalk(
        "record", "-o", tmp_path / "t.pwt", "--max-accesses", "10k", "--no-fetch",
        "--json", tmp_path / "t.json", "--", program,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads((tmp_path / "t.json").read_text())
    assert outcome["traces"][0]["accesses"] == pytest.approx(10_000, abs=5000)
    info = json.loads(pagewalk("info", tmp_path / "t.pwt", "--json").stdout)
    assert info["accesses"]["fetch"] == 0
