"""The command line: every command by its name, and the parser of all commands or of one."""

import argparse
from collections.abc import Iterable
from importlib import import_module

from pagewalk import _native
from pagewalk.commands.command import Command
from pagewalk.commands.parser import Parser, leaves

EPILOG = """\
examples:
  pagewalk record -o gzip.pwt -- gzip -9 -k big.tar
  pagewalk run gzip.pwt --html gzip.html
  pagewalk run gzip.pwt --machine opteron-2008 --set tlb.l2d.entries=1024 --json -
  pagewalk run --machine epyc-9005 -- gzip -9 -k big.tar
  pagewalk run generate:join,table=16G,accesses=1M

`pagewalk COMMAND --help` explains a command. Numbers may be written as 50M, 134.3M or 16G. If the
environment variable NO_COLOR is set, text has no color.
"""

COMMANDS = {
    "record": "record.Record",
    "attach": "attach.Attach",
    "run": "run.Run",
    "stat": "stat.Stat",
    "sweep": "sweep.Sweep",
    "origins": "origins.Origins",
    "advise": "advise.Advise",
    "place": "place.Place",
    "verify": "verify.Verify",
    "managers": "managers.Managers",
    "diff": "diff.Diff",
    "curve": "curve.Curve",
    "info": "info.Info",
    "import": "importing.Import",
    "export": "export.Export",
    "generate": "generate.Generate",
    "hat": "hat.Hat",
    "skeleton": "skeleton.Skeleton",
    "machines": "machines.Machines",
    "calibrate": "calibrate.Calibrate",
    "reproduce": "reproduce.Reproduce",
    "doctor": "doctor.Doctor",
    "version": "version.Version",
    "completion": "completion.Completion",
    "manual": "manual.Manual",
}
"""The commands in the order of the help. Each has a module of `pagewalk.commands` and a class."""


class _Version(argparse.Action):
    """Prints the version in one line. Python's own action would wrap the line as a paragraph."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Prints the version, and exits."""
        print(f"pagewalk {_native.version()}")
        parser.exit()


def command(name: str) -> Command:
    """The command with this name. Modules of other commands are not imported."""
    module, _, kind = COMMANDS[name].partition(".")
    found: Command = getattr(import_module(f"pagewalk.commands.{module}"), kind)()
    return found


def parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser with these commands. Building it with one command is faster than with all."""
    top = Parser(
        prog="pagewalk",
        description="Record a program's memory accesses, simulate them on any MMU, and see what "
        "address translation costs.",
        epilog=EPILOG,
    )
    top.add_argument(
        "--version", action=_Version, nargs=0, help="show program's version number and exit"
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True, prog=top.prog)
    for name in names:
        command(name).add(commands)
    for leaf in leaves(top):
        leaf.add_argument(
            "-q",
            "--quiet",
            action="store_true",
            help="print no progress, no notes, and no summary if the results go to a file",
        )
        leaf.set_defaults(parser=leaf)
    return top
