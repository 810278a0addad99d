"""`pagewalk info`: what is in a trace."""

import argparse
import json
from typing import Any

from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.terminal import say


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "info",
        help="say what is in a trace",
        description="Read a trace and count: accesses by kind, instructions, threads, distinct "
        "pages and lines, the regions of the address space, events.",
        epilog="example:\n  pagewalk info gzip.pwt\n  pagewalk info gzip.pwt --json\n"
        "  pagewalk info gzip.pwt --switches --graph gzip.svg   who runs after whom",
    )
    arguments.add_trace(parser)
    arguments.add_json(parser, "the counts")
    parser.add_argument(
        "--switches",
        action="store_true",
        help="count who is switched to after whom, and propose groups of small spaces",
    )
    parser.add_argument(
        "--graph",
        metavar="FILE",
        help="with --switches, write the graph of who talks to whom, an SVG",
    )
    arguments.add_force(parser)
    arguments.add_process(parser)
    arguments.add_window(parser)
    arguments.add_reading(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and shows what was counted."""
    from pagewalk import switches
    from pagewalk.summary import trace_summary

    arguments.no_program(options)
    arguments.check_output(options.json, options.force)
    if options.graph is not None and not options.switches:
        raise UsageError("--graph is for --switches")
    arguments.check_output(options.graph, options.force)
    trace = arguments.trace(options, options.trace)
    with arguments.progress(options, f"reading {trace.name}") as progress:
        info = trace.info(progress)
    if options.switches:
        with arguments.progress(options, f"reading {trace.name}") as progress:
            info["switches"] = switches.switches(trace, progress=progress)
        if options.graph is not None:
            drawn = switches.graph(info["switches"], f"Switches of {trace.name}")
            arguments.write_output(options.graph, drawn, options.force)
        arguments.warn(switches.warnings(info))
    if options.json is not None:
        arguments.write_output(options.json, json.dumps(info, indent=1) + "\n", options.force)
    if arguments.shows_text(options):
        say(trace_summary(trace.name, info))
        if options.switches:
            say("\n" + switches.summary(info["switches"]))
    return 0
