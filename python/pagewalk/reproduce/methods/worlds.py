"""A small world whose numbers are exact: frames and entries counted one by one.

Parameter: `world`, a figure of G98. A row per number, all in the column `count`.
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
