"""Page tables of spaces that are sparse: bytes a page (E99 §3.3, "sparse benchmarks").

* `uniform`: single pages anywhere in 64 bits of address;
* `file`: objects anywhere, as long as files are.

Parameters: `machine`, `designs`, `pages` (how many, a list), `seeds` (how many sequences), and
`over`: whether the columns are `pages` (a row a design and distribution) or `designs` (a row a
distribution, averaged over the numbers of pages).
"""

import bisect
import random
from typing import Any

from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table, mean
from pagewalk.workbench import Workbench

PAGE = 4096
DISTRIBUTIONS = ("uniform", "file")


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Bytes of tables in use over pages mapped."""
    designs: list[str] = parameters["designs"]
    counts: list[int] = parameters["pages"]
    sizes = parameters["file_pages"]
    bytes_: dict[tuple[str, str, int], float | None] = {}
    for distribution in DISTRIBUTIONS:
        for count in counts:
            spaces = [
                addresses(distribution, count, seed, sizes)
                for seed in range(1, parameters["seeds"] + 1)
            ]
            for design in designs:
                settings = lab.settings(design)
                taken = [_bytes_a_page(parameters["machine"], settings, space) for space in spaces]
                bytes_[distribution, design, count] = mean(taken)
    if parameters["over"] == "designs":
        return Table(
            designs,
            {
                distribution: [
                    mean([bytes_[distribution, design, count] for count in counts])
                    for design in designs
                ]
                for distribution in DISTRIBUTIONS
            },
        )
    return Table(
        [str(count) for count in counts],
        {
            f"{design} {distribution}": [bytes_[distribution, design, count] for count in counts]
            for design in designs
            for distribution in DISTRIBUTIONS
        },
    )


def addresses(distribution: str, count: int, seed: int, sizes: list[list[float]]) -> list[int]:
    """`count` pages of a space, by address; `sizes` has pages a file and its cumulative share."""
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


def _bytes_a_page(machine: str, settings: list[str], space: list[int]) -> float:
    bench = Workbench(machine, settings)
    number, _ = bench.create()
    order = list(space)
    random.Random(len(space)).shuffle(order)
    bench.map(number, order)
    return bench.footprint.table_bytes / len(space)
