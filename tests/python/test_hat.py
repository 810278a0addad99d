"""`pagewalk hat`: the HAT layer on many processors."""

import json
from pathlib import Path

import pytest

import pagewalk
from pagewalk import Error, hat
from pagewalk.hat import LOADS, SCHEMES
from pagewalk.reproduce import Experiment
from pagewalk.reproduce.methods import hat as method

EXPERIMENTS = Path(__file__).parents[2] / "experiments" / "K94"


def test_equal_arguments_give_equal_counts(pagewalk) -> None:
    asked = ("hat", "--work", "fault,brk", "--cpus", "1,3", "--seed", "1", "--json")
    first, second = pagewalk(*asked), pagewalk(*asked)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    document = json.loads(first.stdout)
    assert document["schema"] == 1
    assert len(document["runs"]) == 2 * len(SCHEMES) * 2


def test_text_and_page(pagewalk, tmp_path: Path) -> None:
    page = tmp_path / "hat.html"
    done = pagewalk("hat", "--work", "fault", "--cpus", "1,2", "--html", page)
    assert done.returncode == 0, done.stderr
    assert "fault, x86-64: operations per million cycles" in done.stdout
    assert "monitor: page_mutex" in done.stdout
    assert "What the locks cost" in page.read_text()


def test_counts_add_up() -> None:
    for run in hat(work=LOADS, cpus=[2]):
        for name, counts in run.locks.items():
            assert counts.contended <= counts.acquisitions, (run.locking, name)
            assert counts.hold_cycles <= run.cycles * run.cpus, (run.locking, name)
        assert run.throughput == pytest.approx(run.operations * 1e6 / run.cycles)


def test_more_processors_wait_more_for_one_lock() -> None:
    few, many = hat(work=["fault"], locking=["global"], cpus=[2, 8])
    assert few.locks["hat"].contended_share < many.locks["hat"].contended_share


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"cpus": [1000]}, "choose 1 to 128"),
        ({"locking": ["none"]}, "`none` names no scheme of locks: choose of global, monitor"),
        ({"work": ["none"]}, "`none` names no load: choose of fork"),
        ({"tables": ["none"]}, "`none` names no page table: choose of x86-64"),
        ({"shootdowns": "none"}, "`none` names no kind of shootdown"),
        ({"lock_kind": "none"}, "`none` names no kind of lock"),
        ({"pool_bytes": 4096}, "a pool of 4096 bytes is too small for 2 spaces"),
    ],
)
def test_what_cannot_run_is_told(arguments, complaint: str) -> None:
    with pytest.raises(Error, match=complaint):
        hat(**{"cpus": [1], **arguments})


@pytest.mark.parametrize("folder", sorted(EXPERIMENTS.iterdir()), ids=lambda path: path.name)
def test_every_measure_has_the_cells_that_claims_name(folder: Path) -> None:
    experiment = Experiment.load(folder)
    table = method.measure({**experiment.parameters, **experiment.smoke}, None)
    names = {row for claim in experiment.claims for row, _ in claim.cells()}
    assert names <= set(table.rows), names - set(table.rows)


def test_the_module_is_typed() -> None:
    run = pagewalk.hat(work=["spec"], cpus=[1], locking=["embedded"])[0]
    assert isinstance(run, pagewalk.HatRun)
