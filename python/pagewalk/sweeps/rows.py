"""Converts the results of designs into the rows and columns of a table."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

_NAMED_BY = {"by_level": "level"}
"""A list of records becomes a column for each record and number. A record is named by this key, or
by `name`.
"""

_LEFT_OUT = {"schema", "pagewalk", "not_modelled", "checked", "level", "name"}


def row(settings: Mapping[str, str], digest: str | None, document: Mapping[str, Any]) -> Row:
    """The row of a design: its parameters, and then its counts."""
    return {**settings, "machine_digest": digest, **_flat(document), "error": None}


def failed(settings: Mapping[str, str], digest: str | None, error: str) -> Row:
    """The row of a design that has no counts."""
    return {**settings, "machine_digest": digest, "error": error}


def table(rows: Sequence[Row], keys: Sequence[str]) -> "pa.Table":
    """The rows as a table: parameters first, then counts, then `error`."""
    import pyarrow as pa

    names = dict.fromkeys([*keys, "machine_digest"])
    names |= dict.fromkeys(name for one in rows for name in one if name != "error")
    columns = {
        name: _parameter([one[name] for one in rows])
        if name in keys
        else _counts([one.get(name) for one in rows])
        for name in names
    }
    return pa.table({**columns, "error": pa.array([one["error"] for one in rows], pa.string())})


def _flat(thing: Mapping[str, Any], prefix: str = "") -> Row:
    """The numbers of a document by their paths, such as `tlbs.l1d.misses`."""
    flat: Row = {}
    for key, value in thing.items():
        path = f"{prefix}{key}"
        if key in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{path}.")
        elif isinstance(value, list):
            by = _NAMED_BY.get(key, "name")
            for item in value:
                if isinstance(item, Mapping) and by in item:
                    flat |= _flat(item, f"{path}.{item[by]}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[path] = value
    return flat


def _parameter(values: list[str]) -> "pa.Array[Any]":
    import pyarrow as pa

    if all(value.isdecimal() and int(value) < 1 << 63 for value in values):
        return pa.array([int(value) for value in values], pa.uint64())
    return pa.array(values, pa.string())


def _counts(values: list[Any]) -> "pa.Array[Any]":
    """A column.

    Whole numbers are uint64, other numbers are floating point, and everything else is text.
    """
    import pyarrow as pa

    known = [value for value in values if value is not None]
    if known and all(isinstance(value, int) for value in known):
        return pa.array(values, pa.uint64())
    return pa.array(values, None if known else pa.float64())
