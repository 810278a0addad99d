"""Runs of random programs against the model of `second_model`: on several processors, of several
processes, with one or two page sizes, with single and with paired entries."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import second_model
from command import run_command
from second_program import Program


def of_units(units: list[second_model.Tlb]) -> dict[str, Any]:
    """The counts of one TLB, added up over processors."""
    counts: dict[str, Any] = {
        name: sum(getattr(tlb, name) for tlb in units)
        for name in ("denied", "invalid", "evictions", "flushed")
    }
    for kind, name in enumerate(("fetch", "load", "store")):
        hits = sum(tlb.hits[kind] for tlb in units)
        misses = sum(tlb.misses[kind] for tlb in units)
        if hits + misses:
            counts[name] = {"lookups": hits + misses, "hits": hits, "misses": misses}
    return counts


def expected(machine: second_model.Machine, numbers: range) -> dict[str, Any]:
    shot = [machine.shootdowns[number] for number in numbers]
    counts: dict[str, Any] = {
        name: of_units([machine.tlbs[number][name] for number in numbers])
        for name in machine.tlbs[0]
    }
    counts["shootdowns"] = {
        name: sum(one[name] for one in shot) for name in second_model.SHOOTDOWNS
    }
    return counts


def found(document: dict[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for tlb in document["tlbs"]:
        names = ("denied", "invalid", "evictions", "flushed")
        counts[tlb["name"]] = {name: tlb[name] for name in names}
        kinds = {kind: tlb["by_kind"][kind] for kind in ("fetch", "load", "store")}
        counts[tlb["name"]] |= {kind: one for kind, one in kinds.items() if one and one["lookups"]}
    counts["shootdowns"] = {name: document["shootdowns"][name] for name in second_model.SHOOTDOWNS}
    return counts


def case(seed: int) -> tuple[second_model.Layout, str, Program]:
    """A machine, the format of its page table where software walks it, and what runs on it."""
    chance = random.Random(seed)
    processors, processes = chance.choice([1, 2, 3]), chance.choice([1, 1, 2, 3, 5])
    policy, bits = (
        chance.choice(["modulo", "lru", "generation", "per-processor"]),
        chance.choice([0, 1, 2, 8]),
    )
    if policy in ("lru", "generation"):
        # There must be at least as many tags as processors.
        bits = max(bits, 2)
    layout = second_model.Layout(
        processors=processors,
        large=chance.random() < 0.6,
        paired=chance.random() < 0.4,
        fetches=chance.random() < 0.6,
        asid_bits=bits,
        contexts=policy,
    )
    # A guarded table also frees nodes when it grows, which is a shootdown of nothing.
    software = chance.choice(["x86-64", "hashed", "clustered"])
    threads = max(processes, chance.choice([1, 2, 3, 5]))
    return layout, software, Program(seed, threads, turns=100, processes=processes)


@pytest.mark.parametrize("seed", range(16))
def test_counts_are_those_of_a_second_model(seed: int, tmp_path: Path) -> None:
    layout, software, program = case(seed)
    (tmp_path / "trace").mkdir()
    program.write(tmp_path / "trace")
    (tmp_path / "machine.toml").write_text(second_model.machine_file(layout, software))
    model = second_model.Machine(layout)
    model.run(program.steps)

    options = ["--machine", tmp_path / "machine.toml", "--fetches", "instructions"]
    done = run_command(["run", tmp_path / "trace", *options, "--check", "--quiet", "--json"])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)

    assert found(document) == expected(model, range(layout.processors)), layout
    for number, one in enumerate(document.get("processors", [])):
        assert found(one) == expected(model, range(number, number + 1)), f"processor {number}"
    walks, faults = document["walks"], document["faults"]
    others = {
        "walks": walks["walks"],
        "assists": walks["modify_traps" if layout.paired else "dirty_assists"],
        "touches": faults["first_touch"],
        "faults": faults["protection"],
        "crossings": document["page_crossings"],
    }
    assert others == {name: getattr(model, name) for name in others}
    assert model.walks > 0
    assert sum(tlb.denied for tlbs in model.tlbs for tlb in tlbs.values()) > 0
