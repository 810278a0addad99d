"""Reservations, as runs tell of them: in the results, the text and the report."""

import pytest

import pagewalk
from pagewalk import summary
from pagewalk.report import charts, data, page

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
    assert {"start", "made", "broken for a frame"} <= run.reservations.rows[-1].keys()
    assert "reservations" in charts.charts(run)
    assert "Reservations over time" in page.render(data.report([document]))
