import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SPEC = "generate:uniform,size=64M,accesses=300k,seed=3"


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_the_version_comes_quickly(pagewalk) -> None:
    def user() -> float:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime

    fastest = 9.0
    for _ in range(5):
        start = user()
        done = pagewalk("--version")
        fastest = min(fastest, user() - start)
    assert done.stdout.startswith("pagewalk 0.")
    heavy = subprocess.run(
        [sys.executable, "-c", "import sys, pagewalk.cli; print([m for m in sys.modules"
         " if m.split('.')[0] in ('pyarrow', 'altair', 'vl_convert', 'jinja2')])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert heavy.stdout.strip() == "[]"
    assert fastest < 0.5


def test_the_version_imports_nothing_that_it_does_not_need() -> None:
    script = (
        "import sys; before = set(sys.modules); from pagewalk.cli import main\n"
        "assert main(['--version']) == 0; print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    said, loaded = done.stdout.splitlines()
    assert said.startswith("pagewalk 0.")
    assert loaded == "pagewalk pagewalk._native pagewalk.cli"


@pytest.mark.parametrize(
    "command",
    [
        "record",
        "attach",
        "run",
        "sweep",
        "diff",
        "curve",
        "info",
        "import",
        "export",
        "generate",
        "machines",
        "reproduce",
        "version",
        "completion",
        "manual",
    ],
)
def test_every_command_has_help(pagewalk, command: str) -> None:
    done = pagewalk(command, "--help")
    assert done.returncode == 0
    assert f"pagewalk {command}" in done.stdout


def test_a_run_prints_a_summary(pagewalk) -> None:
    done = pagewalk("run", SPEC)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for word in ("300 k accesses", "TLBs", "Walks", "Regions", "Not modelled"):
        assert word in done.stdout


def test_json_goes_to_a_file_or_to_standard_output(pagewalk, tmp_path: Path) -> None:
    printed = pagewalk("run", SPEC, "--machine", "tlb-only", "--json")
    stored = pagewalk("run", SPEC, "--machine", "tlb-only", "--json", tmp_path / "r.json")
    assert stored.returncode == 0, stored.stderr
    document = json.loads(printed.stdout)
    assert document == json.loads((tmp_path / "r.json").read_text())
    assert document["schema"] == 2 and document["trace"]["name"] == SPEC
    assert "TLBs" in stored.stdout


def test_two_machines_make_an_array_and_one_report(pagewalk, tmp_path: Path) -> None:
    done = pagewalk(
        "run", SPEC, "-m", "tlb-only", "-m", "opteron-2008",
        "--json", tmp_path / "r.json", "--html", tmp_path / "r.html",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    documents = json.loads((tmp_path / "r.json").read_text())
    assert [document["machine"]["name"] for document in documents] == ["tlb-only", "opteron-2008"]
    assert "Side by side" in (tmp_path / "r.html").read_text()
    [head] = [line for line in done.stdout.splitlines() if line.startswith("Side by side")]
    assert head.split()[-2:] == ["tlb-only", "opteron-2008"]
    assert names(tmp_path) == ["r.html", "r.json"]


def test_settings_reach_the_machine(pagewalk) -> None:
    done = pagewalk(
        "run", SPEC, "-m", "tlb-only", "--set", "tlb.l1d.entries=16", "--set", "tlb.l1d.ways=4",
        "--json", "-",
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["machine"]["settings"] == ["tlb.l1d.entries=16", "tlb.l1d.ways=4"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "no trace to run"),
        (["run", "none.pwt"], "none.pwt"),
        (["run", SPEC, "-m", "pdp-11"], "pdp-11"),
        (["run", SPEC, "--set", "tlb.l9.entries=4"], "tlb.l9"),
        (["run", SPEC, "--callbacks"], "--callbacks"),
        (["run", SPEC, "--qemu", "/usr/bin/qemu-x86_64"], "--qemu"),
        (["record", "--qemu", "/no/qemu", "--", "true"], "there is no /no/qemu"),
        (["record", "--qemu", "/bin/true", "--", "true"], "/bin/true was built without plugins"),
        (["run", SPEC, "--html", "-"], "--html"),
        (["run", SPEC, "--json", "nowhere/r.json"], "no directory"),
        (["run", SPEC, "--", "ls"], "not both"),
        (["run", "-m", "tlb-only", "-m", "r4700", "--", "ls"], "one machine"),
        (["run", "--json", "--", "ls"], "--json -: standard output belongs to the program"),
        (["record", "--json", "-", "--", "ls"], "--json -: standard output belongs to the program"),
        (["record", "-o", "-", "--", "ls"], "--output -: standard output belongs to the program"),
        (["stat", "-o", "-", "--", "ls"], "--output -: standard output belongs to the program"),
        (["record", "--"], "no program"),
        (["record"], "no program"),
        (["info", "none.pwt"], "none.pwt"),
        (["info", SPEC, "--", "ls"], "runs no program"),
        (["machines", "pdp-11"], "pdp-11"),
        (["export", "parquet", "none.pwt", "-o", "x.parquet"], "none.pwt"),
        (["record", "--skip", "many", "--", "ls"], "many"),
        (["frobnicate"], "frobnicate"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_request_is_one_line_and_status_2(
    pagewalk, tmp_path: Path, arguments: list[str], words: str
) -> None:
    done = pagewalk(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "error: " in last and words in last
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert names(tmp_path) == []


def test_a_folder_without_qemu_is_one_line_and_status_2(pagewalk, tmp_path: Path) -> None:
    env = {**os.environ, "PAGEWALK_QEMU_DIR": "/nowhere"}
    done = pagewalk("record", "--engine", "qemu", "--", "true", cwd=tmp_path, env=env)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "PAGEWALK_QEMU_DIR names /nowhere, which has no qemu-x86_64: name the folder" in line
    assert names(tmp_path) == []


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_an_existing_output_is_kept_unless_forced(pagewalk, tmp_path: Path, option: str) -> None:
    out = tmp_path / "out"
    out.write_text("old")
    refused = pagewalk("run", SPEC, "-m", "tlb-only", option, out)
    assert refused.returncode == 2 and "exists" in refused.stderr
    assert out.read_text() == "old"
    assert pagewalk("run", SPEC, "-m", "tlb-only", option, out, "--force").returncode == 0
    assert out.read_text() != "old"


def test_a_full_disk_is_one_line_and_status_1(pagewalk) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pagewalk", "machines"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", SPEC, "-m", "tlb-only", "--json", "out"],
        ["run", SPEC, "-m", "tlb-only", "--html", "out"],
        ["export", "parquet", SPEC, "-o", "out"],
        ["generate", "uniform", "--accesses", "1M", "-o", "out"],
    ],
)
def test_a_file_that_cannot_grow_is_an_error_and_not_left_behind(
    pagewalk, tmp_path: Path, arguments: list[str]
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    done = pagewalk(*arguments, cwd=tmp_path, preexec_fn=limit)
    assert done.returncode == 1
    assert done.stderr.startswith("pagewalk: error: out") and "File too large" in done.stderr
    assert names(tmp_path) == []


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m pagewalk run {SPEC} --json - | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == '{\n "schema' and done.stderr == ""


ENDS = [
    (signal.SIGINT, "interrupted"),
    (signal.SIGTERM, "terminated"),
    (signal.SIGHUP, "the terminal hung up"),
]


DEFAULT_SIGNALS = ["env", "--default-signal=INT,TERM,HUP"]
"""What begins without a terminal may ignore some."""


def await_handlers(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """Waits until the command says itself what SIGTERM does."""
    caught = 0
    while not caught >> (signal.SIGTERM - 1) & 1:
        assert process.poll() is None
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "said"), ENDS)
@pytest.mark.parametrize(
    ("command", "out"),
    [
        (["run", "generate:uniform,size=1G,accesses=100G", "--html", "r.html"], None),
        (["generate", "uniform", "--size", "1G", "--accesses", "100G", "-o", "t.pwt"], "t.pwt"),
        (["import", "lackey", "-", "-o", "t.pwt"], "t.pwt"),
    ],
    ids=["run", "generate", "import"],
)
def test_a_signal_ends_a_command_at_once_and_leaves_nothing(
    tmp_path: Path, command: list[str], out: str | None, number: signal.Signals, said: str
) -> None:
    with subprocess.Popen(["yes", " S 04222c40,8"], stdout=subprocess.PIPE) as feed:
        process = subprocess.Popen(
            [*DEFAULT_SIGNALS, sys.executable, "-m", "pagewalk", *command],
            cwd=tmp_path,
            stdin=feed.stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            await_handlers(process)
            while out is not None and not names(tmp_path):
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(number)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
            feed.kill()
    assert process.returncode == 128 + number
    assert error.strip() == f"pagewalk: error: {said}"
    assert names(tmp_path) == []


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pagewalk", "run", "generate:uniform,size=1G,accesses=100G"]
    command = [*DEFAULT_SIGNALS, "nohup", *command]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        await_handlers(process)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        process.kill()


def test_a_mistake_of_ours_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    from pagewalk import cli
    from pagewalk.commands import machines

    class PanicException(BaseException):
        pass

    def broken(*_: object) -> int:
        raise PanicException("index out\nof bounds")

    monkeypatch.setattr(machines.Machines, "run", broken)
    monkeypatch.delenv("PAGEWALK_TRACEBACK", raising=False)
    assert cli.main(["machines"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "this is a bug in pagewalk" in error and "index out of bounds" in error


def test_machines_are_listed_and_their_files_printed(pagewalk, tmp_path: Path) -> None:
    listed = pagewalk("machines")
    assert listed.returncode == 0 and "opteron-2008" in listed.stdout
    file = pagewalk("machines", "opteron-2008").stdout
    mine = tmp_path / "mine.toml"
    mine.write_text(file)
    one = json.loads(pagewalk("run", SPEC, "-m", mine, "--json").stdout)
    other = json.loads(pagewalk("run", SPEC, "-m", "opteron-2008", "--json").stdout)
    assert one["machine"]["digest"] == other["machine"]["digest"]
    assert one["tlbs"] == other["tlbs"]


def test_a_machine_is_printed_with_the_bits_of_its_mmu_cache(pagewalk, tmp_path: Path) -> None:
    file = pagewalk("machines", "epyc-9005").stdout
    # 52 bits of physical address: tag 52 - 3, data 52 - 12.
    assert "# The MMU cache takes 2136 bits" in file
    assert "#   24 entries: 49 bits of tag and 40 of data each" in file
    mine = tmp_path / "mine.toml"
    mine.write_text(file)
    assert pagewalk("run", SPEC, "-m", mine).returncode == 0
    [machine] = json.loads(pagewalk("machines", "xeon-6900p", "--json").stdout)
    assert [array["level"] for array in machine["mmu_cache"]][:2] == [2, 3]
    assert "MMU cache takes" not in pagewalk("machines", "tlb-only").stdout


def test_hardware_that_a_setting_adds_is_noted_and_a_name_is_guessed(pagewalk) -> None:
    done = pagewalk("run", SPEC, "-m", "r4700", "--set", "tlb.l1d.entries=48")
    assert done.returncode == 0
    assert done.stderr == (
        "pagewalk: note: the settings add `tlb.l1d`, which r4700 does not have\n"
    )
    assert "did you mean `epyc-9005`?" in pagewalk("machines", "epyc").stderr


def test_generate_writes_a_trace_that_runs_as_if_it_were_not_stored(
    pagewalk, tmp_path: Path
) -> None:
    trace = tmp_path / "join.pwt"
    made = pagewalk("generate", "join", "--table", "64M", "--accesses", "300k", "-o", trace)
    assert made.returncode == 0, made.stderr
    stored = json.loads(pagewalk("run", trace, "--json").stdout)
    direct = json.loads(pagewalk("run", "generate:join,table=64M,accesses=300k", "--json").stdout)
    assert stored.pop("trace")["name"] == "join.pwt"
    assert direct.pop("trace")["name"].startswith("generate:join")
    assert stored == direct
    again = pagewalk("generate", "join", "--table", "64M", "--accesses", "300k", "-o", trace)
    assert again.returncode == 2 and "exists" in again.stderr


def test_info_says_what_is_in_a_trace(pagewalk, recorded: Path) -> None:
    shown = pagewalk("info", recorded)
    assert shown.returncode == 0, shown.stderr
    for word in ("accesses", "Regions", "stack", "Events", "mmap"):
        assert word in shown.stdout
    document = json.loads(pagewalk("info", recorded, "--json").stdout)
    assert document["accesses"]["store"] >= 8 * 1024


def test_version_says_what_recording_would_use(pagewalk) -> None:
    found = json.loads(pagewalk("version", "--json").stdout)
    assert found["plugins"], "make build puts the plugins into the package"
    assert set(found["emulators"]) >= {"qemu-x86_64"}


def test_the_import_loads_nothing_that_is_not_needed_yet() -> None:
    script = (
        "import sys, pagewalk\n"
        "print(*sorted(sys.modules))\n"
        "assert pagewalk.Trace and callable(pagewalk.curve) and callable(pagewalk.sweep)\n"
        "assert set(pagewalk.__all__) <= set(dir(pagewalk))\n"
        "assert all(getattr(pagewalk, name) is not None for name in pagewalk.__all__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    # What each of these loads takes longer than all that the import needs.
    late = {"inspect", "dataclasses", "concurrent.futures", "subprocess", "argparse", "ctypes"}
    late |= {
        "altair",
        "pyarrow",
        "pagewalk.document",
        "pagewalk.natively",
        "pagewalk.sweeps.passes",
    }
    assert not loaded & late


@pytest.mark.parametrize("command", ["run", "info"])
def test_a_command_loads_nothing_slow_that_it_does_not_need(command: str, recorded: Path) -> None:
    script = (
        "import sys\n"
        "from pagewalk.cli import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, command, recorded],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    slow = {"inspect", "dataclasses", "subprocess", "tempfile", "urllib.request", "jinja2"}
    assert not loaded & slow


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["run"], "t.csv holds no access: nothing was simulated"),
        (["stat"], "t.csv holds no access: nothing was simulated"),
        (["managers"], "t.csv holds no access: nothing was simulated"),
        (["advise", "-m", "epyc-9005"], "t.csv holds no access: nothing was simulated"),
        (
            ["sweep", "--vary", "tlb.l1d.entries=64,128"],
            "t.csv holds no access: nothing was simulated",
        ),
        (["curve"], "t.csv holds no load and no store: nothing was looked up"),
        (["curve", "--lookups", "all"], "t.csv holds no access: nothing was looked up"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, list) else "",
)
def test_a_trace_without_accesses_is_told(
    pagewalk, tmp_path: Path, command: list[str], told: str
) -> None:
    (tmp_path / "t.csv").write_text("addr,size,kind\n")
    done = pagewalk(*command, "t.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, f"pagewalk: warning: {told}\n")
    assert "100 %" not in done.stdout
