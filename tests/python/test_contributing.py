"""CONTRIBUTING's table of where a new part goes names what is there."""

import re
import subprocess
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


@pytest.mark.parametrize(("part", "quoted"), rows(), ids=lambda value: str(value)[:30])
def test_a_row_with_a_new_file_of_rust_names_the_file_that_declares_it(
    part: str, quoted: list[str]
) -> None:
    for path in quoted:
        if path.endswith("/NAME.rs"):
            folder = Path(path).parent
            parents = {str(folder / name) for name in ("mod.rs", "lib.rs", "main.rs")}
            assert parents & set(quoted), f"{part}: {path} needs its `mod` in one of {parents}"


# Of some kinds the part that was added last or is named in the fewest places, and the files that
# name it for a reason of its own.
SAMPLES = {
    "replacement policy": (r"vi-lru-2d|ViLru2d", {"docs/machines/virtual-machines.md"}),
    "event": (r"munlockall|Munlockall|MUNLOCKALL", {"tests/python/torture.c"}),
    "import format": (r"usimm|Usimm", {"tests/python/test_examples.py"}),
    "setting that can change in mid-run": (r"SwapIo", set()),
    "scheme of locks": (r"Covering|CoveringArray", set()),
    "page-replacement policy": (
        r"2q|TwoQueues",
        {
            "crates/machine/tests/machine/at.rs",
            "crates/vm/tests/vm/main.rs",
            "docs/machines/memory.md",
            "tests/python/test_memory.py",
        },
    ),
    "MMU cache": (
        r"sptc|Sptc",
        {"crates/mmu/src/walk_family/page_table.rs", "tests/python/test_examples.py"},
    ),
}
# What `make` writes, and texts that name parts as examples.
MADE = (
    "CHANGELOG.md", "benches/hashes.txt", "docs/method/", "docs/reference/events.md",
    "docs/reference/keys/", "docs/reference/results/", "experiments/", "machines/",
    "packaging/api/", "python/pagewalk/document.py", "python/pagewalk/plain.pyi",
)  # fmt: skip


@pytest.mark.parametrize("part", SAMPLES)
def test_a_part_is_named_only_in_the_files_of_its_row(part: str) -> None:
    pattern, own = SAMPLES[part]
    [quoted] = [quoted for name, quoted in rows() if name == part]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    besides = QUOTED.findall(text.split("Besides its row, each has:")[1].split("\n## ")[0])
    linked = {"docs/reference/keys.md", "README.md", "CONTRIBUTING.md"}
    known = {*quoted, *besides, *linked, "tests/python/test_contributing.py"}
    found = subprocess.run(
        ["git", "grep", "-lIwE", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert found, f"{part}: {pattern} is named nowhere: choose another sample"
    folders = {str(Path(path).parent) for path in known if "NAME" in path}
    folders |= {path for path in known if (ROOT / path).is_dir()}
    for path in found:
        if path.startswith(MADE) or path.endswith("/README.md") or path in own:
            continue
        is_named = path in known or str(Path(path).parent) in folders
        assert is_named, f"CONTRIBUTING.md, {part}: {path} names {pattern}, and the row does not"


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
