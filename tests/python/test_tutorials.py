"""Each page of the handbook that shows outputs, followed from its first command to its last.

What it shows is compared with what is printed (`tutorial.py`). Below: whether it ends with the
finding that it promises.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drmemtrace
import pytest
import tutorial

from pagewalk import _native

DOCS = tutorial.ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if tutorial.is_tutorial(page)]
Printed = list[str]


def document(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_tutorial_prints_what_it_shows_and_finds_what_it_promises(
    page: Path, tmp_path: Path
) -> None:
    name = str(page.relative_to(DOCS).with_suffix(""))
    if name in PLACED and not (_native.may_trace() and gives_large_pages()):
        pytest.skip("this system lets no program be placed, or has no large pages")
    if name in BEFORE:
        BEFORE[name](tmp_path)
    printed = [said for _, said in tutorial.follow(page, tmp_path)]
    FOUND[name](tmp_path, printed)


def test_the_example_of_the_readme_ends_with_a_gain(tmp_path: Path) -> None:
    if not _native.may_trace():
        pytest.skip("ptrace is forbidden here")
    readme = (tutorial.ROOT / "README.md").read_text()
    [example] = re.findall(r"^## From a question .*?(?=^## )", readme, re.MULTILINE | re.DOTALL)
    page = tmp_path / "readme.md"
    page.write_text(example)
    list(tutorial.follow(page, tmp_path))
    assert "make_table" in (tmp_path / "table.place").read_text()
    found_by_faster(tmp_path, [])


def test_every_tutorial_has_a_finding() -> None:
    names = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES}
    assert names == FOUND.keys()


def test_numbers_differ_as_far_as_a_page_says(tmp_path: Path) -> None:
    def of(kind: str, shown: str) -> bool:
        page = tmp_path / "page.md"
        page.write_text(
            f"```console\n$ echo 'a 1.00 k b'; echo 'c: 7'\n```\n```{kind}\n{shown}```\n"
        )
        try:
            list(tutorial.follow(page, tmp_path))
        except AssertionError:
            return False
        return True

    assert of("output", "a 1.00 k b\nc: 7\n") and of("output", "c: 7\n")
    assert of("output", "a 1000 b\n...\n7\n")
    assert not of("output", "a 1.01 k b\n") and not of("output", "c 7\n")
    assert of("output-about", "a 1.09 k b\n") and not of("output-about", "a 1.2 k b\n")
    assert list(tutorial.pieces("(-4.7 to 15 %)")) == ["(", -4.7, "to", 15.0, "%)"]
    assert of("output-any", "a 5 b c: 3\n") and not of("output-any", "a b\n")
    assert not of("output", "c: 7\n...\na\n")


def gives_large_pages() -> bool:
    """Whether the kernel gives large pages to programs that ask for them."""
    knob = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return knob.exists() and "[never]" not in knob.read_text()


def two_threads(folder: Path) -> None:
    """A trace of DynamoRIO: a thread goes through 4 MiB, another jumps about in 64 MiB."""
    trace = folder / "drmemtrace.app.1234.0000.dir" / "trace"
    trace.mkdir(parents=True)
    random = 1
    for thread in (1, 2):
        records = [drmemtrace.start(thread, 1234)]
        for at in range(60_000):
            if at % 1000 == 0:
                records.append(drmemtrace.time(1 + at, thread - 1))
            random = random * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            spot = at * 64 % (4 << 20) if thread == 1 else (random >> 33) % (64 << 20) & ~7
            records.append(drmemtrace.instruction(0x401000 + at % 64 * 4))
            records.append(drmemtrace.load((thread << 32) + spot))
        records.append(drmemtrace.end(thread))
        (trace / f"app.{thread}.trace").write_bytes(b"".join(records))


def misses(folder: Path, name: str) -> int:
    return sum(region["misses"] for region in document(folder, name)["regions"])


def row(text: str, name: str, which: int = 0) -> list[float]:
    """The numbers of a row of a table, of the `which`th that begins with `name`."""
    lines = [line for line in text.splitlines() if line.strip().startswith(f"{name} ")]
    return [piece for piece in tutorial.pieces(lines[which]) if isinstance(piece, float)]


def found_by_first_trace(folder: Path, printed: Printed) -> None:
    assert "Nothing to do: translation takes at most" in printed[2]
    assert (folder / "sort.html").stat().st_size > 100_000


def found_in_a_notebook(folder: Path, printed: Printed) -> None:
    small, large = re.findall(r"(\d+) walks with|, (\d+) with pages", printed[-2])
    assert int(large[1]) < int(small[0]) / 100


def found_by_champsim(folder: Path, printed: Printed) -> None:
    assert row(printed[-1], "4096")[1] > 100 and row(printed[-1], "16384")[1] == 0


def found_by_drmemtrace(folder: Path, printed: Printed) -> None:
    assert re.findall(r"^  thread (\d)", "".join(printed), re.MULTILINE) == ["1", "0"]


def found_by_large_pages(folder: Path, printed: Printed) -> None:
    assert "Use pages of 2M for make_table (hash-join.c:" in printed[1]
    before, after = misses(folder, "before.json"), misses(folder, "after.json")
    assert before > 1_000_000 and after < before / 1000


def found_by_faster(folder: Path, printed: Printed) -> None:
    gained = document(folder, "gained.json")
    assert gained["rounds"] == 12 and gained["status"] == 0
    predicted = gained["predicted"]
    assert predicted["lo"] <= predicted["best"] <= predicted["hi"] and predicted["hi"] > 0.2
    # A busy machine disturbs times; 64 MiB have 512 times fewer faults on any.
    assert gained["placed"]["minor_faults"] < 0.2 * gained["without"]["minor_faults"]
    assert gained["gain"]["user_seconds"]["seconds"]["hi"] > 0


def found_by_no_large_page(folder: Path, printed: Printed) -> None:
    said = " ".join("".join(printed).split())
    pairs = re.findall(r"wanted for ([\d.]+) MiB, and ([\d.]+) MiB have them", said)
    lacking = [float(wanted) - float(got) for wanted, got in pairs]
    assert len(lacking) == 2 and lacking[0] > 1 and lacking[1] < 0.5
    assert "no-frame" in printed[-1]


def found_by_which_tlb(folder: Path, printed: Printed) -> None:
    (small, large) = (row(printed[1], name) for name in ("2048 entries", "4096 entries"))
    assert small[1] > 10 and large[1] < 1
    assert row(printed[1], "16 entries")[2] <= 0.01


def found_by_which_page_table(folder: Path, printed: Printed) -> None:
    share = {name: row(printed[1], name)[-1] for name in ("linear", "hashed", "mpt", "guarded")}
    assert min(share, key=lambda name: share[name]) == "hashed"
    references = row(printed[-1], "Walk references")
    assert min(references) == references[0]


def found_by_lock_scaling(folder: Path, printed: Printed) -> None:
    one, many = row(printed[0], "global"), row(printed[0], "embedded")
    assert one[3] < 1.1 * one[2] and many[3] > 5 * many[0]


def found_by_figure(folder: Path, printed: Printed) -> None:
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")


def found_by_reproduce(folder: Path, printed: Printed) -> None:
    assert printed[1].count("reached    ") == 6 and "MISSED" not in printed[1]


def found_by_new_page_table(folder: Path, printed: Printed) -> None:
    assert "differ" not in printed[-1]


PLACED = {"howto/faster", "howto/no-large-page"}
"""Tutorials that place pages in running programs."""
BEFORE: dict[str, Callable[[Path], None]] = {"start/drmemtrace": two_threads}
"""What a reader of a tutorial has before it begins."""
FOUND: dict[str, Callable[[Path, Printed], None]] = {
    "start/first-trace": found_by_first_trace,
    "start/notebook": found_in_a_notebook,
    "start/champsim": found_by_champsim,
    "start/drmemtrace": found_by_drmemtrace,
    "howto/large-pages": found_by_large_pages,
    "howto/faster": found_by_faster,
    "howto/no-large-page": found_by_no_large_page,
    "howto/which-tlb": found_by_which_tlb,
    "howto/which-page-table": found_by_which_page_table,
    "howto/lock-scaling": found_by_lock_scaling,
    "howto/figure": found_by_figure,
    "howto/reproduce": found_by_reproduce,
    "howto/new-page-table": found_by_new_page_table,
}
"""What each tutorial promises, from its files and what its steps have printed."""
