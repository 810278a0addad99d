"""CONTRIBUTING's table of where a new part goes names what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUOTED = re.compile(r"`([^`]+)`")
# What each file of a part has, wherever that is.
EVERYWHERE = {"mod", "use", "last.json"}
PLACES = ("benches/", "crates/", "docs/", "kernel/", "machines/", "python/", "tests/")


def rows() -> list[tuple[str, list[str]]]:
    """The parts of the table, each with what its row quotes."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## Where a new part goes")[1].split("\n## ")[0]
    lines = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    return [(cells[1].strip(), QUOTED.findall("|".join(cells[2:]))) for cells in lines[1:]]


def files(path: str) -> list[Path]:
    """The file of that path; every file beside it, where it has none yet."""
    if "NAME" in path:
        return sorted((ROOT / path).parent.glob(f"*{Path(path).suffix}"))
    return sorted((ROOT / path).glob("*")) if (ROOT / path).is_dir() else [ROOT / path]


@pytest.mark.parametrize(("part", "quoted"), rows(), ids=lambda value: str(value)[:30])
def test_what_the_table_names_is_there(part: str, quoted: list[str]) -> None:
    paths = [name for name in quoted if name.startswith(PLACES)]
    assert paths, part
    texts = []
    for path in paths:
        found = files(path)
        assert found, path
        texts += [file.read_text(encoding="utf-8") for file in found if file.is_file()]
    said = {name for name in quoted if name.startswith(("make ", "pagewalk ", "experiments/"))}
    for name in set(quoted) - set(paths) - said - EVERYWHERE:
        # `Format::ALL` is `ALL` in an `impl Format`.
        parts = name.removesuffix("!").split("::")
        assert any(all(part in text for part in parts) for text in texts), (part, name)


def test_every_kind_of_part_has_its_row() -> None:
    assert [part for part, _ in rows()] == [
        "replacement policy",
        "MMU cache",
        "page-table format",
        "event",
        "field of the results",
        "key of a machine file",
        "feature that is notified of misses, walks or fills",
        "reason for the size of a page",
        "flag of a recording",
        "flag of how traces are read",
        "flag of one command",
        "command",
        "import format",
        "page-replacement policy",
        "setting that can change in mid-run",
        "kind of kernel work",
        "scheme of locks",
        "OS manager",
        "experiment",
    ]


def test_the_map_of_where_to_find_what_names_what_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.split("## Where to find what")[1].split("\n## ")[0]
    [path] = re.findall(r"```path\n(.*?)```", section, re.DOTALL)
    for line in path.splitlines():
        file, names, _ = re.split(r"\s{2,}", line, maxsplit=2)
        source = (ROOT / file).read_text(encoding="utf-8")
        for name in names.split(", "):
            assert re.search(rf"\bfn {name}\b", source), (file, name)
    for line in section.splitlines():
        quoted = QUOTED.findall(line) if line.startswith("| ") else []
        paths = [name for name in quoted if "/" in name]
        texts = [(ROOT / one).read_text(encoding="utf-8") for one in paths]
        for name in set(quoted) - set(paths) if texts else ():
            parts = name.split("::")
            assert any(all(part in text for part in parts) for text in texts), (line, name)
