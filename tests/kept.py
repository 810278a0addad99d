"""What records of campaigns have in common: commit, machine, tables in a page of the handbook."""

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commit() -> str:
    """Of the tree that this script is in."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> dict[str, str]:
    """The machine that the campaign runs on."""
    return {
        "processor": _processor(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }


def _processor() -> str:
    """The processor's name and how many there are."""
    text = Path("/proc/cpuinfo").read_text()
    names = re.findall(r"^model name\s*: (.*)$", text, re.MULTILINE)
    models = re.findall(r"^model\s*: (.*)$", text, re.MULTILINE)
    name = f"{names[0]}, model {models[0]}" if names and models else platform.machine()
    return f"{name}, {os.cpu_count()} processors"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    if not rows:
        return "*Not measured in this record.*"
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def shown(page: str, tables: Mapping[str, str]) -> str:
    """The page with new tables, each between two lines: `<!-- gains -->`, `<!-- /gains -->`."""
    for name, text in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        head, _, rest = page.partition(start)
        _, _, tail = rest.partition(end)
        page = f"{head}{start}\n\n{text}\n\n{end}{tail}"
    return page
