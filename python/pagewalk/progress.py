"""A line on the terminal that shows the progress of a long run.

Without a terminal nothing is shown.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from pagewalk import text

Progress = Callable[[int, int | None], object]
"""Called with the number of accesses done and of all accesses, or `None` if that is not known.

The work is stopped if it returns `False`.
"""


@contextmanager
def bar(progress: Progress | bool | None, doing: str) -> Iterator[Progress | None]:
    """The callback for an argument `progress`.

    For `True` it is a bar by tqdm, in a notebook or on a terminal.
    """
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=doing, unit=" accesses", unit_scale=True) as shown:

        def update(done: int, total: int | None) -> bool:
            if total is not None:
                shown.total = total
            shown.update(done - shown.n)
            return True

        yield update


class ProgressLine:
    """Shows work of a known or unknown length on standard error.

    The line appears only if standard error is a terminal, after two seconds. It is written at most
    ten times per second and erased at the end. Calling the object returns `True`, which means that
    the work continues.
    """

    APPEARS_SECONDS = 2.0
    REFRESH_SECONDS = 0.1

    def __init__(self, doing: str, unit: str = "accesses", quiet: bool = False) -> None:
        self._doing = doing
        self._unit = unit
        self._start = time.monotonic()
        self._shown = 0.0
        self._visible = False
        self._terminal = not quiet and sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._visible:
            # The work may have ended because the terminal was closed.
            with suppress(OSError):
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()

    def __call__(self, done: int, total: int | None) -> bool:
        """Shows that `done` of `total` units are done. `total` is `None` if it is not known."""
        now = time.monotonic()
        if (
            self._terminal
            and now - self._start >= self.APPEARS_SECONDS
            and now - self._shown >= self.REFRESH_SECONDS
        ):
            self._shown = now
            self._visible = True
            line = describe(self._doing, self._unit, done, total, now - self._start)
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
        return True


def describe(doing: str, unit: str, done: int, total: int | None, seconds: float) -> str:
    """The line: `replaying 34 %: 620 M of 1.83 G accesses, 152 M/s, 8 s left`."""
    rate = done / seconds if seconds > 0 else 0.0
    if not total:
        return f"{doing}: {text.count(done)} {unit}, {text.count(round(rate))}/s"
    left = f", {(total - done) / rate:.0f} s left" if rate > 0 and done <= total else ""
    return (
        f"{doing} {min(done / total, 1):.0%}: {text.count(done)} of {text.count(total)} {unit}, "
        f"{text.count(round(rate))}/s{left}"
    )
