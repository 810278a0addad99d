"""`pagewalk advise`: which region should have which page size."""

import argparse
import json
from typing import Any

from pagewalk import page_sizes
from pagewalk.commands import arguments
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk advise gzip.pwt -m epyc-9005
  pagewalk advise gzip.pwt -m origin-2000 --max-memory +20% --html sizes.html
  pagewalk advise gzip.pwt -m origin-2000 -o gzip.place

What -o writes is for --place: run on the same machine, it gives what was said here.
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "advise",
        help="say which region should have which page size",
        description="Run a trace with each region at each page size alone, then with sets of them, "
        "and say which set gains most for the memory that it adds.",
        epilog=EPILOG,
    )
    arguments.add_trace(parser)
    parser.add_argument(
        "-m",
        "--machine",
        required=True,
        metavar="NAME|FILE",
        help="a machine that gives the page sizes that are wished: origin-2000 with those of IRIX "
        "(os.manager = irix), or epyc-9005 with the 2M of madvise (first-touch, linux)",
    )
    arguments.add_settings(parser, "the machine")
    parser.add_argument(
        "--max-memory",
        type=_share,
        default=page_sizes.MEMORY_ADDED_MAX,
        metavar="+N%",
        help="most memory that the advice may add, as a share of what base pages take "
        "(default: +5%%)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the advice as a place file, for --place"
    )
    arguments.add_json(parser, "all runs")
    parser.add_argument("--html", metavar="FILE", help="write a page with all runs")
    arguments.add_force(parser)
    arguments.add_process(parser)
    arguments.add_window(parser, warmup=True)
    arguments.add_reading(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs, and gives the text, the place file, the JSON and the page that were asked for."""
    from pagewalk.output import write_text
    from pagewalk.report import placed

    arguments.no_program(options)
    arguments.check_documents(options)
    arguments.check_output(options.output, options.force)
    trace = arguments.trace(options, options.trace)
    with arguments.progress(options, f"page sizes of {trace.name}") as progress:
        advised = page_sizes.advise(
            trace,
            options.machine,
            set=arguments.settings(options),
            memory_added_max=options.max_memory,
            aged=options.aged,
            memory=options.memory,
            progress=progress,
        )
    arguments.warn(trace.warnings)
    if options.output is not None:
        arguments.write_output(options.output, page_sizes.place_file(advised), options.force)
    if options.json is not None:
        text = json.dumps(advised.data, indent=1, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if options.html is not None:
        write_text(options.html, placed.render(advised.data), options.force)
    if arguments.shows_text(options) and options.output != "-":
        say(placed.summary(advised.data))
    return 0


def _share(text: str) -> float:
    try:
        share = float(text.removeprefix("+").removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not text.endswith("%") or not 0 <= share < float("inf"):
        raise argparse.ArgumentTypeError(f"`{text}` is no share of memory: write it as in +5%")
    return share
