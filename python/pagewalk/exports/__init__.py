r"""The misses of a run as files for tools that show profiles.

```
 origins --stacks--+--> NAME.folded            flamegraph.pl, speedscope
                   +--> NAME.speedscope.json   speedscope
 origins --places-----> NAME.callgrind         KCachegrind, callgrind_annotate
 map, timeline -------> NAME.perfetto-trace    Perfetto: misses of each region over time
```

Each format has a module in this package, which makes the whole content of the file from a results
document.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pagewalk._native import Error
from pagewalk.exports import callgrind, folded, perfetto, speedscope
from pagewalk.output import refuse_existing, replacing

if TYPE_CHECKING:
    from pagewalk import plain

Format = Callable[["plain.Document", str], bytes]
"""A function that makes a file's content from a results document and the kind of its stacks."""

FORMATS: dict[str, Format] = {
    ".folded": folded.made,
    ".speedscope.json": speedscope.made,
    ".callgrind": callgrind.made,
    ".perfetto-trace": perfetto.made,
}
"""The formats, by the end of a file's name."""


def format_of(path: str | os.PathLike[str]) -> Format:
    """The format that the name of `path` selects.

    KCachegrind lists files named `callgrind.out.NAME`, so this form of name is accepted too.

    Raises:
        Error: The name selects no format.
    """
    name = os.path.basename(os.fspath(path))  # noqa: PTH119
    if name.startswith("callgrind.out."):
        return callgrind.made
    for end, made in FORMATS.items():
        if name.endswith(end):
            return made
    raise Error(
        f"{os.fspath(path)}: its name does not select a format: end it in one of "
        f"{', '.join(FORMATS)}, or call it callgrind.out.NAME"
    )


def write(
    path: str | os.PathLike[str], data: "plain.Document", by: str = "function", force: bool = False
) -> None:
    """Writes the misses of a results document in the format of the file's name.

    Args:
        path: The file.
        data: The results document.
        by: The elements of a stack, for `.folded` and `.speedscope.json`: `function`, `line` or
            `site`.
        force: Whether it may replace a file.

    Raises:
        Error: The name stands for no format, there are no stacks of that kind, the document does
            not say where misses come from, or the file exists and `force` is not given.
        WorkError: The system refused to write.
    """
    made = format_of(path)
    refuse_existing(path, force)
    content = made(data, by)
    with replacing(path, force) as temporary:
        temporary.write_bytes(content)
