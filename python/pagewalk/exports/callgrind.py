"""Callgrind's format, for KCachegrind and callgrind_annotate.

It has the misses by file, function and line.

```
 ob=/usr/bin/sqlite3     the program or library
 fl=src/btree.c          the source file of the lines that follow
 fn=sqlite3BtreeNext     the function they belong to: of inlined code the innermost
 5120 17 4               line, misses, first touches among them
```

Callers are not recorded, so the file has no calls. Source: "Callgrind Format Specification" of
Valgrind's manual.
"""

from collections import Counter
from typing import TYPE_CHECKING

from pagewalk import origins

if TYPE_CHECKING:
    from pagewalk import plain


def made(data: "plain.Document", by: str) -> bytes:
    """The misses by line. `by` has no effect."""
    del by
    misses: Counter[tuple[str, str, str, int]] = Counter()
    cold: Counter[tuple[str, str, str, int]] = Counter()
    for row in origins.rows(data):
        place = origins.code(data, row)
        misses[place] += row[5]
        cold[place] += row[6]
    command = " ".join(data["trace"]["command"]) or data["trace"]["name"]
    lines = [
        "# callgrind format",
        "version: 1",
        f"creator: pagewalk {data['pagewalk']}",
        f"cmd: {' '.join(command.split())}",
        f"desc: Machine: {' '.join(data['machine']['name'].split())}",
        "positions: line",
        "event: Misses : misses of every TLB",
        "event: FirstTouches : of these, first touches of a page",
        "events: Misses FirstTouches",
        f"summary: {misses.total()} {cold.total()}",
    ]
    before: tuple[str, str, str] | None = None
    for place in sorted(misses):
        *where, line = place
        if before != tuple(where):
            lines += ["", f"ob={where[0]}", f"fl={where[1]}", f"fn={where[2]}"]
            before = (where[0], where[1], where[2])
        lines.append(f"{line} {misses[place]} {cold[place]}")
    return ("\n".join(lines) + "\n").encode()
