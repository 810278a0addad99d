"""`pagewalk info`: what is in a trace."""

import argparse
import json
from typing import Any

from pagewalk.commands import arguments
from pagewalk.terminal import say


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "info",
        help="say what is in a trace",
        description="Read a trace and count: accesses by kind, instructions, threads, distinct "
        "pages and lines, the regions of the address space, events.",
        epilog="example:\n  pagewalk info gzip.pwt\n  pagewalk info gzip.pwt --json",
    )
    arguments.add_trace(parser)
    arguments.add_json(parser, "the counts")
    arguments.add_force(parser)
    arguments.add_process(parser)
    arguments.add_window(parser)
    arguments.add_reading(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and shows what was counted."""
    from pagewalk.summary import trace_summary

    arguments.no_program(options)
    arguments.check_output(options.json, options.force)
    trace = arguments.trace(options, options.trace)
    with arguments.progress(options, f"reading {trace.name}") as progress:
        info = trace.info(progress)
    if options.json is not None:
        arguments.write_output(options.json, json.dumps(info, indent=1) + "\n", options.force)
    if arguments.shows_text(options):
        say(trace_summary(trace.name, info))
    return 0
