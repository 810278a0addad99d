r"""The finished designs of a sweep, in a file beside its output.

```
 fig.parquet.part    one JSON text a line: {"key": hash of trace and machine, "row": {...}}
```

A line is added when its design is done, so an interrupted sweep loses only the pass that was
running. If the key of a design is in the file, the design is not run again. The file is removed
when the output is complete.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from pagewalk import _native
from pagewalk.sweeps.rows import Row
from pagewalk.trace import Trace


class Part:
    """The rows that are done, by key.

    They are stored in a file beside the output, if there is an output.
    """

    def __init__(self, output: str | os.PathLike[str] | None) -> None:
        self._path = None if output is None else Path(f"{os.fspath(output)}.part")
        self._rows: dict[str, Row] = {}
        if self._path is not None and self._path.exists():
            self._rows = dict(_lines(self._path))

    def get(self, key: str) -> Row | None:
        """The row of the design with `key`, if this design is done."""
        return self._rows.get(key)

    def add(self, done: Iterable[tuple[str, Row]]) -> None:
        """Stores rows that are done.

        Raises:
            WorkError: The system refused to write.
        """
        fresh = dict(done)
        self._rows |= fresh
        if self._path is None or not fresh:
            return
        lines = [json.dumps({"key": key, "row": row}) + "\n" for key, row in fresh.items()]
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _native.WorkError(
                f"{self._path} cannot be written: {error.strerror or error}"
            ) from error

    def remove(self) -> None:
        """Removes the file. Called when the output is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def key(trace: Trace, digest: str) -> str:
    """A hash of the inputs of a row: the trace, the machine after its settings, and the version."""
    identity = trace.digest or _unstored(trace)
    text = "\n".join([_native.version(), identity, digest])
    return hashlib.sha256(text.encode()).hexdigest()


def _unstored(trace: Trace) -> str:
    """A text that identifies a generator's trace, or a file of another tool."""
    if trace.source.startswith("generate:"):
        return json.dumps(trace.header.get("command"))
    path = trace.source.split(":", 1)[-1] if ":" in trace.source else trace.source
    try:
        facts = Path(path).stat()
    except OSError:
        return trace.source
    return f"{trace.source} {facts.st_size} {facts.st_mtime_ns} {trace.options!r}"


def _lines(path: Path) -> Iterable[tuple[str, Row]]:
    """The complete lines of the file.

    An incomplete last line, which a killed sweep may leave, is ignored.
    """
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            yield entry["key"], entry["row"]
        except (ValueError, KeyError, TypeError):
            continue
