"""`pagewalk diff`: two results, and what changed from one to the other."""

import argparse
import json
from pathlib import Path
from typing import Any

from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.results import Results
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk diff before.json after.json
  pagewalk diff before.json after.json --top 40
  pagewalk diff before.json after.json --json
  pagewalk diff before.json after.json --by function

Results are what `pagewalk run --json FILE` writes. The biggest change stands first, as a factor
from A to B; what fewer than 100 events say stands last.
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        help="say what changed from one result to another",
        description="Compare two results of `pagewalk run --json`: what was different to begin "
        "with, and what changed, biggest first.",
        epilog=EPILOG,
    )
    parser.add_argument("a", metavar="A", help="results as JSON, before the change")
    parser.add_argument("b", metavar="B", help="results as JSON, after it")
    arguments.add_top(parser, "N biggest changes")
    arguments.add_origins(parser)
    arguments.add_json(parser, "all changes")
    arguments.add_force(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compares, and gives the text or the JSON."""
    from pagewalk import difference

    arguments.no_program(options)
    arguments.check_output(options.json, options.force)
    if options.top == 0:
        raise UsageError("--top 0 shows nothing: give 1 or more")
    arguments.check_origins(options)
    a, b = (Results.load(path).data for path in (options.a, options.b))
    if options.json is not None:
        made = json.dumps(difference.document(a, b), indent=1, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, made, options.force)
    if arguments.shows_text(options):
        names = (Path(options.a).stem, Path(options.b).stem)
        say(difference.summary(names, a, b, options.top))
        for key in options.by:
            from pagewalk import origins

            merge = options.merge and key == "region"
            say(f"\n{origins.comparison(names, (a, b), key, options.top, merge)}")
    return 0
