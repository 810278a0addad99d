"""Windows, a warm-up and mixes, as a user asks for them."""

import json
from pathlib import Path

import pytest

from pagewalk import Machine, Trace, curve

SPEC = "generate:zipf,size=64M,accesses=300k"


def counts(*trace: str, **window: int) -> dict[str, int]:
    data = Machine("tlb-only").run(Trace(*trace, **window)).data
    found = {tlb["name"]: tlb["misses"] for tlb in data["tlbs"]}
    return {**found, "accesses": sum(data["accesses"].values())}


def test_a_window_is_the_whole_less_its_ends() -> None:
    whole, first, rest = (
        counts(SPEC), counts(SPEC, max_accesses=100_000), counts(SPEC, warmup=100_000),
    )  # fmt: skip
    assert {name: first[name] + rest[name] for name in whole} == whole
    assert counts(SPEC, skip=50_000, warmup=100_000, max_accesses=100_000)["accesses"] == 100_000
    info = Trace(SPEC, skip=299_000).info()
    assert sum(info["accesses"].values()) == 1000
    assert "its first 299000 accesses are left out" in " ".join(info["header"]["notes"])


def test_commands_take_windows(pagewalk, tmp_path: Path) -> None:
    window = ["--skip", "10k", "--max-accesses", "20k"]
    for command in (
        ["run", SPEC, "-m", "tlb-only", *window, "--warmup", "5k", "--json"],
        ["curve", SPEC, *window, "--warmup", "5k", "--json"],
        ["info", SPEC, *window, "--json"],
        ["sweep", SPEC, "-m", "tlb-only", *window, "--warmup", "5k", "--json",
         "--vary", "tlb.l1d.entries=16,64"],
        ["export", "csv", SPEC, *window, "-o", tmp_path / "x.csv"],
    ):  # fmt: skip
        done = pagewalk(*command)
        assert done.returncode == 0, done.stderr
        if command[0] == "run":
            assert sum(json.loads(done.stdout)["accesses"].values()) == 20_000
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 20_001
    for wrong, says in [
        (["run", SPEC, "--skip", "1M"], "the trace ends after 300000 accesses"),
        (["run", SPEC, "--warmup", "1M"], "no access would be counted"),
    ]:
        done = pagewalk(*wrong)
        assert done.returncode != 0 and says in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_warm_curve_has_the_same_floor() -> None:
    whole, first, warm = (
        curve(Trace(SPEC, **window))
        for window in ({}, {"max_accesses": 100_000}, {"warmup": 100_000})
    )
    misses = [table["misses"].to_pylist() for table in (whole, first, warm)]
    assert [a + b for a, b in zip(misses[1], misses[2], strict=True)] == misses[0]


def test_a_mix_says_how_often_it_switched(pagewalk, tmp_path: Path) -> None:
    Trace(SPEC).store(tmp_path / "a.pwt")
    done = pagewalk(
        "run", "mix:quantum=100k,a.pwt*2,[generate:uniform,accesses=30k]", "-m", "tlb-only",
        "--json", "r.json", "--html", "r.html", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "r.json").read_text())
    assert sum(data["accesses"].values()) == 630_000
    # A program of 900k instructions has 9 turns, the last of which is a little shorter; a program
    # of 90k has one turn.
    assert data["switches"]["by_cause"] == {"blocked": 0, "ended": 2, "quantum": 16}
    assert "18 switches between programs on 1 processor, in order `blocking`" in done.stdout
    assert "18 switches between programs" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("mix", "says"),
    [
        ("mix:", "empty part"),
        ("mix:cpus=2", "no trace is named"),
        ("mix:none.pwt", "none.pwt"),
        ("mix:colour=3,a.pwt", "neither a file nor a setting"),
        ("mix:order=chaos,a.pwt", "blocking, turns, stamps"),
    ],
)
def test_a_wrong_mix_is_one_line(pagewalk, tmp_path: Path, mix: str, says: str) -> None:
    done = pagewalk("run", mix, cwd=tmp_path)
    assert done.returncode != 0 and says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
