"""The report and the summary: page sizes wished and got, and the daemon's work over time."""

from typing import Any

import pytest

from pagewalk import Machine
from pagewalk.report import data, figures, render, tables
from pagewalk.results import Results
from pagewalk.summary import summary

SPEC = "generate:uniform,accesses=60k,size=64M"
SETTINGS = [
    "os.place=region uniform=1M",
    "memory.size=192M",
    "memory.aged={free = 0.6, wired = 0.1, seed = 1}",
    "os.coalesced={period_cycles=20000,mild_share=0.3,strong_after=2,moves=2000}",
]


@pytest.fixture(scope="module")
def results() -> Results:
    return Machine("origin-2000", SETTINGS).run(SPEC)


def test_sizes_wished_and_got_are_in_table_summary_and_page(results: Results) -> None:
    document = results.data
    found = tables.wished(document)
    assert found is not None and len(found.rows) == len(document["manager"]["sizes"])
    shown = summary(document)
    assert "Page sizes" in shown and max(map(len, shown.splitlines())) <= 80
    page = render([results])
    for row in document["manager"]["sizes"]:
        assert row["why"] in shown and row["why"] in page and row["wanted"] == "1M"


def test_sizes_stand_under_the_names_of_the_regions_that_missed(results: Results) -> None:
    assert {row["region"] for row in results.data["manager"]["sizes"]} == {"uniform"}
    # If no event reports a region, its name says so in both tables.
    regions = [{**region, "inferred": True} for region in results.data["regions"]]
    document = {**results.data, "regions": regions}
    found, (missed, _) = tables.wished(document), tables.regions(document)
    assert found is not None
    assert {row[0] for row in found.rows} == {"uniform (inferred)"}
    assert {row[0] for row in missed.rows} == {"uniform (inferred)"}


def test_the_rows_of_fewer_bytes_are_apart(results: Results) -> None:
    manager = results.data["manager"]
    row = manager["sizes"][0]
    sizes = [{**row, "pages": pages} for pages in range(50)]
    run = data.run({**results.data, "manager": {**manager, "sizes": sizes}})
    pages = [
        [getattr(row[-1], "exact", None) for row in table.rows] if table else []
        for table in (run.wished, run.wished_more)
    ]
    assert pages == [list(range(49, 29, -1)), list(range(29, -1, -1))]


def test_the_daemons_work_adds_up_in_figure_and_table(results: Results) -> None:
    document = results.data
    samples = document["manager"]["daemon"]["over_time"]
    moved = sum(sample["moved"] for sample in samples)
    assert moved > 0
    figure = figures.daemon(document)
    assert figure is not None and figure.table is not None
    assert sum(row["moved"] for row in figure.rows) == moved
    exact: Any = [[getattr(cell, "exact", 0) for cell in row] for row in figure.table.rows]
    assert sum(row[3] for row in exact) == moved and len(exact) <= 20
    assert exact[-1][0] == samples[-1]["access"]
    assert "Coalescing daemon" in summary(document)
    assert "The coalescing daemon over time" in render([results])


def test_without_wishes_and_daemon_there_is_neither() -> None:
    run = data.run(Machine("origin-2000").run("generate:uniform,accesses=2k").data)
    assert run.wished is None and run.daemon is None
