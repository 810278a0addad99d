"""`pagewalk managers`: a program under every memory manager."""

import argparse
import json
from typing import Any

from pagewalk import memory_managers
from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.machine import DEFAULT
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk managers
  pagewalk managers gzip.pwt
  pagewalk managers gzip.pwt --aged 0.5,0.1 --memory 80% --html managers.html
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "managers",
        help="run a program under every memory manager",
        description="Run traces under every memory manager, on the same machine and memory, and "
        "say what page sizes each gets, why not larger ones, and at what price. Without a trace, "
        "list the managers and their keys.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "traces",
        nargs="*",
        metavar="TRACE",
        help="a trace file, of another tool as well, generate:KIND,... or mix:TRACE,TRACE,...",
    )
    parser.add_argument(
        "-m",
        "--machine",
        default=DEFAULT,
        metavar="NAME|FILE",
        help=f"a built-in machine or a TOML file (default: {DEFAULT})",
    )
    arguments.add_settings(parser, "the machine")
    arguments.add_json(parser, "all rows")
    parser.add_argument("--html", metavar="FILE", help="write a page with all rows")
    arguments.add_force(parser)
    arguments.add_process(parser)
    arguments.add_window(parser, warmup=True)
    arguments.add_reading(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs, and gives the text, the JSON and the page that were asked for."""
    from pagewalk.output import write_text
    from pagewalk.report import managed

    arguments.no_program(options)
    arguments.check_documents(options)
    if not options.traces:
        if options.html is not None:
            raise UsageError("--html is for runs: give a trace")
        return _list(options)
    traces = [arguments.trace(options, trace) for trace in options.traces]
    with arguments.progress(options, "managers") as progress:
        found = memory_managers.managers(
            *traces,
            machine=options.machine,
            set=options.set,
            aged=options.aged,
            memory=options.memory,
            progress=progress,
        )
    for trace in traces:
        arguments.warn(trace.warnings)
    if options.json is not None:
        text = json.dumps(found.data, indent=1, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if options.html is not None:
        write_text(options.html, managed.render(found.data), options.force)
    if arguments.shows_text(options):
        say(managed.summary(found.data))
    return 0


def _list(options: argparse.Namespace) -> int:
    from pagewalk.report import managed

    kinds = memory_managers.kinds()
    if options.json is not None:
        text = json.dumps({"schema": 1, "kinds": kinds}, indent=1, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if arguments.shows_text(options):
        say(managed.listing(kinds))
    return 0
