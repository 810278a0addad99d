"""Reservations, as runs tell of them: in the results, the text and the report."""

import json
from pathlib import Path

import pytest

import pagewalk
from pagewalk import Machine, Trace, summary
from pagewalk.cli import main
from pagewalk.report import charts, data, page, values

SPEC = "generate:uniform,accesses=60k,size=32M"


@pytest.fixture(scope="module")
def under_pressure() -> pagewalk.Results:
    settings = {"memory.size": "24M", "swap.size": "1G"}
    return pagewalk.Machine("freebsd-2009", set=settings).run(SPEC)


def test_results_say_what_became_of_reservations(under_pressure: pagewalk.Results) -> None:
    manager = under_pressure.data["manager"]
    [of] = manager["reservations"]["sizes"]
    assert of["size"] == "2M" and of["made"] > 8 and of["broken"]["frame"] > 0
    broken = [at["reservations"]["broken"]["frame"] for at in manager["over_time"]]
    assert broken == sorted(broken) and 0 < broken[-1] <= of["broken"]["frame"]
    assert manager["bytes"]["reserved"] < 24 << 20


def test_the_text_and_the_report_tell_of_them(under_pressure: pagewalk.Results) -> None:
    document = under_pressure.data
    told = " ".join(summary.summary(document).split())
    assert "reservations of 2M: " in told and " for a frame" in told and "promoted" in told
    run = data.run(document)
    assert run.reservations is not None
    of = document["manager"]["reservations"]["sizes"][0]
    last = {"made": of["made"], "filled": of["filled"], "broken for a frame": of["broken"]["frame"]}
    assert run.reservations.rows[-1] == {"start": 60_000, **last}
    assert f"broken: {of['broken']['frame']} for a frame." in run.reservations.sentence
    assert "reservations" in charts.charts(run)
    assert "Reservations over time" in page.render(data.report([document]))


def test_each_reason_has_its_words(under_pressure: pagewalk.Results) -> None:
    known = under_pressure.data["manager"]["reservations"]["sizes"][0]["broken"].keys()
    assert known == values.BROKEN.keys()
    assert values.broken(dict.fromkeys(known, 0)) == "none"
    told = values.broken({"frame": 0, "block": 2, "wanted": 1})
    assert told == "2 for frames in a row, 1 for just these frames"


def test_mappings_are_put_apart(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = 2 << 20
    plain, spread = Trace(recorded).info(), Trace(recorded, spread=block).info()
    for what in ("accesses", "instructions", "threads", "events"):
        assert plain[what] == spread[what]
    was, now = plain["regions"], spread["regions"]
    assert [region["name"] for region in was] == [region["name"] for region in now]
    assert [region["pages"] for region in was] == [region["pages"] for region in now]
    moved = {new["name"]: new["start"] for old, new in zip(was, now, strict=True)
             if old["start"] != new["start"]}  # fmt: skip
    # The first part of a library lies at the beginning of its file.
    assert any(start % block == 0 for name, start in moved.items() if name.endswith("(r--)"))
    assert not {"stack", "heap", "bss"} & moved.keys()

    assert main(["run", str(recorded), "-m", "freebsd-2009", "--spread", "2M", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert "its mappings were moved apart: each has blocks of 2097152 bytes" in str(run["trace"])
    assert run["faults"] == Machine("freebsd-2009").run(Trace(recorded)).data["faults"]
    assert run["trace"]["digest"] == Trace(recorded, spread=block).digest != Trace(recorded).digest


def test_what_cannot_be_put_apart_is_said(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, said in (
        (["run", str(recorded), "--spread", "3M"], "a power of two from 8K to 1G"),
        (["run", str(recorded), "--spread", "wide"], "write bytes with a unit"),
        (
            ["run", "--spread", "2M", "--", "true"],
            "record the program with `pagewalk record` first",
        ),
    ):
        with pytest.raises(SystemExit) as ended:
            raise SystemExit(main([*command, "-q"]))
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
