"""`pagewalk managers`: a program under every memory manager."""

import argparse
import json

from pagewalk import memory_managers
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Input, Table, shows_text
from pagewalk.commands.flags import FORCE, PROCESS, READING, WARMED_WINDOW, html, json_of, settings
from pagewalk.commands.parser import UsageError
from pagewalk.names import DEFAULT
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk managers
  pagewalk managers gzip.pwt
  pagewalk managers gzip.pwt --aged 0.5,0.1 --memory 80% --html managers.html
"""


class Managers(Command):
    """Runs a program under every memory manager."""

    name = "managers"
    help = "run a program under every memory manager"
    description = (
        "Run traces under every memory manager, on the same machine and memory, and report which "
        "page sizes each manager gives, why not larger ones, and at what cost. Without a trace, "
        "list the managers and their keys."
    )
    epilog = EPILOG
    flags = (
        Input(
            "traces",
            nargs="*",
            metavar="TRACE",
            help="a trace file (Pagewalk's or another tool's), generate:KIND,KEY=VALUE,..., or "
            "mix:TRACE,TRACE,...",
        ),
        Flag(
            "-m",
            "--machine",
            default=DEFAULT,
            metavar="NAME|FILE",
            help=f"a built-in machine or a TOML file (default: {DEFAULT})",
        ),
        settings("the machine"),
        Table("all rows"),
        json_of("all rows"),
        html("write a page for a browser with all rows"),
        FORCE,
        PROCESS,
        WARMED_WINDOW,
        READING,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Runs the program, and writes the requested text, JSON and page."""
        from pagewalk.output import write_text
        from pagewalk.report import managed

        if not options.traces:
            for flag, path in (("--html", options.html), ("--output", options.output)):
                if path is not None:
                    raise UsageError(f"{flag} writes the results of runs: give a trace")
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
        arguments.write_table(options, found.made())
        if options.json is not None:
            text = json.dumps(found.data, indent=1, ensure_ascii=False) + "\n"
            arguments.write_output(options.json, text, options.force)
        if options.html is not None:
            write_text(options.html, managed.render(found.data), options.force)
        if shows_text(options):
            say(managed.summary(found.data))
        return 0


def _list(options: argparse.Namespace) -> int:
    from pagewalk.report import managed

    kinds = memory_managers.kinds()
    if options.json is not None:
        text = json.dumps({"schema": 1, "kinds": kinds}, indent=1, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if shows_text(options):
        say(managed.listing(kinds))
    return 0
