"""`pagewalk stat`: the counts of events on one screen, each with its cost."""

import argparse
import json
import sys

from pagewalk import events
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, shows_text
from pagewalk.commands.flags import (
    FORCE,
    LIVE,
    NATIVE,
    PROCESS,
    READING,
    RECORDING,
    TRACE_UNLESS_PROGRAM,
    WARMED_WINDOW,
    html,
    json_of,
    machines,
    output,
)
from pagewalk.commands.parser import UsageError
from pagewalk.commands.run import live, stored, stored_trace
from pagewalk.names import DEFAULT
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk stat gzip.pwt
  pagewalk stat gzip.pwt -m origin-2000 --place data=64K --html stat.html
  pagewalk stat gzip.pwt --json stat.json -o stat.txt
  pagewalk stat -m origin-2000 -- gzip -9 -k big.tar

Standard output belongs to a program after `--`: the counts go to standard error, or to the files
that -o and --json name.
"""


class Stat(Command):
    """Shows the counts of events on one screen, each with its cost."""

    name = "stat"
    help = "count the events of a run, with the cycles that they cost"
    description = (
        "Simulate a trace or a program on a machine, and show the counts of its events on one "
        "screen, each with the cycles that it costs, as a range."
    )
    usage = (
        "pagewalk stat TRACE [options]\n       pagewalk stat [options] -- COMMAND [ARGUMENT ...]"
    )
    epilog = EPILOG
    runs_program = True
    flags = (
        TRACE_UNLESS_PROGRAM,
        machines("the machine"),
        output("write the text to FILE"),
        json_of("the events"),
        html("write a page for a browser with the events"),
        PROCESS,
        WARMED_WINDOW,
        READING,
        RECORDING,
        LIVE,
        NATIVE,
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Runs the trace, and writes the requested text, JSON and page."""
        from pagewalk.output import write_text
        from pagewalk.report import events as shown

        names = options.machine or [DEFAULT]
        if len(names) > 1:
            raise UsageError("stat takes one machine: `pagewalk run` compares several")
        if options.output == options.json == "-":
            raise UsageError(
                "-o - and --json - both write to standard output: give one of them a file"
            )
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
        elif shows_text(options):
            # Standard output belongs to a live program.
            say(shown.summary(made), sys.stdout if options.program is None else sys.stderr)
        return status
