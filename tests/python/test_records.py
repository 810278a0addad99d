"""README's numbers are those of the newest benchmark records."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benches" / "records"


def newest(kind: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(max(RECORDS.glob(f"*-{kind}.json")).read_text())
    return record


def table(title: str) -> dict[str, list[list[float]]]:
    """The first table under a title of README: the numbers of each cell, by row."""
    section = (ROOT / "README.md").read_text().split(f"## {title}\n")[1]
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)[0].splitlines()[2:]  # type: ignore[index]
    found = {}
    for line in lines:
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        numbers = [[float(n) for n in re.findall(r"\d+(?:\.\d+)?", cell)] for cell in cells]
        found[first.replace("`", "")] = numbers
    return found


@pytest.mark.parametrize(
    ("kind", "title"),
    [("recording", "What recording costs"), ("speed", "How fast it runs")],
)
def test_readme_shows_the_newest_record(kind: str, title: str) -> None:
    rows = newest(kind)["rows"]
    recorded = {}
    for row in rows:
        name, *values = row.values()
        recorded[name] = [
            [] if value is None else value if isinstance(value, list) else [value]
            for value in values
        ]
    assert table(title) == recorded


@pytest.mark.parametrize("file", sorted(RECORDS.glob("*.json")), ids=lambda file: file.name)
def test_a_record_says_of_what_it_is(file: Path) -> None:
    record = json.loads(file.read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"]) and file.name.startswith(record["date"])
    assert re.fullmatch(r"[0-9a-f]{40}", record["commit"])
    assert record["machine"]["processor"] and record["command"] and record["how"]
    measured = {key for row in record["rows"] for key in row} - {"program", "trace"}
    assert measured == set(record["units"])
