"""Which program runs after which, among programs that run together (U02 section 5.2).

Parameters:

* `columns`, by name: `trace`, a program or a generator, its number of `accesses`, and `kernel`, if
  a kernel's path is added;
* `slots`: the small spaces for which a group has room.

Rows:

* `switches`: all switches;
* `to and from Linux`: the share of switches from or to a Linux at user level;
* `within groups`: the share of switches between spaces of the same group, or from or to a space
  that is in all groups;
* `groups`: the number of groups of more than one space, and `largest`: the number of spaces of the
  largest group, both with the spaces that are in all groups;
* `partners`: the number of spaces from which a space is switched to, as the mean over the spaces
  without Linux.
"""

from typing import Any

from pagewalk import switches
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table
from pagewalk.trace import Trace


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """The switches of each column, and their graph."""
    columns = parameters["columns"]
    table = Table(list(columns))
    for name, column in columns.items():
        recorded = lab.trace(column["trace"], column["accesses"])
        trace = Trace(recorded.source, kernel=column.get("kernel"))
        document = switches.switches(trace, slots=parameters["slots"])
        for row, number in _numbers(document).items():
            table.rows.setdefault(row, []).append(number)
        table.drawings[name] = switches.graph(document, name)
    return table


def _numbers(document: dict[str, Any]) -> dict[str, float | None]:
    names, pairs = document["names"], document["pairs"]
    everywhere = set(document["everywhere"])
    group = {space: index for index, one in enumerate(document["groups"]) for space in one}
    server = {int(space) for space, name in names.items() if name == "linux"}
    everyone = sum(count for *_, count in pairs)
    partners: dict[int, set[int]] = {}
    within = served = 0
    for one, other, count in pairs:
        ends = {one, other}
        within += count * bool(ends & everywhere or group.get(one) == group.get(other))
        served += count * bool(ends & server)
        for here, there in ((one, other), (other, one)):
            partners.setdefault(here, set()).update({there} - server)
    others = [len(them) for space, them in partners.items() if space not in server]
    sizes = [len(everywhere.union(one)) for one in document["groups"] or [[]]]
    sizes = [size for size in sizes if size > 1]
    return {
        "switches": float(everyone),
        "to and from Linux": served / everyone if everyone else None,
        "within groups": within / everyone if everyone else None,
        "groups": float(len(sizes)),
        "largest": float(max(sizes, default=0)),
        "partners": sum(others) / len(others) if others else None,
    }
