"""One API: what each result can be made into is the same, whatever it was counted of."""

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest

import pagewalk
from pagewalk import Error

SPEC = "generate:uniform,size=4M,accesses=20k"
OTHER = "generate:join,table=4M,accesses=20k"

METHODS = ("to_arrow", "to_pandas", "to_polars", "_repr_html_", "save", "plot")


def results() -> dict[str, Any]:
    trace, machine = pagewalk.Trace(SPEC), pagewalk.Machine("opteron-2008")
    return {
        "Trace": trace,
        "Machine": machine,
        "Results": machine.run(trace),
        "Sweep": pagewalk.sweep(trace, machine.name, vary={"tlb.l2d.entries": [16, 32]}),
        "Curves": pagewalk.curve(trace, entries_max=64),
        "Advised": pagewalk.advise(trace, machine.name),
        "Managers": pagewalk.managers(trace, machine=machine.name),
        "HatRuns": pagewalk.hat(work=["fault"], cpus=[1, 2], locking=["global", "early"]),
        "HostRuns": pagewalk.hat_on_host(threads=[1], locking=["global"], rounds=1),
        "Runs": pagewalk.run_many([SPEC, OTHER], ["opteron-2008", "tlb-only"]),
    }


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return results()


def rows_of(result: Any) -> pa.Table:
    table = result.to_arrow()
    return table.read_all() if isinstance(table, pa.RecordBatchReader) else table


def test_every_result_has_every_method(made: dict[str, Any]) -> None:
    for name, result in made.items():
        assert type(result).__name__ == name
        assert [one for one in METHODS if not callable(getattr(result, one, None))] == [], name


def test_tables_are_the_same_for_every_library(made: dict[str, Any]) -> None:
    for name, result in made.items():
        table = rows_of(result)
        assert table.num_rows > 0, name
        frame = result.to_polars()
        assert isinstance(frame, polars.DataFrame) and frame.columns == table.column_names, name
        assert frame.to_arrow().to_pylist() == table.to_pylist(), name


def test_rows_have_the_counts_of_their_results(made: dict[str, Any]) -> None:
    runs = made["Runs"].to_arrow()
    assert runs.column("trace").to_pylist() == [SPEC, SPEC, OTHER, OTHER]
    assert runs.column("machine").to_pylist() == ["opteron-2008", "tlb-only"] * 2
    misses = [one.data["walks"]["walks"] for one in made["Runs"]]
    assert runs.column("walks.walks").to_pylist() == misses
    assert made["Runs"][0].data["tlbs"] == made["Results"].data["tlbs"]
    for run, row in zip(made["HatRuns"], made["HatRuns"].to_arrow().to_pylist(), strict=True):
        assert (row["locking"], row["cpus"], row["cycles"]) == (run.locking, run.cpus, run.cycles)
        assert row["time_wait_cycles"] == run.time.wait_cycles
    managers = made["Managers"].to_arrow().to_pylist()
    for row, plain in zip(managers, made["Managers"].data["traces"][0]["rows"], strict=True):
        assert (row["manager"], row["tlb_misses"]) == (plain["manager"], plain["tlb_misses"])
        assert row["work_zeroed"] == plain["work"]["zeroed"]
    advised = made["Advised"].to_arrow().to_pylist()
    for row, region in zip(advised, made["Advised"].regions, strict=True):
        assert (row["name"], row["size"], row["misses"]) == (
            region.name,
            region.size,
            region.misses,
        )
    curves = made["Curves"]
    assert curves.column("misses").to_pylist()[:64] == list(curves.curves[0].misses)
    parts = made["Machine"].to_arrow().to_pylist()
    [entries] = [
        row["value"] for row in parts if (row["part"], row["key"]) == ("tlb.l1d", "entries")
    ]
    assert entries == str(made["Machine"].description["tlb"]["l1d"]["entries"])


def test_everything_is_saved_by_its_name(made: dict[str, Any], tmp_path: Path) -> None:
    assert made["Trace"].save(tmp_path / "t.pwt") == [str(tmp_path / "t.pwt")]
    assert pagewalk.Trace(tmp_path / "t.pwt").accesses == made["Trace"].accesses
    for name, result in made.items():
        if name == "Trace":
            continue
        folder = tmp_path / name
        folder.mkdir()
        for end in (".csv", ".parquet", ".json", ".tex", ".md"):
            assert result.save(folder / f"r{end}") == [str(folder / f"r{end}")]
            assert (folder / f"r{end}").stat().st_size > 20, name
        json.loads((folder / "r.json").read_text())
        with pytest.raises(Error, match="exists"):
            result.save(folder / "r.csv")
        with pytest.raises(Error, match="the end of the name chooses the format"):
            result.save(folder / "r.doc")
        if name != "HostRuns":
            pictures = result.save(folder / "r.svg")
            assert pictures and all("<svg" in Path(one).read_text()[:400] for one in pictures)


def test_everything_is_shown_and_drawn(made: dict[str, Any]) -> None:
    for name, result in made.items():
        shown = result._repr_html_()
        assert shown.count("<table") >= 1 and "<script" not in shown, name
        if name == "HostRuns":
            with pytest.raises(Error, match="no chart of this host"):
                result.plot()
        else:
            assert json.dumps(result.plot().to_dict()).count('"data"') >= 1, name
    with pytest.raises(Error, match="choose one of "):
        made["Results"].plot("nothing")
    with pytest.raises(Error, match="choose one of memory-by-page-size, "):
        made["Managers"].plot("nothing")
    with pytest.raises(Error, match="choose one of fault-x86-64, fault-x86-64-time"):
        made["HatRuns"].plot("nothing")
    with pytest.raises(Error, match="`fetch` was not counted: choose one of data"):
        made["Curves"].plot("fetch")


def test_many_runs_are_made_elsewhere(made: dict[str, Any]) -> None:
    machine = pickle.loads(pickle.dumps(pagewalk.Machine("opteron-2008", {"tlb.l1d.entries": 16})))
    assert machine.description["tlb"]["l1d"]["entries"] == 16
    with ThreadPoolExecutor(2) as executor:
        runs = pagewalk.run_many([SPEC, OTHER], ["opteron-2008", "tlb-only"], executor=executor)
    assert runs.to_arrow().equals(made["Runs"].to_arrow())
    told: list[tuple[int, int]] = []
    one = pagewalk.run_many(SPEC, machine, progress=lambda *now: told.append(now) is None)
    assert len(one) == 1 and told == [(0, 1)]
    with pytest.raises(Error, match="nothing to run"):
        pagewalk.run_many([], "tlb-only")
    with pytest.raises(Error, match="at least two"):
        one.plot()


SCRIPT = """
import pagewalk
from pagewalk import Advised, Curves, HatRuns, Machine, Managers, Results, Runs, Sweep, Trace

trace: Trace = pagewalk.Trace("generate:uniform,size=4M,accesses=20k")
machine: Machine = pagewalk.Machine("tlb-only")
results: Results = machine.run(trace)
misses: int = results.tlbs["l1d"].misses
swept: Sweep = pagewalk.sweep(trace, "tlb-only", vary={"tlb.l1d.entries": [16, 32]})
curves: Curves = pagewalk.curve(trace)
managed: Managers = pagewalk.managers(trace)
advised: Advised = pagewalk.advise(trace)
runs: HatRuns = pagewalk.hat(cpus=[1])
many: Runs = pagewalk.run_many(trace, [machine])
for result in (machine, results, swept, curves, managed, runs, many):
    rows: int = result.to_arrow().num_rows
    height: int = result.to_polars().height
    names: list[str] = result.save("r.csv", force=True)
    result.plot().to_dict()
"""


def test_a_script_over_the_api_has_types(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(script)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
