r"""Files that are whole or not there: written under a temporary name, then renamed.

```
 refuse_existing(gzip.html)  ->  .gzip.html.x7f2.part  ->  fsync, rename  ->  gzip.html
                                          \-> any failure: removed
```

A device or a pipe (`/dev/null`, `/dev/stdout`) is written to as it is and never renamed over; a
link stays, and what it leads to is replaced.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pagewalk._native import Error, WorkError


def refuse_existing(path: str | os.PathLike[str], force: bool) -> None:
    """Raises `Error` if `path` cannot become a file: it exists, or its directory does not.

    Called before the work begins, so that an hour's work is not refused at its end.
    """
    target = Path(path)
    if target.is_dir():
        raise Error(f"{target} is a directory: give the name of a file")
    if _is_stream(target):
        return
    if not force and target.exists():
        raise Error(f"{target} exists: choose another name, or give --force to replace it")
    if not target.parent.is_dir():
        raise Error(f"there is no directory {target.parent} to write {target.name} to: create it")
    if not os.access(target.parent, os.W_OK):
        raise Error(f"{target.parent} may not be written: choose another directory")


TABLES = {".parquet", ".pq"}
"""Ends of the names of Parquet files."""

_NO_TRACES = TABLES | {
    ".arrow", ".csv", ".feather", ".html", ".json", ".md", ".pdf", ".png", ".svg", ".tex", ".toml",
    ".tsv", ".txt", ".xlsx",
}  # fmt: skip
"""Ends of names that promise something else than a trace."""


def refuse_no_table(path: str | os.PathLike[str]) -> None:
    """Raises `Error` if the name of `path` promises another format than Parquet."""
    end = Path(path).suffix.lower()
    if end and end not in TABLES:
        raise Error(
            f"{path}: a table is written as Parquet, not as {end}: name it "
            f"{Path(path).with_suffix('.parquet')}"
        )


def refuse_no_trace(path: str | os.PathLike[str]) -> None:
    """Raises `Error` if the name of `path` promises something else than a trace."""
    end = Path(path).suffix.lower()
    if end in _NO_TRACES:
        raise Error(
            f"{path}: a trace is written in Pagewalk's own format, not as {end}: name it "
            f"{Path(path).with_suffix('.pwt')}; `pagewalk export` writes other formats"
        )


@contextmanager
def replacing(path: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """Gives a temporary path beside `path` that takes its name if the block ends well.

    Args:
        path: The file to be.
        force: Whether it may replace a file.

    Raises:
        Error: `path` exists and `force` is not given, or it cannot be a file.
        WorkError: The system refused to write.
    """
    refuse_existing(path, force)
    target = Path(path)
    if _is_stream(target):
        with _told(target):
            yield target
        return
    led_to = target.resolve()
    temporary = led_to.with_name(f".{led_to.name}.{os.urandom(4).hex()}.part")
    try:
        with _told(target):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(led_to)
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_text(path: str | os.PathLike[str], text: str, force: bool = False) -> None:
    """Writes `text` as the whole of `path`; errors as for `replacing`."""
    with replacing(path, force) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _is_stream(target: Path) -> bool:
    return target.exists() and not target.is_file() and not target.is_dir()


@contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkError(f"{target} cannot be written: {error.strerror or error}") from error
