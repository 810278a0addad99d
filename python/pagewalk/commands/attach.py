"""`pagewalk attach`: record a part of a running program."""

import argparse
import json
import sys

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Flags, Input
from pagewalk.commands.flags import (
    FORCE,
    INSTRUCTIONS,
    SAMPLE,
    SIGNS,
    USER_FILTER,
    WINDOW,
    json_of,
    output,
)
from pagewalk.commands.record import CALLS, MAX_BYTES, NO_ARGUMENTS, describe
from pagewalk.output import refuse_existing
from pagewalk.recording import Recording
from pagewalk.terminal import say


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"`{text}` is not a time: write seconds, as 10 or 0.5")
    return found


def _pid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a process: write its number, as `pgrep NAME` prints it"
        )
    return int(text)


PARTS = Flags(
    Flag(
        "--seconds",
        type=_seconds,
        metavar="S",
        help="end the recording after S seconds (default: at the end of the window, of the "
        "program, or with Ctrl-C)",
    ),
    SIGNS,
    INSTRUCTIONS,
    SAMPLE,
    MAX_BYTES,
    USER_FILTER,
    CALLS,
    Flag(
        "--pages",
        action="store_true",
        help="also record which page sizes the kernel gives to the program, at intervals and when "
        "its memory grows; without PAGEMAP_SCAN (Linux 6.7), a note says that they are missing",
    ),
    NO_ARGUMENTS,
    title="recording",
)

EPILOG = """\
examples:
  pagewalk attach $(pgrep -x redis-server) --seconds 2
  pagewalk attach 4711 -o query.pwt --from-symbol exec_simple_query --max-accesses 10M

The program runs on by itself after the recording, with nothing of Pagewalk in it. Programs that it
starts are not recorded. If Pagewalk is killed, the program runs on, too.
"""


class Attach(Command):
    """Record a part of a running program."""

    name = "attach"
    help = "record a part of a program that runs already"
    description = (
        "Record a part of a program for x86-64 that runs already, in its own process, and let it "
        "go on by itself."
    )
    epilog = EPILOG
    flags = (
        Input("pid", type=_pid, metavar="PID", help="the process to record"),
        output("the trace to write (default: PID.pwt)"),
        WINDOW,
        PARTS,
        json_of("a summary of the recording"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Records the process, and prints what was recorded."""
        from pagewalk.attaching import attach

        path = options.output or f"{options.pid}.pwt"
        refuse_existing(path, options.force)
        given = {name: value for name, value in vars(options).items() if name in Recording.names()}
        given["fetches"] = not options.no_fetch
        with arguments.progress(options, "recording") as progress:
            outcome = attach(
                options.pid,
                path,
                seconds=options.seconds,
                force=options.force,
                progress=progress,
                **given,
            )
        if options.json is not None:
            text = json.dumps(outcome, indent=1) + "\n"
            arguments.write_output(options.json, text, options.force)
        found = [] if outcome["accesses"] else ["no access was recorded"]
        arguments.warn([*outcome["lost"], *found])
        for line in () if options.quiet else describe(outcome):
            say(f"pagewalk: {line}", sys.stderr)
        return 0
