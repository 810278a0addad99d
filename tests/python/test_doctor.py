"""`pagewalk doctor` beside what the commands themselves do here."""

import json
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, object]]:
    """What it found, by what each line is about."""
    from command import run_command

    done = run_command(["doctor", "--json"])
    assert done.returncode == 0, done.stderr
    return {check["can"]: check for check in json.loads(done.stdout)}


def test_what_is_said_to_record_records(found, pagewalk, tmp_path: Path) -> None:
    for can, flags in (
        ("record x86_64 programs", ()),
        ("record --engine native", ("--engine", "native")),
        ("record --engine qemu", ("--engine", "qemu")),
        ("record --allocations", ("--allocations",)),
    ):
        done = pagewalk("record", "--force", "-o", tmp_path / "x.pwt", *flags, "--", "true")
        assert found[can]["works"] == (done.returncode == 0), (can, done.stderr)


def test_what_is_missing_has_a_remedy_or_none_is_possible(found) -> None:
    for check in found.values():
        assert check["says"]
        assert check["remedy"] is None or not check["works"]


def test_the_machine_is_the_one_that_machines_here_names(found, pagewalk) -> None:
    done = pagewalk("machines", "--here")
    check = found["predictions for this computer"]
    assert check["works"] == (done.returncode == 0)
    if check["works"]:
        assert done.stdout.split()[0] in check["says"]


def test_without_a_qemu_it_says_what_records_and_what_to_do(pagewalk, tmp_path: Path) -> None:
    env = {**os.environ, "PAGEWALK_QEMU_DIR": str(tmp_path)}
    done = pagewalk("doctor", env=env)
    lines = {line[5:].split("  ")[0]: line for line in done.stdout.splitlines()}
    assert lines["record --engine qemu"].startswith("no "), done.stdout
    assert "qemu-x86_64 is missing" in lines["record --engine qemu"]
    assert lines["record x86_64 programs"].startswith("yes "), done.stdout
    assert lines["record aarch64 programs"].startswith("no "), done.stdout
    assert "make qemu" in done.stdout and done.returncode == 0


def test_large_pages_are_as_the_kernels_knob_says(found) -> None:
    knob = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not knob.exists():
        pytest.skip("a kernel without transparent huge pages")
    assert found["large pages of 2M"]["works"] == ("[never]" not in knob.read_text())


def test_the_lines_fit_a_terminal(pagewalk) -> None:
    done = pagewalk("doctor", env={**os.environ, "COLUMNS": "80"})
    words = [line for line in done.stdout.splitlines() if len(line) > 80]
    # A path is not broken.
    assert all("/" in line for line in words), words
