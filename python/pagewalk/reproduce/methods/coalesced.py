"""Large pages from used memory, by the effort of the daemon (G98 section 6.4).

Parameters: `machine`, `program`, `accesses`, `region` (the region for which page sizes are
requested), `sizes` (columns), `aged` (by name: values of `memory.aged`), `levels`, `ordered` (by
name: values of `memory.ordered`), `daemon` (keys of `os.coalesced` other than `level`), `watermark`
(bytes of free pages of the size in question that the daemon makes), and `measure`:

* `obtained`: the share of the requested bytes that is in pages of the requested size, in per cent;
* `moved`: base pages migrated per large page obtained;
* `flushed`: shootdowns for these migrations, per large page obtained.

There is a row per state of memory, ordering and level. The level `none` stands for runs without the
daemon.
"""

from collections.abc import Iterator
from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """A row per state, ordering and level."""
    sizes = parameters["sizes"]
    trace = lab.trace(parameters["program"], parameters["accesses"])
    rows = dict(_rows(parameters))
    settings = [[*changes, *_wish(parameters, level, size)]
                for changes, level in rows.values() for size in sizes]  # fmt: skip
    runs = iter(lab.runs(trace, parameters["machine"], settings))
    table = Table(list(sizes))
    for name in rows:
        table.rows[name] = [_number(parameters["measure"], size, next(runs)) for size in sizes]
    return table


def _rows(parameters: dict[str, Any]) -> Iterator[tuple[str, tuple[list[str], str]]]:
    for state, aged in parameters["aged"].items():
        for order, ordered in parameters["ordered"].items():
            for level in parameters["levels"]:
                changes = [f"memory.aged={aged}", f"memory.ordered={str(ordered).lower()}"]
                yield " ".join(filter(None, (state, order, level))), (changes, level)


def _wish(parameters: dict[str, Any], level: str, size: str) -> list[str]:
    wish = f"os.place=region {parameters['region']}={size}"
    if level == "none":
        return [wish]
    watermark = f'watermarks={{"{size}"="{parameters["watermark"]}"}}'
    daemon = f'os.coalesced={{{parameters["daemon"]},level="{level}",{watermark}}}'
    return [wish, daemon]


def _number(measure_: str, size: str, run: Results) -> float | None:
    decisions = run["manager"]["sizes"]
    pages = sum(one["pages"] for one in decisions if one["got"] == size and one["wanted"] == size)
    if measure_ == "obtained":
        wished = sum(one["pages"] * _bytes(one["got"]) for one in decisions)
        return 100 * pages * _bytes(size) / wished if wished else None
    daemon = run["manager"]["daemon"]
    if not pages or daemon is None:
        return None
    key = {"moved": "moved", "flushed": "flushes"}[measure_]
    return float(sum(sample[key] for sample in daemon["over_time"]) / pages)


def _bytes(size: str) -> int:
    return int(size[:-1]) * UNITS[size[-1]]
