"""Stand-ins have the size of what they stand for: what a window of each touches is counted."""

import re
from pathlib import Path

import pytest

from pagewalk.machine import Machine
from pagewalk.reproduce.lab import Lab

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ACCESSES = 20_000_000
"""As in E99's experiments; a program that needs more says so."""
PAGE = 4096
OFF_MAX = 0.25
"""E99's sizes are of whole processes, with code, libraries and buffers; and swim's window, less
than a sweep over its arrays, touches 11.2 of 14.2 MB."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(EXPERIMENTS, tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize(
    "name",
    ["go", "swim", "compress", "apsi", "wave5", "c4", "nsieve", "heapsort", "mm", "tfftdp"],
)
def test_a_window_touches_as_much_as_the_original_has(lab: Lab, name: str) -> None:
    said = re.search(r"([\d.]+) MB, for ", lab.program(name).what)
    assert said, lab.program(name).what
    results = Machine("tlb-only").run(lab.trace(name, ACCESSES, fetches=False)).data
    touched = sum(region["pages"] for region in results["regions"]) * PAGE / 1e6
    assert touched == pytest.approx(float(said[1]), rel=OFF_MAX), f"MB that {name} touches"
