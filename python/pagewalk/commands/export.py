"""`pagewalk export`: a trace in another format."""

import argparse
from typing import Any

from pagewalk.commands import arguments
from pagewalk.output import replacing
from pagewalk.progress import ProgressLine
from pagewalk.trace import Trace

ROW_GROUP = 1 << 20
"""Rows of a Parquet row group: what is held in memory at once."""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "export",
        help="write a trace in another format",
        description="Write a trace as Parquet, one row an access: addr, size, kind, thread, "
        "instructions and, where known, paddr. Memory stays constant in the trace's length.",
        epilog="example:\n  pagewalk export parquet gzip.pwt -o gzip.parquet",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("format", choices=["parquet"], help="the format")
    parser.add_argument("trace", metavar="TRACE", help="a trace file, or generate:KIND,...")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    arguments.add_force(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Streams the trace into row groups."""
    arguments.no_program(options)
    arguments.check_output(options.output, options.force)
    trace = Trace(options.trace)
    with (
        replacing(options.output, options.force) as temporary,
        ProgressLine(f"exporting {trace.name}") as progress,
    ):
        rows = write_parquet(trace, str(temporary), progress)
    print(f"{options.output}: {rows} rows")
    return 0


def write_parquet(trace: Trace, path: str, progress: ProgressLine) -> int:
    """Writes all of `trace` to `path`; returns the rows written."""
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
