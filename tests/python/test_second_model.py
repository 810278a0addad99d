"""Runs of random programs on several processors against the model of `second_model`."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import second_model
from command import run_command


def of_units(units: list[second_model.Tlb]) -> dict[str, Any]:
    """The counts of one TLB, added up over processors."""
    counts: dict[str, Any] = {
        name: sum(getattr(tlb, name) for tlb in units)
        for name in ("denied", "evictions", "flushed")
    }
    for kind, name in enumerate(("load", "store")):
        hits = sum(tlb.hits[kind] for tlb in units)
        misses = sum(tlb.misses[kind] for tlb in units)
        counts[name] = {"lookups": hits + misses, "hits": hits, "misses": misses}
    return counts


def expected(machine: second_model.Machine, numbers: range) -> dict[str, Any]:
    shot = [machine.shootdowns[number] for number in numbers]
    return {
        "l1d": of_units([machine.tlbs[number][0] for number in numbers]),
        "l2d": of_units([machine.tlbs[number][1] for number in numbers]),
        "shootdowns": {name: sum(one[name] for one in shot) for name in second_model.SHOOTDOWNS},
    }


def found(document: dict[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for tlb in document["tlbs"]:
        counts[tlb["name"]] = {name: tlb[name] for name in ("denied", "evictions", "flushed")}
        counts[tlb["name"]] |= {kind: tlb["by_kind"][kind] for kind in ("load", "store")}
    counts["shootdowns"] = {name: document["shootdowns"][name] for name in second_model.SHOOTDOWNS}
    return counts


@pytest.mark.parametrize("seed", [2, 3, 13, 21, 35, 42, 51, 55])
def test_counts_are_those_of_a_second_model(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    processors, threads = chance.choice([1, 2, 3]), chance.choice([1, 2, 3, 5])
    large = chance.random() < 0.7
    program = second_model.Program(seed, threads, turns=200)
    (tmp_path / "trace").mkdir()
    program.write(tmp_path / "trace")
    page_size = "2M" if large else "4K"
    text = second_model.MACHINE.format(processors=processors, page_size=page_size)
    (tmp_path / "machine.toml").write_text(text)
    model = second_model.Machine(processors, large)
    model.run(program.steps)

    options = ["--machine", tmp_path / "machine.toml", "--check", "--quiet", "--json"]
    done = run_command(["run", tmp_path / "trace", *options])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)

    assert found(document) == expected(model, range(processors))
    for number, one in enumerate(document.get("processors", [])):
        assert found(one) == expected(model, range(number, number + 1)), f"processor {number}"
    walks, faults = document["walks"], document["faults"]
    others = {
        "walks": walks["walks"],
        "assists": walks["dirty_assists"],
        "touches": faults["first_touch"],
        "faults": faults["protection"],
        "crossings": document["page_crossings"],
    }
    assert others == {name: getattr(model, name) for name in others}
    assert model.walks > 0
    assert sum(tlb.denied for tlb, _ in model.tlbs) > 0
