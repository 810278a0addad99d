"""`pagewalk import`: store another tool's trace as one of Pagewalk's own."""

import argparse
import json
from typing import Any

from pagewalk import text
from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk import drmemtrace drmemtrace.app.1234.0000.dir -o app.pwt
  pagewalk import champsim 600.perlbench_s-210B.champsimtrace.xz -o perlbench.pwt
  pagewalk import csv misses.csv --column addr=vaddr -o misses.pwt
  pagewalk import pinatrace pinatrace.out -o app.pwt

Compression is found out from the file: gzip, xz, bzip2, zstd, lz4, snappy, zip.
`pagewalk run` and `pagewalk info` take all of these as they are.
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command, with a subcommand a format."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "import",
        help="store another tool's trace as one of Pagewalk's own",
        description="Store another tool's trace as one of Pagewalk's own, which is smaller and "
        "faster to run again.",
        epilog=EPILOG,
    )
    formats = parser.add_subparsers(title="formats", metavar="FORMAT", required=True)
    for name, what in arguments.FORMATS.items():
        format_ = formats.add_parser(name, help=what, description=f"Import {what}.")
        path = "the file to read" if name == "parquet" else "what to read, or - for standard input"
        format_.add_argument("path", metavar="PATH", help=path)
        format_.add_argument(
            "-o", "--output", metavar="TRACE", required=True, help="the trace to write"
        )
        if name == "champsim":
            arguments.add_cloudsuite(format_)
        if name == "drmemtrace":
            arguments.add_drmemtrace(format_)
        if name in ("csv", "parquet"):
            arguments.add_columns(format_)
        if name in ("drmemtrace", "champsim", "cloudsuite", "lackey", "dinero"):
            arguments.add_fetches(format_)
        arguments.add_arch(format_)
        arguments.add_keep_going(format_)
        arguments.add_window(format_)
        arguments.add_json(format_, "what was written")
        arguments.add_force(format_)
        format_.set_defaults(run=run, format=name)


def run(options: argparse.Namespace) -> int:
    """Writes the trace and says what was written."""
    arguments.no_program(options)
    for path in (options.output, options.json):
        arguments.check_output(path, options.force)
    if options.output == "-":
        raise UsageError("a trace cannot be written to standard output: give -o the name of a file")
    if options.path.startswith("generate:"):
        raise UsageError(f"{options.path} is a generator: `pagewalk generate` stores what it makes")
    with arguments.progress(options, f"importing {options.path}") as progress:
        made = arguments.trace(options, options.path).store(options.output, options.force, progress)
    arguments.warn(made["warnings"])
    if options.json is not None:
        arguments.write_output(options.json, json.dumps(made, indent=1) + "\n", options.force)
    if arguments.shows_text(options):
        accesses = text.plural(made["accesses"], "access", "accesses")
        say(f"{made['path']}: {accesses} in {text.size(made['bytes'])}")
    return 0
