"""Page sizes of random programs under `irix` against the model of `irix_model`."""

import json
import os
import random
from pathlib import Path
from typing import Any

import irix_model
import pytest
from command import run_command

ATTRIBUTES = ("region-too-small", "unaligned", "mixed-rights")
SEEDS = range(int(os.environ.get("PAGEWALK_SEEDS", "10")))


def decided(document: dict[str, Any]) -> dict[tuple[str, str, str], int]:
    counts: dict[tuple[str, str, str], int] = {}
    for one in document["manager"].get("sizes", []):
        why = "attributes" if one["why"] in ATTRIBUTES else one["why"]
        key = one["wanted"], one["got"], why
        counts[key] = counts.get(key, 0) + one["pages"]
    return counts


@pytest.mark.parametrize("seed", SEEDS)
def test_sizes_are_those_of_a_model(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    program = irix_model.Program(seed, turns=chance.choice([60, 200]))
    places = []
    start = irix_model.FIRST
    while start < irix_model.FIRST + irix_model.Program.pages * irix_model.BASE:
        end = start + chance.choice([16, 64, 256, 700, 1024]) * irix_model.BASE
        # A rule to which no mapping corresponds is an error.
        is_mapped = any(
            step.number == irix_model.MMAP and step.start < end and start < step.start + step.length
            for step in program.steps
        )
        if is_mapped and chance.random() < 0.7:
            places.append((start, end, chance.choice(irix_model.SIZES[:6])))
        start = end
    (tmp_path / "trace").mkdir()
    program.write(tmp_path / "trace" / "thread0.trace")
    model = irix_model.Irix(places)
    model.run(program.steps)

    rules = ",".join(f"range {a:#x}..{b:#x}={irix_model.NAMES[size]}" for a, b, size in places)
    options = [
        "--set",
        "os.base_page=4K",
        "--set",
        "os.page_size=4K",
        "--check",
        "--quiet",
        "--json",
    ]
    if places:
        options += ["--place", rules]
    done = run_command(["run", tmp_path / "trace", "--machine", "origin-2000", *options])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    sizes = {size: pages for size, pages in document["memory"]["pages_by_size"].items() if pages}
    assert sizes == model.by_size()
    assert decided(document) == model.decided
