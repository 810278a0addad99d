import copy
import json

import pytest

import sample
from pagewalk import Results, text
from pagewalk.report import data, missmap, render, values
from pagewalk.report.model import Table, Value


def at(document: object, pointer: str) -> object:
    for step in pointer.strip("/").split("/"):
        document = document[int(step)] if isinstance(document, list) else document[step]  # type: ignore[index]
    return document


def tables(run: data.Run) -> list[Table]:
    figures = [figure.table for figure in (run.timeline, run.map, run.serving) if figure]
    return [run.tlbs, run.regions, *([run.caches] if run.caches else []), *figures]


@pytest.mark.parametrize("walks", [True, False])
def test_every_pointer_leads_to_its_number(walks: bool) -> None:
    document = sample.document(walks=walks)
    run = data.run(document)
    values = [cell for table in tables(run) for row in table.rows for cell in row]
    values += [card.value for card in run.cards]
    pointed = [value for value in values if isinstance(value, Value) and value.pointer]
    assert len(pointed) > 50
    for value in pointed:
        assert at(document, value.pointer or "") == value.exact


def test_the_card_of_first_touches_has_the_peak_of_memory() -> None:
    """What a program has is unmapped when it ends, so that the end alone says nothing."""
    document = sample.document()
    document["memory"]["frames_peak_bytes"] = 211 << 20
    document["memory"]["mapped_bytes"] = 16 << 20
    (card,) = (card for card in data.run(document).cards if card.label == "First touches")
    assert "211 MiB of memory in use at the peak; at the end 16 MiB mapped" in card.note


TLB_COLUMNS = {
    "Entries": "entries",
    "Lookups": "lookups",
    "Misses": "misses",
    "First touches": "cold_misses",
    "Evictions": "evictions",
}
REGION_COLUMNS = {
    "Size": "bytes",
    "Pages": "pages",
    "Lookups": "lookups",
    "L1 misses": "l1_misses",
    "Misses of every TLB": "misses",
    "First touches": "cold_misses",
    "Walk references": "walk_references",
}
CACHE_COLUMNS = {
    "Size": "size_bytes",
    "Ways": "ways",
    "Reads": "program/reads",
    "Writes": "program/writes",
    "Walk reads": "walker/reads",
    "Write-backs": "writebacks",
}


def test_every_column_shows_what_its_head_says() -> None:
    run = data.run(sample.document())
    assert run.caches is not None
    for table, columns in (
        (run.tlbs, TLB_COLUMNS),
        (run.regions, REGION_COLUMNS),
        (run.caches, CACHE_COLUMNS),
    ):
        for head, field in columns.items():
            for row in table.rows:
                cell = row[table.head.index(head)]
                assert isinstance(cell, Value) and cell.pointer
                assert cell.pointer.split("/", 3)[3] == field, head


def test_tables_are_rectangular() -> None:
    for table in tables(data.run(sample.document())):
        assert len(table.numeric) == len(table.head)
        assert {len(row) for row in table.rows} == {len(table.head)}, table.caption


def test_regions_come_by_misses_and_shares_sum_to_one() -> None:
    document = sample.document()
    regions = data.run(document).regions
    misses = [row[6].exact for row in regions.rows if isinstance(row[6], Value)]
    assert misses == sorted((region["misses"] for region in document["regions"]), reverse=True)
    assert sum(regions.bars) == pytest.approx(1)


def test_many_regions_are_in_two_tables() -> None:
    document = sample.document()
    document["regions"] = [
        {**document["regions"][0], "name": f"r{index}", "misses": index} for index in range(50)
    ]
    run = data.run(document)
    assert run.regions_more is not None
    names = [row[0] for row in run.regions.rows + run.regions_more.rows]
    assert names == [f"r{index}" for index in reversed(range(50))]
    assert "30 more regions" in render([Results(document)])


def test_the_timeline_keeps_every_miss() -> None:
    document = sample.document()
    figure = data.run(document).timeline
    assert figure is not None
    total = sum((row["again"] + row["cold"]) * (row["end"] - row["start"]) for row in figure.rows)
    assert total / 1000 == pytest.approx(sum(document["timeline"]["misses"]))
    assert figure.rows[-1]["end"] == sum(document["accesses"].values())


def test_time_counts_the_accesses_that_the_machine_leaves_out() -> None:
    document = sample.document()
    document["accesses"]["fetch"] = 0
    bins = document["timeline"]["bin_accesses"] * sample.BINS
    run = data.run(document)
    assert run.timeline is not None and run.map is not None
    assert run.timeline.rows[-1]["end"] == bins
    assert max(row["end"] for row in run.map.rows) == bins
    total = sum((r["again"] + r["cold"]) * (r["end"] - r["start"]) for r in run.timeline.rows)
    assert total / 1000 == pytest.approx(sum(document["timeline"]["misses"]))


def test_a_long_timeline_is_merged_into_few_bins() -> None:
    document = sample.document()
    line = document["timeline"]
    for key in ("l1_misses", "misses", "cold_misses"):
        line[key] = line[key] * 8
    line["bin_accesses"] //= 8
    figure = data.run(document).timeline
    assert figure is not None and len(figure.rows) <= 240
    total = sum((row["again"] + row["cold"]) * (row["end"] - row["start"]) for row in figure.rows)
    assert total / 1000 == pytest.approx(sum(line["misses"]))


def test_the_map_keeps_every_miss_and_its_region() -> None:
    document = sample.document()
    figure = missmap.miss_map(document)
    assert figure is not None
    cells = document["map"]["cells"]
    assert sum(row["misses"] for row in figure.rows) == sum(cell[2] for cell in cells)
    regions = {region["name"] for region in document["regions"]}
    assert {row["region"] for row in figure.rows} <= regions
    for row in figure.rows:
        assert 0 <= row["low"] < row["high"] <= figure.edges[-1] + 1e-9
        assert 0 <= row["start"] < row["end"] <= sum(document["accesses"].values())


def test_the_map_counts_for_each_region_what_is_its_own() -> None:
    document = copy.deepcopy(sample.document())
    owners = document["map"]["owners"]
    # The last part of the first region's last granule belongs to another region.
    granule, first, misses = owners[0]
    other = next(owner for _, owner, _ in owners if owner != first)
    owners[:1] = [[granule, first, misses - misses // 3], [granule, other, misses // 3]]
    figure = missmap.miss_map(document)
    assert figure is not None
    own: dict[str, int] = {}
    for _, region, misses in owners:
        name = document["regions"][region]["name"]
        own[name] = own.get(name, 0) + misses
    shown = {row[0]: row[3].exact for row in figure.table.rows}
    assert shown == {name: own[name] for name in shown} and len(shown) > 1


def test_the_map_gives_each_region_a_band_in_the_order_of_addresses() -> None:
    figure = missmap.miss_map(sample.document())
    assert figure is not None
    heights = [high - low for low, high in zip([0.0, *figure.edges], figure.edges, strict=False)]
    assert min(heights) >= 0.99 * missmap.BAND_SHARE_MIN * figure.edges[-1]
    first = [int(str(row[1]), 16) for row in figure.table.rows]
    assert first == sorted(first)


def test_the_map_says_what_it_leaves_out() -> None:
    document = sample.document()
    far = document["regions"][0]
    granule = document["map"]["granule_bytes"]
    document["regions"] = [
        {**far, "name": f"r{index}", "start": index << 40, "bytes": granule, "lookups": 1}
        for index in range(40)
    ]
    document["map"]["cells"] = [
        [0, (index << 40) // granule, 100 if index < 16 else 1] for index in range(40)
    ]
    document["map"]["owners"] = [
        [granule, index, misses]
        for index, (_, granule, misses) in enumerate(document["map"]["cells"])
    ]
    figure = missmap.miss_map(document)
    assert figure is not None
    assert sum(row["misses"] for row in figure.rows) == 1600
    assert "regions with 1.48 % of the misses have no rows of their own" in figure.sentence


def test_a_granule_of_two_regions_is_in_the_band_of_the_one_with_more_misses() -> None:
    document = sample.document()
    size = document["map"]["granule_bytes"]
    first = document["regions"][0]
    document["regions"] = [
        {**first, "name": "bss", "start": size, "bytes": size // 2},
        {**first, "name": "heap", "start": size + size // 2, "bytes": 2 * size},
    ]
    document["map"]["cells"] = [[0, 1, 100], [0, 2, 7]]
    document["map"]["owners"] = [[1, 0, 90], [1, 1, 10], [2, 1, 7]]
    figure = missmap.miss_map(document)
    assert figure is not None
    assert {row["region"]: row["misses"] for row in figure.rows} == {"bss": 100, "heap": 7}
    # A document of an earlier version does not say whose misses they were.
    del document["map"]["owners"]
    figure = missmap.miss_map(document)
    assert figure is not None
    assert {row["region"] for row in figure.rows} == {"heap"}


def test_references_are_all_served() -> None:
    document = sample.document()
    figure = data.run(document).serving
    assert figure is not None
    assert sum(row["references"] for row in figure.rows) == document["walks"]["references"]


def test_nothing_to_show_is_no_figure() -> None:
    document = sample.document(walks=False)
    document["map"]["cells"] = []
    for key in ("l1_misses", "misses", "cold_misses"):
        document["timeline"][key] = []
    run = data.run(document)
    assert (run.timeline, run.map, run.serving, run.caches) == (None, None, None, None)
    assert "vegaEmbed" not in render([Results(document)])


def test_an_empty_trace_has_a_report() -> None:
    document = sample.document(walks=False)
    document["accesses"] = dict.fromkeys(document["accesses"], 0)
    document |= {"instructions": 0, "threads": 0, "regions": []}
    document["map"]["cells"] = []
    for tlb in document["tlbs"]:
        tlb |= {"lookups": 0, "hits": 0, "misses": 0}
    document["timeline"] = {"bin_accesses": 1, "l1_misses": [], "misses": [], "cold_misses": []}
    assert "No access ran." in render([Results(document)])


def test_two_machines_stand_side_by_side() -> None:
    documents = [sample.document(), sample.document("other", 2)]
    report = data.report(documents)
    assert report.comparison is not None and report.together is not None
    assert report.comparison.head == ["Measure", "sample-server", "other"]
    shares = [row["share"] for row in report.together.rows]
    assert min(shares) == 0 and max(shares) < 1
    few, many = sorted(
        (1000 * values.missing_all(one) / values.accesses(one), one["machine"]["name"])
        for one in documents
    )
    assert report.finding.startswith(
        f"Misses of every TLB per 1000 accesses: fewest {text.ratio(few[0])} on {few[1]}, most "
        f"{text.ratio(many[0])} on {many[1]}."
    ) or text.ratio(few[0]) == text.ratio(many[0])
    walks = next(row for row in report.comparison.rows if row[0] == "Walks")
    assert [cell.exact for cell in walks[1:] if isinstance(cell, Value)] == [
        document["walks"]["walks"] for document in documents
    ]


def test_the_best_estimate_comes_before_the_ends_of_its_range() -> None:
    document = sample.document()
    document["time"]["share"] = {"lo": 0.0, "hi": 0.5}
    document["time"]["translation_cycles"]["lo"] = 0.0
    document["estimate"] = {"share": 0.05, "ms": None, "how": "guessed", "here": None}
    assert values.finding(document)[-1] == (
        "Translation takes 5.00 % of all cycles by the best estimate: 0 % if every walk is hidden "
        "behind other work; 50.0 % if all of it is waited for."
    )
    del document["estimate"]
    assert values.finding(document)[-1].startswith("Translation takes 0 to 50.0 % of all cycles: ")
    document["time"]["share"] = {"lo": 0.5, "hi": 0.5}
    assert values.finding(document)[-1] == "Translation takes 50.0 % of all cycles."


def test_one_machine_twice_has_two_lines_in_the_chart() -> None:
    report = data.report([sample.document(), sample.document(seed=2)])
    assert report.together is not None
    assert {row["machine"] for row in report.together.rows} == {
        "1: sample-server",
        "2: sample-server",
    }
    assert len({run.anchor for run in report.runs}) == 2


def test_names_cannot_break_the_page() -> None:
    page = render([Results(sample.document())])
    assert "</script><b>" not in page
    assert "anonymous <2>" not in page
    start = page.index('id="results">') + len('id="results">')
    embedded = json.loads(page[start : page.index("</script>", start)])
    assert embedded == [sample.document()]


def test_the_page_names_no_place_outside() -> None:
    page = render([Results(sample.document())])
    head = page[: page.index('id="results"')]
    assert "http:" not in head and "https:" not in head
    assert "default-src 'none'" in head
