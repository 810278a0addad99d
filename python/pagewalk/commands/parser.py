"""The parsers of commands. Their errors show the command's usage, and suggest what was meant."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from pagewalk._native import Error


class UsageError(Error):
    """Raised for wrong arguments. The usage of the command is printed with the message."""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs, and leaves lines that are indented (examples) as they are."""

    def __init__(self, prog: str) -> None:
        # A formatter is created for each flag that is added. Without a width, each would find out
        # the terminal's width by a module that takes long to import.
        super().__init__(prog, width=columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        lines: list[str] = []
        paragraph: list[str] = []
        for line in [*text.splitlines(), ""]:
            if line and not line.startswith(" ") and not line.endswith(":"):
                paragraph.append(line)
                continue
            lines += textwrap.wrap(" ".join(paragraph), width - len(indent))
            paragraph = []
            lines.append(line)
        return "\n".join(f"{indent}{line}".rstrip() for line in lines).rstrip()


def columns() -> int:
    """The width of the terminal: from the environment, else from the terminal, else 80."""
    with suppress(KeyError, ValueError):
        if (told := int(os.environ["COLUMNS"])) > 0:
            return told
    with suppress(AttributeError, ValueError, OSError):
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    return 80


class Parser(argparse.ArgumentParser):
    """A parser that itself refuses unknown arguments, so that the command's usage is shown.

    Python's own parser passes them to the top-level parser, whose usage does not show the command.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "formatter_class": Formatter})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses the arguments. Raises an error for unknown arguments."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = {option for action in self._actions for option in action.option_strings}
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant(self, unknown, known)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raises an error if a value is not among the choices.

        Lists the choices, and suggests the one that was probably meant.
        """
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            guess = guessed(str(value), known)
            what = f"there is no `{value}`: choose one of {', '.join(known)}{guess}"
            raise argparse.ArgumentError(action, what)

    def error(self, message: str) -> NoReturn:
        """Prints the usage and the message, and ends with status 2."""
        self.print_usage()
        self.exit(2, f"pagewalk: error: {message}\n")

    def print_usage(self, file: Any = None) -> None:
        """Prints the usage, and where to read more, to standard error."""
        self._print_message(f"{self.format_usage()}`{self.prog} --help` explains it.\n", file)

    def format_usage(self) -> str:
        """The usage in one line: required arguments by name, and all others as `options`."""
        return f"usage: {self.usage or ' '.join([self.prog, *self._must()])}\n"

    def format_help(self) -> str:
        """The help, under the usage of one line."""
        self.usage = self.usage or " ".join([self.prog, *self._must()])
        return super().format_help()

    def _must(self) -> Iterator[str]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield f"{action.metavar} ..."
            elif not action.option_strings:
                name = str(action.metavar)
                yield {"?": f"[{name}]", "*": f"[{name} ...]"}.get(str(action.nargs), name)
        for action in self._actions:
            if action.required and action.option_strings:
                yield f"{action.option_strings[0]} {action.metavar}"
        yield "[options]"


def meant(parser: argparse.ArgumentParser, unknown: Sequence[str], known: set[str]) -> str:
    """A suggestion of what was meant by arguments that `parser` does not know. May be empty."""
    import shutil

    at = next((index for index, word in enumerate(unknown) if shutil.which(word)), None)
    if at is not None and parser.get_default("runs_program"):
        return f"; a program stands after `--`: {parser.prog} -- {' '.join(unknown[at:])}"
    if not unknown[0].startswith("-"):
        taken = [one for one in parser._actions if not one.option_strings]
        if any(one.dest == "trace" for one in taken):
            return f": {parser.prog} takes one trace; `pagewalk sweep` takes several"
        names = " and ".join(str(one.metavar or one.dest) for one in taken) or "no argument"
        return f": {parser.prog} takes {names}, and options"
    return guessed(unknown[0].partition("=")[0], known)


def guessed(word: str, known: Iterable[str]) -> str:
    """The word of `known` that is most similar to `word`, as a question. May be empty."""
    import difflib

    close = difflib.get_close_matches(word, list(known), 1, cutoff=0.65)
    return f"; did you mean {close[0]}?" if close else ""


def leaves(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of commands that run something, which are those without subcommands."""
    below = list(subcommands(top))
    if not below:
        yield top
    for sub in below:
        yield from leaves(sub)


def subcommands(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the commands directly below `of`."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def shown(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    """The options and arguments of a group that a help shows, without subcommands."""
    return [
        action
        for action in group._group_actions
        if action.help is not argparse.SUPPRESS
        and not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
    ]


def value(action: argparse.Action) -> str:
    """The metavar or the choices of an option or argument. Empty if it has no value."""
    return str(action.metavar or "|".join(map(str, action.choices or ())))
