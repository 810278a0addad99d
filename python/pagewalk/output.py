r"""Writes files completely or not at all: under a temporary name, which is then changed.

```
 refuse_existing(gzip.html)  ->  .gzip.html.x7f2.part  ->  fsync, rename  ->  gzip.html
                                          \-> any failure: removed
```

A device or a pipe (`/dev/null`, `/dev/stdout`) is written to directly and is never replaced. Of a
symbolic link the target is replaced.

Each command checks its outputs before its work begins, so this module is always imported and
imports little itself: no `pathlib`.
"""

# ruff: noqa: PTH110, PTH112, PTH113, PTH122

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pagewalk._native import Error, WorkError

if TYPE_CHECKING:
    from pathlib import Path


def refuse_existing(path: str | os.PathLike[str], force: bool) -> None:
    """Raises `Error` if `path` cannot be written. The file may exist, or its directory may not.

    Called before the work begins, so that no work is lost because its output cannot be written.
    """
    target = os.fspath(path)
    if os.path.isdir(target):
        raise Error(f"{target} is a directory: give the name of a file")
    if _is_stream(target):
        return
    if not force and os.path.exists(target):
        raise Error(f"{target} exists: choose another name, or give --force to overwrite it")
    folder, name = os.path.split(target)
    folder = folder or "."
    if not os.path.isdir(folder):
        raise Error(f"there is no directory {folder} for {name}: create it")
    if not os.access(folder, os.W_OK):
        raise Error(f"{folder} is not writable: choose another directory")


_NO_TRACES = {
    ".parquet", ".pq",
    ".arrow", ".csv", ".feather", ".html", ".json", ".md", ".pdf", ".png", ".svg", ".tex", ".toml",
    ".tsv", ".txt", ".xlsx",
}  # fmt: skip
"""Endings of file names that stand for formats other than traces."""


def refuse_no_trace(path: str | os.PathLike[str]) -> None:
    """Raises `Error` if the ending of `path` is that of another format than Pagewalk's traces."""
    start, end = os.path.splitext(path)
    if end.lower() in _NO_TRACES:
        raise Error(
            f"{path}: traces are written only in Pagewalk's own format, not as {end.lower()}: name "
            f"the file {start}.pwt; `pagewalk export` writes other formats"
        )


@contextmanager
def replacing(path: str | os.PathLike[str], force: bool = False) -> "Iterator[Path]":
    """Yields a temporary path, which is renamed to `path` if the block ends without an error.

    Args:
        path: The file to write.
        force: Whether an existing file may be replaced.

    Raises:
        Error: `path` exists and `force` is not given, or it cannot be a file.
        WorkError: The system refused to write.
    """
    from pathlib import Path

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


def _is_stream(target: "str | Path") -> bool:
    return os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)


@contextmanager
def _told(target: "Path") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkError(f"{target} cannot be written: {error.strerror or error}") from error
