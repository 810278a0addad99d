"""A file used three times: in base pages, with large pages requested, and upgraded (G98 §6.8).

Parameters: `machine`, `program` (workloads/upgrade.c: use n maps the file at n times 256 MB),
`accesses`, `set`. Rows, in the column `count`: misses of each use; `wished in base pages`, the
bytes in smaller pages as a share of the bytes for which the second use requests large pages, in per
cent; and `upgraded`, the upgraded share of the file's bytes, in per cent.
"""

from typing import Any

from pagewalk.machine import Machine
from pagewalk.progress import ProgressLine
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table

APART = 1 << 28
UNITS = {"K": 1 << 10, "M": 1 << 20}


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The counts of one run."""
    trace = lab.trace(parameters["program"], parameters["accesses"])
    with ProgressLine(parameters["program"]) as shown:
        machine = Machine(parameters["machine"], parameters.get("set", []))
        run = machine.run(trace, progress=shown).data
    regions = {region["start"] // APART: region for region in run["regions"]
               if region["start"] % APART == 0 and region["start"]}  # fmt: skip
    sizes, upgrades = run["manager"]["sizes"], run["manager"]["upgrades"]
    wished = sum(one["pages"] * _bytes(one["got"]) for one in sizes)
    smaller = (one for one in sizes if one["got"] != one["wanted"])
    kept = sum(one["pages"] * _bytes(one["got"]) for one in smaller)
    upgraded = sum(
        one["pages"] * _bytes(one["got"]) for one in upgrades if one["got"] == one["wanted"]
    )
    table = Table(["count"])
    for use in (1, 2, 3):
        table.rows[f"misses of use {use}"] = [float(regions[use]["misses"])]
    table.rows["wished in base pages"] = [100 * kept / wished if wished else None]
    table.rows["upgraded"] = [100 * upgraded / regions[3]["bytes"]]
    return table


def _bytes(size: str) -> int:
    return int(size[:-1]) * UNITS[size[-1]]
