"""A server write-protects pages that a client has mapped from it, and unprotects them again.

These are E99's "mapping benchmarks" (§3.3).

Parameters: `machine`, `designs`, `rounds`, `beside_bytes` (the bytes of a further segment that is
mapped but never touched), and either

* `pages`: the number of adjacent pages, which are protected one by one (row PROT1) or at once
  (PROTN), and then unprotected one by one in random order, each by an IPC that maps the page
  again; with a column per design; or
* `regions`: the sizes of regions in which `pages` pages are at random places; with a row per
  design and a column per region. All pages are protected by one operation on the region, and
  unprotected one by one by an IPC each. Only protecting is counted. Designs in `alone` also have a
  row without the further segment, and a row with the ratio of both.

Numbers are cycles per page and round: the cycles of references to tables and mapping lists in the
machine's caches, and one cycle per instruction of the kernel's path.
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
    pages = [(REGION + page * PAGE, PAGE) for page in range(count)]
    addresses = [addr for addr, _ in pages]
    bench, server, client = _tasks(parameters, lab.bench(parameters["machine"], design), addresses)
    rng = random.Random(lab.placement)
    cycles = 0
    for _ in range(rounds):
        ranges = [(REGION, count * PAGE)] if whole else pages
        cycles += _cycles(bench.restrict(server, ranges, READ_ONLY))
        back = list(addresses)
        rng.shuffle(back)
        cycles += _cycles(bench.hand(server, client, back, ALL))
    return cycles / rounds / count


def _sparse(parameters: dict[str, Any], lab: Lab, design: str, region: int) -> float:
    count, rounds = int(parameters["pages"]), int(parameters["rounds"])
    chosen = random.Random(f"{region} {lab.placement}").sample(range(region // PAGE), count)
    addresses = [REGION + page * PAGE for page in chosen]
    bench, server, client = _tasks(parameters, lab.bench(parameters["machine"], design), addresses)
    cycles = 0
    for _ in range(rounds):
        cycles += _cycles(bench.restrict(server, [(REGION, region)], READ_ONLY))
        bench.hand(server, client, addresses, ALL)
    return cycles / rounds / count


def _cycles(work: Work) -> int:
    return work.cycles + work.instructions


def _tasks(
    parameters: dict[str, Any], bench: PageTable, addresses: list[int]
) -> tuple[PageTable, int, int]:
    """A server with these pages, and a client that has mapped them from the server.

    The client has also mapped the segment beside, if there is one. Each of the two has code and a
    stack of its own.
    """
    server, client = (bench.create()[0] for _ in range(2))
    for task in (server, client):
        bench.map(task, [CODE, STACK])
    beside = range(BESIDE, BESIDE + parameters.get("beside_bytes", 0), PAGE)
    for pages in (list(beside), addresses):
        bench.map(server, pages)
        bench.hand(server, client, pages, ALL)
    return bench, server, client
