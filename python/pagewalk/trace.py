"""`Trace`: what a program, or a generator, did to memory."""

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pagewalk import _native
from pagewalk.machine import Progress

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = ("fetch", "load", "store")


class Trace:
    """A stored trace, or one that a generator makes while it is read.

    Args:
        source: The path of a trace file, or `generate:` and a generator's parameters, as in
            `generate:join,table=16G,accesses=50M,seed=1`.

    Attributes:
        source: As given.
        name: The file's name, or the generator's parameters.
        header: What the trace says about itself: `producer`, `command`, `arch`, `fetches`,
            `filter`, `page_bytes`, `notes`.
        accesses: Its length, or `None` where that is not known before the end.
        digest: SHA-256 of its contents as hexadecimal digits, where it is known.

    Raises:
        Error: There is no such file or generator, or it is not a trace.
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self.source = os.fspath(source)
        header, accesses, digest = _native.trace_header(self.source)
        self.header: dict[str, Any] = json.loads(header)
        self.accesses: int | None = accesses
        self.digest: str | None = digest

    @property
    def name(self) -> str:
        """The file's name without its directory, or the generator's parameters."""
        if self.source.startswith("generate:"):
            return self.source
        return os.path.basename(self.source)  # noqa: PTH119

    def __repr__(self) -> str:
        return f"Trace({self.source!r})"

    def __len__(self) -> int:
        """Accesses.

        Raises:
            Error: The length is not known before the end.
        """
        if self.accesses is None:
            raise _native.Error(f"{self.source}: its length is not known before its end")
        return self.accesses

    def info(self, progress: Progress | None = None) -> dict[str, Any]:
        """Reads all of it and counts.

        Returns:
            Accesses by kind, instructions, threads, distinct pages of 4 KiB and lines of 64
            bytes, the regions with their accesses, events by type, bytes on disk.

        Raises:
            WorkError: The file is damaged.
        """
        result: dict[str, Any] = json.loads(_native.trace_info(self.source, progress))
        return result

    def schema(self) -> "pa.Schema":
        """The Arrow schema of `batches()`."""
        return _schema(_native.trace_batches(self.source).has_paddr)

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """The accesses in order, as Arrow record batches of some ten thousand rows.

        Columns: `addr` (uint64, bytes), `size` (uint16, bytes), `kind` (dictionary: fetch, load,
        store), `thread` (uint32, 0 is the first), `instructions` (uint16: those that began since
        the row before, this row's own among them), and `paddr` (uint64) where the trace knows
        physical addresses. Memory is constant in the length of the trace.

        Raises:
            WorkError: The file is damaged from there on.
        """
        source = _native.trace_batches(self.source)
        return _record_batches(source, _schema(source.has_paddr))

    def to_arrow(self) -> "pa.RecordBatchReader":
        """The same as an Arrow stream, which polars, pandas and DuckDB read without a copy."""
        import pyarrow as pa

        source = _native.trace_batches(self.source)
        schema = _schema(source.has_paddr)
        return pa.RecordBatchReader.from_batches(schema, _record_batches(source, schema))


def _schema(has_paddr: bool) -> "pa.Schema":
    import pyarrow as pa

    fields = [
        pa.field("addr", pa.uint64(), nullable=False),
        pa.field("size", pa.uint16(), nullable=False),
        pa.field("kind", pa.dictionary(pa.uint8(), pa.string()), nullable=False),
        pa.field("thread", pa.uint32(), nullable=False),
        pa.field("instructions", pa.uint16(), nullable=False),
    ]
    if has_paddr:
        fields.append(pa.field("paddr", pa.uint64()))
    return pa.schema(fields)


def _record_batches(source: _native.Batches, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    kinds = pa.array(KINDS)
    while (columns := source.next()) is not None:
        rows, addr, size, kind, thread, instructions, paddr = columns

        def array(kind: "pa.DataType", data: bytes, rows: int = rows) -> "pa.Array[Any]":
            return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])

        arrays = [
            array(pa.uint64(), addr),
            array(pa.uint16(), size),
            pa.DictionaryArray.from_arrays(array(pa.uint8(), kind), kinds),
            array(pa.uint32(), thread),
            array(pa.uint16(), instructions),
        ]
        if "paddr" in schema.names:
            arrays.append(
                pa.nulls(rows, pa.uint64()) if paddr is None else array(pa.uint64(), paddr)
            )
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
