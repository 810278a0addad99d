"""The SpecTLB, as runs and sweeps tell of it: in the results, the text and the report."""

import pytest

import pagewalk
from pagewalk import summary, text
from pagewalk.report import data, page
from pagewalk.sweeps import sweep

SPEC = "generate:uniform,accesses=60k,size=96M"


@pytest.fixture(scope="module")
def run() -> pagewalk.Results:
    return pagewalk.Machine("freebsd-2009", set={"spec_tlb.keeps_absent": "true"}).run(SPEC)


def test_results_say_what_was_predicted(run: pagewalk.Results) -> None:
    spec, walks = run.data["spec_tlb"], run.data["walks"]["walks"]
    assert spec["right"] + spec["none"] + spec["wrong"]["broken"] + spec["wrong"]["chance"] == walks
    assert spec["attempts"] == spec["right"] + spec["denied"] + sum(spec["wrong"].values())
    outcomes = {one["outcome"]: one for one in spec["outcomes"]}
    assert list(outcomes) == [
        "right",
        "none",
        "none-faulted",
        "denied",
        "absent",
        "broken",
        "chance",
    ]
    assert outcomes["right"]["references"] == spec["overlapped"]
    accesses = outcomes["right"]["accesses"]
    assert sum(sum(places.values()) for places in accesses.values()) == spec["right"]


def test_the_text_and_the_report_tell_of_it(run: pagewalk.Results) -> None:
    document = run.data
    told = " ".join(summary.summary(document).split())
    assert "SpecTLB: 24 pages of 2M, random, heuristic; " in told and "absent" in told
    shown = data.run(document)
    assert shown.spec_tlb is not None and len(shown.spec_tlb.rows) == 7
    assert "<h3>SpecTLB</h3>" in page.render(data.report([document]))


def test_a_machine_without_one_says_nothing_of_it() -> None:
    document = pagewalk.Machine("opteron-2008").run("generate:uniform,accesses=2k,size=1M").data
    assert "spec_tlb" not in document
    assert data.run(document).spec_tlb is None


def test_a_sweep_of_sizes_has_a_row_each() -> None:
    table = sweep(SPEC, "freebsd-2009", vary={"spec_tlb.entries": [8, 16, 24, 32]})
    right = [row["spec_tlb.right"] for row in table.to_pylist()]
    assert len(right) == 4 and right[0] < right[-1]


def test_devices_are_told_of() -> None:
    settings = {
        "memory.size": "36M",
        "swap.size": "64M",
        "spec_tlb.fill": "marks",
        "os.reservations": '{marks="clear-devices"}',
        "os.devices": "{pages=64,faults=4}",
    }
    trace = "generate:strided,accesses=40k,size=40M,stride=8K"
    document = pagewalk.Machine("freebsd-2009", set=settings).run(trace).data
    devices = document["manager"]["devices"]
    assert devices["lent"] == devices["returned"] + devices["pages"] > 64
    told = " ".join(summary.summary(document).split())
    assert f"devices: {text.count(devices['lent'])} frames lent" in told
    assert "cleared" in told


def test_a_host_that_keeps_room_is_told_of() -> None:
    settings = {
        "memory.size": "1G",
        "nested.reservations": '{sizes=["1G"]}',
        "nested.spec_tlb": '{page_size="1G",entries=4}',
    }
    trace = "generate:uniform,accesses=10k,size=16M"
    document = pagewalk.Machine("opteron-2008", set=settings).run(trace).data
    nested = document["nested"]
    assert nested["spec_tlb"]["right"] == nested["walks"] - 1
    told = " ".join(summary.summary(document).split())
    assert "reservations of 1G: 1 made" in told and "of the host's walks" in told
    assert "references per walk of" in told and "are waited for" in told
    assert "are waited for" in page.render(data.report([document]))
