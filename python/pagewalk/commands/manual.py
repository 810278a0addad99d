r"""`pagewalk manual`: the manual page, made from the parser that makes the help.

```
 parser --> NAME  SYNOPSIS  DESCRIPTION  COMMANDS (a section each, with options)  FILES --> man -l
```

The page is in the `man` macros of roff: `.SH` begins a section, `.TP` an option, and `_plain`
escapes text that roff would take for a macro or an escape.
"""

import argparse
import re
import sys
from collections.abc import Iterator

from pagewalk import _native
from pagewalk.commands.command import Command
from pagewalk.commands.parser import shown, subcommands, value

EPILOG = """\
examples:
  pagewalk manual > pagewalk.1 && man -l pagewalk.1

`man pagewalk` finds the page in a folder such as ~/.local/share/man/man1.
"""


class Manual(Command):
    """The manual page, made from the parser that makes the help."""

    name = "manual"
    help = "print the manual page, for man"
    description = (
        "Print the manual page of all commands. It is generated from the parser that also makes "
        "the help."
    )
    epilog = EPILOG

    def run(self, options: argparse.Namespace) -> int:  # noqa: ARG002
        """Prints the page."""
        from pagewalk.commands.line import parser

        sys.stdout.write(page(parser()))
        return 0


def page(top: argparse.ArgumentParser) -> str:
    """The manual page of `top` and of its commands, as roff."""
    lines = [
        f'.TH PAGEWALK 1 "" "pagewalk {_native.version()}" "User Commands"',
        ".SH NAME",
        "pagewalk \\- what address translation costs a program, and what would fix it",
        ".SH SYNOPSIS",
        ".B pagewalk",
        "COMMAND [options]",
        ".SH DESCRIPTION",
        _plain(top.description or ""),
    ]
    for command in _commands(top):
        lines += _command(command)
    lines += [
        ".SH EXIT STATUS",
        "0: success; 1: the work failed; 2: the arguments or the input are wrong; 130: "
        "interrupted. \\fBrecord\\fR and \\fBrun\\fR of a live program exit with the status of the "
        "program.",
        ".SH ENVIRONMENT",
        ".TP",
        "NO_COLOR",
        "If set and not empty, text has no color.",
        ".TP",
        "PAGEWALK_TRACEBACK",
        "If set, the traceback of an internal error is printed.",
    ]
    return "\n".join(lines) + "\n"


def _commands(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for sub in subcommands(top):
        yield sub
        yield from _commands(sub)


def _command(parser: argparse.ArgumentParser) -> list[str]:
    name = parser.prog.partition(" ")[2]
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    lines = [f".SH {_plain(name.upper())}", ".nf", _plain(usage), ".fi", ".PP"]
    lines.append(_plain(parser.description or ""))
    for group in parser._action_groups:
        actions = shown(group)
        for action in actions:
            lines += [".TP", _term(action), _plain(str(action.help or ""))]
        if not actions and group.description:
            lines += [".PP", _plain(group.description)]
    if parser.epilog:
        lines += [".PP", ".nf", _plain(parser.epilog.rstrip()), ".fi"]
    return lines


def _term(action: argparse.Action) -> str:
    """An option in bold, and its value in italics."""
    taken = value(action)
    taken = f"\\fI{_plain(taken)}\\fR" if taken else ""
    if not action.option_strings:
        return taken
    if action.nargs == "?":
        taken = f"[{taken}]"
    names = ", ".join(f"\\fB{_plain(name)}\\fR" for name in action.option_strings)
    return f"{names} {taken}".rstrip()


def _plain(text: str) -> str:
    """The text, changed so that roff finds no escapes or macros in it."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("%%", "%")
    return re.sub(r"^([.'])", r"\\&\1", safe, flags=re.MULTILINE)
