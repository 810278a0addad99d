"""Parquet files as traces: pyarrow reads batches, and the native module gets their columns."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import _native

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("addr", "size", "kind", "thread", "paddr", "instrs")
"""The columns that are read, in the native module's order; only the first must exist."""

BATCH_ROWS = 1 << 16
READ_BYTES = 1 << 20

KIND_NAMES = {
    "fetch": 0, "load": 1, "store": 2, "r": 1, "w": 2, "read": 1, "write": 2,
    "l": 1, "s": 2, "i": 0, "f": 0, "ifetch": 0, "ld": 1, "st": 2,
}  # fmt: skip
"""The names of kinds of access, in lower and upper case, as in tables in text."""

_EXPORTED = {"instrs": "instructions"}
"""The columns whose names in the files of `pagewalk export parquet` differ from ours."""


def open_table(
    path: str | os.PathLike[str], columns: Sequence[tuple[str, str]]
) -> "tuple[bool, int, Callable[[], _native.Pulled | None], Callable[[], str]]":
    """Opens a Parquet file for the native module.

    The memory needed does not depend on the number of rows.

    Args:
        path: The file.
        columns: The file's names of Pagewalk's columns, as in `("addr", "vaddr")`.

    Returns:
        Whether the file says which accesses are fetches; its number of rows; a function that
        returns the columns of the next rows, or `None` at the end; and a function that returns the
        file's SHA-256.

    Raises:
        Error: The file is no Parquet file or has no such columns.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = os.fspath(path)
    try:
        file = pq.ParquetFile(name, buffer_size=READ_BYTES, page_checksum_verification=True)
        schema = file.schema_arrow
    except (pa.ArrowException, OSError, ValueError) as error:
        # If names of columns are no text, pyarrow raises ValueError.
        raise _native.Error(
            f"{name}: {_one_line(error).rstrip('.')}; if it is damaged, get the file again"
        ) from error
    rows = file.metadata.num_rows
    if rows < 0:
        raise _native.Error(f"{name} is damaged: its row count is {rows}; get the file again")
    found = _found(name, schema, dict(columns))
    # A single iterator over all row groups would keep the data that it has read of each group to
    # the end.
    batches = (
        batch
        for group in range(file.num_row_groups)
        for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(found.values()))
    )
    pulled = _pulled(name, batches, found)
    return (
        "kind" in found,
        rows,
        lambda: next(pulled, None),
        lambda: _sha256(name),
    )


def _sha256(name: str) -> str:
    digest = hashlib.sha256()
    with Path(name).open("rb", buffering=0) as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _found(name: str, schema: "pa.Schema", columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of ours that the file has, each with its name in the file."""
    for ours, theirs in columns.items():
        if ours not in COLUMNS:
            raise _native.Error(
                f"--column {ours}=...: the columns of a trace are {', '.join(COLUMNS)}"
            )
        if theirs not in schema.names:
            raise _native.Error(f"{name}: --column {ours}={theirs}: no column has that name")
    found = {}
    for ours in COLUMNS:
        names = [columns[ours]] if ours in columns else [ours, _EXPORTED.get(ours, ours)]
        known = [name for name in names if name in schema.names]
        if known:
            found[ours] = known[0]
    if "addr" not in found:
        raise _native.Error(
            f"{name}: no column is called `addr`; the columns are {', '.join(schema.names[:8])}. "
            "Name the one with the addresses, as in --column addr=NAME"
        )
    return found


def _pulled(
    name: str, batches: Iterator["pa.RecordBatch"], found: Mapping[str, str]
) -> Iterator["_native.Pulled"]:
    import pyarrow as pa

    row = 0
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _native.WorkError(
                f"{name}: damaged after row {row}: {_one_line(error)}"
            ) from error
        if batch is None:
            return
        columns: dict[str, bytes | None] = dict.fromkeys(COLUMNS)
        for ours, theirs in found.items():
            try:
                columns[ours] = _bytes(ours, batch.column(theirs))
            except (pa.ArrowException, ValueError) as error:
                raise _native.WorkError(
                    f"{name}: column `{theirs}`, in the rows from {row} on: {_one_line(error)}"
                ) from error
        addr = columns["addr"]
        assert addr is not None
        yield (
            addr, columns["size"], columns["kind"], columns["thread"], columns["paddr"],
            columns["instrs"],
        )  # fmt: skip
        row += batch.num_rows


def _bytes(ours: str, column: "pa.Array[Any]") -> bytes:
    """The column as `u64` values in native byte order. Raises `ValueError` for other values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # type: ignore[attr-defined]
    if ours == "kind" and (
        pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    ):
        known = pc.index_in(
            pc.utf8_lower(column), value_set=pa.array(list(KIND_NAMES), column.type)
        )
        strange = column.filter(pc.and_(known.is_null(), column.is_valid()))
        if len(strange):
            raise ValueError(
                f"kind `{strange[0].as_py()}` is unknown: it must be fetch, load, store, R, W, 0, "
                "1 or 2"
            )
        column = pa.array(list(KIND_NAMES.values())).take(known)
    elif ours == "paddr":
        column = column.fill_null(0)
    if column.null_count:
        raise ValueError("a row has no value")
    if not pa.types.is_integer(column.type):
        raise ValueError(f"its type is {column.type}, which is not an integer type")
    if column.type == pa.int64():
        # Tools without unsigned numbers store addresses in the upper half as negative numbers.
        column = column.view(pa.uint64()) if ours in ("addr", "paddr") else column
    numbers = column.cast(pa.uint64())
    buffer = numbers.buffers()[1]
    if buffer is None:
        return b""
    start = numbers.offset * 8
    return buffer[start : start + len(numbers) * 8].to_pybytes()
