"""`pagewalk verify`: which page sizes a program really has, and why it has no larger ones."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Input
from pagewalk.commands.flags import FORCE, json_of, top
from pagewalk.commands.kinds import positive
from pagewalk.commands.parser import UsageError
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk.placing.rules import Rule
    from pagewalk.placing.system import System

EPILOG = """\
examples:
  pagewalk verify -- python3 -c "x = bytearray(64 << 20)"
  pagewalk verify heap=2M -- sqlite3 :memory: "select 1"
  pagewalk verify heap=2M --json heap.json -- sqlite3 :memory: "select 1"

Standard output belongs to a program after `--`: the report goes to standard error, or to the file
that --json names. If there are several processes, the JSON has all of them, and the text shows the
one with the most memory.
"""


def rules_of(what: str) -> Input:
    """`RULES|FILE`."""
    return Input(
        "rules",
        nargs="?",
        metavar="RULES|FILE",
        help=f"{what}: rules as in `heap=2M, stack=4K`, or a place file of `advise -o`",
    )


PROCESS_ID = Flag("-p", "--pid", type=positive, metavar="PID", help="id of a running process")


class Verify(Command):
    """Reports which page sizes a program really has."""

    name = "verify"
    help = "report which page sizes a program really has, and why not larger ones"
    description = (
        "Look at the memory of a running process, or of a program that is run for this, and "
        "report for each region which page size was requested, which page sizes it got, and why "
        "some of its pages are smaller: the setting (knob) that decides it, and what to write to "
        "change it."
    )
    usage = (
        "pagewalk verify [RULES|FILE] -p PID [options]\n"
        "       pagewalk verify [RULES|FILE] [options] -- COMMAND [ARGUMENT ...]"
    )
    epilog = EPILOG
    runs_program = True
    flags = (
        rules_of(
            "requested page sizes, in addition to those that the program and the knobs request"
        ),
        PROCESS_ID,
        json_of("the report"),
        top("N regions with the most memory"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Examines the process, and writes the requested text and JSON."""
        from pagewalk.placing import mappings, show, verify
        from pagewalk.placing.system import System

        check(options)
        system = System()
        wanted = []
        if options.rules is not None:
            wanted = read(options.rules, system, has_all=True)
        if options.program is None:
            mappings.of_a_program(options.pid)
            documents, status = [verify.verify(options.pid, wanted, system=system)], 0
            stream = sys.stdout
        else:
            documents, status = _run(options, wanted, system)
            stream = sys.stderr
        if options.json is not None:
            found = documents[0] if options.program is None else {"processes": documents}
            text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
            arguments.write_output(options.json, text, options.force)
        if documents and options.json != "-" and not options.quiet:
            say(show.summary(documents[0], options.top), stream)
        return status


def read(place: str, system: "System", *, has_all: bool) -> "list[Rule]":
    """The rules in `place`, or in the file with this name.

    With `has_all`, rules of all page sizes are accepted.
    """
    from pagewalk.placing import rules

    written = arguments.place_rules(place, "")
    where = "" if written == place else place
    return rules.read(written, system, where=where, pools=has_all, small=has_all)


def check(options: argparse.Namespace) -> None:
    """Checks that the options name either a process or a program.

    Raises:
        UsageError: The options name neither a process nor a program, or name both.
    """
    if options.pid is None and options.program is None:
        raise UsageError("give a process with -p PID, or a program after `--`")
    if options.pid is not None and options.program is not None:
        raise UsageError("give either -p PID or a program after `--`, not both")


def _run(
    options: argparse.Namespace, wanted: "list[Rule]", system: Any
) -> tuple[list[dict[str, Any]], int]:
    from pagewalk import _native
    from pagewalk.placing import launch

    command = launch.shelled(arguments.program(options))
    with launch.Watch(wanted, system, None) as watch:
        if _native.may_trace():
            outcome = launch.launch(command, [], look=watch.end)
        else:
            arguments.note(options, [launch.FORBIDDEN])
            outcome = launch.untraced(command, [])
    documents = watch.documents
    arguments.note(options, outcome["notes"])
    if not documents:
        arguments.warn(["the program ended before its memory could be examined"])
    elif len(documents) > 1:
        arguments.note(
            options,
            [
                f"{len(documents)} processes were examined; the one with the most memory is "
                "shown, and --json writes all"
            ],
        )
    return documents, outcome["status"]
