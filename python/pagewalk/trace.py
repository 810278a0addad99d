"""`Trace`: what a program, or a generator, did to memory."""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from pagewalk import _native
from pagewalk.options import native_path
from pagewalk.output import refuse_no_trace
from pagewalk.progress import Progress, bar

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa

    from pagewalk.report.charts import Chart

Fetches = Literal["blocks", "instructions", "none"]
Interleave = Literal["timestamps", "schedule"]

KINDS = ("fetch", "load", "store")


def _told(options: Mapping[str, Any]) -> dict[str, Any]:
    """How a trace is read, as the native half takes it."""
    told = dict(options)
    told["bounds"] = {name: told.pop(name) for name in ("skip", "warmup", "max_accesses")}
    told["columns"] = list(told["columns"].items())
    told["v2p"] = None if told["v2p"] is None else native_path(told["v2p"])
    return told


def _is_pipe(source: str) -> bool:
    """Whether a path, or `FORMAT:PATH`, is `-` or another pipe: what is there comes once."""

    def is_other(path: str) -> bool:
        # A name that no file can have is none.
        with suppress(OSError, ValueError):
            mode = os.stat(path).st_mode  # noqa: PTH116
            return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
        return path == "-"

    return is_other(source) or is_other(source.partition(":")[2])


class Trace:
    """A stored trace, another tool's, or one that a generator makes while it is read.

    Args:
        source: The path of a trace file, Pagewalk's own or one of another tool, which
            `FORMAT:PATH` names; `-` for standard input; or
            `generate:` and a generator's parameters, as in
            `generate:join,table=16G,accesses=50M,seed=1`; or `mix:` and several of these, as in
            `mix:cpus=2,a.pwt*3,b.pwt`.
        format: The format of another tool's file, where its first bytes do not tell:
            `drmemtrace`, `champsim`, `cloudsuite`, `lackey`, `pinatrace`, `dinero`, `ramulator`,
            `usimm`, `perf`, `csv`, `parquet`.
        keep_going: Whether a damaged file is a trace that ends at the damage.
        fetches: Whether its instructions are rows by block, each one, or none.
        arch: The instruction set of the program, where the format does not tell it: `x86-64`,
            `i386`, `arm`, `aarch64` or `riscv64`. Its rules hold for
            addresses: tags in the top byte of those of `aarch64` are left out.
        columns: What a table calls our columns, as in `{"addr": "vaddr"}`; by number, from 1, where
            it has no line of names.
        interleave: What orders the threads of a drmemtrace.
        v2p: Physical addresses of a drmemtrace, a `v2p.textproto`.
        process: The only process of a recording to read: its number at the system, or the name or
            path of a program that it ran.
        no_fetch: Whether fetches are left out.
        spread: Bytes, a power of two: mappings whose address the system chose are put apart, so
            that each has blocks of so many bytes of its own.
        skip: Accesses that are left out at the beginning.
        warmup: Accesses after them that a machine, a sweep or a curve takes without counting them.
        max_accesses: Accesses after these, after which the trace ends.
        kernel: A model of a kernel whose path is added where a recording's programs call it and
            where one goes on after another: `monolithic` or `microkernel`, with its parameters as
            in `microkernel,work=600`. `warmup` and the other bounds count the program's accesses.

    Attributes:
        source: As given.
        options: How it is read: the other arguments.
        name: The file's name, or the generator's parameters.
        header: What the trace says about itself: `producer`, `command`, `arch`, `fetches`,
            `filter`, `page_bytes`, `notes`.
        accesses: Its length, or `None` where that is not known before the end.
        digest: SHA-256 of its contents as hexadecimal digits, where it is known.
        warnings: What the last run or count through all of it found out besides.

    Raises:
        Error: There is no such file or generator, or it is not a trace.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        format: str | None = None,  # noqa: A002
        keep_going: bool = False,
        fetches: Fetches = "blocks",
        arch: str | None = None,
        columns: Mapping[str, str] | None = None,
        interleave: Interleave = "timestamps",
        v2p: str | os.PathLike[str] | None = None,
        process: str | None = None,
        no_fetch: bool = False,
        spread: int | None = None,
        skip: int = 0,
        warmup: int = 0,
        max_accesses: int | None = None,
        kernel: str | None = None,
    ) -> None:
        self.source = os.fspath(source)
        if any("\udc80" <= letter <= "\udcff" for letter in self.source):
            shown = self.source.encode(errors="backslashreplace").decode()
            raise _native.Error(
                f"{shown}: the name of a trace must be UTF-8; rename the file, or make a link to it"
            )
        self.options: dict[str, Any] = {
            "format": format,
            "keep_going": keep_going,
            "fetches": fetches,
            "arch": arch,
            "columns": dict(columns or {}),
            "interleave": interleave,
            "v2p": None if v2p is None else os.fspath(v2p),
            "process": process,
            "no_fetch": no_fetch,
            "spread": spread,
            "skip": skip,
            "warmup": warmup,
            "max_accesses": max_accesses,
            "kernel": kernel,
        }
        self.reading = _native.Reading(json.dumps(_told(self.options)))
        self.header: dict[str, Any] = {}
        self.accesses: int | None = None
        self.digest: str | None = None
        self.warnings: list[str] = []
        self.is_pipe = _is_pipe(self.source)
        """Whether it is standard input or another pipe: read once, and not known before."""
        if not self.is_pipe:
            header, self.accesses, self.digest = _native.trace_header(self.source, self.reading)
            self.header = json.loads(header)

    @property
    def name(self) -> str:
        """The file's name without its directory, or the generator's parameters."""
        if self.source.startswith(("generate:", "mix:")):
            return self.source
        if self.source == "-" or self.source.endswith(":-"):
            return "standard input"
        return os.path.basename(self.source)  # noqa: PTH119

    def __repr__(self) -> str:
        return f"Trace({self.source!r})"

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook

        return notebook.trace(self.name, self.header, self.accesses, self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens it anew, by its name."""
        return _opened, (self.source, self.options)

    def __len__(self) -> int:
        """Accesses.

        Raises:
            Error: The length is not known before the end.
        """
        if self.accesses is None:
            raise _native.Error(
                f"{self.source}: the length of this trace is known only after it was read to its "
                "end"
            )
        return self.accesses

    def info(self, progress: Progress | bool | None = None) -> dict[str, Any]:
        """Reads all of it and counts.

        Args:
            progress: Called about ten times per second; `True` shows a bar by tqdm.

        Returns:
            Accesses by kind, instructions, threads, distinct pages of 4 KiB and lines of 64
            bytes, the regions with their accesses, events by type, bytes on disk.

        Raises:
            WorkError: The file is damaged.
        """
        with bar(progress, f"reading {self.name}") as told:
            text = _native.trace_info(self.source, self.reading, told)
        result: dict[str, Any] = json.loads(text)
        self.warnings = result["warnings"]
        return result

    def store(
        self, output: str | os.PathLike[str], force: bool = False, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Writes all of it to a trace of Pagewalk's own.

        Args:
            output: The file.
            force: Whether it may replace one.
            progress: Called about ten times per second.

        Returns:
            Its `path`, `bytes`, `accesses`, `instructions` and `digest`, and `warnings`.

        Raises:
            Error: The file exists, cannot be made, or its name is that of another format.
            WorkError: What is read is damaged, or the system refused to write.
        """
        path = os.fspath(output)
        refuse_no_trace(path)
        text = _native.store(self.source, self.reading, path, force, progress)
        result: dict[str, Any] = json.loads(text)
        self.warnings = result["warnings"]
        return result

    def save(self, path: str | os.PathLike[str], force: bool = False) -> list[str]:
        """Writes all of it as `store` does, and gives the names of what was written."""
        self.store(path, force)
        return [os.fspath(path)]

    def schema(self) -> "pa.Schema":
        """The Arrow schema of `batches()`."""
        return _schema(_native.trace_batches(self.source, self.reading))

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """The accesses in order, as Arrow record batches of some ten thousand rows.

        Columns: `addr` (uint64, bytes), `size` (uint16, bytes), `kind` (dictionary: fetch, load,
        store), `thread` (uint32, 0 is the first), `instructions` (uint16: those that began since
        the row before, this row's own among them), `paddr` (uint64) where the trace knows physical
        addresses, and in a recording of several processes `process` (uint32), the number of the one
        in whose space the access is. Memory is constant in the length of the trace.

        Raises:
            WorkError: The file is damaged from there on.
        """
        source = _native.trace_batches(self.source, self.reading)
        return _record_batches(source, _schema(source))

    def to_arrow(self) -> "pa.RecordBatchReader":
        """The accesses as an Arrow stream, which polars, pandas and DuckDB read without a copy."""
        import pyarrow as pa

        source = _native.trace_batches(self.source, self.reading)
        schema = _schema(source)
        return pa.RecordBatchReader.from_batches(schema, _record_batches(source, schema))

    def to_pandas(self) -> "pandas.DataFrame":
        """All rows at once for pandas: some 20 bytes of memory an access.

        Raises:
            Error: pandas is not installed.
            WorkError: The file is damaged.
        """
        from pagewalk.tabled import pandas_frame

        return pandas_frame(self.to_arrow().read_all())

    def to_polars(self) -> "polars.DataFrame":
        """All rows at once for polars: some 20 bytes of memory an access.

        Raises:
            Error: polars is not installed.
            WorkError: The file is damaged.
        """
        from pagewalk.tabled import polars_frame

        return polars_frame(self.to_arrow().read_all())

    def plot(self) -> "Chart":
        """The misses of fully associative LRU TLBs of every size, by page size (`curve`)."""
        from pagewalk.lru import Asked, counted
        from pagewalk.report.curves import charts
        from pagewalk.report.notebook import offline

        curves, self.warnings = counted(self.source, self.reading, Asked())
        return offline(charts(curves)["all"])


def _opened(source: str, options: dict[str, Any]) -> Trace:
    return Trace(source, **options)


def _schema(source: _native.Batches) -> "pa.Schema":
    import pyarrow as pa

    fields = [
        pa.field("addr", pa.uint64(), nullable=False),
        pa.field("size", pa.uint16(), nullable=False),
        pa.field("kind", pa.dictionary(pa.uint8(), pa.string()), nullable=False),
        pa.field("thread", pa.uint32(), nullable=False),
        pa.field("instructions", pa.uint16(), nullable=False),
    ]
    if source.has_paddr:
        fields.append(pa.field("paddr", pa.uint64()))
    if source.has_process:
        fields.append(pa.field("process", pa.uint32(), nullable=False))
    return pa.schema(fields)


def _record_batches(source: _native.Batches, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    kinds = pa.array(KINDS)
    while (columns := source.next()) is not None:
        rows, addr, size, kind, thread, instructions, paddr, process = columns

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
        if process is not None:
            arrays.append(array(pa.uint32(), process))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
