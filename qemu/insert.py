"""Inserts Pagewalk's calls into a tree of QEMU's sources, at places that `insertions.toml` names.

A place is a fragment of one line in a named function. The fragment must be there exactly once, so
that another version of QEMU in which the place has moved is refused, instead of being changed at a
wrong place.

```
 insertions.toml:  file, function, before | after | instead_of = FRAGMENT, insert = TEXT
                     |       |                         |
 tree/FILE --------> |  body of FUNCTION ----> the one line with FRAGMENT ----> the file's new text
```
"""

import re
import sys
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ORDER = ("after", "before", "instead_of")
"""The kinds of places, in the order in which they stand where one line ends and the next begins."""


class NotFoundError(Exception):
    """The error for a place that is not exactly once in QEMU's sources."""


@dataclass(frozen=True)
class Insertion:
    """An insertion: a place and the inserted text."""

    file: str
    function: str | None
    place: str
    fragment: str
    text: str


def read(path: Path) -> list[Insertion]:
    """Reads `insertions.toml`; raises `ValueError` if a table of it is wrong."""
    tables = tomllib.loads(path.read_text(encoding="utf-8")).get("insertion", [])
    return [insertion(table, f"{path}, table {at}") for at, table in enumerate(tables, 1)]


def insertion(table: dict[str, Any], where: str) -> Insertion:
    """One table of `insertions.toml`."""
    places = [place for place in ORDER if place in table]
    unknown = set(table) - {"file", "function", "insert", *ORDER}
    if len(places) != 1 or unknown or not {"file", "insert"} <= set(table):
        allowed = (
            "`file`, `insert`, one of `before`, `after` and `instead_of`, and maybe `function`"
        )
        raise ValueError(f"{where} has the keys {', '.join(table)}; it needs {allowed}")
    [place] = places
    return Insertion(table["file"], table.get("function"), place, table[place], table["insert"])


def inserted(source: str, insertions: list[Insertion]) -> str:
    """The text of one file with all insertions.

    Places are searched for in QEMU's original text, not in the text of other insertions.
    """
    changes = []
    for change in insertions:
        start, end = find(source, change)
        text = change.text
        if change.place != "instead_of":
            text = text if text.endswith("\n") else text + "\n"
            start = source.rfind("\n", 0, start) + 1
            end = source.find("\n", end) + 1 or len(source)
            start = end = start if change.place == "before" else end
        changes.append(((start, ORDER.index(change.place)), end, text))
    # From the end, so that positions stay; what shares a place keeps its order.
    changes.sort(key=itemgetter(0))
    for (start, _), end, text in reversed(changes):
        source = source[:start] + text + source[end:]
    return source


def find(source: str, change: Insertion) -> tuple[int, int]:
    """The position of the fragment; raises `NotFoundError` if it is not there exactly once."""
    bodies = [(0, len(source))]
    where = change.file
    if change.function is not None:
        where += f", function {change.function}"
        bodies = functions(source, change.function)
        if not bodies:
            raise NotFoundError(f"{change.file}: there is no function {change.function}")
    found = [
        start + match.start()
        for start, end in bodies
        for match in re.finditer(re.escape(change.fragment), source[start:end])
    ]
    if len(found) != 1:
        raise NotFoundError(
            f"{where}: `{change.fragment}` should be there once, and is there {len(found)} times"
        )
    return found[0], found[0] + len(change.fragment)


def functions(source: str, name: str) -> list[tuple[int, int]]:
    """The ranges of lines of a function's definitions, in QEMU's style.

    The name stands on a line that begins in the first column, or on the one after it; the body's
    braces stand in the first column.
    """
    found = []
    for match in re.finditer(rf"^(?:[A-Za-z_][^\n;{{}}]*)?\b{name}\(", source, re.MULTILINE):
        opening = re.compile(r"^\{", re.MULTILINE).search(source, match.end())
        closing = re.compile(r"^\}", re.MULTILINE).search(source, match.end())
        declared = source.find(";", match.end())
        if opening and closing and not 0 <= declared < opening.start() < closing.start():
            found.append((match.start(), closing.end()))
    return found


def insert_all(tree: Path, pristine: Path, insertions: list[Insertion]) -> None:
    """Changes the files of `tree`, and keeps the originals in `pristine`.

    A file is written only if its text changes, so that nothing is compiled again needlessly.
    """
    files = {change.file for change in insertions}
    kept = {path.relative_to(pristine).as_posix() for path in pristine.rglob("*") if path.is_file()}
    texts = {}
    for file in sorted(files | kept):
        original = pristine / file if file in kept else tree / file
        try:
            source = original.read_text(encoding="utf-8")
        except OSError as error:
            raise NotFoundError(f"{file}: {error.strerror}") from None
        texts[file] = source, inserted(source, [each for each in insertions if each.file == file])
    for file, (source, text) in texts.items():
        if file not in kept:
            (pristine / file).parent.mkdir(parents=True, exist_ok=True)
            (pristine / file).write_text(source, encoding="utf-8")
        if (tree / file).read_text(encoding="utf-8") != text:
            (tree / file).write_text(text, encoding="utf-8")
