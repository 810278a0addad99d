"""The changes from one result to another, largest first.

```
 A.json  --measures-->  {"l1d misses per 1000 accesses": 12.1, ...}  --+
 B.json  --measures-->  {"l1d misses per 1000 accesses":  3.0, ...}  --+--> Change, by |log2 B/A|
```

Each measure has the number of events from which it was computed. A change based on fewer than 100
events is not reliable, and is listed last.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pagewalk import origins, text
from pagewalk.report import values
from pagewalk.report.values import EVENTS_MIN

if TYPE_CHECKING:
    from pagewalk import plain

Measures = dict[str, tuple[float, float]]
"""For each name: the value, and the number of events from which the value was computed."""


@dataclass(frozen=True)
class Change:
    """A measure that both results have, with different values."""

    measure: str
    a: float
    b: float
    factor: float | None
    """`b / a`. `None` if `a` is zero."""
    events: float
    """The number of events from which the larger of the two values was computed."""

    @property
    def size(self) -> float:
        """The size of the change: log2 of the larger value divided by the smaller one."""
        return math.inf if self.a == 0 or self.b == 0 else abs(math.log2(self.b / self.a))


def changes(a: "plain.Document", b: "plain.Document") -> list[Change]:
    """The changes between two results documents, largest first."""
    before, after = measures(a), measures(b)
    found = []
    for name in before | after:
        (one, events), (other, other_events) = (side.get(name, (0, 0)) for side in (before, after))
        if one != other:
            factor = other / one if one else None
            found.append(Change(name, one, other, factor, max(events, other_events)))
    return sorted(found, key=lambda one: (one.events < EVENTS_MIN, -one.size, -one.events))


def measures(document: "plain.Document") -> Measures:
    """The measures of a results document, by which it is compared with another one."""
    accesses = max(values.accesses(document), 1)
    found: Measures = {"instructions": (document["instructions"],) * 2}
    kinds = document["accesses"]
    for kind, number in (
        ("fetch", kinds["fetch"]),
        ("load", kinds["load"]),
        ("store", kinds["store"]),
    ):
        found[f"{kind} accesses"] = (number, number)

    def add(name: str, value: float, events: float) -> None:
        found[name] = (value, events)

    for tlb in document["tlbs"]:
        misses = tlb["misses"]
        add(f"{tlb['name']} TLB misses per 1000 accesses", 1000 * misses / accesses, misses)
    missed = values.missing_all(document)
    add("misses of every TLB per 1000 accesses", 1000 * missed / accesses, missed)
    walks = document["walks"]
    if walks["references"]:
        add("walk references", walks["references"], walks["references"])
        exact = values.per_walk(document).exact or 0.0
        add("references per walk of a mapped page", exact, walks["references"])
        memory = sum(level["served"].get("memory", 0) for level in walks["by_level"])
        add("walk references served by memory", memory, memory)
    add("first touches", document["faults"]["first_touch"], document["faults"]["first_touch"])
    tables = document["memory"]["table_bytes"]
    add("page tables, bytes", tables, EVENTS_MIN)
    if document["time"] is not None:
        ends = document["time"]["share"]
        for share, says in ((ends["lo"], "at least"), (ends["hi"], "at most")):
            add(f"share of the cycles in translation, {says}", share, missed)
    for region in document["regions"]:
        name = f"misses in {origins.region_name(region)}"
        before = found.get(name, (0, 0))[0]
        add(name, before + region["misses"], before + region["misses"])
    return found


def setup(a: "plain.Document", b: "plain.Document") -> list[str]:
    """The differences between the setups: traces, machines, and keys of the machines."""
    lines = []
    for what, one, other in (
        ("trace", a["trace"].get("name"), b["trace"].get("name")),
        ("contents of the trace", a["trace"]["digest"], b["trace"]["digest"]),
        ("machine", a["machine"]["name"], b["machine"]["name"]),
        ("version of Pagewalk", a["pagewalk"], b["pagewalk"]),
    ):
        if one != other:
            lines.append(f"{what}: {one} -> {other}")
    before, after = (dict(_keys(one["machine"]["description"])) for one in (a, b))
    lines += [
        f"{key}: {before.get(key, 'absent')} -> {after.get(key, 'absent')}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return lines


def summary(names: tuple[str, str], a: "plain.Document", b: "plain.Document", top: int) -> str:
    """The changes as text for a terminal."""
    found = changes(a, b)
    parts = []
    different = setup(a, b)
    if different:
        shown = [text.shorten(line, 76) for line in different[:top]]
        more = len(different) - len(shown)
        tail = [f"… and {text.plural(more, 'key')} more"] if more > 0 else []
        parts.append("\n".join(["Different to begin with", *(f"  {x}" for x in shown + tail)]))
    if not found:
        return "\n\n".join([*parts, "Every measure is the same."])
    rows = [
        (text.shorten(one.measure, 42), _shown(one.a), _shown(one.b), _factor(one))
        for one in found[:top]
    ]
    head = ("What changed", *(text.shorten(name, 12) for name in names), "factor")
    parts.append(text.table(head, rows))
    if len(found) > top:
        parts[-1] += f"\n  … and {text.plural(len(found) - top, 'measure')} more (--top)"
    if any(one.events < EVENTS_MIN for one in found[:top]):
        parts.append(f"  (few): counted from fewer than {EVENTS_MIN} events")
    return "\n\n".join(parts)


def document(a: "plain.Document", b: "plain.Document") -> dict[str, Any]:
    """The changes as one JSON document."""
    return {
        "schema": 1,
        "setup": setup(a, b),
        "changes": [asdict(one) for one in changes(a, b)],
    }


def _shown(value: float) -> str:
    return text.count(value) if value == int(value) else text.ratio(value)


def _factor(one: Change) -> str:
    few = " (few)" if one.events < EVENTS_MIN else ""
    return ("new" if one.factor is None else f"x{text.ratio(one.factor)}") + few


def _keys(description: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """The values of a description by their dotted keys, without titles and sources."""
    if isinstance(description, Mapping):
        items = [(key, item) for key, item in description.items() if key not in ("title", "source")]
    elif isinstance(description, list) and any(isinstance(item, Mapping) for item in description):
        items = [(str(index), item) for index, item in enumerate(description)]
    else:
        return [(prefix, description)]
    return [
        pair for key, item in items for pair in _keys(item, f"{prefix}.{key}" if prefix else key)
    ]
