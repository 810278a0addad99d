"""`pagewalk import`: store another tool's trace in Pagewalk's format."""

import argparse
import json
from typing import Any

from pagewalk import text
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Flags, Input, shows_text
from pagewalk.commands.flags import (
    ARCH,
    CLOUDSUITE,
    COLUMNS,
    DRMEMTRACE,
    FETCHES,
    FORCE,
    FORMATS,
    KEEP_GOING,
    WINDOW,
    json_of,
    output,
)
from pagewalk.commands.parser import UsageError
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk import drmemtrace drmemtrace.app.1234.0000.dir -o app.pwt
  pagewalk import champsim 600.perlbench_s-210B.champsimtrace.xz -o perlbench.pwt
  pagewalk import csv misses.csv --column addr=vaddr -o misses.pwt
  pagewalk import pinatrace pinatrace.out -o app.pwt

Compressed files are recognized: gzip, xz, bzip2, zstd, lz4, snappy, zip. `pagewalk run` and
`pagewalk info` read all of these formats too, without an import.
"""


_OWN: dict[str, tuple[Flag | Flags, ...]] = {
    "drmemtrace": (DRMEMTRACE, FETCHES),
    "champsim": (CLOUDSUITE, FETCHES),
    "cloudsuite": (FETCHES,),
    "lackey": (FETCHES,),
    "dinero": (FETCHES,),
    "csv": (COLUMNS,),
    "parquet": (COLUMNS,),
}
"""Flags that only some formats have."""


class Import(Command):
    """Stores another tool's trace in Pagewalk's format."""

    name = "import"
    help = "store another tool's trace in Pagewalk's format"
    description = (
        "Store another tool's trace in Pagewalk's format, in which it is smaller and faster to "
        "simulate."
    )
    epilog = EPILOG

    def add(self, commands: "argparse._SubParsersAction[Any]") -> None:
        """Adds the command's parser, with a subparser for each format."""
        formats = self.parser(commands).add_subparsers(
            title="formats", metavar="FORMAT", required=True
        )
        for name, what in FORMATS.items():
            path = (
                "the file to read"
                if name == "parquet"
                else "the trace to read, or - for standard input"
            )
            flags = (
                Input("path", metavar="PATH", help=path),
                output("the trace to write", metavar="TRACE", required=True),
                *_OWN.get(name, ()),
                ARCH,
                KEEP_GOING,
                WINDOW,
                json_of("the name and the size of the trace"),
                FORCE,
            )
            parser = formats.add_parser(name, help=what, description=f"Import {what}.")
            self.fill(parser, flags, format=name)

    def run(self, options: argparse.Namespace) -> int:
        """Writes the trace, and prints what was written."""
        if options.output == "-":
            raise UsageError(
                "a trace cannot be written to standard output: give -o the name of a file"
            )
        if options.path.startswith("generate:"):
            raise UsageError(
                f"{options.path} is a generator, not a file: `pagewalk generate` stores its trace"
            )
        with arguments.progress(options, f"importing {options.path}") as progress:
            made = arguments.trace(options, options.path).store(
                options.output, options.force, progress
            )
        arguments.warn(made["warnings"])
        if options.json is not None:
            arguments.write_output(options.json, json.dumps(made, indent=1) + "\n", options.force)
        if shows_text(options):
            accesses = text.plural(made["accesses"], "access", "accesses")
            say(f"{made['path']}: {accesses} in {text.size(made['bytes'])}")
        return 0
