from pathlib import Path

import polars
import pytest

import sample
from pagewalk import Error, Results, text
from pagewalk.summary import summary


def test_a_document_survives_its_file(tmp_path: Path) -> None:
    results = Results(sample.document())
    results.save(tmp_path / "r.json")
    assert Results.load(tmp_path / "r.json").data == results.data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ("[]", "is not a results document of schema 2"),
        ("[{}, {}]", "contains the results of several machines"),
        ('{"schema": 1}', "its schema is 1"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(Error, match=message):
        Results.load(tmp_path / "r.json")


def test_a_missing_document_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Error, match="cannot be read: No such file"):
        Results.load(tmp_path / "none.json")


def test_tables_hold_the_numbers_of_the_document() -> None:
    document = sample.document()
    results = Results(document)
    regions = polars.DataFrame(results.to_arrow("regions"))
    assert regions["misses"].sum() == sum(region["misses"] for region in document["regions"])
    assert regions["start"].dtype == polars.UInt64
    tlbs = results.to_arrow("tlbs").to_pylist()
    assert tlbs[0]["by_kind_fetch_misses"] == document["tlbs"][0]["by_kind"]["fetch"]["misses"]
    cells = results.to_arrow("map").to_pylist()
    grid = document["map"]
    assert cells[0]["addr"] == grid["cells"][0][1] * grid["granule_bytes"]
    assert results.to_arrow("timeline").num_rows == len(document["timeline"]["misses"])
    assert results.to_arrow("walk_levels").num_rows == 4
    assert results.to_arrow("caches").num_rows == 3


def test_no_rows_are_an_empty_table() -> None:
    results = Results(sample.document(walks=False))
    assert results.to_arrow("caches").num_rows == 0
    assert results.to_arrow("walk_levels").num_rows == 0


def test_a_table_that_is_none_names_those_there_are() -> None:
    with pytest.raises(Error, match="there is no table `tlb`: choose one of tlbs"):
        Results(sample.document()).to_arrow("tlb")


def test_charts_are_there_for_a_notebook() -> None:
    charts = Results(sample.document()).charts()
    assert set(charts) == {"l1", "timeline", "map", "serving"}
    assert all("vega-lite" in chart.to_dict()["$schema"] for chart in charts.values())


def test_the_summary_says_what_matters() -> None:
    shown = summary(sample.document())
    for part in ("gzip.pwt on sample-server", "134 M accesses", "l2", "bss of gzip", "33.6 %"):
        assert part in shown
    assert "Time: not known" in summary(sample.document(walks=False))


def test_time_is_a_range_and_says_what_its_ends_take_for_granted() -> None:
    document = sample.document()
    share = document["time"]["share"]
    shown = summary(document)
    assert f"Time in translation: 0 to {text.percent(share['hi'])} of all cycles" in shown
    assert "at least 0 %: every walk is hidden behind other work, and every data-cache" in shown
    assert f"at most {text.percent(share['hi'])}: every lookup and walk is waited for" in shown
    assert document["time"]["program_cycles"]["lo"] < document["time"]["program_cycles"]["hi"]


def test_the_summary_tells_of_software_refills_and_of_a_linear_table() -> None:
    document = sample.document()
    walks, time = document["walks"], document["time"]
    assert "by software" not in summary(document)
    walks |= {"handler_instructions": 9 * walks["walks"], "nested_misses": [[1, 30], [2, 4]]}
    time["share"]["lo"] = time["share"]["hi"]
    time["program_cycles"]["lo"] = time["program_cycles"]["hi"]
    shown = summary(document)
    assert "9.00 instructions of the handler per refill" in shown
    assert "misses on the page table itself: 30 at level 1, 4 at level 2" in shown
    assert "nothing of it can be hidden" in shown
