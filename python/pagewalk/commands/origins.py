"""`pagewalk origins`: where the misses of a result come from."""

import argparse
import json

from pagewalk import origins
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Input, shows_text
from pagewalk.commands.flags import FORCE, ORIGINS, json_of, output, top
from pagewalk.commands.parser import UsageError
from pagewalk.results import Results
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk origins results.json
  pagewalk origins results.json --by line --top 40
  pagewalk origins results.json --by region --merge --json
  pagewalk origins results.json --folded function -o results.folded
  pagewalk origins results.json --folded site

Results are written by `pagewalk run --json FILE`. flamegraph.pl and speedscope draw flame graphs
from folded stacks. The call stack of an access is not recorded: its folded stack consists of the
program or library, the function, and the data accessed.
"""


class Origins(Command):
    """Where the misses of a result come from."""

    name = "origins"
    help = "report where the misses of a result come from"
    description = (
        "Report the misses of every TLB by region, allocation site, function, line, thread or "
        "page size."
    )
    epilog = EPILOG
    flags = (
        Input(
            "results", metavar="RESULTS", help="results as JSON, from `pagewalk run --json FILE`"
        ),
        ORIGINS,
        top("first N rows of each table"),
        Flag(
            "--folded",
            choices=("function", "line", "site"),
            help="print folded stacks for flame graphs in place of tables: of the code that "
            "missed (function, line), or of the calls that allocated the data (site)",
        ),
        output("write the folded stacks to FILE, not to standard output"),
        json_of("all rows"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Sums, and gives tables, stacks or JSON."""
        if options.folded and (options.by or options.json is not None):
            raise UsageError("--folded prints stacks in place of tables: leave --by and --json out")
        if options.output is not None and not options.folded:
            raise UsageError("-o needs --folded; to write the tables as JSON, use --json FILE")
        data = Results.load(options.results).data
        if options.folded:
            arguments.warn(origins.notes(data))
            text = "".join(f"{line}\n" for line in origins.folded(data, options.folded))
            arguments.write_output(options.output or "-", text, options.force)
            return 0
        options.by = options.by or ["function", "site"]
        if options.json is not None:
            merged = {key: options.merge and key == "region" for key in options.by}
            found = {
                key: [origin._asdict() for origin in origins.by(data, key, merged[key])]
                for key in options.by
            }
            made = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
            arguments.write_output(options.json, made, options.force)
        if shows_text(options):
            say(arguments.origins_text(options, [data]))
        return 0
