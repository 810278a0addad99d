"""Exact numbers of a small example: frames and entries counted one by one.

Parameter: `world`, the name of a figure of G98. Each number is a row of the column `count`.
"""

from typing import Any

from pagewalk import _native
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table


def measure(parameters: dict[str, Any], _: Lab) -> Table:
    """The numbers of the figure `parameters["world"]`."""
    table = Table(["count"])
    for name, count in _native.world(parameters["world"]):
        table.rows[name] = [float(count)]
    return table
