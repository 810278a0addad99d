import io
import sys

import pytest

from pagewalk.progress import ProgressLine, describe


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_says_how_far_how_fast_and_how_long() -> None:
    line = describe("replaying", "accesses", 620_000_000, 1_830_000_000, 4.0)
    assert line == "replaying 34%: 620 M of 1.83 G accesses, 155 M/s, 8 s left"
    assert describe("recording", "accesses", 5000, None, 2.0) == "recording: 5000 accesses, 2500/s"
    assert describe("replaying", "accesses", 0, 100, 0.0) == "replaying 0%: 0 of 100 accesses, 0/s"


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, True), (60.0, False)])
def test_it_appears_on_a_terminal_after_a_while_and_is_wiped(
    monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(ProgressLine, "APPEARS_SECONDS", seconds)
    with ProgressLine("replaying") as progress:
        assert progress(50, 100) is True
    written = terminal.getvalue()
    assert ("replaying 50%" in written) == shown
    assert written.endswith("\r\x1b[K") == shown


def test_it_is_silent_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(ProgressLine, "APPEARS_SECONDS", 0.0)
    with ProgressLine("replaying") as progress:
        progress(50, 100)
    assert file.getvalue() == ""
