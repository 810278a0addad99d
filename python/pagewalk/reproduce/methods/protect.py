"""Pages are write-protected and unprotected again (E99 §3.3, "mapping benchmarks").

Parameters: `machine`, `designs`, `rounds`, `beside_bytes` (a segment mapped beside, untouched),
and either

* `pages`: adjacent pages, protected one by one (row PROT1) or at once (PROTN), then unprotected
  one by one in random order; a column a design; or
* `regions`: bytes of regions in which `pages` pages lie at random; one row per design, one column
  per region. All are protected by one operation on the region and unprotected by another. Designs
  in `alone` have a row without the segment beside too, and one of how much dearer it makes them.

Numbers are cycles per page and round: those of references, in the caches of the machine, and one
for each instruction of the kernel's path.
"""

import random
from typing import Any

from pagewalk.page_table import EXECUTE, READ, USER, WRITE, PageTable, Work
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table

PAGE = 4096
CODE, STACK, BESIDE, REGION = 0x40_0000, 0x7FFF_F000, 0x1000_0000, 0x4000_0000
READ_ONLY = READ | EXECUTE | USER
ALL = READ_ONLY | WRITE


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Cycles per page."""
    designs: list[str] = parameters["designs"]
    if "regions" not in parameters:
        table = Table(list(designs), {"PROT1": [], "PROTN": []})
        for design in designs:
            table.rows["PROT1"].append(_compact(parameters, lab, design, whole=False))
            table.rows["PROTN"].append(_compact(parameters, lab, design, whole=True))
        return table
    regions: list[int] = parameters["regions"]
    table = Table([str(region) for region in regions])
    for design in designs:
        table.rows[design] = [_sparse(parameters, lab, design, region) for region in regions]
    for design in parameters.get("alone", []):
        without = {**parameters, "beside_bytes": 0}
        alone = [_sparse(without, lab, design, region) for region in regions]
        beside = [cell or 0.0 for cell in table.rows[design]]
        table.rows[f"{design}, alone"] = list[float | None](alone)
        table.rows[f"{design} degraded"] = [
            one / other for one, other in zip(beside, alone, strict=True)
        ]
    return table


def _compact(parameters: dict[str, Any], lab: Lab, design: str, whole: bool) -> float:
    count, rounds = int(parameters["pages"]), int(parameters["rounds"])
    bench, client = _client(parameters, lab.bench(parameters["machine"], design))
    pages = [(REGION + page * PAGE, PAGE) for page in range(count)]
    bench.map(client, [addr for addr, _ in pages])
    rng = random.Random(lab.placement)
    cycles = 0
    for _ in range(rounds):
        if whole:
            cycles += _cycles(bench.protect(client, [(REGION, count * PAGE)], READ_ONLY))
        else:
            cycles += _cycles(bench.protect(client, pages, READ_ONLY))
        back = list(pages)
        rng.shuffle(back)
        cycles += _cycles(bench.protect(client, back, ALL))
    return cycles / rounds / count


def _sparse(parameters: dict[str, Any], lab: Lab, design: str, region: int) -> float:
    count, rounds = int(parameters["pages"]), int(parameters["rounds"])
    bench, client = _client(parameters, lab.bench(parameters["machine"], design))
    chosen = random.Random(f"{region} {lab.placement}").sample(range(region // PAGE), count)
    bench.map(client, [REGION + page * PAGE for page in chosen])
    cycles = 0
    for _ in range(rounds):
        for rights in (READ_ONLY, ALL):
            cycles += _cycles(bench.protect(client, [(REGION, region)], rights))
    return cycles / rounds / count


def _cycles(work: Work) -> int:
    return work.cycles + work.instructions


def _client(parameters: dict[str, Any], bench: PageTable) -> tuple[PageTable, int]:
    """A task with code, stack, and the segment beside if there is one."""
    client, _ = bench.create()
    bench.map(client, [CODE, STACK])
    beside = parameters.get("beside_bytes", 0)
    if beside:
        bench.map(client, [BESIDE + offset for offset in range(0, beside, PAGE)])
    return bench, client
