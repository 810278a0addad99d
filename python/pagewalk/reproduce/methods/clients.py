"""Clients of a server in small spaces, with more clients than slots (U02 section 5).

Parameters:

* `machine`: its `[os.costs]` are the prices;
* `clients`: the numbers of clients, a column each;
* `ring`: the number of clients that communicate with each other;
* `large`: the number of programs that are never small;
* `slot_bytes`, and `entries`: the number of root entries below which a client has pages;
* `calls`: the number of calls, and `stay`: the number of calls until another ring takes over;
* `schedule`: which space gives up a slot;
* `revoke`: the policies of revoking a slot, with rows of their own;
* `seed`.

Rows, for each policy:

* `roots`, `entries`: roots searched and entries emptied per slot that is given to another space (no
  number if no slot was given to another space);
* `recycled`: slots given to another space per 1000 switches;
* `loads`: roots loaded per 1000 switches;
* `mean`, `worst`: cycles of a switch.
"""

import json
from typing import Any

from pagewalk import _native
from pagewalk.machine import Machine
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table

_SAME = ("ring", "large", "slot_bytes", "entries", "calls", "stay", "schedule", "seed")


def measure(parameters: dict[str, Any], _: Lab) -> Table:
    """Each policy with each number of clients."""
    table = Table([str(count) for count in parameters["clients"]])
    same = {key: parameters[key] for key in _SAME}
    machine = Machine(parameters["machine"]).native
    for revoke in parameters["revoke"]:
        for clients in parameters["clients"]:
            made = json.loads(
                _native.small_clients(machine=machine, clients=clients, revoke=revoke, **same)
            )
            recycled, switches = made["recycled"], made["switches"]
            numbers = {
                "roots": made["roots_purged"] / recycled if recycled else None,
                "entries": made["entries_purged"] / recycled if recycled else None,
                "recycled": 1000 * recycled / switches,
                "loads": 1000 * made["root_loads"] / switches,
                "mean": made["mean_cycles"],
                "worst": float(made["worst_cycles"]),
            }
            for name, number in numbers.items():
                table.rows.setdefault(f"{revoke} {name}", []).append(number)
    return table
