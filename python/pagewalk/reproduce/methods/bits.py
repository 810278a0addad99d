"""The bits that MMU caches take: no program is run for them.

Parameters: `machine` and `designs`, a name for each and its settings. A row is an array of a
design, named by its level where there are several; columns are how many arrays the design has,
and the bits of an entry's tag and of its data.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table

TRACE = "generate:uniform,size=64K"


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: a row an array."""
    table = Table(["caches", "tag", "data"])
    designs: dict[str, list[str]] = parameters["designs"]
    runs = lab.runs(lab.trace(TRACE, 100), parameters["machine"], list(designs.values()))
    for name, run in zip(designs, runs, strict=True):
        arrays = run["mmu_cache"]["arrays"]
        for array in sorted(arrays, key=lambda one: -(one["level"] or 0)):
            row = name if len(arrays) == 1 else f"{name} L{array['level']}"
            table.rows[row] = [len(arrays), array["tag_bits"], array["data_bits"]]
    lab.used.clear()
    return table
