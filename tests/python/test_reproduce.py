"""Reproducing experiments: what is data, how claims are judged, and each at a smoke size."""

import json
import math
import re
import runpy
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pagewalk import Error, WorkError
from pagewalk.reproduce import Experiment, Lab, Table, find, history, root
from pagewalk.reproduce.cells import compare
from pagewalk.reproduce.claims import Claim
from pagewalk.reproduce.outcome import measure, reproduce
from pagewalk.reproduce.programs import kept, load
from pagewalk.reproduce.scoreboard import apart, scores, sentence
from pagewalk.reproduce.table import over
from pagewalk.systems import machine

FOLDER = Path(__file__).parents[2] / "experiments"
NAMES = [experiment.name for experiment in find(FOLDER)]
NUMBERS = Table(
    ["1", "2", "4", "8"],
    {
        "a": [0.1, 0.6, 0.4, 0.9],
        "b": [0.2, 0.5, 0.6, 1.0],
        "c": [None, 0.5, 0.5, 0.5],
        "large": [0, 1200, 13e3, 2.5e6],
        "even": [5, 5, 5, 5],
        "steps": [5, 5, 6, 6],
    },
)


@pytest.mark.parametrize(
    ("stated", "verdict", "ours"),
    [
        ({"value": ["a", "2"], "published": 0.6}, "reached", "0.6"),
        ({"value": ["a", "2"], "published": 0.54}, "missed", "0.6"),
        ({"value": ["a", "1"], "published": 0.06, "digit": 0.1}, "reached", "0.1"),
        ({"value": ["a", "4"], "within": [0.5, 0.7], "band": "words"}, "missed", "0.4"),
        ({"row": "b", "ratio": ["8", "2"], "published": 2.1}, "reached", "2"),
        (
            {"column": "8", "spread": ["a", "b", "c"], "within": [1, 1.5], "band": "words"},
            "missed",
            "2",
        ),
        ({"row": "b", "mean": ["2", "4", "8"], "published": 0.7}, "reached", "0.7"),
        ({"row": "c", "mean": ["1", "2"], "published": 0.5}, "not measured", "not measured"),
        ({"reaching": {"row": "b", "level": 0.5}, "published": 2}, "reached", "2"),
        ({"reaching": {"row": "a", "level": 0.5}, "published": 2}, "missed", "8"),
        ({"reaching": {"row": "a", "level": 0.95}, "published": 2}, "not measured", "not reached"),
        ({"row": "b", "ascending": ["1", "2", "4", "8"]}, "reached", "1 0.2, 2 0.5, 4 0.6, 8 1"),
        ({"row": "a", "ascending": ["1", "2", "4"]}, "missed", "4 0.4"),
        ({"row": "a", "ascending": ["1", "2", "4"], "slack": 0.5, "band": "w"}, "reached", "4 0.4"),
        ({"row": "steps", "ascending": ["1", "2", "4", "8"]}, "missed", "1 5, 2 5"),
        ({"row": "steps", "ascending": ["1", "2", "4", "8"], "ties": True}, "reached", "8 6"),
        ({"row": "even", "ascending": ["1", "2", "4", "8"], "ties": True}, "missed", "8 5"),
        ({"row": "even", "ascending": ["1", "2"], "slack": 0.1, "band": "w"}, "missed", "2 5"),
        ({"row": "steps", "ascending": ["2", "4"], "slack": 0.1, "band": "w"}, "reached", "4 6"),
        ({"row": "steps", "ascending": ["2", "4"], "slack": 0.3, "band": "w"}, "missed", "4 6"),
        ({"row": "steps", "least": "1", "among": ["2", "4"]}, "missed", "1 5"),
        ({"row": "steps", "least": "1", "among": ["2", "4"], "ties": True}, "reached", "1 5"),
        ({"row": "steps", "greatest": "8", "among": ["4", "1"]}, "missed", "8 6"),
        ({"row": "steps", "greatest": "8", "among": ["4", "1"], "ties": True}, "reached", "8 6"),
        ({"row": "even", "greatest": "8", "among": ["4"], "ties": True}, "missed", "8 5"),
        ({"column": "8", "least": "c", "among": ["a", "b"]}, "reached", "c 0.5"),
        ({"column": "8", "greatest": "c", "among": ["a", "b"]}, "missed", "c 0.5"),
        ({"column": "8", "greatest": "b", "among": ["a", "c"]}, "reached", "b 1"),
        (
            {"row": "a", "each": ["2", "8"], "within": [0.5, 1], "band": "w"},
            "reached",
            "2 of 2 values in [0.5, 1]",
        ),
        ({"row": "a", "each": ["2", "4"], "within": [0.5, 1], "band": "w"}, "missed", "1 of 2 val"),
        ({"row": "a", "each": ["2"], "within": [9, math.inf], "band": "w"}, "missed", "at least 9"),
        ({"row": "a", "each": ["2"], "within": [9, 9], "band": "w"}, "missed", "values equal to 9"),
        ({"row": "a", "majority": ["2", "4"], "within": [0.5, 1], "band": "w"}, "missed", "1 of 2"),
        (
            {"row": "a", "majority": ["2", "4", "8"], "within": [0.5, 1], "band": "w"},
            "reached",
            "2 of 3 values in [0.5, 1]",
        ),
        (
            {"row": "large", "ascending": ["1", "2", "4", "8"]},
            "reached",
            "2 1200, 4 13.0 k, 8 2.50 M",
        ),
        ({"value": ["c", "1"], "published": 1}, "not measured", "not measured"),
        ({"row": "z", "ascending": ["1", "2"]}, "not measured", "not measured"),
    ],
)
def test_a_claim_is_judged_by_our_numbers(
    stated: dict[str, object], verdict: str, ours: str
) -> None:
    judged = Claim({"says": "so", "reason": "why", **stated}, "here").judge([NUMBERS])
    assert judged.verdict == verdict
    assert ours in judged.ours
    assert judged.reason == ("" if verdict == "reached" else "why")


@pytest.mark.parametrize(
    ("numbers", "verdict", "ours"),
    [
        ([0.95, 1.0, 1.05], "reached", "1 (0.95 to 1.05)"),
        ([0.95, 1.0, 1.2], "unstable", "1 (0.95 to 1.2)"),
        ([1.3, 1.2, 1.4], "missed", "1.3 (1.2 to 1.4)"),
        ([1.0, None, 1.0], "unstable", "not measured"),
    ],
)
def test_a_claim_whose_spread_crosses_its_band_is_unstable(
    numbers: list[float | None], verdict: str, ours: str
) -> None:
    tables = [Table(["x"], {"a": [number], "b": [1.1]}) for number in numbers]
    judged = Claim({"says": "so", "value": ["a", "x"], "published": 1}, "here").judge(tables)
    assert (judged.verdict, judged.ours) == (verdict, ours)
    order = Claim({"says": "so", "column": "x", "ascending": ["a", "b"]}, "here")
    assert order.judge(tables).verdict == (verdict if None not in numbers else "not measured")


@pytest.mark.parametrize(
    ("stated", "complaint"),
    [
        ({"says": "x"}, "exactly one of value, ratio"),
        ({"value": ["a", "1"], "within": [0, 1]}, "a claim needs the key `says`"),
        ({"says": "x", "value": ["a", "1"]}, "has no band"),
        ({"says": "x", "value": ["a", "1"], "withing": [0, 1]}, "unknown keys of a claim: withing"),
        ({"says": "x", "value": ["a", "1"], "within": [0, 1]}, "write in `band` how"),
        ({"says": "x", "row": "a", "ascending": ["1"], "slack": 0.1}, "`slack` without a reason"),
        ({"says": "x", "value": ["a", "1"], "published": 1, "ties": True}, "only orders without"),
        (
            {"says": "x", "value": ["a", "1"], "published": 1, "within": [0.8, 1.1]},
            "band wider than 10 %",
        ),
        ({"says": "x", "value": ["a", "1"], "published": 1, "kind": "fit"}, "an unknown `kind`"),
        ({"says": "x", "value": ["a", "1"], "published": 1, "kind": "fitted"}, "what was fitted"),
        ({"says": "x", "value": "1", "published": 1}, "names 1, which is not a cell"),
    ],
)
def test_a_claim_that_cannot_be_checked_is_refused(stated, complaint: str) -> None:
    with pytest.raises(Error, match=f"file.toml.*{complaint}"):
        Claim(stated, "file.toml").judge([NUMBERS])


def test_claims_are_counted_by_their_kind() -> None:
    wide = {"says": "x", "value": ["a", "1"], "published": 1, "within": [0.1, 9], "wide": "why"}
    assert Claim(wide, "here").kind == "wide"
    counted = scores([("paper", "reached"), ("paper", "unstable"), ("wide", "missed"),
                       ("fitted", "reached"), ("own", "missed")])  # fmt: skip
    assert str(counted["paper"]) == "1 of 2, 1 unstable"
    assert apart(counted) == "wide 0 of 1; fitted 1 of 1; own 0 of 1"
    assert sentence(counted).startswith("2 claims of the papers: 1 reached, 0 missed, 1 unstable")


def test_tables_are_compared_cell_by_cell() -> None:
    paper = Table(["unit", "x", "y"], {"a": [1, 1, 2], "b": [1, 3, 4], "mean": [1, 2, 3]})
    ours = Table(["unit", "x", "y"], {"a": [1, 2, 2], "b": [1, 4, 5], "mean": [1, 9, 9]})
    agreement = compare(paper, ours, ["mean"])
    assert agreement is not None and agreement.cells == 4
    assert agreement.error == 0.75 and agreement.paper_mean == 2.5
    assert agreement.correlation == pytest.approx(0.949, abs=0.001)
    assert compare(paper, Table(["x"], {"z": [1]})) is None


def test_the_median_of_placements_is_taken_cell_by_cell() -> None:
    tables = [Table(["x", "y"], {"a": [n, None]}) for n in (3.0, 1.0, 9.0)]
    assert over(tables).rows == {"a": [3.0, None]}
    assert over(tables, max).rows == {"a": [9.0, None]}


@pytest.mark.parametrize("name", NAMES)
def test_claims_say_what_a_band_rests_on(name: str) -> None:
    [experiment] = find(FOLDER, [name])
    assert experiment.claims and experiment.source.startswith(name.split("/", maxsplit=1)[0])
    says = [claim.says for claim in experiment.claims]
    assert len(set(says)) == len(says)


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_finds_its_cells(pagewalk, cache: Path, tmp_path: Path, name: str) -> None:
    """Measures at the smallest sizes that have all of the rows and columns of the real one."""
    experiment = find(FOLDER, [name])[0]
    lab = Lab(FOLDER, cache)
    lab.placement = 1 if experiment.placements else None
    table = measure(experiment, tiny(experiment), lab)
    for claim in experiment.claims:
        for cell in claim.cells():
            assert cell[0] in table.rows and cell[1] in table.columns, (claim.says, cell)
        claim.judge([table])
    if experiment.published:
        known = [row for row in experiment.published.rows if row in table.rows]
        assert known or name in ("B10/server", "B10/table4.5"), experiment.published.rows


def tiny(experiment: Experiment) -> dict[str, Any]:
    """The parameters with few accesses of a program that is made at once."""
    made = dict(experiment.parameters)
    if experiment.method == "upgraded":
        # The experiment is about the behaviour of one program, which cannot be replaced.
        return made | experiment.smoke
    if experiment.method == "order":
        return made | experiment.smoke
    if experiment.method in ("spaces", "switched"):
        # Two generated programs without a kernel replace the recorded programs.
        trace = {"trace": "generate:pingpong,bits=32,dtlb=8,itlb=8", "accesses": 3000}
        made |= {"columns": dict.fromkeys(made["columns"], trace), "kernel": "", "windows": 2}
        return made
    if made.get("measure") == "throughput" and len(made["work"]) == 1:
        # The load is not part of a row's name, so it can be replaced by this short load.
        made["work"] = ["brk"]
    if "accesses" in made:
        # A rule for pages at an address waits until the program has mapped them.
        made["accesses"] = 60_000 if experiment.method == "contended" else 3000
    if "rounds" in made:
        made["rounds"] = 1
    if "beside_bytes" in made:
        made["beside_bytes"] = min(made["beside_bytes"], 1 << 16)
    if "programs" in made:
        made["programs"] = dict.fromkeys(made["programs"], "generate:uniform,size=1M")
    elif not made.get("program", "generate:").startswith("generate:"):
        made["program"] = "generate:uniform,size=1M"
    return of_the_table(made)


def of_the_table(parameters: Any) -> Any:
    """The same with what is wished for data wished for the table of a trace that is made."""
    if isinstance(parameters, dict):
        return {key: of_the_table(value) for key, value in parameters.items()}
    if isinstance(parameters, list):
        return [of_the_table(value) for value in parameters]
    if isinstance(parameters, str) and parameters.startswith("os.place="):
        return re.sub(r"data=(\w+),.*", r"region uniform=\1", parameters)
    return parameters


def test_experiments_are_found_by_name_and_by_paper() -> None:
    assert root() == FOLDER
    assert [e.name for e in find(FOLDER, ["E99/fig9"])] == ["E99/fig9"]
    of_paper = [e.name for e in find(FOLDER, ["E99"])]
    assert of_paper[0] == "E99/table2" and of_paper[-1] == "E99/fig11"
    with pytest.raises(Error, match="no experiment `E99/fig1`"):
        find(FOLDER, ["E99/fig1"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[x]\nwhat = 'y'", "x: give exactly one of `source` and `command`"),
        ("[x]\nsource = 'y'\nsizes = 3", "x: unknown key sizes"),
        ("[x", "programs.toml: "),
    ],
)
def test_programs_that_are_described_wrongly_are_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "programs.toml"
    path.write_text(text)
    with pytest.raises(Error, match=complaint):
        load(path)


def test_every_program_that_is_named_is_described() -> None:
    known = load(FOLDER / "programs.toml")
    for experiment in find(FOLDER):
        named = experiment.parameters.get("programs", {})
        stored = [p for p in named.values() if not p.startswith("generate:")]
        assert set(stored) <= set(known), experiment.name


def test_what_several_ask_for_at_once_is_made_once(tmp_path: Path) -> None:
    made, path = [], tmp_path / "kept" / "it"

    def make(part: Path) -> None:
        time.sleep(0.1)
        made.append(part)
        if len(made) == 1:
            raise WorkError("the first fails")
        part.write_text("it")

    def ask(_: int) -> bool:
        try:
            return kept(path, make).read_text() == "it"
        except WorkError:
            return False

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(ask, range(12))) == [False] + [True] * 11
    assert len(made) == 2
    assert list(path.parent.iterdir()) == [path]


def test_a_recording_that_a_signal_cut_short_is_not_kept(tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "designs.toml").write_text("")
    (folder / "programs.toml").write_text(
        "[cut]\ncommand = ['sh', '-c', 'kill -TERM $$']\n"
        "[killed]\ncommand = ['sh', '-c', 'kill -KILL $$']"
    )
    lab = Lab(folder, tmp_path / "cache")
    for name, complaint in (
        ("cut", "interrupted"),
        ("killed", "killed: the program was ended by signal 9"),
    ):
        with pytest.raises(WorkError, match=complaint):
            lab.trace(name, 10**9)
    assert not list((tmp_path / "cache" / "traces").iterdir())


def test_a_recording_is_the_same_wherever_the_cache_is(tmp_path: Path) -> None:
    [experiment] = [one for one in find(FOLDER) if one.name == "E99/fig2"]
    caches = [tmp_path / "short", tmp_path / "of-a-length-that-no-stack-is-aligned-to"]
    short, long = (reproduce(experiment, Lab(FOLDER, cache), smoke=True) for cache in caches)
    assert short.digest() == long.digest()


def test_a_program_is_recorded_in_a_whole_system(tmp_path: Path) -> None:
    try:
        machine.qemu()
    except Error as error:
        pytest.skip(str(error))
    lab = Lab(FOLDER, tmp_path)
    trace = lab.trace("heapsort", 200_000, fetches=False, system=True)
    assert trace.is_system and trace.accesses == 200_000
    [used] = lab.used.items()
    assert used[0] == "heapsort with the kernel" and ", Linux " in used[1]
    alone = lab.trace("heapsort", 200_000, fetches=False)
    assert not alone.is_system and trace.digest != alone.digest


@pytest.mark.parametrize("name", NAMES)
def test_each_runs_at_a_smoke_size(pagewalk, cache: Path, name: str) -> None:
    done = pagewalk("reproduce", name, "--smoke", "--cache", cache, "--json")
    assert done.returncode == 0, done.stderr
    [document] = json.loads(done.stdout)
    assert document["name"] == name and document["smoke"] and document["claims"] == []
    ours = document["ours"]
    assert ours["rows"] and all(len(row) == len(ours["columns"]) for row in ours["rows"].values())


def test_one_that_cannot_be_measured_stops_no_other(pagewalk, tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    good = FOLDER / "E99" / "fig9" / "experiment.toml"
    for name, text in (
        ("X/good", good.read_text()),
        ("X/bad", 'title="t"\nsource="s"\nmethod="refill"\n[parameters]\nmachine="r4700"\n'
         'measure="space"\ndesigns=["G16"]\naccesses=1000\nprograms={x="x"}'),
    ):  # fmt: skip
        (folder / name).mkdir(parents=True)
        (folder / name / "experiment.toml").write_text(text)
    (folder / "designs.toml").write_text((FOLDER / "designs.toml").read_text())
    (folder / "programs.toml").write_text('[x]\npackage="xyzzy"\ncommand=["xyzzy-no-such"]')
    done = pagewalk("reproduce", "--smoke", "--experiments", folder, "--cache", tmp_path / "c")
    assert done.returncode == 1
    assert "X/bad: x is not installed: `apt-get install xyzzy`" in done.stderr
    assert "X/good" in done.stdout and "not measured" in done.stdout
    alone = pagewalk("reproduce", "X/bad", "--experiments", folder, "--cache", tmp_path / "c")
    assert alone.returncode == 2 and alone.stderr.startswith("pagewalk: error: x is not")


def test_the_list_runs_nothing(pagewalk, tmp_path: Path) -> None:
    done = pagewalk("reproduce", "--list", "--cache", tmp_path / "none")
    assert done.returncode == 0 and all(name in done.stdout for name in NAMES)
    assert not (tmp_path / "none").exists()


def test_the_page_has_every_number_and_claim_and_fetches_nothing(
    pagewalk, cache: Path, tmp_path: Path
) -> None:
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    done = pagewalk(
        "reproduce", "B10/table4.2", "E99/fig9", "--cache", cache, "--html", page, "--json", numbers
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    documents = json.loads(numbers.read_text())
    assert [document["name"] for document in documents] == ["B10/table4.2", "E99/fig9"]
    for document in documents:
        assert document["measured_on"]["date"] and document["claims"]
        for claim in document["claims"]:
            assert claim["says"] in text and claim["ours"] in text
    assert "default-src 'none'" in text and "Scoreboard" in text


def test_the_handbook_shows_what_our_last_numbers_say() -> None:
    written = runpy.run_path(str(FOLDER.parent / "docs" / "scoreboard.py"))["made"]()
    for path, text in written.items():
        assert path.read_text() == text, f"{path.name}: run `make scoreboard`"
    there = {*(FOLDER.parent / "docs" / "method" / "scoreboard").glob("*.md")}
    assert there <= written.keys(), "run `make scoreboard`"
    shown = "".join(written.values())
    assert all(f"[{name}](" in shown for name in NAMES)


@pytest.mark.parametrize(
    ("name", "words", "cells"),
    [
        (
            "G98/fig6",
            "turb3d becomes {:.1f} % faster and fftpde {:.1f} %",
            [("G98/fig6", "turb3d", "best"), ("G98/fig6", "fftpde", "best")],
        ),
        ("G98/fig6", "there are {:.1f} % to gain", [("G98/sec7", "vortex", "16K")]),
    ],
)
def test_reasons_have_the_saved_numbers(
    name: str, words: str, cells: list[tuple[str, str, str]]
) -> None:
    expected = words.format(*(saved(*cell) for cell in cells))
    assert any(expected in claim.reason for claim in find(FOLDER, [name])[0].claims), expected


def test_no_page_size_gains_more_than_the_share_of_refills() -> None:
    [experiment] = find(FOLDER, ["G98/fig8-performance"])
    shares = [re.search(r"refills take ([\d.]+) %", claim.reason) for claim in experiment.claims]
    [share] = [float(found[1]) for found in shares if found]
    assert saved(experiment.name, "orders", "16M") <= share


def saved(name: str, row: str, column: str) -> float:
    """A cell of an experiment's saved numbers."""
    last = find(FOLDER, [name])[0].last()
    assert last is not None
    number: float = last["ours"]["rows"][row][last["ours"]["columns"].index(column)]
    return number


@pytest.mark.parametrize("name", NAMES)
def test_saved_numbers_are_younger_than_their_bands(name: str) -> None:
    [experiment] = find(FOLDER, [name])
    if history.git(FOLDER, "rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this clone has no history to look at")
    assert experiment.last() is None or history.complaint(experiment) == ""


def test_a_band_that_came_after_the_number_does_not_count(pagewalk, tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    at = folder / "X" / "one"
    at.mkdir(parents=True)
    text = (FOLDER / "E99" / "fig9" / "experiment.toml").read_text()
    text = text.replace("placements = 9", "placements = 2")
    (at / "experiment.toml").write_text(text)
    (folder / "designs.toml").write_text((FOLDER / "designs.toml").read_text())
    (folder / "programs.toml").write_text("")

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True, capture_output=True)

    def reproduce(*arguments: str) -> "subprocess.CompletedProcess[str]":
        places = ("--experiments", folder, "--cache", tmp_path / "cache")
        done: subprocess.CompletedProcess[str] = pagewalk("reproduce", *places, *arguments)
        return done

    refused = reproduce("--save")
    assert refused.returncode == 2 and "is not in a git clone" in refused.stderr
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "bands")
    (at / "experiment.toml").write_text(text.replace("within = [0.8, 0.9]", "within = [0.0, 0.9]"))
    refused = reproduce("--save")
    assert refused.returncode == 2 and "commit it before" in refused.stderr
    (at / "experiment.toml").write_text(text)
    assert reproduce("--save").returncode == 0
    last = json.loads((at / "last.json").read_text())
    assert last["measured_on"]["commit"] and last["most"]
    assert {"crates/hat", "crates/vm", "crates/mmu"} <= last["measured_on"]["sources"].keys()
    assert reproduce("--stale").stdout == "All saved numbers are up to date.\n"

    reworded = text.replace('says = "protecting', 'kind = "own"\nsays = "changing the rights of')
    assert reworded != text
    (at / "experiment.toml").write_text(reworded)
    assert reproduce("--stale").stdout == "All saved numbers are up to date.\n"
    for _ in range(2):
        assert reproduce("--relabel").returncode == 0
        relabelled = json.loads((at / "last.json").read_text())
        assert {key: value for key, value in relabelled.items() if key != "claims"} == {
            key: value for key, value in last.items() if key != "claims"
        }
        for claim, was in zip(relabelled["claims"], last["claims"], strict=True):
            words = {key: claim[key] for key in ("says", "kind") if claim[key] != was[key]}
            assert claim == {**was, **words}
            assert not words or (words["kind"] == "own" and "the rights" in words["says"])
        assert relabelled != last
    git("add", ".")
    git("commit", "-qm", "other words")
    again = reworded.replace("changing the rights of", "a second wording:")
    (at / "experiment.toml").write_text(again)
    assert reproduce("--relabel").returncode == 0
    assert "a second wording:" in (at / "last.json").read_text()

    moved = text.replace("within = [0.8, 0.9]", "within = [0.0, 0.9]")
    (at / "experiment.toml").write_text(moved)
    git("add", ".")
    git("commit", "-qm", "a band that suits")
    listed = " ".join(reproduce("--list").stdout.split())
    assert "is not from before our number" in listed
    refused = reproduce("--relabel")
    assert refused.returncode == 2 and "is not from before our number" in refused.stderr
    assert "X/one: the band of `protecting all pages" in reproduce("--stale").stdout
    (at / "experiment.toml").write_text(text.replace("rounds = 20", "rounds = 21"))
    assert "X/one: its parameters" in reproduce("--stale").stdout
    (at / "experiment.toml").write_text(text)
    last["measured_on"]["sources"]["crates/mmu"] = "another"
    (at / "last.json").write_text(json.dumps(last))
    assert reproduce("--stale").stdout == "All saved numbers are up to date.\n"
    last["measured_on"]["smoke"] = "another"
    (at / "last.json").write_text(json.dumps(last))
    assert "crates/mmu changed, and a smoke run gives other numbers" in reproduce("--stale").stdout


def test_programs_with_a_value_and_experiments_side_by_side_are_watched(tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    programs = '[counter]\nwhat = "counts"\ncommand = ["seq", "{value}"]\n'
    (folder / "X").mkdir(parents=True)
    (folder / "designs.toml").write_text("")
    for name, method, parameters in [
        ("one", "spaces", 'columns.many.trace = "counter@20"'),
        ("two", "order", 'rows.one = { experiment = "X/one", cells = [["a", "many"]] }'),
    ]:
        (folder / "X" / name).mkdir()
        text = f'title = "t"\nsource = "X"\nmethod = "{method}"\n[parameters]\n{parameters}\n'
        (folder / "X" / name / "experiment.toml").write_text(text)

    def defined(text: str) -> list[str]:
        (folder / "programs.toml").write_text(text)
        experiments = find(folder)
        assert all("crates/capture" in history.sources(each) for each in experiments)
        return [history.definition(each) for each in experiments]

    before, after = defined(programs), defined(programs.replace("seq", "yes"))
    assert len(before) == 2 and not set(before) & set(after)
