"""`pagewalk origins`: where the misses of a result come from."""

import argparse
import json

from pagewalk import exports, origins
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Input, shows_text
from pagewalk.commands.flags import FORCE, ORIGINS, json_of, output, top
from pagewalk.commands.parser import UsageError
from pagewalk.results import Results
from pagewalk.terminal import say
from pagewalk.text import paragraph

EPILOG = """\
examples:
  pagewalk origins results.json
  pagewalk origins results.json --by line --top 40
  pagewalk origins results.json --by region --merge --json
  pagewalk origins results.json --folded site
  pagewalk origins results.json -o misses.speedscope.json
  pagewalk origins results.json -o callgrind.out.misses
  pagewalk origins results.json -o misses.perfetto-trace

Results are written by `pagewalk run --json FILE`. The call stack of an access is not recorded: its
stack consists of the program or library, the function, and the data accessed. The name of a file
selects its format: .folded for flamegraph.pl and speedscope, .speedscope.json for speedscope,
.callgrind and callgrind.out.NAME for KCachegrind, and .perfetto-trace for Perfetto, with the misses
of each region over time.
"""

STACKS = ("function", "line", "site")
"""The kinds of folded stacks."""


class Origins(Command):
    """Reports the origins of the misses of a result."""

    name = "origins"
    help = "report where the misses of a result come from"
    description = (
        "Report the lookups that missed every TLB, by region, allocation site, function, line, "
        "thread or page size."
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
            choices=STACKS,
            help="print folded stacks for flame graphs in place of tables: of the code that "
            "missed (function, line), or of the calls that allocated the data (site)",
        ),
        output(
            "write the misses for another tool, in the format that the name selects: .folded, "
            ".speedscope.json, .callgrind or .perfetto-trace; with --folded the folded "
            "stacks, whatever the name"
        ),
        json_of("all rows"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Sums the misses, and writes tables, stacks or JSON."""
        if options.folded and (options.by or options.json is not None):
            raise UsageError("--folded prints stacks in place of tables: leave --by and --json out")
        exported = options.output is not None and not options.folded
        if exported:
            exports.format_of(options.output)
            if options.by and (len(options.by) > 1 or options.by[0] not in STACKS):
                raise UsageError(f"-o writes stacks: give --by with one of {', '.join(STACKS)}")
        data = Results.load(options.results).data
        if exported:
            arguments.warn(origins.notes(data))
            by = options.by[0] if options.by else STACKS[0]
            exports.write(options.output, data, by, options.force)
            if options.json is None:
                return 0
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
            said = paragraph(origins.finding(data))
            say(f"{said}\n\n{arguments.origins_text(options, [data])}")
        return 0
