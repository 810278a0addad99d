"""`pagewalk skeleton`: what recorded processes ask memory management for."""

import argparse
import json
from typing import Any

from pagewalk import text
from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.output import write_text
from pagewalk.skeleton import skeleton
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk skeleton make.pwt -o make.skeleton
  pagewalk hat --work make.skeleton --cpus 1,8
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "skeleton",
        help="what recorded processes ask memory management for, in a few KB each",
        description="Keep of a trace what concerns memory management: mappings, forks, programs "
        "begun, the first access to each page and the first store, and how many instructions "
        "lie in between. `pagewalk hat --work FILE` plays it on many processors.",
        epilog=EPILOG,
    )
    arguments.add_trace(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the file to write; - is standard output",
    )
    arguments.add_process(parser)
    arguments.add_window(parser)
    arguments.add_reading(parser)
    arguments.add_json(parser, "what was written")
    parser.add_argument("--html", metavar="FILE", help="write a page for a browser")
    arguments.add_force(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Writes the file and says what is in it."""
    arguments.no_program(options)
    for path in (options.output, options.json, options.html):
        arguments.check_output(path, options.force)
    if options.html == "-":
        raise UsageError("--html needs the name of a file")
    if options.output == options.json == "-":
        raise UsageError("one of the two goes to standard output: -o - or --json -")
    trace = arguments.trace(options, options.trace)
    with arguments.progress(options, f"reading {trace.name}") as progress:
        made = skeleton(trace, progress=progress)
    arguments.warn(made.warnings)
    arguments.write_output(options.output, made.text, options.force)
    counts = {name: value for name, value in made._asdict().items() if name != "text"}
    document = {"schema": 1, "path": options.output, "bytes": len(made.text.encode()), **counts}
    if options.html is not None:
        from pagewalk.report.skeleton import render

        write_text(options.html, render(document, made), options.force)
    if options.json is not None:
        arguments.write_output(options.json, json.dumps(document, indent=1) + "\n", options.force)
    if options.output != "-" and arguments.shows_text(options):
        processes = text.plural(len(made.processes), "process", "processes")
        say(f"{options.output}: {processes}, {text.plural(made.steps, 'step')}")
    return 0
