import json
import re
from pathlib import Path

import pytest

import pagewalk
from pagewalk.curves import count, document
from pagewalk.report.curves import sheet, summary

SPEC = "generate:zipf,size=8M,accesses=60k,seed=5"


def misses_of_run(entries: int, page_size: str) -> int:
    settings = {"tlb.l1d.entries": entries, "os.page_size": page_size, "os.uniform": "true"}
    machine = pagewalk.Machine("tlb-only", settings)
    return int(machine.run(SPEC).data["tlbs"][1]["misses"])


def test_the_table_has_the_misses_of_runs() -> None:
    table = pagewalk.curve(SPEC, page_sizes=["4K", "64K"], entries_max=600)
    assert table.num_rows == 2 * 600
    rows = {(row["page_size"], row["entries"]): row for row in table.to_pylist()}
    for page_size in ("4K", "64K"):
        for entries in (1, 2, 17, 64, 600):
            row = rows[page_size, entries]
            assert row["misses"] == misses_of_run(entries, page_size)
            assert row["total"] == 60_000 and row["lookups"] == "data"
            assert row["miss_ratio"] == row["misses"] / row["total"]
            assert row["misses"] >= row["cold"] > 0


def test_the_document_and_the_page_say_the_same() -> None:
    trace = pagewalk.Trace(SPEC)
    curves = count(trace, ["4K", "2M"], ["data", "all"], 4096)
    made = document(trace, curves)
    assert [(one["lookups"], one["page_size"]) for one in made["curves"]] == [
        ("data", "4K"), ("data", "2M"), ("all", "4K"), ("all", "2M"),
    ]  # fmt: skip
    for one, curve in zip(made["curves"], curves, strict=True):
        # The steps determine the whole curve.
        misses = dict(one["misses"])
        now = None
        for entries, expected in enumerate(curve.misses, 1):
            now = misses.get(entries, now)
            assert now == expected
    page = sheet(made, curves)
    assert [figure.title for figure in page.figures] == [
        "Misses of loads and stores over TLB size", "Misses of all accesses over TLB size",
    ]  # fmt: skip
    first = page.figures[0].rows[0]
    assert first == {
        "page_size": "4K", "entries": 1, "misses": 1000 * curves[0].misses[0] / curves[0].total,
    }  # fmt: skip
    lines = summary("it", curves).splitlines()
    at = next(at for at, line in enumerate(lines) if re.search(r"4K +2M$", line))
    assert lines[at + 1].startswith("  1 entry ")
    # The number of entries that are enough is printed above the table.
    few = [entries for entries, misses in curves[1].steps() if misses <= curves[1].total / 100]
    said = " ".join(" ".join(lines[1:at]).split())
    assert f"loads and stores miss: more than 4096 of 4K, {few[0]} of 2M." in said


def test_the_command_prints_and_writes(pagewalk, tmp_path: Path) -> None:
    done = pagewalk("curve", SPEC, "--json", tmp_path / "c.json", "--html", tmp_path / "c.html")
    assert done.returncode == 0, done.stderr
    assert "64 entries" in done.stdout and "1G" in done.stdout
    made = json.loads((tmp_path / "c.json").read_text())
    assert made["schema"] == 1 and made["trace"]["name"] == SPEC
    assert [one["page_size"] for one in made["curves"]] == ["4K", "16K", "64K", "2M", "1G"]
    assert "misses over TLB size" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--page-sizes", "1K"], "a page of 1K is too small for a curve: write 4K or more"),
        (["--page-sizes", "4000"], "`4000` is not a page size"),
        (["--lookups", "loads"], "`loads`: choose from data, fetch, all"),
        (["--entries", "0"], "up to 0 entries is not possible: write 1 to"),
        (["--html", "-"], "--html cannot write to standard output"),
    ],
)
def test_what_cannot_be_counted_is_refused(pagewalk, arguments: list[str], complaint: str) -> None:
    done = pagewalk("curve", SPEC, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr and "Traceback" not in done.stderr
