"""`pagewalk info`: the contents of a trace."""

import argparse
import json

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Output, shows_text
from pagewalk.commands.flags import FORCE, PROCESS, READING, TRACE, WINDOW, json_of
from pagewalk.commands.parser import UsageError
from pagewalk.terminal import say


class Info(Command):
    """Prints the contents of a trace."""

    name = "info"
    help = "summarize a trace: accesses, processes, pages, regions"
    description = (
        "Read a trace and count its accesses by kind, instructions, threads, distinct pages and "
        "lines, regions of the address space, and events."
    )
    epilog = (
        "example:\n  pagewalk info gzip.pwt\n  pagewalk info gzip.pwt --json\n"
        "  pagewalk info gzip.pwt --switches --graph gzip.svg   a graph of switches"
    )
    flags = (
        TRACE,
        json_of("the counts"),
        Flag(
            "--switches",
            action="store_true",
            help="count the switches between each pair of processes, and propose groups of "
            "processes for `os.small.groups` (small spaces: several processes side by side in one "
            "address space)",
        ),
        Output(
            "--graph",
            metavar="FILE",
            help="with --switches: draw the switches between processes as a graph (SVG)",
        ),
        FORCE,
        PROCESS,
        WINDOW,
        READING,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Reads the trace and prints its counts."""
        from pagewalk import switches
        from pagewalk.summary import trace_summary

        if options.graph is not None and not options.switches:
            raise UsageError("--graph needs --switches: give both")
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
        if shows_text(options):
            say(trace_summary(trace.name, info))
            if options.switches:
                say("\n" + switches.summary(info["switches"]))
        return 0
