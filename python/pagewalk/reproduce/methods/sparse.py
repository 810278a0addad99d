"""Page tables of sparse spaces: bytes per page (E99 §3.3, "sparse benchmarks").

* `uniform`: single pages at random 64-bit addresses;
* `file`: objects at random addresses, with the lengths of files.

Parameters: `machine`; `designs`; `pages`, a list of numbers of pages; `chains`, the designs for
which the references of a walk are counted too; and `over`. If `over` is `pages`, the columns are
the numbers of pages, and there is a row per design and distribution. If it is `designs`, the
columns are the designs, and there is a row per distribution with averages over the numbers of
pages. The placement is the seed of the pages' addresses.

With `over = "designs"` there are further rows. `worst case` is a guarded table in which every node
has two entries in use (Liedtke 1996), so that each page except the first needs another node. Two
rows divide `worst case` and `uniform` by their numbers with nodes of two entries. One row divides
the number of `uniform` with the most pages by that with the fewest.
"""

import bisect
import random
from typing import Any

from pagewalk.page_table import PageTable
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table, mean

PAGE = 4096
ENTRY = 16
"""Bytes of an entry of a guarded node, and of a pair of pages (E99 §3.2)."""
DISTRIBUTIONS = ("uniform", "file")


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Bytes of tables in use over pages mapped."""
    designs: list[str] = parameters["designs"]
    counts: list[int] = parameters["pages"]
    chains: list[str] = parameters.get("chains", [])
    bytes_: dict[tuple[str, str, int], float | None] = {}
    references: dict[tuple[str, str, int], float | None] = {}
    for distribution in DISTRIBUTIONS:
        for count in counts:
            space = addresses(distribution, count, lab.placement or 0, parameters["file_pages"])
            for design in designs:
                bench = lab.bench(parameters["machine"], design)
                number = _mapped(bench, space)
                bytes_[distribution, design, count] = bench.footprint.table_bytes / count
                if design in chains:
                    walked = bench.walk(number, space)
                    references[distribution, design, count] = walked.reads / count
    if parameters["over"] == "designs":
        return _over_designs(designs, counts, bytes_)
    table = Table([str(count) for count in counts])
    for name, numbers, named in (("", bytes_, designs), (", references", references, chains)):
        for design in named:
            for distribution in DISTRIBUTIONS:
                row = [numbers[distribution, design, count] for count in counts]
                table.rows[f"{design} {distribution}{name}"] = row
    for distribution in DISTRIBUTIONS:
        if {"C128k", "H128k"} <= set(designs):
            pair = [table.rows[f"{design} {distribution}"] for design in ("C128k", "H128k")]
            table.rows[f"C128k of H128k, {distribution}"] = _over(*pair)
    return table


def _over_designs(
    designs: list[str], counts: list[int], bytes_: dict[tuple[str, str, int], float | None]
) -> Table:
    table = Table(designs)
    for distribution in DISTRIBUTIONS:
        table.rows[distribution] = [
            mean([bytes_[distribution, design, count] for count in counts]) for design in designs
        ]
    worst = [_worst(design) for design in designs]
    least = designs.index("G2")
    table.rows["worst case"] = worst
    for name, row in (("uniform", table.rows["uniform"]), ("worst case", worst)):
        table.rows[f"{name}, of G2"] = _over(row, [row[least]] * len(row))
    ends = [[bytes_["uniform", design, count] for design in designs]
            for count in (max(counts), min(counts))]  # fmt: skip
    table.rows["uniform, most pages over fewest"] = _over(*ends)
    return table


def _worst(design: str) -> float | None:
    """Bytes per page of a guarded table whose nodes have two entries in use each."""
    entries = design.removeprefix("G")
    return ENTRY * int(entries) + ENTRY if entries.isdigit() else None


def _over(one: list[float | None], other: list[float | None]) -> list[float | None]:
    return [a / b if a is not None and b else None for a, b in zip(one, other, strict=True)]


def addresses(distribution: str, count: int, seed: int, sizes: list[list[float]]) -> list[int]:
    """`count` pages of a space, by address; `sizes`: pages per file, cumulative share."""
    rng = random.Random(seed)
    taken: set[int] = set()
    while len(taken) < count:
        length = 1
        if distribution == "file":
            place = bisect.bisect_left([share for _, share in sizes], rng.random())
            low = int(sizes[place - 1][0]) + 1 if place else 1
            length = rng.randint(low, int(sizes[place][0]))
        first = rng.randrange((1 << 64) // PAGE - length)
        taken.update(range(first, first + min(length, count - len(taken))))
    return [page * PAGE for page in sorted(taken)]


def _mapped(bench: PageTable, space: list[int]) -> int:
    """The number of a new space with these pages, which come in no order."""
    number, _ = bench.create()
    order = list(space)
    random.Random(len(space)).shuffle(order)
    bench.map(number, order)
    return number
