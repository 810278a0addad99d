"""`Trace`: the memory accesses of a program or of a generator."""

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
    """The options of reading a trace, in the form that the native module expects."""
    told = dict(options)
    told["bounds"] = {name: told.pop(name) for name in ("skip", "warmup", "max_accesses")}
    told["columns"] = list(told["columns"].items())
    told["v2p"] = None if told["v2p"] is None else native_path(told["v2p"])
    return told


def _is_pipe(source: str) -> bool:
    """Whether a path, or `FORMAT:PATH`, is `-` or another pipe, which can be read only once."""

    def is_other(path: str) -> bool:
        # If no file can have this name, it is not a pipe.
        with suppress(OSError, ValueError):
            mode = os.stat(path).st_mode  # noqa: PTH116
            return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
        return path == "-"

    return is_other(source) or is_other(source.partition(":")[2])


class Trace:
    """A trace: stored in a file, of Pagewalk or of another tool, or generated while it is read.

    Args:
        source: The path of a trace file, Pagewalk's own or another tool's, or `FORMAT:PATH` to name
            its format; `-` for standard input; `generate:` and a generator's parameters, as in
            `generate:join,table=16G,accesses=50M,seed=1`; or `mix:` and several traces that run
            together, as in `mix:cpus=2,a.pwt*3,b.pwt`.
        format: The format of another tool's file, if its first bytes do not show it:
            `drmemtrace`, `champsim`, `cloudsuite`, `lackey`, `pinatrace`, `dinero`, `ramulator`,
            `usimm`, `perf`, `csv`, `parquet`.
        keep_going: Whether a damaged file is read up to the damage, with a warning in place of an
            error.
        fetches: Which instruction fetches are read: one per basic block (`blocks`), one per
            instruction (`instructions`) or `none`.
        arch: The instruction set of the program, if the file does not record it: `x86-64`, `i386`,
            `arm`, `aarch64` or `riscv64`. For `aarch64`, tags in the top byte of addresses are
            removed.
        columns: The table's names of Pagewalk's columns, such as `{"addr": "vaddr"}`; or the
            numbers of these columns in the table, from 1, if the table has no header line.
        interleave: How the threads of a drmemtrace are merged: by `timestamps`, or by the recorded
            `schedule`.
        v2p: The file with the physical addresses of a drmemtrace, a `v2p.textproto`.
        process: The only process of a recording to read: its pid, or the name or path of a program
            that it ran.
        no_fetch: Whether instruction fetches are left out.
        spread: Block size in bytes, a power of two. Mappings whose address the system chose are
            moved apart, so that no two of them share an aligned block of this size.
        skip: Number of accesses to skip at the beginning.
        warmup: Number of accesses after the skipped ones that a machine, a sweep or a curve
            simulates without counting them.
        max_accesses: Number of further accesses after which the trace ends.
        physical: Whether accesses get the physical addresses that the page walks of a recording
            of a whole system give.
        kernel: The model of a kernel whose accesses are added at the system calls of a recording
            and at switches between its processes: `monolithic` or `microkernel`, with parameters
            as in `microkernel,work=600`. `skip`, `warmup` and `max_accesses` count only the
            program's accesses.

    Attributes:
        source: The argument `source`.
        options: How the trace is read: the other arguments.
        name: The file's name, or the generator's parameters.
        header: The facts that the trace records about itself: `producer`, `command`, `arch`,
            `fetches`, `filter`, `page_bytes`, `notes`.
        accesses: Number of accesses, or `None` if it is known only at the end of the trace.
        digest: SHA-256 of the contents as hexadecimal digits, or `None` if it is not known.
        warnings: Warnings of the last run or count that read the whole trace.

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
        physical: bool = False,
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
            "physical": physical,
            "kernel": kernel,
        }
        self.reading = _native.Reading(json.dumps(_told(self.options)))
        self.header: dict[str, Any] = {}
        self.accesses: int | None = None
        self.digest: str | None = None
        self.warnings: list[str] = []
        self.is_pipe = _is_pipe(self.source)
        """Whether it is standard input or another pipe, which can be read only once."""
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

    @property
    def is_system(self) -> bool:
        """Whether the trace is the recording of a whole system, and is read as a whole."""
        return not self.is_pipe and _native.trace_is_system(self.source, self.reading)

    def __repr__(self) -> str:
        return f"Trace({self.source!r})"

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook

        return notebook.trace(self.name, self.header, self.accesses, self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the trace again by its name."""
        return _opened, (self.source, self.options)

    def __len__(self) -> int:
        """The number of accesses.

        Raises:
            Error: The number is known only at the end of the trace.
        """
        if self.accesses is None:
            raise _native.Error(
                f"{self.source}: the length of this trace is known only after it was read to its "
                "end"
            )
        return self.accesses

    def info(self, progress: Progress | bool | None = None) -> dict[str, Any]:
        """Reads the whole trace and returns its counts.

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
        """Writes the trace to a file in Pagewalk's format.

        Args:
            output: The file.
            force: Whether a file of that name may be overwritten.
            progress: Called about ten times per second.

        Returns:
            Its `path`, `bytes`, `accesses`, `instructions` and `digest`, and `warnings`.

        Raises:
            Error: The file exists, cannot be made, or its name is that of another format.
            WorkError: The source is damaged, or the system refused to write.
        """
        path = os.fspath(output)
        refuse_no_trace(path)
        text = _native.store(self.source, self.reading, path, force, progress)
        result: dict[str, Any] = json.loads(text)
        self.warnings = result["warnings"]
        return result

    def save(self, path: str | os.PathLike[str], force: bool = False) -> list[str]:
        """Like `store`, but returns the names of the files that were written."""
        self.store(path, force)
        return [os.fspath(path)]

    def schema(self) -> "pa.Schema":
        """The Arrow schema of `batches()`."""
        return _schema(_native.trace_batches(self.source, self.reading))

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """The accesses in order, as Arrow record batches of some ten thousand rows.

        Columns: `addr` (uint64, bytes), `size` (uint16, bytes), `kind` (dictionary: fetch, load,
        store), `thread` (uint32, 0 is the first), `instructions` (uint16: instructions that have
        begun since the previous row, including this row's own), `paddr` (uint64; null
        if it is unknown) if the trace has physical addresses, and in a recording of several
        processes `process` (uint32), the number of the process that makes the access. The memory
        that is needed does not depend on the trace's length.

        Raises:
            WorkError: The file is damaged behind the batches that were returned.
        """
        source = _native.trace_batches(self.source, self.reading)
        return self._batches(source, _schema(source))

    def _batches(self, source: _native.Batches, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        yield from _record_batches(source, schema)
        self.warnings = source.warnings()

    def to_arrow(self) -> "pa.RecordBatchReader":
        """The accesses as an Arrow stream, which polars, pandas and DuckDB read without a copy."""
        import pyarrow as pa

        source = _native.trace_batches(self.source, self.reading)
        schema = _schema(source)
        return pa.RecordBatchReader.from_batches(schema, self._batches(source, schema))

    def to_pandas(self) -> "pandas.DataFrame":
        """All rows at once for pandas: about 20 bytes of memory per access.

        Raises:
            Error: pandas is not installed.
            WorkError: The file is damaged.
        """
        from pagewalk.tabled import pandas_frame

        return pandas_frame(self.to_arrow().read_all())

    def to_polars(self) -> "polars.DataFrame":
        """All rows at once for polars: about 20 bytes of memory per access.

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
    import pyarrow.compute as pc

    kinds = pa.array(KINDS)
    unknown, missing = pa.scalar(0, pa.uint64()), pa.scalar(None, pa.uint64())
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
            known = array(pa.uint64(), bytes(8 * rows) if paddr is None else paddr)
            arrays.append(pc.if_else(pc.equal(known, unknown), missing, known))
        if process is not None:
            arrays.append(array(pa.uint32(), process))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
