"""Reservations, as runs tell of them: in the results, the text and the report."""

import pytest

import pagewalk
from pagewalk import summary
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
