"""`pagewalk curve`: misses of TLBs of every size, from one pass."""

import argparse
import json

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Table, shows_text
from pagewalk.commands.flags import (
    FORCE,
    PICTURES,
    PROCESS,
    READING,
    TRACE,
    WARMED_WINDOW,
    html,
    json_of,
)
from pagewalk.commands.kinds import number
from pagewalk.curves import LOOKUPS, count, document
from pagewalk.curves import made as made_of
from pagewalk.lru import ENTRIES_MAX, PAGE_SIZES
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk curve gzip.pwt                                 misses of 1 to 65536 entries as text
  pagewalk curve gzip.pwt --lookups data,fetch --html curve.html
  pagewalk curve gzip.pwt --page-sizes 4K,32K --json      every size, for a program to read
"""


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(part for part in text.split(",") if part))


def _lookups(text: str) -> list[str]:
    names = _list(text)
    for name in names:
        if name not in LOOKUPS:
            raise argparse.ArgumentTypeError(f"`{name}`: choose from {', '.join(LOOKUPS)}")
    return names


class Curve(Command):
    """Misses of TLBs of every size, from one pass."""

    name = "curve"
    help = "count the misses of TLBs of every size, in one pass"
    description = (
        "Read a trace once and count the misses of fully associative LRU TLBs of every "
        "size, for several page sizes."
    )
    epilog = EPILOG
    flags = (
        TRACE,
        Flag(
            "--page-sizes",
            type=_list,
            default=list(PAGE_SIZES),
            metavar="SIZE,...",
            help=f"page sizes, 4K or larger (default: {','.join(PAGE_SIZES)})",
        ),
        Flag(
            "--lookups",
            type=_lookups,
            default=["data"],
            metavar="KIND,...",
            help="which lookups to count: data, fetch (instructions) or all (data and fetch in "
            "one TLB); if several are given, each has a TLB of its own (default: data)",
        ),
        Flag(
            "--entries",
            type=number,
            default=ENTRIES_MAX,
            metavar="N",
            help=f"the largest TLB size, in entries (default: {ENTRIES_MAX})",
        ),
        Table("the curves"),
        json_of("the curves"),
        html("write a page for a browser with charts of the curves"),
        PICTURES,
        FORCE,
        PROCESS,
        WARMED_WINDOW,
        READING,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Counts the misses, and writes the requested text, JSON and page."""
        trace = arguments.trace(options, options.trace)
        with arguments.progress(options, f"reading {trace.name}") as progress:
            curves = count(trace, options.page_sizes, options.lookups, options.entries, progress)
        arguments.warn(trace.warnings)
        made = document(trace, curves)
        arguments.write_table(options, made_of(curves, made))
        if options.json is not None:
            text = json.dumps(made, ensure_ascii=False) + "\n"
            arguments.write_output(options.json, text, options.force)
        if options.html is not None:
            from pagewalk.output import write_text
            from pagewalk.report.curves import render

            write_text(options.html, render(made, curves), options.force)
        if options.svg or options.pdf or options.png:
            from pagewalk.report.curves import charts

            arguments.write_pictures(options, charts(curves))
        if shows_text(options):
            from pagewalk.report.curves import summary

            say(summary(trace.name, curves))
        return 0
