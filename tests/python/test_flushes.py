"""A recorded system is checked for flushes that its kernel has left out (`pagewalk.flushes`)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pagewalk import Error, Trace, _native
from pagewalk.flushes import check, lines
from pagewalk.options import native_path
from pagewalk.systems import machine, packages
from pagewalk.systems.recording import SystemRecording

ROOT = Path(__file__).resolve().parents[2]
FULL = "PAGEWALK_TORTURE" in os.environ
KERNEL_START = 0xFFFFFFFF80100000
"""The first address of `kernel/`'s code, if its file is mapped from its beginning on."""


@pytest.fixture(scope="module")
def built() -> None:
    """Skips a test where the QEMU for whole systems, or what the guest is made of, is missing."""
    try:
        machine.qemu()
        packages.find(None)
    except Error as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def storm(tmp_path_factory) -> Path:
    program = tmp_path_factory.mktemp("storm") / "storm"
    source = Path(__file__).parent / "storm.c"
    subprocess.run(["gcc", "-O2", "-static", "-pthread", "-o", program, source], check=True)
    return program


@pytest.fixture(autouse=True)
def no_input(monkeypatch) -> None:
    """A recording reads its standard input to the end."""
    monkeypatch.setattr(sys, "stdin", None)


def recorded(command: list[str], trace: Path, **options) -> Trace:
    outcome = SystemRecording(command, **options).record(trace, force=True)
    assert outcome["exit_status"] == 0, outcome["stdout"] + outcome["stderr"]
    return Trace(trace)


def assert_none(found: dict) -> None:
    assert found["uses"] == 0, "\n".join(lines(found))
    assert found["translations"]["different"] == 0 < found["translations"]["equal"]
    assert found["changes"] > 100


def test_a_storm_on_one_processor_and_bugs_in_it(built, storm, pagewalk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trace = recorded([str(storm), "150", "2"], tmp_path / "t.pwt")
    found = check(trace)
    assert_none(found)
    assert found["processors"] == 1 and found["unknown"] == 0
    assert found["allowed"]["appeared"] > 1000 and found["allowed"]["grown"] > 10
    assert lines(found)[-1] == "no use of a translation whose flush is overdue"
    done = pagewalk("run", trace.source, "--check")
    assert done.returncode == 0 and "no use" in done.stdout, done.stderr
    for leave_out in ("cr3:2", "any:3"):
        told = tmp_path / "found.json"
        arguments = ("--check", "--leave-out", leave_out, "--json", told, "--force")
        done = pagewalk("run", trace.source, *arguments)
        assert done.returncode == 1
        found = json.loads(told.read_text())
        assert found["uses"] > 0 < found["flushes"]["left_out"]
        for report in found["reports"]:
            assert report["processor"] == found["reports"][0]["processor"]
            assert report["access"] in ("load", "store", "fetch") and report["code"]["block"]
            assert report["change"] is None or report["change"]["code"]["block"]
        text = "\n".join(lines(found))
        assert "whose flush is overdue" in text and "left out by --leave-out" in text


SYSTEMS = {
    # Everything that changes page tables that others use.
    "storm on two": ({"cpus": 2}, ["{storm}", "400", "3"]),
    "boot": ({"boot": True}, ["true"]),
    "boot of two": ({"boot": True, "cpus": 2}, ["true"]),
    "swap": ({"memory": 256 << 20}, ["sh", "-c", "{swap}"]),
    "swap on two": ({"memory": 256 << 20, "cpus": 2}, ["sh", "-c", "{swap}"]),
}
SWAP = (
    "mkswap /dev/vdb && swapon /dev/vdb && {{ {storm} swap 150 2 & {storm} swap 150 2; wait; }} && "
    "grep pswpout /proc/vmstat && swapoff /dev/vdb"
)


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
@pytest.mark.parametrize("name", SYSTEMS)
def test_an_unmodified_linux_has_no_report(built, storm, name: str, tmp_path, monkeypatch) -> None:
    options, command = SYSTEMS[name]
    monkeypatch.chdir(tmp_path)
    swap = SWAP.format(storm=storm)
    line = [word.format(storm=storm, swap=swap) for word in command]
    more = [] if str(storm) in line else [str(storm)]
    found = check(recorded(line, tmp_path / "t.pwt", more=more, **options))
    print("\n".join(lines(found)))
    assert_none(found)


def kernel(words: str, processors: int, trace: Path) -> dict:
    """What the check finds in `kernel/`, booted with these words."""
    target = ROOT / "target" / "kernels" / "kernel"
    folder = ROOT / "kernel"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    command = ["cargo", "build", "--quiet", "--target", "x86_64-unknown-none"]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    built = str(target / "x86_64-unknown-none" / "debug" / "kernel")
    qemu = machine.qemu()
    line = [
        *("-nodefaults", "-no-user-config", "-display", "none", "-serial", "null", "-no-reboot"),
        *("-machine", "pc", "-accel", "tcg,thread=single", "-cpu", "max,la57=off", "-m", "128M"),
        *("-L", "/usr/share/qemu", "-L", str(qemu.parent)),
        *("-bios", "/usr/share/seabios/bios-256k.bin"),
        *("-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-smp", str(processors)),
        *("-kernel", built, "-append", f"processors={processors} scheme=embedded {words}"),
    ]
    told = {
        "command": [native_path("kernel")],
        "kernel": "Pagewalk",
        "qemu": str(qemu),
        "arguments": [native_path(word) for word in line],
        "facts": [],
        "image": native_path(built),
        "image_range": [KERNEL_START, 0x300000],
        "regions": [],
        "boot": True,
        "fetches": True,
        "callbacks": False,
        "skip": 0,
        "max_accesses": None,
        "ends": False,
        "notes": [],
    }
    _native.record_system(json.dumps(told), str(trace), True, None)
    return check(Trace(trace))


@pytest.mark.skipif(
    shutil.which("cargo") is None or not Path("/usr/share/qemu/pvh.bin").is_file(),
    reason="the kernel cannot be built or booted here",
)
def test_flushes_that_our_own_kernel_leaves_out(built, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    found = kernel("do=judge events=300", 1, trace)
    assert found["uses"] == 0 and found["changes"] > 20, lines(found)
    for words, processors in (("events=300", 1), ("events=2000 seed=3", 2)):
        omit = "here" if processors == 1 else "elsewhere"
        found = kernel(f"do=judge {words} omit={omit}", processors, trace)
        [report, *_] = found["reports"]
        assert report["program"] and report["cause"] == "entry"
        # The page table is edited by the crate `pagetable`.
        assert "pagetable" in report["change"]["code"]["function"]
        is_own = report["change"]["processor"] == report["processor"]
        assert is_own == (processors == 1)


def test_what_cannot_be_checked_is_one_line(pagewalk, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    Trace("generate:uniform,accesses=1k").store(trace)
    with pytest.raises(Error, match="pagewalk record --system"):
        check(Trace(trace))
    with pytest.raises(Error, match="invlpg:N"):
        check(Trace(trace), "tlb:3")
    done = pagewalk("run", trace, "--leave-out", "any:3")
    assert done.returncode == 2 and "--leave-out needs --check" in done.stderr
    done = pagewalk("record", "--system", "--leave-out", "any:3", "--", "ls")
    assert done.returncode == 2 and "--leave-out needs --check" in done.stderr
    done = pagewalk("record", "--check", "--", "ls")
    assert done.returncode == 2 and "--check needs --system" in done.stderr
