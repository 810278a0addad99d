"""The campaign of twelve programs: what it compares with smaps, its record, the page's tables."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pagewalk.placing import mappings
from pagewalk.placing.mappings import Mapping

KERNEL = Path(__file__).parents[1] / "kernel"
sys.path.insert(0, str(KERNEL))
import twelve  # noqa: E402
import twelve_record as record  # noqa: E402

sys.path.remove(str(KERNEL))

MIB = 1 << 20


def mapped(start: int, large: int, resident: int) -> Mapping:
    bytes_of = {"AnonHugePages": large, "Rss": resident}
    return Mapping(
        start, start + 16 * MIB, "rw-p", 0, "", mappings.ANONYMOUS, frozenset(), bytes_of
    )


def region(start: int, large: int, base: int, why: int) -> dict[str, Any]:
    return {
        "start": start, "got": {"2M": large, "4K": base}, "wanted_bytes": large + base,
        "why": [{"reason": "unaligned", "bytes": why}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "differs"),
    [
        (region(0, 8 * MIB, MIB, MIB), False),
        # The number lies between the counts of smaps before and after the snapshot.
        (region(0, 10 * MIB, MIB, MIB), False),
        (region(0, 14 * MIB, MIB, MIB), True),
        (region(0, 8 * MIB, 9 * MIB, 9 * MIB), True),
        # Some bytes have neither a large page nor a reason.
        (region(0, 8 * MIB, MIB, 0), True),
    ],
)
def test_a_region_agrees_with_what_smaps_counted(told: dict[str, Any], differs: bool) -> None:
    before, after = [mapped(0, 8 * MIB, 9 * MIB)], [mapped(0, 12 * MIB, 13 * MIB)]
    found = twelve.agreement([told], before, after)
    assert found["regions"] == 1 and bool(found["differ"]) == differs


def test_a_region_that_is_not_told_has_no_large_pages() -> None:
    for large, differs in ((0, False), (2 * MIB, True)):
        both = [mapped(0, large, 4 * MIB)]
        assert bool(twelve.agreement([], both, both)["differ"]) == differs
    # Mappings that were removed in the meantime are not compared.
    assert twelve.agreement([], [mapped(0, 2 * MIB, 2 * MIB)], [])["regions"] == 0


def test_predictions_are_judged() -> None:
    row = {"program": "a", "predicted": [0.0, 0.1], "best": 0.05, "by_always": [0.0, 0.06, 0.1]}
    rows = [
        {**row, "gained": [0.04, 0.06, 0.09]},
        {**row, "program": "b", "predicted": [0.0, 0.11], "gained": [0.1, 0.12, 0.2]},
    ]
    assert record.judged(rows) == {
        "programs": 2, "narrow": 1, "inside": 1, "near": 1, "outside": ["b"],
        "gain_by_always": ["a", "b"],
    }  # fmt: skip


def test_the_page_shows_the_record_that_is_kept() -> None:
    found = json.loads(record.KEPT.read_text())
    assert found["machine"]["processor"] and len(found["commit"]) == 40 and found["date"]
    page = record.PAGE.read_text()
    assert record.shown(page, found) == page
    assert found["judged"] == record.judged(found["gains"]) and not found["is_small"]
    # The reported page sizes equal the counts in smaps.
    assert not any(row["differ"] or not row["ends_alike"] for row in found["agree"])
    for row in found["gains"]:
        low, high = row["predicted"]
        assert low <= high and row["gained"] == sorted(row["gained"])
