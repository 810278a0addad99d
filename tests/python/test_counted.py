"""A program in QEMU beside TLBs alone: accesses that surely hit are counted where it runs.

Whole results are compared with those of the way on which each access is told.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
HERE = Path(__file__).parent
SEEDS = range(1, 1 + int(os.environ.get("PAGEWALK_COUNTED_SEEDS", "2")))
SETS = ("tlb.l1i.entries=64", "tlb.l1i.ways=8", "tlb.l1d.entries=64", "tlb.l1d.ways=4")
REPLACED = ("fifo", "random")
UNIFIED = """title = ""
source = ""
[tlb.l1]
entries = 24
[tlb.l2]
entries = 64
ways = 4
[os]
source = ""
"""


ENDS = {
    "jump": 139, "non-canonical": 139, "no-execute": 139, "next-page": 139, "into-page": 139,
    "odd-movaps": 139, "odd-fxsave": 139, "load": 139, "store": 139, "read-only": 139,
    "behind-file": 135, "stack": 139, "idiv": 136, "hlt": 139, "int": 139, "int3": 133,
    "undefined": 132, "pipe": 141, "tgkill": 143, "kill": 137, "abort": 134, "exit": 3,
    "return": 0, "handled": 0,
}  # fmt: skip
"""How programs end, and with which status."""


def compiled(name: str, folder: Path, *options: str) -> Path:
    compiler = shutil.which("gcc") or pytest.fail("gcc is missing: `make test` installs it")
    built = folder / name
    options = ("-O1", "-Wall", "-Werror", "-static", *options)
    subprocess.run([compiler, *options, "-o", built, HERE / f"{name}.c"], check=True)
    return built


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("counted", tmp_path_factory.mktemp("counted"), "-mavx2")


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("ends", tmp_path_factory.mktemp("ends"))


def result(
    pagewalk: Run, folder: Path, *arguments: object
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Results without what differs from run to run, how accesses came, and the program's output."""
    return ended(pagewalk, folder, 0, *arguments)


def ended(
    pagewalk: Run, folder: Path, status: int, *arguments: object
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """As `result`, of a program that ends with that status."""
    file = folder / "results.json"
    # An --engine among the arguments overrides this one.
    run = pagewalk("run", "--engine", "qemu", "-q", "--json", file, "--force", *arguments)
    assert run.returncode == status, run.stderr
    # QEMU reports signals on standard error.
    assert "pagewalk: " not in run.stderr
    document: dict[str, Any] = json.loads(file.read_text())
    trace = document["trace"]
    for process in trace["processes"]:
        del process["pid"], process["began_ns"]
    # Counted accesses have their exact place in the curves, except within the entries of the first
    # TLB.
    assert document.pop("advice")["lookups"] > 0
    return document, trace.pop("live"), run.stdout


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "settings",
    [
        *(
            (f"tlb.l1i.entries={code}", f"tlb.l1d.entries={data}")
            for code, data in ((32, 32), (16, 17), (20, 64), (128, 33))
        ),
        SETS,
        ("tlb.l1d.entries=72", "tlb.l1d.ways=6", "page_table.format=guarded"),
        None,
    ],
)
def test_counted_accesses_are_as_good_as_told_ones(
    program: Path, tmp_path: Path, pagewalk: Run, settings: tuple[str, ...] | None, seed: int
) -> None:
    if settings is None:
        (tmp_path / "unified.toml").write_text(UNIFIED)
        options: list[object] = ["--machine", tmp_path / "unified.toml"]
    else:
        options = ["--machine", "tlb-only", *(word for one in settings for word in ("--set", one))]
    for pages in (12, 40, 150):
        command = ["--", program, seed, pages]
        counted, how, said = result(pagewalk, tmp_path, *options, *command)
        told, other, expected = result(pagewalk, tmp_path, *options, "--tell-all", *command)
        assert how["because"] is None
        # Accesses of `rep` instructions, more than half of all accesses here, are recorded one by
        # one.
        assert how["counted_accesses"] > sum(counted["accesses"].values()) / 3
        because = "the recording of all accesses was requested"
        assert other == {"counted_accesses": 0, "because": because}
        assert said == expected
        assert counted == told, f"seed {seed}, {pages} pages"


def replaced(*policies: str) -> list[str]:
    """Settings by which the first TLBs replace so."""
    return [
        f"tlb.{tlb}.replacement={policy}"
        for tlb, policy in zip(("l1i", "l1d"), policies, strict=True)
    ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "settings",
    [
        *(
            (*replaced(policy, policy), f"tlb.l1i.entries={code}", f"tlb.l1d.entries={data}")
            for policy in REPLACED
            for code, data in ((32, 32), (16, 17), (128, 64))
        ),
        *((*replaced(policy, policy), *SETS, "tlb.l2.replacement=random") for policy in REPLACED),
        (*replaced("fifo", "random"), "tlb.l1d.entries=24", "tlb.l1d.ways=6"),
        REPLACED[0],
        REPLACED[1],
    ],
)
def test_what_tlbs_hold_is_asked_for_where_hits_change_nothing(
    program: Path,
    tmp_path: Path,
    pagewalk: Run,
    *,
    monkeypatch: pytest.MonkeyPatch,
    settings: tuple[str, ...] | str,
    seed: int,
) -> None:
    if isinstance(settings, str):
        text = UNIFIED.replace("entries = 24", f'entries = 24\nreplacement = "{settings}"')
        (tmp_path / "unified.toml").write_text(text)
        options: list[object] = ["--machine", tmp_path / "unified.toml"]
    else:
        options = ["--machine", "tlb-only", *(word for one in settings for word in ("--set", one))]
    for pages, patience in ((12, "1"), (40, "30"), (150, "1")):
        monkeypatch.setenv("PAGEWALK_PATIENCE", patience)
        command = ["--", program, seed, pages]
        counted, how, said = result(pagewalk, tmp_path, *options, *command)
        told, _, expected = result(pagewalk, tmp_path, *options, "--tell-all", *command)
        assert how["because"] is None
        assert how["counted_accesses"] > sum(counted["accesses"].values()) / 16
        assert said == expected
        assert counted == told, f"seed {seed}, {pages} pages"


@pytest.mark.parametrize("policy", REPLACED)
@pytest.mark.parametrize("patience", ["1", "1000"])
def test_only_a_process_that_is_alone_asks_what_tlbs_hold(
    pagewalk: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, patience: str
) -> None:
    monkeypatch.setenv("PAGEWALK_PATIENCE", patience)
    options = [
        "-m",
        "tlb-only",
        *(word for one in replaced(policy, policy) for word in ("--set", one)),
    ]
    pipe = "for i in 1 2 3; do date | cat; done; (exit 3); date & wait; ls / | sort > /dev/null"
    script = "import os; x = sum(range(10**5)); os.fork() and os.wait(); y = sum(range(10**5))"
    for command in (["sh", "-c", pipe], ["python3", "-c", script]):
        counted, how, _ = result(pagewalk, tmp_path, *options, "--", *command)
        assert how["counted_accesses"] > 0
        assert sum(one["accesses"] for one in counted["trace"]["processes"]) == sum(
            counted["accesses"].values()
        )


def test_a_program_that_is_killed_while_it_asks_ends(
    pagewalk: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEWALK_PATIENCE", "1")
    script = "import mmap\nwhile True: mmap.mmap(-1, 4096).close()"
    settings = [word for one in replaced("fifo", "fifo") for word in ("--set", one)]
    out = tmp_path / "out.json"
    run = pagewalk(
        *("run", "--engine", "qemu", "-m", "tlb-only", *settings, "--json", out, "--"),
        *("timeout", "--foreground", "-s", "KILL", "2", "python3", "-c", script),
    )
    assert run.returncode == 128 + signal.SIGKILL, run.stderr
    assert sum(json.loads(out.read_text())["accesses"].values()) > 10**5


def test_processes_and_threads_take_turns_as_ever(pagewalk: Run, tmp_path: Path) -> None:
    script = "import threading; threading.Thread(target=sum, args=([1, 2],)).start(); print(42)"
    for command in (
        ["sh", "-c", "for i in 1 2 3; do date > /dev/null; done"],
        ["python3", "-c", script],
    ):
        counted, how, _ = result(pagewalk, tmp_path, "--machine", "tlb-only", "--", *command)
        assert how["counted_accesses"] > 0
        assert sum(counted["accesses"].values()) > 100_000
        assert sum(one["accesses"] for one in counted["trace"]["processes"]) == sum(
            counted["accesses"].values()
        )


@pytest.mark.parametrize("way", ENDS)
def test_a_program_counts_to_its_end_whatever_ends_it(
    pagewalk: Run, tmp_path: Path, ends: Path, way: str
) -> None:
    status, command = ENDS[way], ["--", ends, way]
    counted, how, _ = ended(pagewalk, tmp_path, status, "-m", "tlb-only", *command)
    told, _, _ = ended(pagewalk, tmp_path, status, "-m", "tlb-only", "--tell-all", *command)
    assert how["counted_accesses"] > 60_000
    assert "lost" not in how
    assert counted == told
    trace = tmp_path / "ends.pwt"
    assert pagewalk("record", "--engine", "qemu", "-o", trace, *command).returncode == status
    recorded = tmp_path / "recorded.json"
    assert pagewalk("run", trace, "-m", "tlb-only", "--json", recorded).returncode == 0
    again = json.loads(recorded.read_text())
    # A live run has no advice.
    assert again.keys() - counted.keys() == {"advice"}
    assert all(again[key] == counted[key] for key in counted if key != "trace")


@pytest.mark.parametrize("way", ["jump", "next-page", "odd-movaps", "load", "idiv", "tgkill"])
def test_a_child_counts_to_its_end_whatever_ends_it(
    pagewalk: Run, tmp_path: Path, ends: Path, way: str
) -> None:
    status, command = ENDS[way] - 128, ["--", ends, f"-{way}"]
    counted, how, _ = ended(pagewalk, tmp_path, status, "-m", "tlb-only", *command)
    told, _, _ = ended(pagewalk, tmp_path, status, "-m", "tlb-only", "--tell-all", *command)
    assert how["counted_accesses"] > 90_000
    assert "lost" not in how
    # Until the parent waits, both processes run at the same time, and the order of their accesses
    # differs between runs.
    for key in ("accesses", "instructions"):
        assert counted[key] == told[key]
    assert counted["trace"]["processes"] == told["trace"]["processes"]


@pytest.mark.parametrize(
    "way", ["next-page", "into-page", "odd-movaps", "idiv", "kill", "abort", "handled"]
)
def test_a_program_of_two_threads_is_whole_to_its_end_whatever_ends_it(
    pagewalk: Run, tmp_path: Path, ends: Path, way: str
) -> None:
    status, command = ENDS[way], ["--", ends, f"+{way}"]
    counted, how, _ = ended(pagewalk, tmp_path, status, "-m", "tlb-only", *command)
    told, _, _ = ended(pagewalk, tmp_path, status, "-m", "tlb-only", "--tell-all", *command)
    # Accesses are counted until the second thread begins; from then on each access is recorded.
    assert 30_000 < how["counted_accesses"] < sum(counted["accesses"].values()) - 60_000
    assert "lost" not in how
    trace = tmp_path / "ends.pwt"
    assert pagewalk("record", "--engine", "qemu", "-o", trace, *command).returncode == status
    recorded = tmp_path / "recorded.json"
    assert pagewalk("run", trace, "-m", "tlb-only", "--json", recorded).returncode == 0
    again = json.loads(recorded.read_text())
    for key in ("accesses", "instructions"):
        assert counted[key] == told[key] == again[key]


@pytest.mark.parametrize("policy", REPLACED)
@pytest.mark.parametrize(
    "way", ["jump", "no-execute", "next-page", "into-page", "odd-movaps", "load", "stack"]
)
def test_what_tlbs_hold_is_known_to_the_end_whatever_ends_it(
    pagewalk: Run,
    tmp_path: Path,
    ends: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    way: str,
) -> None:
    monkeypatch.setenv("PAGEWALK_PATIENCE", "1")
    settings = [word for one in replaced(policy, policy) for word in ("--set", one)]
    command = ["-m", "tlb-only", *settings, "--", ends, way]
    counted, how, _ = ended(pagewalk, tmp_path, ENDS[way], *command)
    told, _, _ = ended(pagewalk, tmp_path, ENDS[way], "--tell-all", *command)
    assert how["counted_accesses"] > 30_000
    assert counted == told


@pytest.mark.parametrize("number", ["KILL", "TERM"])
def test_what_a_killed_program_had_counted_is_missing_and_said_so(
    pagewalk: Run, tmp_path: Path, ends: Path, number: str
) -> None:
    ready, out = tmp_path / "ready", tmp_path / "out.json"
    script = (
        f"{ends} spin > {ready} & while [ ! -s {ready} ]; do sleep 0.1; done; sleep 0.5; "
        f"kill -{number} $!; wait $!; echo $!"
    )
    run = pagewalk(
        *("run", "--engine", "qemu", "-q", "-m", "tlb-only", "--json", out),
        *("--", "sh", "-c", script),
    )
    assert run.returncode == 0, run.stderr
    live = json.loads(out.read_text())["trace"]["live"]
    if number == "TERM":
        # QEMU ends itself by this signal, after all counted accesses have been reported.
        assert "lost" not in live and "pagewalk: " not in run.stderr
        return
    [lost] = live["lost"]
    process = run.stdout.strip()
    killed = "it was killed while its guaranteed hits were counted and not recorded"
    assert lost.startswith(f"process {process}: {killed}")
    # The shell reports the signal too.
    assert f"pagewalk: warning: {lost}\n" in run.stderr


@pytest.mark.parametrize(
    ("options", "because"),
    [
        (["-m", "opteron-2008"], "the machine has core.fetches"),
        (["-m", "epyc-9005"], "the machine has cache."),
        (["-m", "tlb-only", "--set", "tlb.l1d.replacement=nru"], "replaces by nru"),
        (["-m", "tlb-only", "--set", "tlb.l1d.replacement=fifo"], "replaces by lru, but the other"),
        (
            [
                "-m",
                "tlb-only",
                "--set",
                "tlb.l1i.replacement=fifo",
                "--set",
                "page_table.format=guarded",
            ],
            "replaces by fifo, and in a machine with a page table",
        ),
        (["-m", "tlb-only", "--check"], "each translation is checked"),
        (["-m", "tlb-only", "--max-accesses", "9k"], "a window is recorded"),
        (["-m", "tlb-only", "--warmup", "9k"], "a warm-up"),
        (["-m", "tlb-only", "--no-follow", "--callbacks"], "callbacks"),
    ],
)
def test_results_say_why_accesses_were_told(
    pagewalk: Run, tmp_path: Path, options: list[str], because: str
) -> None:
    _, how, _ = result(pagewalk, tmp_path, *options, "--", "true")
    assert how["counted_accesses"] == 0
    assert because in how["because"]


def test_results_say_that_nobody_was_asked(
    pagewalk: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEWALK_PATIENCE", "1000000000")
    settings = [word for one in replaced("fifo", "fifo") for word in ("--set", one)]
    _, how, _ = result(pagewalk, tmp_path, "-m", "tlb-only", *settings, "--", "true")
    assert how["counted_accesses"] == 0
    assert "alone for long enough" in how["because"]
