r"""Skeletons: the requests of recorded processes to memory management, in a few KB each.

```
 skeleton(Trace("sh.pwt")) --> Skeleton --write()--> sh.skeleton --> pagewalk hat --work sh.skeleton
```
"""

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from pagewalk import _native
from pagewalk.output import write_text
from pagewalk.progress import Progress, bar

if TYPE_CHECKING:
    from pagewalk.trace import Trace


class Skeleton(NamedTuple):
    """The requests of recorded processes to memory management.

    Attributes:
        text: The skeleton as lines of text, as `write` writes it.
        processes: For each process, by number: the `name` of the program that it ran last, and its
            `steps`.
        files: Number of files that the processes map.
        steps: Calls, first touches, forks and intervals of work of all processes.
        instructions: Instructions of all processes.
        warnings: Warnings about the trace.
    """

    text: str
    processes: list[dict[str, Any]]
    files: int
    steps: int
    instructions: int
    warnings: list[str]

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the skeleton to a file, which `hat(work=[path])` replays.

        Raises:
            Error: The file exists, and `overwrite` is not given.
        """
        write_text(os.fspath(path), self.text, overwrite)


def skeleton(trace: "Trace", *, progress: Progress | bool | None = None) -> Skeleton:
    """The skeleton of a trace, which keeps only the first access and the first store to each page.

    Args:
        trace: A recording, preferably of a program with its children.
        progress: Called with the number of accesses read and of all accesses; `True` shows a
            bar by tqdm.

    Raises:
        Error: The trace cannot be read.
    """
    with bar(progress, "reading") as told:
        text, counts = _native.skeleton(trace.source, trace.reading, progress=told)
    return Skeleton(text, **json.loads(counts))
