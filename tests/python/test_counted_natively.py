"""A program with the engine in it, beside a machine of TLBs alone: its guaranteed hits are counted.

Whole results are compared with those of a run that reports each access, and of a recording.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_counted import ENDS, SEEDS, SETS, UNIFIED, Run, compiled, ended, result

NATIVE = ["--engine", "native"]

MACHINES = {
    "small": ("tlb.l1i.entries=16", "tlb.l1d.entries=16"),
    "own": (),
    "large": ("tlb.l1i.entries=64", "tlb.l1d.entries=64"),
    "largest": ("tlb.l1i.entries=128", "tlb.l1d.entries=128"),
    "odd": ("tlb.l1i.entries=17", "tlb.l1d.entries=33"),
    "code": ("tlb.l1i.entries=128", "tlb.l1d.entries=16"),
    "data": ("tlb.l1i.entries=16", "tlb.l1d.entries=128"),
    "sets": SETS,
    "ways": ("tlb.l1d.entries=72", "tlb.l1d.ways=6"),
    "few": ("tlb.l1i.entries=16", "tlb.l1i.ways=4", "tlb.l1d.entries=16", "tlb.l1d.ways=4"),
    "guarded": ("tlb.l1d.entries=24", "page_table.format=guarded"),
    "hashed": ("tlb.l1d.entries=40", "page_table.format=hashed"),
    "second": ("tlb.l2.entries=64", "tlb.l2.ways=4"),
    "random": ("tlb.l2.replacement=random", "tlb.l1d.entries=48"),
    "fifo": ("tlb.l2.replacement=fifo", "tlb.l1i.entries=24"),
}
"""Settings of `tlb-only`."""
COMMANDS = """
true
echo a b c
ls /usr/bin
ls -l /etc
date -u -d @0
seq 3000
factor 123456789012345
expr 6 * 7
sort -n /etc/services
sort -r /etc/protocols
uniq -c /etc/protocols
wc /etc/services
md5sum /bin/true
sha256sum /bin/true
sha512sum /bin/ls
cksum /bin/true
sum /bin/ls
base64 /bin/true
od -c /bin/true
tr a-z A-Z
cut -d: -f1 /etc/passwd
head -50 /etc/services
tail -50 /etc/services
tac /etc/services
rev /etc/protocols
nl /etc/protocols
fold -w 20 /etc/services
paste /etc/passwd /etc/group
join /etc/passwd /etc/passwd
comm /etc/passwd /etc/passwd
grep -c tcp /etc/services
sed s/tcp/TCP/ /etc/services
awk {n+=NF}END{print(n)} /etc/services
gzip -9 -c /bin/true
bzip2 -c /bin/true
xz -c -0 /bin/true
perl -e print(join(',',map{$_*$_}1..500))
python3 -S -c print(sum(range(5000)))
diff /etc/services /etc/protocols
find /etc -maxdepth 1
""".strip().splitlines()
"""Programs of one thread and one process that do the same in each run."""
FULL = "PAGEWALK_TORTURE" in os.environ
SEED = int(os.environ.get("PAGEWALK_COUNTED_SEED", "57"))


def outcome(folder: Path, *arguments: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results of a run whatever the status of its program is."""
    file = folder / "results.json"
    command = [sys.executable, "-m", "pagewalk", "run", "--quiet", "--json", file, "--force"]
    env = {**os.environ, "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
    # Some programs write binary data.
    run = subprocess.run(
        [str(word) for word in (*command, *arguments)],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=env,
    )
    assert file.exists(), run.stderr
    document: dict[str, Any] = json.loads(file.read_text())
    for process in document["trace"]["processes"]:
        del process["pid"], process["began_ns"]
    document.pop("advice")
    return document, document["trace"].pop("live")


def chosen() -> list[tuple[str, str]]:
    """All pairs of machines and commands in `make torture`, and otherwise a few under a seed."""
    pairs = [(machine, command) for command in COMMANDS for machine in MACHINES]
    return pairs if FULL else random.Random(SEED).sample(pairs, 12)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("counted", tmp_path_factory.mktemp("counted"), "-mavx2")


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("ends", tmp_path_factory.mktemp("ends"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "settings",
    [
        *(
            (f"tlb.l1i.entries={code}", f"tlb.l1d.entries={data}")
            for code, data in ((32, 32), (16, 17), (128, 33))
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
        options: list[object] = [*NATIVE, "--machine", tmp_path / "unified.toml"]
    else:
        words = (word for one in settings for word in ("--set", one))
        options = [*NATIVE, "--machine", "tlb-only", *words]
    for pages in (12, 40, 150):
        command = ["--", program, seed, pages]
        counted, how, said = result(pagewalk, tmp_path, *options, *command)
        told, other, expected = result(pagewalk, tmp_path, *options, "--tell-all", *command)
        assert how["because"] is None
        assert how["counted_accesses"] > sum(counted["accesses"].values()) / 2
        because = "the recording of all accesses was requested"
        assert other == {"counted_accesses": 0, "because": because}
        assert said == expected
        assert counted == told, f"seed {seed}, {pages} pages"


@pytest.mark.parametrize(("machine", "command"), chosen())
def test_programs_give_the_same_on_each_machine(tmp_path: Path, machine: str, command: str) -> None:
    words = command.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not here")
    settings = (word for one in MACHINES[machine] for word in ("--set", one))
    options = [*NATIVE, "-m", "tlb-only", *settings]
    (counted, how), (told, _) = (
        outcome(tmp_path, *options, *more, "--", *words) for more in ((), ("--tell-all",))
    )
    assert how["counted_accesses"] > 10_000
    assert counted == told, f"{command} on {machine}"


@pytest.mark.parametrize("way", ENDS)
def test_a_program_counts_to_its_end_whatever_ends_it(
    pagewalk: Run, tmp_path: Path, ends: Path, way: str
) -> None:
    status, command = ENDS[way], ["--", ends, way]
    options = [*NATIVE, "-m", "tlb-only"]
    counted, how, _ = ended(pagewalk, tmp_path, status, *options, *command)
    told, _, _ = ended(pagewalk, tmp_path, status, *options, "--tell-all", *command)
    assert how["counted_accesses"] > 60_000
    assert "lost" not in how
    assert counted == told
    trace = tmp_path / "ends.pwt"
    assert pagewalk("record", *NATIVE, "-o", trace, *command).returncode == status
    recorded = tmp_path / "recorded.json"
    assert pagewalk("run", trace, "-m", "tlb-only", "--json", recorded).returncode == 0
    again = json.loads(recorded.read_text())
    # A live run has no advice.
    assert again.keys() - counted.keys() == {"advice"}
    assert all(again[key] == counted[key] for key in counted if key != "trace")


def test_what_a_killed_program_had_counted_is_missing_and_said_so(
    pagewalk: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    script = "import os, subprocess, sys; x = sum(range(10**5)); sys.stdin.readline()"
    command = ["python3", "-c", script]
    run = pagewalk("run", "-q", *NATIVE, "-m", "tlb-only", "--json", out, "--", *command)
    assert run.returncode == 0, run.stderr
    live = json.loads(out.read_text())["trace"]["live"]
    assert live["counted_accesses"] > 10**5 and "lost" not in live


@pytest.mark.parametrize(
    ("options", "because"),
    [
        (["-m", "epyc-9005"], "the machine has cache."),
        (["-m", "tlb-only", "--set", "tlb.l1d.replacement=nru"], "replaces by nru"),
        (["-m", "tlb-only", "--check"], "each translation is checked"),
        (["-m", "tlb-only", "--max-accesses", "9k"], "a window is recorded"),
    ],
)
def test_results_say_why_accesses_were_told(
    pagewalk: Run, tmp_path: Path, options: list[str], because: str
) -> None:
    _, how, _ = result(pagewalk, tmp_path, *NATIVE, *options, "--", "true")
    assert how["counted_accesses"] == 0
    assert because in how["because"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGALRM])
def test_a_signal_from_outside_ends_a_program_after_all_was_told(
    pagewalk: Run, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out.json"
    script = f"import os, signal\nsignal.setitimer\nos.kill(os.getpid(), {int(number)})"
    command = ["python3", "-c", script]
    run = pagewalk("run", "-q", *NATIVE, "-m", "tlb-only", "--json", out, "--", *command)
    assert run.returncode == 128 + number, run.stderr
    live = json.loads(out.read_text())["trace"]["live"]
    assert live["counted_accesses"] > 10**5 and "lost" not in live
