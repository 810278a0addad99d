"""`pagewalk completion`: what a shell needs to complete the command line."""

import argparse
import sys
from typing import Any

from pagewalk.commands import arguments
from pagewalk.machine import machines

EPILOG = """\
examples:
  pagewalk completion bash > pagewalk.bash       then `source pagewalk.bash`, in ~/.bashrc as well
  pagewalk completion zsh > _pagewalk            in a folder of $fpath
  pagewalk completion fish > pagewalk.fish       in ~/.config/fish/completions
"""

FILES = ("TRACE", "FILE", "PATH", "A", "B", "NAME|FILE")
"""How arguments are called that are files."""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="print what bash, zsh or fish complete the command line with",
        description="Print a script that tells a shell the commands, their options and the values "
        "that these take. It is made from the same parser as the help.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the script."""
    import shtab

    from pagewalk.cli import parser

    arguments.no_program(options)
    top = parser()
    _mark(top)
    sys.stdout.write(shtab.complete(top, options.shell))
    return 0


def _mark(parser: argparse.ArgumentParser) -> None:
    """Says of each argument what completes it, where its choices do not."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                _mark(sub)
        elif action.metavar == "FOLDER":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest == "name" and action.metavar == "NAME":
            action.choices = [machine.name for machine in machines()]
