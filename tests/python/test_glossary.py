"""The types that the glossary names are there, each in the crate that it says."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
TYPES = GLOSSARY.read_text(encoding="utf-8").split("## Types")[1]


NAMED = re.findall(r"`(\w+)::(\w+)`", TYPES)
DECLARED = re.compile(r"^\s*pub (?:struct|enum|trait) (\w+)", re.MULTILINE)


def declared() -> dict[str, set[str]]:
    """The crates that have a public type, by its name."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        for name in DECLARED.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(path.relative_to(ROOT / "crates").parts[0])
    return found


def test_types_are_in_the_crates_that_the_glossary_says_and_in_no_others() -> None:
    told: dict[str, set[str]] = {}
    for crate, name in NAMED:
        told.setdefault(name, set()).add(crate)
    assert len(told) > 40
    there = declared()
    wrong = {name: there.get(name) for name, crates in told.items() if there.get(name) != crates}
    assert not wrong, f"docs/reference/glossary.md: these are in the crates {wrong}"
