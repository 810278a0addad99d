"""`pagewalk curve`: misses of every TLB size, from one pass."""

import argparse
import json
from typing import Any

from pagewalk.commands import arguments
from pagewalk.curve import ENTRIES_MAX, LOOKUPS, PAGE_SIZES, count, document
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk curve gzip.pwt                                 misses of 1 to 65536 entries as text
  pagewalk curve gzip.pwt --lookups data,fetch --html curve.html
  pagewalk curve gzip.pwt --page-sizes 4K,32K --json      every size, for a program to read
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "curve",
        help="count the misses of every TLB size in one pass",
        description="Read a trace once and count the misses of fully associative LRU TLBs of every "
        "size, for several page sizes.",
        epilog=EPILOG,
    )
    arguments.add_trace(parser)
    parser.add_argument(
        "--page-sizes",
        type=_list,
        default=list(PAGE_SIZES),
        metavar="SIZE,...",
        help=f"page sizes, 4K or larger (default: {','.join(PAGE_SIZES)})",
    )
    parser.add_argument(
        "--lookups",
        type=_lookups,
        default=["data"],
        metavar="KIND,...",
        help="what is looked up: data, fetch, all, or several, each in a TLB of its own "
        "(default: data)",
    )
    parser.add_argument(
        "--entries",
        type=arguments.number,
        default=ENTRIES_MAX,
        metavar="N",
        help=f"the largest TLB (default: {ENTRIES_MAX})",
    )
    arguments.add_json(parser, "the curves")
    parser.add_argument("--html", metavar="FILE", help="write a page with the curves drawn")
    arguments.add_pictures(parser)
    arguments.add_force(parser)
    arguments.add_process(parser)
    arguments.add_window(parser, warmup=True)
    arguments.add_reading(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Counts, and gives the text, the JSON and the page that were asked for."""
    arguments.no_program(options)
    arguments.check_documents(options)
    trace = arguments.trace(options, options.trace)
    with arguments.progress(options, f"reading {trace.name}") as progress:
        curves = count(trace, options.page_sizes, options.lookups, options.entries, progress)
    arguments.warn(trace.warnings)
    made = document(trace, curves)
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
    if arguments.shows_text(options):
        from pagewalk.report.curves import summary

        say(summary(trace.name, curves))
    return 0


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(part for part in text.split(",") if part))


def _lookups(text: str) -> list[str]:
    names = _list(text)
    for name in names:
        if name not in LOOKUPS:
            raise argparse.ArgumentTypeError(f"`{name}`: choose of {', '.join(LOOKUPS)}")
    return names
