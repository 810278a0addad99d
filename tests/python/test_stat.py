"""`stat`: its cycles are those of `time`, told apart; the command and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from pagewalk import Machine
from pagewalk.cli import main
from pagewalk.events import of_document
from pagewalk.report import events

SPEC = "generate:join,table=64M,accesses=60k"
MACHINES: list[tuple[str, list[str]]] = [
    ("origin-2000", []),
    ("origin-2000", ["os.place=region hash table = 1M"]),
    ("origin-2000", ["core.misses_in_flight=1"]),
    ("epyc-9005", []),
    ("opteron-2008", []),
    ("r4700", []),
    ("origin-200qc", []),
    ("origin-2000", ["memory.size=32M"]),
]


def of_part(stat: dict[str, Any], part: str, end: str) -> float:
    return sum(
        one["cycles"][end] for one in stat["events"] if one["part"] == part and one["cycles"]
    )


@pytest.mark.parametrize(("machine", "settings"), MACHINES, ids=str)
def test_the_cycles_of_events_add_up_to_those_of_time(machine: str, settings: list[str]) -> None:
    data = Machine(machine, settings).run(SPEC).data
    stat, time = of_document(data), data["time"]
    assert time is not None
    for end in ("lo", "hi"):
        # The results have whole cycles.
        assert of_part(stat, "program", end) == pytest.approx(time["program_cycles"][end], abs=2)
        assert of_part(stat, "translation", end) == time["translation_cycles"][end]
        kernel = time["kernel"]["cycles"] + time["kernel"]["io_cycles"] if time["kernel"] else 0
        assert of_part(stat, "kernel", end) == kernel
        together = sum(of_part(stat, part, end) for part in ("program", "translation", "kernel"))
        assert stat["cycles"][end] == pytest.approx(together)
    for one in stat["events"]:
        if one["share"]:
            assert 0 <= one["share"]["lo"] <= one["share"]["hi"] <= 1
            assert one["cycles"]["lo"] <= one["cycles"]["hi"]


def test_counts_are_those_of_the_results() -> None:
    results = Machine("epyc-9005").run(SPEC)
    stat = pagewalk.stat(results)
    counts = {event.name: event.count for event in stat.events}
    data = results.data
    assert counts["instructions"] == data["instructions"]
    assert counts["walks"] == data["walks"]["walks"]
    assert counts["walks of first touches"] == data["walks"]["cold"]
    assert counts["l1d TLB misses"] == results.tlbs["l1d"].misses
    served = [event.count or 0 for event in stat.events if event.name.startswith("served")]
    program = [one["program"] for one in data["caches"] if one["name"].startswith("l1")]
    assert sum(served) == sum(one["reads"] + one["writes"] for one in program)


def test_the_kernels_work_is_counted_by_its_price() -> None:
    data = Machine("origin-2000").run(SPEC).data
    faults = next(one for one in of_document(data)["events"] if one["name"] == "faults")
    assert faults["count"] == data["faults"]["first_touch"]
    assert faults["cycles"]["lo"] == faults["cycles"]["hi"] == 4000 * faults["count"]


def test_walks_are_told_apart_by_page_size_where_there_are_several() -> None:
    place = ["os.place=region hash table = 256K,region table A = 64K"]
    sizes = [
        event.name
        for event in pagewalk.stat(SPEC, "origin-2000", set=place).events
        if " pages" in event.name
    ]
    # Sizes are sorted by value: in alphabetical order 256K would precede 64K.
    assert sizes == ["walks for 16K pages", "walks for 64K pages", "walks for 256K pages"]
    assert not any(" pages" in event.name for event in pagewalk.stat(SPEC, "origin-2000").events)


def test_without_latencies_there_are_counts_alone() -> None:
    stat = pagewalk.stat(SPEC, "tlb-only")
    assert stat.cycles is None and all(event.cycles is None for event in stat.events)
    assert "No cycles" in events.summary(stat.data)
    assert "l1d TLB misses" in events.render(stat.data)


def test_text_is_one_screen_and_the_page_has_all_events() -> None:
    stat = of_document(Machine("epyc-9005").run(SPEC).data)
    shown = events.summary(stat)
    assert len(shown.splitlines()) <= 30 and max(map(len, shown.splitlines())) <= 80
    # The sum and its largest part are shown first.
    first = " ".join(shown.split("\n\n")[0].split())
    assert "All together" in first and "Of these, " in first
    most = max(
        (one for one in stat["events"] if one["cycles"]), key=lambda one: one["cycles"]["hi"]
    )
    assert first.endswith(f": {most['name']}.")
    page = events.render(stat)
    assert all(one["name"] in page and one["name"] in shown for one in stat["events"])


def test_the_command_writes_text_json_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, document, page = (tmp_path / f"stat.{kind}" for kind in ("txt", "json", "html"))
    files = ["-o", str(text), "--json", str(document), "--html", str(page)]
    assert main(["stat", SPEC, "-m", "epyc-9005", "-q", *files]) == 0
    assert "served by memory" in text.read_text() and page.stat().st_size > 10_000
    made = json.loads(document.read_text())
    assert made["schema"] == 1 and made == of_document(Machine("epyc-9005").run(SPEC).data)
    assert capsys.readouterr().out == ""
    assert main(["stat", SPEC, *files]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_programs_own_output_and_status_are_kept(pagewalk: Any) -> None:
    done = pagewalk("stat", "-q", "--", "sh", "-c", "echo mine; exit 3")
    assert done.returncode == 3 and done.stdout == "mine\n"
    assert "walk references" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([SPEC, "-m", "epyc-9005", "-m", "tlb-only"], "stat takes one machine"),
        ([SPEC, "-o", "-", "--json", "-"], "give one of them a file"),
        ([SPEC, "--native"], "--native needs a program"),
        ([], "no trace to run"),
        ([SPEC, "--", "true"], "not both"),
    ],
)
def test_what_cannot_be_counted_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stat", *arguments]) == 2
    assert words in capsys.readouterr().err
