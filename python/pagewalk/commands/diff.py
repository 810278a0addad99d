"""`pagewalk diff`: the changes from one result to another."""

import argparse
import json
from pathlib import Path

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Input, shows_text
from pagewalk.commands.flags import FORCE, ORIGINS, json_of, top
from pagewalk.results import Results
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk diff before.json after.json
  pagewalk diff before.json after.json --top 40
  pagewalk diff before.json after.json --json
  pagewalk diff before.json after.json --by function

Results are written by `pagewalk run --json FILE`. The biggest change comes first, as a factor from
A to B; measures of fewer than 100 events come last.
"""


class Diff(Command):
    """Shows the changes from one result to another."""

    name = "diff"
    help = "report what changed from one result to another"
    description = (
        "Compare two results of `pagewalk run --json`: first the differences of machine, trace "
        "and settings, then the measures that changed, biggest change first."
    )
    epilog = EPILOG
    flags = (
        Input("a", metavar="A", help="results as JSON, before the change"),
        Input("b", metavar="B", help="results as JSON, after the change"),
        top("N biggest changes"),
        ORIGINS,
        json_of("all changes"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Compares two results, and writes the text or the JSON."""
        from pagewalk import difference

        a, b = (Results.load(path).data for path in (options.a, options.b))
        if options.json is not None:
            made = json.dumps(difference.document(a, b), indent=1, ensure_ascii=False) + "\n"
            arguments.write_output(options.json, made, options.force)
        if shows_text(options):
            names = (Path(options.a).stem, Path(options.b).stem)
            say(difference.summary(names, a, b, options.top))
            for key in options.by:
                from pagewalk import origins

                merge = options.merge and key == "region"
                say(f"\n{origins.comparison(names, (a, b), key, options.top, merge)}")
        return 0
