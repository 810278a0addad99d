"""`pagewalk export`: a trace in another format."""

import argparse
import json
from pathlib import Path
from typing import Any

from pagewalk import _native, text
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, shows_text
from pagewalk.commands.flags import (
    FORCE,
    PHYSICAL,
    PROCESS,
    READING,
    TRACE,
    WINDOW,
    json_of,
    output,
)
from pagewalk.commands.parser import UsageError
from pagewalk.output import replacing
from pagewalk.progress import ProgressLine
from pagewalk.terminal import say
from pagewalk.trace import Trace

EPILOG = """\
examples:
  pagewalk export parquet gzip.pwt -o gzip.parquet
  pagewalk export champsim gzip.pwt -o gzip.champsimtrace.xz
  pagewalk export csv gzip.pwt -o - | head
  pagewalk export drmemtrace list.pwt --physical -o list.trace.gz

Files whose name ends in .gz, .xz, .bz2 or .zst are compressed in that format, except for Parquet.
"""

ROW_GROUP = 1 << 20
"""The number of rows of a Parquet row group. All rows of a group are in memory at once."""


class Export(Command):
    """Writes a trace in another format."""

    name = "export"
    help = "write a trace in another format"
    description = (
        "Write a trace for other tools. Parquet and CSV files have one row per access, with addr, "
        "size, kind, thread, instructions and, if recorded, paddr and process. ChampSim files "
        "have one record per instruction. DynamoRIO's drmemtrace files have one record per "
        "instruction, load and store, and of a whole system also the spaces, threads and "
        "interrupts. The memory needed does not depend on the length of the trace."
    )
    epilog = EPILOG
    flags = (
        Flag(
            "to",
            metavar="FORMAT",
            choices=["parquet", "champsim", "csv", "drmemtrace"],
            help="parquet, champsim, csv or drmemtrace",
        ),
        TRACE,
        output("the file to write; except for parquet, - is standard output", required=True),
        Flag(
            "--thread",
            type=int,
            metavar="N",
            help="champsim, csv and drmemtrace: write only this thread, counted from 0; in a "
            "recording of a whole system, a thread is a processor",
        ),
        PHYSICAL,
        PROCESS,
        WINDOW,
        READING,
        json_of("the name and the size of the file"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Writes the file and prints how much is in it."""
        if options.output == options.json == "-":
            raise UsageError(
                "-o - and --json - both write to standard output: give one of them a file"
            )
        if options.physical and options.to == "champsim":
            raise UsageError(
                "export champsim: its records have one address, which ChampSim translates itself; "
                "leave --physical out, or export drmemtrace, parquet or csv"
            )
        return _parquet(options) if options.to == "parquet" else _native_format(options)


def _parquet(options: argparse.Namespace) -> int:
    if options.thread is not None:
        raise UsageError("--thread is not for parquet: a Parquet file has the column `thread`")
    if options.output == "-":
        raise UsageError("a Parquet file cannot go to standard output: give -o the name of a file")
    trace = arguments.trace(options, options.trace)
    if trace.is_pipe:
        raise UsageError("a pipe can be read only once: `pagewalk import` it, then export the file")
    with (
        replacing(options.output, options.force) as temporary,
        arguments.progress(options, f"exporting {trace.name}") as progress,
    ):
        rows = write_parquet(trace, str(temporary), progress)
    arguments.warn(trace.warnings)
    _say(options, rows, "row")
    return 0


def _native_format(options: argparse.Namespace) -> int:
    if options.thread is not None and not 0 <= options.thread < 1 << 32:
        raise UsageError(f"--thread {options.thread}: threads are counted from 0")
    trace = arguments.trace(options, options.trace)
    with arguments.progress(options, f"exporting {trace.name}") as progress:
        summary = _native.export_trace(
            options.to, trace.source, trace.reading, options.output,
            thread=options.thread, force=options.force, progress=progress,
        )  # fmt: skip
    written: dict[str, Any] = json.loads(summary)
    if options.thread is not None and not written["records"]:
        if options.output != "-":
            Path(options.output).unlink(missing_ok=True)
        raise UsageError(
            f"--thread {options.thread}: there is no access of this thread; `pagewalk info` lists "
            "threads"
        )
    arguments.warn(written["warnings"])
    _say(options, written["records"], "row" if options.to == "csv" else "record")
    return 0


def _say(options: argparse.Namespace, written: int, unit: str) -> None:
    """Prints how much was written, as text and, if requested, as JSON."""
    if options.json is not None:
        size = None if options.output == "-" else Path(options.output).stat().st_size
        document = {"path": options.output, "format": options.to, f"{unit}s": written}
        made = json.dumps({**document, "bytes": size}, indent=1) + "\n"
        arguments.write_output(options.json, made, options.force)
    if options.output != "-" and shows_text(options):
        say(f"{options.output}: {text.plural(written, unit)}")


def write_parquet(trace: Trace, path: str, progress: ProgressLine) -> int:
    """Writes all of `trace` to `path`. Returns the number of rows written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader = trace.to_arrow()
    delta = {"addr": "DELTA_BINARY_PACKED"}
    if "paddr" in reader.schema.names:
        delta["paddr"] = "DELTA_BINARY_PACKED"
    metadata = {"pagewalk.trace": trace.name, "pagewalk.digest": trace.digest or ""}
    rows = 0
    with pq.ParquetWriter(
        path,
        reader.schema.with_metadata(metadata),
        compression="zstd",
        compression_level=1,
        write_page_checksum=True,
        use_dictionary=["kind", "size", "thread", "instructions"],  # type: ignore[arg-type]
        column_encoding=delta,
    ) as writer:
        group: list[pa.RecordBatch] = []
        held = 0
        for batch in reader:
            group.append(batch)
            held += batch.num_rows
            if held >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(group), row_group_size=held)
                rows += held
                group, held = [], 0
                progress(rows, trace.accesses)
        if group:
            writer.write_table(pa.Table.from_batches(group), row_group_size=held)
            rows += held
    return rows
