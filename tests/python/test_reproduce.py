"""Reproducing experiments: what is data, how claims are judged, and each at a smoke size."""

import json
from pathlib import Path

import pytest

from pagewalk import Error, WorkError
from pagewalk.reproduce import Lab, Table, find, root
from pagewalk.reproduce.claims import Claim
from pagewalk.reproduce.programs import load

FOLDER = Path(__file__).parents[2] / "experiments"
NAMES = [experiment.name for experiment in find(FOLDER)]
NUMBERS = Table(
    ["1", "2", "4", "8"],
    {
        "a": [0.1, 0.6, 0.4, 0.9],
        "b": [0.2, 0.5, 0.6, 1.0],
        "c": [None, 0.5, 0.5, 0.5],
        "large": [0, 1200, 13e3, 2.5e6],
    },
)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("stated", "reached", "ours"),
    [
        ({"value": ["a", "2"], "within": [0.5, 0.7], "published": 0.6}, True, "0.6"),
        ({"value": ["a", "4"], "within": [0.5, 0.7]}, False, "0.4"),
        ({"row": "b", "ratio": ["8", "2"], "within": [1.9, 2.1]}, True, "2"),
        ({"column": "8", "spread": ["a", "b", "c"], "within": [1, 1.5]}, False, "2"),
        ({"reaching": {"row": "b", "level": 0.5}, "within": [2, 2]}, True, "2"),
        ({"reaching": {"row": "a", "level": 0.5}, "within": [2, 2]}, False, "8"),
        ({"reaching": {"row": "a", "level": 0.95}, "within": [2, 2]}, None, "not reached"),
        ({"row": "b", "ascending": ["1", "2", "4", "8"]}, True, "1 0.2, 2 0.5, 4 0.6, 8 1"),
        ({"row": "a", "ascending": ["1", "2", "4"]}, False, "4 0.4"),
        ({"row": "a", "ascending": ["1", "2", "4"], "slack": 0.5}, True, "4 0.4"),
        ({"column": "8", "least": "c", "among": ["a", "b"]}, True, "c 0.5"),
        ({"row": "large", "ascending": ["1", "2", "4", "8"]}, True, "2 1200, 4 13.0 k, 8 2.50 M"),
        ({"value": ["c", "1"], "within": [0, 1]}, None, "not measured"),
        ({"row": "z", "ascending": ["1", "2"]}, None, "not measured"),
    ],
)
def test_a_claim_is_judged_by_our_numbers(
    stated: dict[str, object], reached: bool | None, ours: str
) -> None:
    verdict = Claim({"says": "so", "reason": "why", **stated}, "here").judge(NUMBERS)
    assert verdict.reached is reached
    assert ours in verdict.ours
    assert verdict.reason == ("" if reached else "why")


@pytest.mark.parametrize(
    ("stated", "complaint"),
    [
        ({"says": "x"}, "has one of value, ratio"),
        ({"value": ["a", "1"], "within": [0, 1]}, "a claim `says` something"),
        ({"says": "x", "value": ["a", "1"]}, "lacks the band"),
        ({"says": "x", "value": ["a", "1"], "withing": [0, 1]}, "has no withing"),
    ],
)
def test_a_claim_that_cannot_be_checked_is_refused(stated, complaint: str) -> None:
    with pytest.raises(Error, match=f"file.toml.*{complaint}"):
        Claim(stated, "file.toml")


@pytest.mark.parametrize("name", NAMES)
def test_claims_and_plots_name_what_the_paper_or_the_parameters_have(name: str) -> None:
    [experiment] = find(FOLDER, [name])
    assert experiment.claims and experiment.source.startswith(name.split("/", maxsplit=1)[0])
    columns = {str(c) for key in ("designs", "regions", "pages") for c in
               _listed(experiment.parameters.get(key))}  # fmt: skip
    if experiment.method in ("refill", "tasks", "protect"):
        for claim in experiment.claims:
            assert {column for _, column in claim.cells()} <= columns, claim.says


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


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
        ("[x]\nwhat = 'y'", "x: give either `source` or `command`"),
        ("[x]\nsource = 'y'\nsizes = 3", "x: there is no key sizes"),
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


def test_a_recording_that_a_signal_cut_short_is_not_kept(tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "designs.toml").write_text("")
    (folder / "programs.toml").write_text(
        "[cut]\ncommand = ['sh', '-c', 'kill -TERM $$']\n"
        "[killed]\ncommand = ['sh', '-c', 'kill -KILL $$']"
    )
    lab = Lab(folder, tmp_path / "cache")
    for name, complaint in (("cut", "interrupted"), ("killed", "killed: signal 9 ended")):
        with pytest.raises(WorkError, match=complaint):
            lab.trace(name, 10**9)
    assert not list((tmp_path / "cache" / "traces").iterdir())


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
    page = (FOLDER.parent / "docs" / "experiments.md").read_text()
    for experiment in find(FOLDER):
        last = experiment.last()
        says = "not measured yet"
        if last is not None:
            reached = sum(claim["reached"] is True for claim in last["claims"])
            says = f"{reached} of {len(last['claims'])}"
        link = f"[{experiment.name}](../experiments/{experiment.name}/experiment.toml)"
        assert f"| {link} | {experiment.title} | {says} |" in page
