"""Clients of a server in small spaces, more of them than slots (U02 section 5).

Parameters: `machine`, whose `[os.costs]` are the prices; `clients` (a column each), `ring` (how
many talk to each other), `large` (programs that are never small), `slot_bytes`, `entries` (of its
root that a client has pages under), `calls`, `stay` (calls until another ring goes on), `schedule`
(who has a slot), `revoke` (rows of each) and `seed`.

Rows, a policy each: `roots` and `entries`, looked through and emptied for a slot that changes hands
(none where none did); `recycled`, such slots per 1000 switches; `loads`, roots loaded per 1000
switches; `mean` and `worst`, cycles of a switch.
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
