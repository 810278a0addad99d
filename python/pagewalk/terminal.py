"""Text on a terminal: lines that are not indented are emphasised, unless `NO_COLOR` is set.

```
 join.pwt on epyc-9005            bold: what ran, findings, heads of tables
 TLBs    entries  lookups         bold
   l1d        96   3.34 M
   … and 3 regions more           faint
 Warning: the trace is damaged    yellow
```
"""

import os
import re
import sys
from typing import TextIO

BOLD, FAINT, RED, YELLOW, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[0m"
_URGENT = re.compile(r"((?:pagewalk: )?(?:error|warning):|Warning:)", re.IGNORECASE)


def has_color(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal that shows colors, and colors are not switched off."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def say(text: str, stream: TextIO | None = None) -> None:
    """Prints `text` to `stream`, which is standard output if it is not given."""
    stream = sys.stdout if stream is None else stream
    print(colored(text) if has_color(stream) else text, file=stream, flush=True)


def colored(text: str) -> str:
    """`text` with its lines colored by their kinds."""
    return "\n".join(_line(line) for line in text.splitlines())


def _line(line: str) -> str:
    if found := _URGENT.match(line):
        color = RED if "error" in found[0] else YELLOW
        return f"{color}{found[0]}{PLAIN}{line[found.end() :]}"
    if line.startswith("  …"):
        return f"{FAINT}{line}{PLAIN}"
    return line if not line or line[0].isspace() else f"{BOLD}{line}{PLAIN}"
