"""`pagewalk hat`: memory management on many processors."""

import json
import time
from pathlib import Path

import pytest

import pagewalk as pw
from pagewalk import Error, document, hat
from pagewalk.document import (
    Hat,
    HatOnHost,
    HatOutcome,
    HostOutcome,
    SkeletonMade,
    SkeletonProcess,
)
from pagewalk.hat_counts import HostRun
from pagewalk.hat_runs import LOADS, NOT_OF_THE_LAYER, SCHEMES
from pagewalk.report import hat as report
from pagewalk.reproduce import Experiment
from pagewalk.reproduce.methods import hat as method

EXPERIMENTS = Path(__file__).parents[2] / "experiments" / "K94"


def test_equal_arguments_give_equal_counts(pagewalk) -> None:
    asked = ("hat", "--work", "fault,brk", "--cpus", "1,3", "--seed", "1", "--json")
    first, second = pagewalk(*asked), pagewalk(*asked)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    made = json.loads(first.stdout)
    assert made["schema"] == 3
    assert len(made["runs"]) == 2 * len(SCHEMES) * 2


def test_text_and_page(pagewalk, tmp_path: Path) -> None:
    page = tmp_path / "hat.html"
    done = pagewalk("hat", "--work", "fault", "--cpus", "1,2", "--top", "30", "--html", page)
    assert done.returncode == 0, done.stderr
    assert "fault, x86-64: operations per million cycles" in done.stdout
    assert "monitor: page_mutex" in done.stdout
    assert "time of 2 processors, in %" in done.stdout
    assert "What the locks cost" in page.read_text()
    assert "Where the time of fault goes on 2 processors" in page.read_text()
    assert "Waits and holds in cycles" in page.read_text()


@pytest.mark.parametrize("hat_only", [False, True])
def test_counts_add_up(hat_only: bool) -> None:
    left_out = NOT_OF_THE_LAYER if hat_only else ("kenbus",)
    loads = [load for load in LOADS if load not in left_out]
    for run in hat(work=loads, cpus=[2], hat_only=hat_only):
        assert any(name.startswith("vm_") for name in run.locks) is not hat_only
        for name, counts in run.locks.items():
            assert counts.contended <= counts.acquisitions, (run.locking, name)
            # The flags of at most this number of frames are taken at the same time.
            at_once = 32 if (run.locking, name) == ("monitor", "page") else 1
            assert counts.hold_cycles <= run.cycles * run.cpus * at_once, (run.locking, name)
        assert run.throughput == pytest.approx(run.operations * 1e6 / run.cycles)
        assert sum(run.time) == run.cycles * run.cpus
        waits = sum(counts.wait_cycles for counts in run.locks.values())
        assert run.time.wait_cycles <= waits <= run.time.wait_cycles + run.time.interrupt_cycles


def test_the_reference_has_every_field(pagewalk, tmp_path: Path) -> None:
    asked = ("hat", "--work", "fork", "--locking", "monitor", "--json")
    done = pagewalk(*asked, "--cpus", "2", "--contexts", "8")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made.keys() == Hat.__annotations__.keys()
    [run] = made["runs"]
    for data, kind in (
        (run, HatOutcome),
        (run["time"], document.TimeUse),
        (run["shootdowns"], document.ShootCounts),
        (run["contexts"], document.ContextUse),
        (run["locks"]["mmu"], document.LockShare),
        (run["locks"]["mmu"]["holds"], document.Histogram),
    ):
        assert data.keys() == kind.__annotations__.keys()
    assert Hat(made).runs[0].locks["mmu"].acquisitions == run["locks"]["mmu"]["acquisitions"]
    page = tmp_path / "host.html"
    done = pagewalk(*asked, "--on", "host", "--threads", "1", "--rounds", "1", "--html", page)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made.keys() == HatOnHost.__annotations__.keys()
    assert all(run.keys() == HostOutcome.__annotations__.keys() for run in made["runs"])
    assert "The shared layer and its control" in page.read_text()


def test_one_number_of_processors_is_not_compared_with_itself(pagewalk, tmp_path: Path) -> None:
    page = tmp_path / "hat.html"
    done = pagewalk("hat", "--work", "fault", "--cpus", "2", "--html", page)
    assert done.returncode == 0, done.stderr
    assert "Operations per million cycles on 2 processors: " in page.read_text()
    assert "times that on 2" not in page.read_text()


def test_a_prediction_names_its_prices() -> None:
    outcome = {
        "threads": 2, "scheme": "global", "load": "fault", "table": "x86-64", "hat_only": False,
        "nanoseconds": 900.0, "control_nanoseconds": 600.0, "control_scaling": 1.9,
        "acquisitions": {}, "judged_rounds": 2, "scaling": 1.2, "predicted": None,
        "cycle_ns": None, "lines_ns": None, "prices": None,
    }  # fmt: skip

    def told(**changed: object) -> str:
        made = {**outcome, **changed}
        assert made.keys() == HostOutcome.__annotations__.keys()
        named = {**made, "locking": made["scheme"], "work": made["load"]}
        fields = {name: named[name] for name in HostRun._fields[:-1]}
        return report.host_summary([HostRun(**fields, document=made)])

    unjudged = told(scaling=None, judged_rounds=0)
    assert report.NONE in unjudged
    assert any(line.rstrip().endswith("none") for line in unjudged.splitlines()[:3])
    prices = {
        "lock_ns": 4.0, "transfer_ns": 150.0, "release_ns": 120.0, "handover_ns": 110.0,
        "pause_ns": 90.0,
    }  # fmt: skip
    with_prices = told(predicted=1.25, prices=prices)
    assert all(told in with_prices for told in ("1.25", "150 ns", "120 ns", "110 to 200 ns"))


def test_a_pool_has_bytes(pagewalk) -> None:
    done = pagewalk("hat", "--work", "fault", "--cpus", "1", "--pool", "160K", "--json")
    assert json.loads(done.stdout)["settings"]["pool_bytes"] == 160 << 10
    for wrong in ("", "K", "-4K", "x"):
        refused = pagewalk("hat", "--work", "fault", "--cpus", "1", f"--pool={wrong}")
        assert refused.returncode == 2 and "write bytes with a unit" in refused.stderr


def test_several_loads_have_one_name(pagewalk) -> None:
    asked = ("hat", "--work", "micro,fault,mt", "--cpus", "2", "--locking", "embedded", "--json")
    done = pagewalk(*asked)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    loads = ["fork", "exec", "fault", "brk", *(load for load in LOADS if load.startswith("mt-"))]
    assert made["settings"]["work"] == loads == [run["load"] for run in made["runs"]]
    assert [run.work for run in hat(work=["micro"], cpus=[1], locking=["global"])] == loads[:4]
    alone = hat(work=["mt"], cpus=[1], locking=["global"], hat_only=True)
    assert [run.work for run in alone] == [
        load for load in loads[4:] if load not in NOT_OF_THE_LAYER
    ]


def test_thirty_runs_on_twelve_processors_take_less_than_a_minute() -> None:
    loads = ["fork", "exec", "fault", "tpcb", "mt-low"]
    start = time.process_time()
    assert len(hat(work=loads, locking=SCHEMES, cpus=[12])) == 30
    assert time.process_time() - start < 60


def test_more_processors_wait_more_for_one_lock() -> None:
    few, many = hat(work=["fault"], locking=["global"], cpus=[2, 8])
    assert few.locks["hat"].contended_share < many.locks["hat"].contended_share


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"cpus": [1000]}, "choose 1 to 128"),
        ({"cpus": [0]}, "choose 1 to 128"),
        ({"cpus": [1 << 70]}, "processors: 1180591620717411303424 is out of range"),
        (
            {"seed": 1 << 64},
            "seed: 18446744073709551616 is out of range: write a number from 0 to 2.64 - 1",
        ),
        ({"contexts": 1 << 32}, "contexts: 4294967296 is out of range"),
        ({"pool_bytes": 1 << 64}, "bytes of a pool: 18446744073709551616 is out of range"),
        ({"work": ["none.skeleton"]}, "none.skeleton: there is no such file"),
        ({"work": ["mt-mmap-low"], "hat_only": True}, "run it without --hat-only"),
        ({"locking": ["none"]}, "`none` is not a locking scheme: choose from global, early"),
        ({"work": ["none"]}, "`none` is not a load: choose from fork"),
        ({"tables": ["none"]}, "`none` is not a page table: choose from x86-64"),
        ({"shootdowns": "none"}, "`none` is not a kind of shootdown"),
        ({"lock_kind": "none"}, "`none` is not a kind of lock"),
        (
            {"locking": ["covering"], "tables": ["hashed-shared"]},
            "locks subtrees, but the entries of a subtree of `hashed",
        ),
        (
            {"locking": ["covering"], "tables": ["guarded"]},
            "locks subtrees, but the entries of a subtree of `guarded` do not",
        ),
        ({"pool_bytes": 4096}, "a pool of 4096 bytes is too small for 2 spaces"),
    ],
)
def test_what_cannot_run_is_told(arguments, complaint: str) -> None:
    with pytest.raises(Error, match=complaint):
        hat(**{"cpus": [1], **arguments})


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (["--cpus", "x"], "`x` is not a count"),
        (["--cpus", ","], "`,` contains no name"),
        (["--locking="], "`` contains no name"),
        (["--threads", "2"], "--threads is for --on host"),
        (["--on", "host", "--cpus", "2"], "--cpus is for --on model"),
        (["--on", "host", "--rounds", "0"], "--rounds 0 measures nothing"),
        (["--context-threshold", "9"], "give --contexts too"),
        (["--json", "/nonexistent/hat.json"], "there is no directory /nonexistent"),
        (["--html", "-"], "--html cannot write to standard output"),
    ],
)
def test_what_makes_no_sense_is_refused(pagewalk, asked: list[str], complaint: str) -> None:
    done = pagewalk("hat", "--work", "fault", *asked)
    assert done.returncode == 2
    assert complaint in done.stderr.splitlines()[-1]


def test_no_locks_on_two_threads_are_told() -> None:
    with pytest.raises(Error, match="`single` has no locks"):
        pw.hat_on_host(threads=[2], locking=["single"])


FOLDERS = sorted(
    folder for folder in EXPERIMENTS.iterdir() if Experiment.load(folder).method == "hat"
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_measure_has_the_cells_that_claims_name(folder: Path) -> None:
    experiment = Experiment.load(folder)
    table = method.measure({**experiment.parameters, **experiment.smoke}, None)
    names = {row for claim in experiment.claims for row, _ in claim.cells()}
    assert names <= set(table.rows), names - set(table.rows)


def test_threads_of_a_space_do_more_under_locks_of_subtrees() -> None:
    def throughput(scheme: str, cpus: int) -> float:
        asked = {"work": ["mt-low"], "hat_only": True, "shootdowns": "broadcast"}
        return hat(locking=[scheme], cpus=[cpus], **asked)[0].throughput

    assert throughput("covering", 8) > 1.1 * throughput("embedded", 8)


def test_a_device_sees_what_the_processors_see() -> None:
    alone, device = (
        hat(work=[work], cpus=[2], locking=["embedded"])[0] for work in ("tpcb", "dma")
    )
    more = device.locks["mmu"].acquisitions - alone.locks["mmu"].acquisitions
    # Each page is loaded in the I/O MMU too, and each unloading asks both.
    assert more == 2 * device.operations


def test_the_layer_alone_is_said_to_be_alone(pagewalk) -> None:
    done = pagewalk("hat", "--hat-only", "--work", "fault", "--cpus", "1", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert all(run["hat_only"] for run in made["runs"])
    assert any("drive the layer alone" in line for line in made["not_modelled"])


def test_users_run_their_commands() -> None:
    run = hat(work=["kenbus"], cpus=[2], locking=["embedded"])[0]
    assert run.operations == 2 * 18


def test_a_recording_is_played_as_a_load(pagewalk, tmp_path: Path) -> None:
    trace, skeleton = tmp_path / "sh.pwt", tmp_path / "sh.skeleton"
    done = pagewalk("record", "-o", trace, "--", "sh", "-c", "ls; date")
    assert done.returncode == 0, done.stderr
    page = tmp_path / "skeleton.html"
    done = pagewalk("skeleton", trace, "-o", skeleton, "--json", "-", "--html", page)
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert written.keys() == SkeletonMade.__annotations__.keys()
    kind = SkeletonProcess.__annotations__.keys()
    assert all(process.keys() == kind for process in written["processes"])
    assert "Processes and their steps" in page.read_text()
    assert [process["name"] for process in written["processes"]] == ["sh", "ls", "date"]
    assert written["bytes"] == skeleton.stat().st_size < 3 * 8192
    assert 0 < written["instructions"] < 10_000_000
    done = pagewalk("hat", "--work", skeleton, "--cpus", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert {run["load"] for run in json.loads(done.stdout)["runs"]} == {"sh.skeleton"}
    cut = tmp_path / "cut.skeleton"
    for end in (990, 1000, 1001, 1003):
        cut.write_text(skeleton.read_text()[:end])
        done = pagewalk("hat", "--work", cut, "--cpus", "1")
        assert done.returncode != 0
        assert "cut.skeleton: the skeleton is truncated" in done.stderr
    done = pagewalk("skeleton", trace, "-o", skeleton)
    assert done.returncode != 0, "a file is not overwritten"
    made = pw.skeleton(pw.Trace(trace))
    assert made.text == skeleton.read_text()


def test_the_module_is_typed() -> None:
    run = pw.hat(work=["spec"], cpus=[1], locking=["embedded"])[0]
    assert isinstance(run, pw.HatRun)
