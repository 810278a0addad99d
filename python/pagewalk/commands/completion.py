"""`pagewalk completion`: the script by which a shell completes the command line."""

import argparse
import sys

from pagewalk.commands.command import Command, Flag
from pagewalk.machine import machines

EPILOG = """\
examples:
  pagewalk completion bash > pagewalk.bash       then `source pagewalk.bash`, also in ~/.bashrc
  pagewalk completion zsh > _pagewalk            in a folder of $fpath
  pagewalk completion fish > pagewalk.fish       in ~/.config/fish/completions
"""

FILES = ("TRACE", "FILE", "PATH", "A", "B", "NAME|FILE")
"""The metavars of arguments that are files."""


class Completion(Command):
    """The script by which a shell completes the command line."""

    name = "completion"
    help = "print the completion script for bash, zsh or fish"
    description = (
        "Print a script with which a shell completes commands, options and their values. It is "
        "generated from the parser that also makes the help."
    )
    epilog = EPILOG
    flags = (
        Flag("shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish"),
    )

    def run(self, options: argparse.Namespace) -> int:
        """Prints the script."""
        import shtab

        from pagewalk.commands.line import parser

        top = parser()
        _mark(top)
        sys.stdout.write(shtab.complete(top, options.shell))
        return 0


def _mark(parser: argparse.ArgumentParser) -> None:
    """Sets how each argument without choices is completed."""
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
