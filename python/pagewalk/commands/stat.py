"""`pagewalk stat`: counts on one screen, with what each costs."""

import argparse
import json
import sys
from typing import Any

from pagewalk import events
from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.commands.run import live, stored, stored_trace
from pagewalk.machine import DEFAULT
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk stat gzip.pwt
  pagewalk stat gzip.pwt -m origin-2000 --place data=64K --html stat.html
  pagewalk stat gzip.pwt --json stat.json -o stat.txt
  pagewalk stat -m origin-2000 -- gzip -9 -k big.tar

A program after `--` owns standard output: what was counted goes to standard error, or to the files
that -o and --json name.
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "stat",
        help="count the events of a run, with their cost",
        description="Run a trace or a program through a machine, and show its counts on one screen "
        "with the cycles that each takes, as a range.",
        usage="pagewalk stat TRACE [options]\n"
        "       pagewalk stat [options] -- COMMAND [ARGUMENT ...]",
        epilog=EPILOG,
    )
    parser.add_argument(
        "trace",
        nargs="?",
        metavar="TRACE",
        help="a trace file, of another tool as well, - for standard input, or "
        "generate:KIND,KEY=VALUE,..., or several as mix:TRACE,TRACE,...",
    )
    arguments.add_machine(parser, "the machine")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the text to FILE")
    arguments.add_json(parser, "the events")
    parser.add_argument("--html", metavar="FILE", help="write a page with the events")
    arguments.add_process(parser)
    arguments.add_window(parser, warmup=True)
    arguments.add_reading(parser)
    arguments.add_recording(parser)
    arguments.add_live(parser)
    arguments.add_native(parser)
    arguments.add_force(parser)
    parser.set_defaults(run=run, runs_program=True, check=False)


def run(options: argparse.Namespace) -> int:
    """Runs, and gives the text, the JSON and the page that were asked for."""
    from pagewalk.output import write_text
    from pagewalk.report import events as shown

    names = options.machine or [DEFAULT]
    if len(names) > 1:
        raise UsageError("stat takes one machine: `pagewalk run` compares several")
    arguments.check_documents(options)
    arguments.check_output(options.output, options.force)
    if options.output == options.json == "-":
        raise UsageError("-o - and --json - both write to standard output: give one a file")
    trace = None if options.program is not None else stored_trace(options)
    machine = arguments.machine(names[0], options, trace)
    arguments.note(options, machine.notes)
    if trace is not None:
        [results], status = stored([machine], trace, options, advised=False), 0
    else:
        [results], status = live([machine], options, advised=False)
    made = events.of_document(results.data)
    if options.json is not None:
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if options.html is not None:
        write_text(options.html, shown.render(made), options.force)
    if options.output is not None:
        arguments.write_output(options.output, shown.summary(made) + "\n", options.force)
    elif arguments.shows_text(options):
        # A live program owns standard output.
        say(shown.summary(made), sys.stdout if options.program is None else sys.stderr)
    return status
