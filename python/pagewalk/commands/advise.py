"""`pagewalk advise`: which region should have which page size."""

import argparse
import json

from pagewalk import here, page_sizes
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, shows_text
from pagewalk.commands.flags import (
    FORCE,
    PROCESS,
    READING,
    TRACE,
    WARMED_WINDOW,
    html,
    json_of,
    output,
    settings,
)
from pagewalk.commands.parser import UsageError
from pagewalk.commands.place import COMPARING, check_alone, compared
from pagewalk.names import DEFAULT
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk advise gzip.pwt
  pagewalk advise gzip.pwt -m origin-2000 --max-memory +20% --html sizes.html
  pagewalk advise gzip.pwt -m origin-2000 -o gzip.place
  pagewalk advise gzip.pwt -m epyc-9005 --exact

Give the file that -o writes to `pagewalk run --place`: on the same machine, that run has the counts
that are predicted here.
"""


def _share(text: str) -> float:
    try:
        share = float(text.removeprefix("+").removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not text.endswith("%") or not 0 <= share < float("inf"):
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a share of memory: write a percentage, as in +5%"
        )
    return share


class Advise(Command):
    """Which region should have which page size."""

    name = "advise"
    help = "recommend a page size for each region"
    description = (
        "Simulate a trace a few times, however many regions it has: with base pages, with one page "
        "size for all regions, and with the page sizes by region that save the most within "
        "--max-memory. These are usually two or three runs, and up to nine on a machine with many "
        "page sizes, such as origin-2000."
    )
    usage = "pagewalk advise TRACE [options] [--measure -- COMMAND ...]"
    epilog = EPILOG
    runs_program = True
    flags = (
        TRACE,
        Flag(
            "-m",
            "--machine",
            metavar="NAME|FILE",
            help="a machine whose memory manager gives the page sizes that are requested: "
            "origin-2000 with the sizes of IRIX (os.manager = irix), most others with the 2M pages "
            "of madvise (first-touch, linux); "
            f"default: the machine of this computer's processor, else {DEFAULT}",
        ),
        settings("the machine"),
        Flag(
            "--max-memory",
            type=_share,
            default=page_sizes.MEMORY_ADDED_MAX,
            metavar="+N%",
            help="the most memory that the advice may add, relative to the memory that base pages "
            "take (default: +5%%)",
        ),
        Flag(
            "--exact",
            action="store_true",
            help="simulate each region alone at each page size, and then sets of regions that grow "
            "step by step; slow if there are many regions. Without --exact, regions that are alike "
            "are simulated together, in a few runs",
        ),
        Flag(
            "--measure",
            action="store_true",
            help="after the advice, run the program after `--` natively, in turns with and without "
            "the advised page sizes, and report the measured gain next to the predicted one",
        ),
        COMPARING,
        output("write the advice as a place file, for --place"),
        json_of("all runs"),
        html("write a page for a browser with all runs"),
        FORCE,
        PROCESS,
        WARMED_WINDOW,
        READING,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Runs the trace, and writes the requested text, place file, JSON and page."""
        from pagewalk.output import write_text
        from pagewalk.report import placed

        _check_measuring(options)
        if options.machine is None:
            options.machine = here.at_hand()
            fits = here.is_of(options.machine, here.processor())
            arguments.note(options, [f"no machine is given: {here.said(options.machine, fits)}"])
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
                exact=options.exact,
                early=lambda line: arguments.note(options, [line]),
            )
        arguments.warn(trace.warnings)
        if options.output is not None:
            arguments.write_output(options.output, page_sizes.place_file(advised), options.force)
        if options.json is not None:
            text = json.dumps(advised.data, indent=1, ensure_ascii=False) + "\n"
            arguments.write_output(options.json, text, options.force)
        if options.html is not None:
            write_text(options.html, placed.render(advised.data), options.force)
        if shows_text(options) and options.output != "-":
            say(placed.summary(advised.data))
        if options.measure:
            _measured(options, page_sizes.place_file(advised), advised.data["best"] is not None)
        return 0


def _check_measuring(options: argparse.Namespace) -> None:
    """Refuses flags that conflict with `--measure`, and those that need it if it is not given."""
    if options.measure and options.program is None:
        raise UsageError(
            "--measure runs the program natively: put it after `--`, as in `--measure -- ./join`"
        )
    if not options.measure:
        if options.program is not None:
            raise UsageError(
                "advise runs a program after `--` only with --measure: give --measure, or leave "
                "the program out"
            )
        check_alone(options, "--measure")


def _measured(options: argparse.Namespace, written: str, is_any: bool) -> None:
    """Compares the program with and without the advised page sizes."""
    from pagewalk import _native
    from pagewalk.placing import launch, rules
    from pagewalk.placing.system import System

    if not is_any:
        arguments.note(options, ["no page size is advised, so that there is nothing to measure"])
        return
    if not _native.may_trace():
        raise _native.Error(launch.FORBIDDEN)
    wanted = rules.read(written, System(), where="the advice")
    command = launch.shelled(arguments.program(options))
    compared(options, command, written, lambda: launch.launch(command, wanted))
