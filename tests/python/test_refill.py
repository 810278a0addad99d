"""The handlers of `refill/` refill a MIPS processor's TLB from tables that `pagetable` made.

All designs, and other pages, are for `make torture`.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FULL = "PAGEWALK_TORTURE" in os.environ
# One of each file of `refill/`; the paper's others differ in numbers.
SMOKE = ("MPT", "G16", "H8k", "C128k", "S8k/G16")


def load() -> ModuleType:
    loader = SourceFileLoader("refill_run", str(ROOT / "refill/run"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


RUNNER = load()
has_emulator = all(
    shutil.which(tool) for tool in (RUNNER.EMULATOR, RUNNER.ASSEMBLER, RUNNER.LINKER)
)
needs_emulator = pytest.mark.skipif(
    not has_emulator, reason="QEMU's MIPS machines or the assembler are missing"
)


@pytest.fixture(scope="module")
def images() -> Path:
    """The program that writes images."""
    return Path(RUNNER.build_images())


@needs_emulator
@pytest.mark.parametrize("design", RUNNER.DESIGNS if FULL else SMOKE)
def test_instructions_are_those_of_the_readme(images: Path, design: str) -> None:
    rows = RUNNER.table_of(RUNNER.measure(design, images, 1)).splitlines()
    written = RUNNER.in_readme().splitlines()
    assert rows[:2] == written[:2]
    assert rows[2:] == [line for line in written if line.startswith(f"| {design} |")]


def test_the_simulator_charges_what_the_handlers_take() -> None:
    rows = [line.strip("|").split("|") for line in RUNNER.in_readme().splitlines()[2:]]
    different = [cells for cells in rows if int(cells[5]) != 0]
    assert rows and not different


@needs_emulator
@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
@pytest.mark.parametrize("seed", range(2, 8))
def test_other_pages_take_as_many_instructions(images: Path, seed: int) -> None:
    """A path has the same number of instructions with other pages."""
    known: dict[tuple[str, str], int] = {}
    for line in RUNNER.in_readme().splitlines()[2:]:
        design, path, _, handler, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        known[design, path] = int(handler)
    for design in RUNNER.DESIGNS:
        for row in RUNNER.measure(design, images, seed):
            expected = known.get((design, row["path"]), row["handler"])
            assert row["handler"] == expected, f"seed {seed}: {row}"


@needs_emulator
@pytest.mark.parametrize(("design", "table"), [("G16", "G8"), ("H8k", "H128k"), ("S8k/G16", "G16")])
def test_a_handler_of_another_table_is_found(images: Path, design: str, table: str) -> None:
    with pytest.raises(RUNNER.Problem, match=f"^{design}: (an access|the tables)"):
        RUNNER.measure(design, images, 1, table)


def test_the_record_has_the_table_of_the_readme() -> None:
    record = json.loads(max((ROOT / "benches/records").glob("*-refill.json")).read_text())
    assert RUNNER.table_of(record["rows"]) == RUNNER.in_readme()
    assert {row["design"] for row in record["rows"]} == set(RUNNER.DESIGNS)


@pytest.mark.parametrize(
    ("arguments", "tools", "said"),
    [
        (["x86-64"], True, "x86-64: there is no MIPS handler for page tables of format x86-64:"),
        (["cuckoo"], True, "cuckoo: there is no MIPS handler for page tables of format elastic"),
        (["G17"], True, "experiments/designs.toml has no design G17: choose MPT, G16"),
        (["G16"], False, "qemu-system-mips64el is missing: `make torture` installs it"),
    ],
)
def test_an_error_is_a_line(arguments: list[str], tools: bool, said: str, tmp_path: Path) -> None:
    if tools and not has_emulator:
        pytest.skip("QEMU's MIPS machines or the assembler are missing")
    path = os.environ["PATH"] if tools else str(tmp_path)
    ran = subprocess.run(
        [sys.executable, ROOT / "refill/run", *arguments],
        env={**os.environ, "PATH": path},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"refill/run: {said}") and ran.stderr.count("\n") == 1
