import pytest

from pagewalk import text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (9999, "9999"),
        (10_000, "10.0 k"),
        (123_456, "123 k"),
        (1_830_000_000, "1.83 G"),
        (2.5e12, "2.50 T"),
        (3.14159, "3.14"),
        (9_990_000, "9.99 M"),
        (9_996_000, "10.0 M"),
        (99_960_000, "100 M"),
    ],
)
def test_count(value: float, shown: str) -> None:
    assert text.count(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (4096, "4 KiB"),
        (1 << 30, "1 GiB"),
        (1_500_000, "1.43 MiB"),
        (16 << 40, "16 TiB"),
    ],
)
def test_size(value: int, shown: str) -> None:
    assert text.size(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 %"), (0.123, "12.3 %"), (0.00001, "<0.01 %"), (0.0005, "0.05 %"), (1, "100 %")],
)
def test_percent(value: float, shown: str) -> None:
    assert text.percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0001, "<0.001"),
        (0.0123, "0.012"),
        (0.5, "0.50"),
        (3.11, "3.11"),
        (87.6, "87.6"),
    ],
)
def test_ratio(value: float, shown: str) -> None:
    assert text.ratio(value) == shown


def test_table_aligns_its_columns() -> None:
    shown = text.table(("Name", "n"), [("a", "1"), ("longer", "1000")])
    assert shown.splitlines() == ["  Name       n", "  a          1", "  longer  1000"]


def test_shorten_keeps_both_ends() -> None:
    assert text.shorten("abcdefghij", 7) == "abc…hij"
    assert text.shorten("short", 7) == "short"
