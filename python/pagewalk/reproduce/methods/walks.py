"""Programs on a machine with different designs: the cost of a walk in references.

Parameters:

* `machine`, `accesses`, `fetches`, and `set`, changes for every run;
* `programs`, the rows: programs or generators by name;
* `warmup`: the number of accesses at the beginning that are not counted;
* `averages`, further rows by name: the rows of which each is the average. After the first average
  come the least and the greatest of its rows;
* `columns`, by name: a design and one of the numbers below;
* `kernel`: `columns` and `rows`: for these rows, a whole system that runs the program is recorded
  too, with the kernel's accesses. The columns are repeated for it, with `, kernel` behind their
  names;
* `spread`: bytes by which the program's mappings are moved apart, if any.

Numbers are averages per walk:

* `instructions`, `accesses`, `dram`: of the program between two walks; `dram` counts its accesses
  that no cache served;
* `lookups`: of the MMU cache;
* `references`: of walks for pages that had been touched before;
* `walk_dram`: those of `references` that memory served; `walk_l2`: those that a cache served;
* `references_1000`: references of all walks per 1000 accesses of the program;
* `misses_1000`: walks per 1000 accesses of the program;
* `all_references`: of all walks, in both dimensions of a virtual machine;
* `upper`: references above the lowest level, which an MMU cache can save;
* `spared`: the number of the three entries above the lowest level that the MMU cache served;
* `beyond`: the share of walks for pages touched before that took more references than the least:
  walks that a software TLB or TSB did not serve, or that followed a chain;
* `l2_share`: the share of the references that a cache served;
* `table_bytes`: bytes of the table per page;
* `small`: the share of walks for base pages;
* `reserved`: memory that is reserved and not in use, divided by the memory in use at the end;
* the numbers of a SpecTLB in `speculation`.

All numbers are over TLB misses. The first touch of a page causes two walks. The second walk finds
in the caches what the first one read, so it adds nothing to the references that memory serves.
"""

from collections.abc import Callable
from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.methods import speculation
from pagewalk.reproduce.table import Table, mean


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The table: one row per program, then the averages."""
    columns: dict[str, list[Any]] = parameters["columns"]
    kernel = parameters.get("kernel", {"columns": [], "rows": []})
    again = {name: columns[name] for name in kernel["columns"]}
    table = Table([*columns, *(f"{name}, kernel" for name in again)])
    for row, program in parameters["programs"].items():
        table.rows[row] = _row(program, columns, parameters, lab, system=False)
        if row in kernel["rows"]:
            table.rows[row] += _row(program, again, parameters, lab, system=True)
        else:
            table.rows[row] += [None] * len(again)
    for name, members in parameters.get("averages", {}).items():
        rows = [table.rows[member] for member in members]
        table.rows[name] = [mean(column) for column in zip(*rows, strict=True)]
        for bound, number in (("(least)", min), ("(most)", max)):
            if bound not in table.rows:
                table.rows[bound] = [
                    number(known) if (known := [cell for cell in column if cell is not None])
                    else None for column in zip(*rows, strict=True)
                ]  # fmt: skip
    return table


def _row(
    program: str, columns: dict[str, list[Any]], parameters: dict[str, Any], lab: Lab, system: bool
) -> list[float | None]:
    """The numbers of a program, or of a whole system that runs it."""
    # The designs of the columns, by the block size of `--spread` (None: mappings are not moved).
    apart: dict[int | None, list[str]] = {}
    for design, _, *spread in columns.values():
        designs = apart.setdefault(spread[0] if spread else None, [])
        if design not in designs:
            designs.append(design)
    machine, every = parameters["machine"], parameters.get("set", [])
    fetches = parameters.get("fetches", False)
    recorded = lab.trace(program, parameters["accesses"], fetches, system)
    runs: dict[tuple[str, int | None], Results] = {}
    for block, designs in apart.items():
        trace = lab.warmed(recorded, parameters.get("warmup", 0), block)
        settings = [[*every, *lab.settings(design)] for design in designs]
        found = lab.runs(trace, machine, settings)
        runs |= {(design, block): run for design, run in zip(designs, found, strict=True)}
    return [
        NUMBERS[number](runs[design, spread[0] if spread else None])
        for design, number, *spread in columns.values()
    ]


def served(run: Results, place: str) -> int:
    """Walk references that `place` served, of both dimensions in a virtual machine."""
    levels = [*run["walks"]["by_level"], *(run.get("nested") or {"by_level": []})["by_level"]]
    return sum(level["served"].get(place, 0) for level in levels)


def upper(run: Results) -> int:
    """Walk references above the lowest level of the table."""
    levels = run["walks"]["by_level"]
    lowest = min((level["level"] for level in levels if level["references"]), default=0)
    return sum(level["references"] for level in levels if level["level"] > lowest)


def _a_miss(count: Callable[[Results], int]) -> Callable[[Results], float | None]:
    return lambda run: count(run) / run["walks"]["walks"] if run["walks"]["walks"] else None


def _references(run: Results) -> float | None:
    walks = run["walks"]
    warm = walks["walks"] - walks["cold"]
    return (walks["references"] - walks["cold_references"]) / warm if warm else None


def _references_1000(run: Results) -> float | None:
    accesses = _accesses(run)
    return 1000 * run["walks"]["references"] / accesses if accesses else None


def _misses_1000(run: Results) -> float | None:
    accesses = _accesses(run)
    return 1000 * run["walks"]["walks"] / accesses if accesses else None


def _l2(run: Results) -> float | None:
    references, dram = _references(run), NUMBERS["walk_dram"](run)
    return None if references is None or dram is None else references - dram


def _lookups(run: Results) -> float | None:
    walks = run["walks"]["walks"] + run["walks"]["cold"]
    return run["mmu_cache"]["searches"] / walks if walks else None


def _accesses(run: Results) -> int:
    return sum(run["accesses"].values())


def _dram(run: Results) -> int:
    last = run["caches"][-1]["program"]
    return int(last["read_misses"] + last["write_misses"])


def _beyond(run: Results) -> float | None:
    histogram = run["walks"]["references_per_walk"]
    walks = sum(count for _, count in histogram)
    return 1 - histogram[0][1] / walks if walks else None


def _l2_share(run: Results) -> float | None:
    references, cached = _references(run), _l2(run)
    return cached / references if references and cached is not None else None


def _spared(run: Results) -> float | None:
    upper_ = NUMBERS["upper"](run)
    return None if upper_ is None else 3 - upper_


def _small(run: Results) -> float | None:
    last = [tlb["by_page_size"] for tlb in run["tlbs"]][-1]
    misses = {size: counts["misses"] for size, counts in last.items()}
    return misses.get("4K", 0) / sum(misses.values()) if any(misses.values()) else None


def _table_bytes(run: Results) -> float | None:
    pages = sum(run["memory"]["pages_by_size"].values())
    return run["memory"]["table_used_bytes"] / pages if pages else None


def _reserved(run: Results) -> float | None:
    held = run["manager"]["bytes"]
    used = sum(held[kind] for kind in ("anonymous", "file", "shared", "tables"))
    return held["reserved"] / used if used else None


NUMBERS: dict[str, Callable[[Results], float | None]] = {
    "instructions": _a_miss(lambda run: int(run["instructions"])),
    "accesses": _a_miss(_accesses),
    "dram": _a_miss(_dram),
    "lookups": _lookups,
    "references": _references,
    "references_1000": _references_1000,
    "misses_1000": _misses_1000,
    "all_references": _a_miss(lambda run: int(run["walks"]["references"])),
    "walk_dram": _a_miss(lambda run: served(run, "memory")),
    "walk_l2": _l2,
    "upper": _a_miss(upper),
    "spared": _spared,
    "beyond": _beyond,
    "l2_share": _l2_share,
    "table_bytes": _table_bytes,
    "small": _small,
    "reserved": _reserved,
    **speculation.NUMBERS,
}
