"""`pagewalk skeleton`: the requests of recorded processes to memory management."""

import argparse
import json

from pagewalk import text
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, shows_text
from pagewalk.commands.flags import FORCE, PROCESS, READING, TRACE, WINDOW, html, json_of, output
from pagewalk.commands.parser import UsageError
from pagewalk.output import write_text
from pagewalk.skeletons import skeleton
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk skeleton make.pwt -o make.skeleton
  pagewalk hat --work make.skeleton --cpus 1,8
"""


class Skeleton(Command):
    """The requests of recorded processes to memory management."""

    name = "skeleton"
    help = "extract from a trace what its processes request from memory management"
    description = (
        "Extract from a trace what concerns memory management: mappings, forks, programs "
        "executed, the first access to each page and the first store to it, and the number of "
        "instructions in between. The file has a few KB per process; `pagewalk hat --work FILE` "
        "replays it on many processors."
    )
    epilog = EPILOG
    flags = (
        TRACE,
        output("the file to write; - is standard output", required=True),
        PROCESS,
        WINDOW,
        READING,
        json_of("a summary of the file"),
        html("write a page for a browser"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Writes the file and prints what is in it."""
        if options.output == options.json == "-":
            raise UsageError(
                "-o - and --json - both write to standard output: give one of them a file"
            )
        trace = arguments.trace(options, options.trace)
        with arguments.progress(options, f"reading {trace.name}") as progress:
            made = skeleton(trace, progress=progress)
        arguments.warn(made.warnings)
        arguments.write_output(options.output, made.text, options.force)
        counts = {name: value for name, value in made._asdict().items() if name != "text"}
        document = {"schema": 1, "path": options.output, "bytes": len(made.text.encode()), **counts}
        if options.html is not None:
            from pagewalk.report.skeleton import render

            write_text(options.html, render(document), options.force)
        if options.json is not None:
            arguments.write_output(
                options.json, json.dumps(document, indent=1) + "\n", options.force
            )
        if options.output != "-" and shows_text(options):
            processes = text.plural(len(made.processes), "process", "processes")
            say(f"{options.output}: {processes}, {text.plural(made.steps, 'step')}")
        return 0
