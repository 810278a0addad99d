import io
import re

import pytest

from pagewalk import terminal, text


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
        (-1, "-1 B"),
        (-126_976, "-124 KiB"),
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
    assert shown.splitlines() == ["Name         n", "  a          1", "  longer  1000"]


WIDE = ("Misses of every TLB per 1000 accesses", "references per walk of a mapped page")


def test_a_table_that_is_too_wide_breaks_its_heads() -> None:
    head = ("TLB", *WIDE, *WIDE)
    shown = text.table(head, [("l1d", "1", "2", "3", "4")]).splitlines()
    assert max(map(len, shown)) <= 80
    assert shown[-1].split() == ["l1d", "1", "2", "3", "4"]
    assert " ".join(shown).count("accesses") == 2


def test_a_table_of_many_columns_goes_on_below_and_repeats_its_keys() -> None:
    head = ["key", "other", *(f"column{at}" for at in range(12))]
    rows = [[f"k{row}", f"o{row}", *(f"{at}.{row}" for at in range(12))] for row in range(3)]
    shown = text.table(head, rows, keys=2).splitlines()
    assert max(map(len, shown)) <= 80
    heads = [line.split() for line in shown if line.startswith("key")]
    assert [part[:2] for part in heads] == [["key", "other"]] * len(heads) and len(heads) > 1
    assert [name for part in heads for name in part[2:]] == head[2:]
    assert sum(line.startswith("  k1") for line in shown) == len(heads)


def test_a_name_that_is_too_long_is_shortened() -> None:
    shown = text.table(("Name", *"abcdefgh"), [("x" * 70, *(["1000"] * 8))]).splitlines()
    assert max(map(len, shown)) <= 80 and "…" in shown[1]


def test_a_paragraph_breaks_between_words_and_never_before_a_unit() -> None:
    shown = text.paragraph("misses " * 10 + "takes 12.5 % of all cycles", "  ", "  ").splitlines()
    assert max(map(len, shown)) <= 80
    assert shown[1].startswith("    ") and not any(line.endswith("12.5") for line in shown)


def test_text_has_color_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    words = "The finding\n\nTLBs  n\n  l1d  1\n  … and 3 more\nWarning: damaged"
    for stream, colored in ((Terminal(), True), (io.StringIO(), False)):
        terminal.say(words, stream)
        assert ("\x1b[1mThe finding\x1b[0m" in stream.getvalue()) == colored
        assert ("\x1b[33mWarning:" in stream.getvalue()) == colored
        assert re.sub(r"\x1b\[\d+m", "", stream.getvalue()) == words + "\n"
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.say(words, stream := Terminal())
    assert stream.getvalue() == words + "\n"


def test_shorten_keeps_both_ends() -> None:
    assert text.shorten("abcdefghij", 7) == "abc…hij"
    assert text.shorten("short", 7) == "short"


def test_a_long_command_keeps_its_program_s_name() -> None:
    words = ["/usr/lib/gcc/cc1", "-quiet", "a.c", "-o", "a.s"]
    assert text.command(words, 40) == "/usr/lib/gcc/cc1 -quiet a.c -o a.s"
    assert text.command(words, 24) == "cc1 -quiet a.c -o a.s"
    assert text.command(words, 13) == "cc1 -q…-o a.s"
    assert text.command([], 5) == ""
