"""What a run says should be done: a sentence for each of the cases, and text of 80 columns."""

import copy
from array import array
from typing import Any

import pytest

import sample
from pagewalk import Machine
from pagewalk.advice import Sample, advice, enough, page_sizes
from pagewalk.cli import main
from pagewalk.lru import Curve
from pagewalk.recording import Recording
from pagewalk.summary import summary

TOTAL = 100_000
GAPS = (50_000_000, 8)
"""After how many accesses one in how many was looked at."""


def curve(size: str, need: int, cold: int = 10, total: int = TOTAL) -> Curve:
    """Everything misses with fewer than `need` entries, and only first touches with them."""
    misses = array("Q", [total] * (need - 1) + [cold] * (70_000 - need))
    return Curve("data", size, 4096, total, cold, misses[:65536])


def whole(size: str, need: int, one_in: int = 1, gaps: tuple[int, int] | None = None) -> Sample:
    """A curve of all pages and accesses, or of a sample of them."""
    return Sample(curve(size, need), one_in, gaps)


def said(
    document: dict[str, Any],
    small: int,
    large: int,
    one_in: int = 1,
    gaps: tuple[int, int] | None = None,
) -> str:
    """The sentence of curves of all pages of 2M, and of one in so many of 4K."""
    samples = {"4K": whole("4K", small, one_in, gaps), "2M": whole("2M", large, 1, gaps)}
    return str(advice(document, samples)["sentence"])


def test_large_pages_are_advised_with_the_entries_that_they_take() -> None:
    region = "bss of gzip (57.4 % of the misses)"
    assert said(sample.document(), 19_166, 44) == (
        f"Use pages of 2M for {region}: over the whole run, 44 entries of 2M miss as rarely "
        "(1 % of loads and stores) as 19166 of 4K."
    )
    assert "as more than 65536 of 4K." in said(sample.document(), 69_000, 44)


def test_a_sample_is_called_one_and_its_entries_are_estimates() -> None:
    region = "bss of gzip (57.4 % of the misses)"
    assert said(sample.document(), 19_166, 44, 8, GAPS) == (
        f"Use pages of 2M for {region}: over the whole run (a sample of one page of 4K in 8 and "
        "one access in 8 after the first 50 M), about 44 entries of 2M miss as rarely "
        "(1 % of loads and stores) as about 19000 of 4K."
    )


def test_the_advised_size_is_one_that_the_machine_has() -> None:
    document = sample.document()
    for sizes, size in [(["4K", "4M"], "4M"), (["4K", "256K", "16M"], "256K"), (["4K"], "2M")]:
        document["machine"]["description"]["tlb"] = {"l1": {"page_sizes": sizes}}
        assert page_sizes(document["machine"]["description"]) == ["4K", size]
        found = advice(document, {"4K": whole("4K", 19_166), size: whole(size, 44)})
        assert f"Use pages of {size}" in str(found["sentence"]), sizes


def test_a_quiet_run_is_left_alone() -> None:
    document = sample.document()
    document["time"]["share"]["hi"] = 0.004
    assert said(document, 19_166, 44) == (
        "Nothing to do: translation takes at most 0.40 % of the cycles."
    )
    document["time"] = None
    for tlb in document["tlbs"]:
        tlb["misses"] = 10
    assert said(document, 19_166, 44).startswith("Nothing to do: ")


@pytest.mark.parametrize(
    ("small", "large", "words"),
    [
        (3000, 2000, "Use a TLB of 3000 entries, with which 1 % of loads and stores miss over the"),
        (60_000, 50_000, "Change the order of the accesses or the layout of the data"),
        (69_000, 69_000, "a TLB of more than 65536 entries of 4K or more than 65536 of 2M"),
        (1000, 900, "Look at conflicts and flushes: over the whole run, 1000 entries would do"),
    ],
)
def test_each_case_has_its_sentence(small: int, large: int, words: str) -> None:
    assert words in said(sample.document(), small, large)


def test_processors_that_load_the_same_pages_are_no_conflicts() -> None:
    document = copy.deepcopy(sample.document())
    document["machine"]["description"].setdefault("core", {})["count"] = 4
    assert "Look at conflicts" in said(document, 1000, 900)
    for tlb in document["tlbs"]:
        tlb["evictions"] = tlb["flushed"] = 0
    assert "each of 4 processors fills TLBs of its own" in said(document, 1000, 900)


def test_first_touches_want_larger_pages() -> None:
    document = copy.deepcopy(sample.document())
    for region in document["regions"]:
        region["cold_misses"] = region["misses"]
    assert said(document, 100, 90).startswith("Use larger pages")
    document["machine"]["description"]["os"] = {"page_size": "2M"}
    alone = str(advice(document, {"2M": whole("2M", 1)})["sentence"])
    assert alone.startswith("Use memory that was used before")
    assert alone.endswith("which no TLB avoids, and pages are of 2M where they can be.")
    for region in document["regions"]:
        region["cold_misses"] = 0
    alone = str(advice(document, {"2M": whole("2M", 1)})["sentence"])
    assert "1 entry would do in a fully associative TLB" in alone


def test_first_touches_do_not_count_against_a_tlb() -> None:
    assert enough(curve("4K", 40, cold=TOTAL // 2)) == 40
    assert enough(curve("4K", 69_000)) is None


def test_a_run_begins_with_the_finding_and_fits(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "generate:uniform,size=64M,accesses=60k"
    assert main(["run", spec, "-m", "epyc-9005", "-m", "r4700"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    first = next(at for at, line in enumerate(lines) if line.startswith("Nearly every access"))
    table = next(at for at, line in enumerate(lines) if line.startswith("TLBs"))
    advised = next(at for at, line in enumerate(lines) if line.startswith("Use "))
    assert first < advised < table + 2


def test_advice_is_of_the_whole_run_however_long_it_is() -> None:
    """Advice was once of the first 50 M accesses."""
    results = Machine("tlb-only").run("generate:strided,size=64K,accesses=51M", advice=True)
    found, accesses = results.data["advice"], results.data["accesses"]
    assert found["lookups"] == accesses["load"] + accesses["store"] == 51_000_000
    assert found["entries"]["4K"] == 16


def test_a_long_run_is_looked_at_in_windows_and_says_so() -> None:
    few = {"tlb.l1d.entries": 4, "tlb.l2.entries": 4}
    results = Machine("tlb-only", few).run("generate:strided,size=64K,accesses=100M", advice=True)
    found = results.data["advice"]
    assert found["lookups"] == 100_000_000 and found["entries"]["4K"] == 16
    over = "over the whole run (a sample of one access in 8 after the first 50 M)"
    assert f"{over}, about 1 entry of 2M misses" in found["sentence"]
    late = "over the whole run (a sample of one access in 8), about 44 entries "
    assert late in said(sample.document(), 19_166, 44, gaps=(0, 8))


def test_a_program_that_runs_has_advice_too() -> None:
    results, _, _ = Machine("epyc-9005").run_live(Recording(["true"]), advice=True)
    found = results.data["advice"]
    accesses = results.data["accesses"]
    assert found["lookups"] >= accesses["load"] + accesses["store"] > 0
    assert found["one_in"] == {"4K": 1, "2M": 1}


def test_advice_changes_nothing_that_is_counted() -> None:
    spec = "generate:join,table=64M,accesses=300k"
    plain, advised = (Machine("epyc-9005").run(spec, advice=asked).data for asked in (False, True))
    assert advised.pop("advice")["lookups"] > 0
    assert plain == advised


def test_every_summary_fits_into_80_columns() -> None:
    document = sample.document(walks=True)
    document["advice"] = advice(document, {"4K": whole("4K", 19_166), "2M": whole("2M", 44)})
    shown = summary(document)
    assert max(map(len, shown.splitlines())) <= 80
    assert "44 entries of 2M" in " ".join(shown.split())


def test_text_of_other_commands_fits_too(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "generate:join,table=64M,accesses=60k"
    vary = ["--vary", "tlb.l2d.entries=512,1024", "--vary", "os.page_size=4K,2M"]
    for command in (["sweep", spec, *vary], ["curve", spec], ["info", spec], ["machines"]):
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80, command
