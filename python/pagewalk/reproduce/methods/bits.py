"""The sizes of MMU caches in bits; no program is run.

Parameters: `machine` and `designs`, settings by name. There is a row per array of a design, named
after its level if there are several arrays. The columns are the number of arrays of the design,
and the bits of an entry's tag and of its data. With `circuits`, the columns are the costs of
circuits by §4.4 of B10 instead.
"""

from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table

CIRCUITS = ["multiplexers", "wires", "bypass transistors"]
TRACE = "generate:uniform,size=64K"


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per array."""
    circuits = parameters.get("circuits", False)
    table = Table(CIRCUITS if circuits else ["caches", "tag", "data"])
    designs: dict[str, list[str]] = parameters["designs"]
    runs = lab.runs(lab.trace(TRACE, 100), parameters["machine"], list(designs.values()))
    for name, run in zip(designs, runs, strict=True):
        arrays = run["mmu_cache"]["arrays"]
        for array in sorted(arrays, key=lambda one: -(one["level"] or 0)):
            row = name if len(arrays) == 1 else f"{name} L{array['level']}"
            tag, data = array["tag_bits"], array["data_bits"]
            multiplexers = (tag + data) * (array["entries"] - 1)
            bypassed = 2 * tag * array["entries"]
            table.rows[row] = (
                [multiplexers, 2 * multiplexers, bypassed] if circuits else [len(arrays), tag, data]
            )
    lab.clear()
    return table
