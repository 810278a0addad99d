"""Loading and unloading the pages of a sparse space, by the size of its areas (K94 §6.2).

Parameters: `machine`, `designs`, `pages` (of the space), `areas` (a list of sizes, in pages per
area). There is a row per design and a column per size, and per design a row `NAME, bytes`: bytes of
its table in use per page. Areas lie at random places of a 32-bit space, each at a multiple of its
size. Pages are loaded area by area, each by one operation. Then areas are unloaded in another
random order, each by one operation.

Numbers are cycles per page: the cycles of references to tables and page-frame descriptors through
the caches of the machine, and one cycle for each instruction of the kernel's path.
"""

import random
from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table

PAGE = 4096
SPACE = 1 << 31


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per design."""
    areas: list[int] = parameters["areas"]
    table = Table([str(area) for area in areas])
    for design in parameters["designs"]:
        both = [_area(parameters, lab, design, area) for area in areas]
        table.rows[design] = [cycles for cycles, _ in both]
        table.rows[f"{design}, bytes"] = [size for _, size in both]
    return table


def _area(parameters: dict[str, Any], lab: Lab, design: str, area: int) -> tuple[float, float]:
    pages = int(parameters["pages"])
    rng = random.Random(f"{area} {lab.placement}")
    starts = rng.sample(range(1, SPACE // PAGE // area), pages // area)
    ranges = [(start * area * PAGE, area * PAGE) for start in starts]
    bench = lab.bench(parameters["machine"], design)
    space, _ = bench.create()
    addresses = [addr + offset for addr, size in ranges for offset in range(0, size, PAGE)]
    loaded = bench.map(space, addresses)
    size = bench.footprint.table_bytes / len(addresses)
    rng.shuffle(ranges)
    gone = bench.unmap(space, ranges)
    cycles = sum(work.cycles + work.instructions for work in (loaded, gone))
    return cycles / len(addresses), size
