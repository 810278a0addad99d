"""The native run beside a recording: its time, input, exit status and pages."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sample
from pagewalk import Error, Trace, natively
from pagewalk.report import data as report
from pagewalk.summary import summary

PAGEWALK = Path(sys.executable).parent / "pagewalk"
RUN = {
    "command": ["x"],
    "wall_seconds": 0.25,
    "user_seconds": 0.2,
    "system_seconds": 0.01,
    "exit_status": 0,
    "recorded_status": 0,
    "peak": {
        "resident_bytes": 6 << 20,
        "by_page_size": {"base pages": 2 << 20, "2M anonymous": 4 << 20},
        "mappings": [],
    },
}


def pagewalk(
    *arguments: str, stdin: bytes = b"", folder: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PAGEWALK, *arguments], check=False, input=stdin, capture_output=True, cwd=folder
    )


def test_a_native_run_says_how_long_it_took_and_how_it_ended() -> None:
    script = "import sys; sys.stdout.write('x' * 100); x = sum(range(3_000_000)); sys.exit(7)"
    run = natively.measure([sys.executable, "-c", script])
    assert run["exit_status"] == 7
    assert 0.01 < run["user_seconds"] < run["wall_seconds"] + 0.05
    killed = natively.measure([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert killed["exit_status"] == 128 + 9
    with pytest.raises(Error, match="cannot be run"):
        natively.measure(["/no/such/program"])


def test_the_peak_is_of_the_largest_moment_and_by_page_size() -> None:
    script = "import time; x = b'x' * (64 << 20); time.sleep(.6); del x; time.sleep(.2)"
    peak = natively.measure([sys.executable, "-c", script])["peak"]
    assert 64 << 20 <= peak["resident_bytes"] < 100 << 20
    assert sum(peak["by_page_size"].values()) == peak["resident_bytes"]
    assert sum(m["resident_bytes"] for m in peak["mappings"]) == peak["resident_bytes"]


def test_milliseconds_are_the_share_of_the_user_time() -> None:
    document = sample.document()
    share = document["time"]["share"]["hi"]
    document["native"] = natively.told(document["time"], RUN, None)
    assert document["native"]["translation_ms"] == {"lo": 0.0, "hi": share * 200}
    assert "mappings" not in document["native"]["peak"]
    shown = summary(document)
    assert f"up to {share * 200:.1f} ms of your 200 ms" in shown
    assert "4 MiB in 2M anonymous" in shown
    assert "ms of your 200 ms" in report.run(document).headline


@pytest.mark.parametrize(
    ("window", "status", "said"),
    [
        (natively.window(skip=5, max_accesses=None), 0, "of a part of the program only (skip)"),
        (None, 3, "status 3 when it was recorded and with 0 natively"),
    ],
)
def test_no_milliseconds_are_claimed_of_another_run(
    window: str | None, status: int, said: str
) -> None:
    document = sample.document()
    run = RUN | {"recorded_status": status}
    document["native"] = natively.told(document["time"], run, window)
    assert document["native"]["translation_ms"] is None
    shown = " ".join(summary(document).split())
    assert said in shown and "of your" not in shown


@pytest.mark.parametrize("through_pipe", [True, False])
def test_both_runs_get_the_whole_input(tmp_path: Path, through_pipe: bool) -> None:
    (tmp_path / "input").write_bytes(b"one\ntwo\n" * 5000)
    script = (
        "from pagewalk import natively; import os, sys\n"
        "with natively.spooled_stdin() as again:\n"
        "    first = sys.stdin.buffer.read(); second = again().read()\n"
        "assert first == second, (len(first), len(second)); print(len(first))\n"
    )
    command = [sys.executable, "-c", script]
    if through_pipe:
        done = subprocess.run(command, check=False, input=b"one\ntwo\n" * 5000, capture_output=True)
    else:
        with (tmp_path / "input").open("rb") as file:
            os.lseek(file.fileno(), 8, os.SEEK_SET)
            done = subprocess.run(command, check=False, stdin=file, capture_output=True)
    assert done.stdout == (b"40000\n" if through_pipe else b"39992\n"), done.stderr


def test_a_recording_keeps_its_native_run_and_results_tell_of_it(tmp_path: Path) -> None:
    recorded = pagewalk(
        *("record", "--native", "--native-prepare", "echo one more >> prepared", "-o", "wc.pwt"),
        *("--", "wc", "-l"),
        stdin=b"a\nb\nc\n",
        folder=tmp_path,
    )
    assert recorded.stdout == b"3\n" and recorded.returncode == 0, recorded.stderr
    assert (tmp_path / "prepared").read_text() == "one more\n" * 2
    assert b"Native run: " in recorded.stderr
    run = natively.stored(Trace(tmp_path / "wc.pwt"))
    assert run is not None and run["command"] == ["wc", "-l"] and run["exit_status"] == 0
    whole = pagewalk("run", "wc.pwt", "--machine", "epyc-9005", folder=tmp_path)
    assert b"ms of your" in whole.stdout, whole.stderr
    window = pagewalk("run", "wc.pwt", "--skip", "100", folder=tmp_path)
    assert b"no milliseconds of translation: the results are of a part" in window.stdout
    # A different trace with this name is not the recording of the run.
    (tmp_path / "other.native.json").write_bytes((tmp_path / "wc.native.json").read_bytes())
    pagewalk("generate", "strided", "--accesses", "1000", "-o", "other.pwt", folder=tmp_path)
    assert natively.stored(Trace(tmp_path / "other.pwt")) is None


def test_a_recording_of_several_processes_keeps_its_native_run(tmp_path: Path) -> None:
    (tmp_path / "once").touch()
    command = ("--", "sh", "-c", "test -f once && rm once")
    for prepare, said in [
        ((), "no milliseconds of translation: the program ended with status 0 when it was"),
        (("--native-prepare", "touch once"), "ms in user mode"),
    ]:
        options = ("--native", *prepare, "--force", "-o", "rm.pwt")
        recorded = pagewalk("record", *options, *command, folder=tmp_path)
        assert b"2 processes" in recorded.stderr, recorded.stderr
        run = natively.stored(Trace(tmp_path / "rm.pwt"))
        assert run is not None and run["exit_status"] == (0 if prepare else 1)
        whole = pagewalk("run", "rm.pwt", "--machine", "epyc-9005", folder=tmp_path)
        assert said in " ".join(whole.stdout.decode().split()), whole.stdout


def test_a_live_run_takes_the_native_run_too(tmp_path: Path) -> None:
    done = pagewalk(
        *("run", "--native", "-m", "epyc-9005", "--", "sh", "-c", "cat >/dev/null; exit 3"),
        stdin=b"x" * 100_000,
        folder=tmp_path,
    )
    assert done.returncode == 3
    assert b"exit status 3" in done.stderr and b"ms of your" in done.stderr
    for wrong, said in [
        (("run", "--native-prepare", "true", "--", "true"), b"give both"),
        (("run", "--native", "generate:strided"), b"needs a program after `--`"),
        (("run", "--native", "--native-prepare", "exit 4", "--", "true"), b"ended with status 4"),
    ]:
        refused = pagewalk(*wrong, folder=tmp_path)
        assert refused.returncode != 0 and said in refused.stderr, refused.stderr
    assert io.BytesIO(refused.stderr).readline().startswith(b"pagewalk: ")
