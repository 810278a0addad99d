"""The reference of the command line as pages, from the parser that makes the help.

A page for each command has its usage, its options by group and its examples; a list leads to them.
They are made when the site is built, so that they always are those of the package beside it.
"""

import argparse
import re
from collections.abc import Iterator

from pagewalk.commands.line import parser
from pagewalk.commands.parser import shown, subcommands, value


def pages() -> dict[str, str]:
    """The text of each page by its name, which is the command's."""
    return {_name(one): _page(one) for one in subcommands(parser())}


def listed() -> str:
    """A table of all commands, which leads to their pages."""
    rows = [f"| [`{_name(one)}`](flags/{_name(one)}.md) | {_what(one)} |"
            for one in subcommands(parser())]  # fmt: skip
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def _name(command: argparse.ArgumentParser) -> str:
    return command.prog.partition(" ")[2]


def _what(command: argparse.ArgumentParser) -> str:
    """The first sentence of the command's description."""
    return _plain((command.description or "").split(". ")[0].rstrip(".") + ".")


def _page(command: argparse.ArgumentParser) -> str:
    lines = [f"# pagewalk {_name(command)}", *_of(command)]
    for one in subcommands(command):
        lines += [f"## {one.prog}", *_of(one)]
    return "\n".join(lines) + "\n"


def _of(command: argparse.ArgumentParser) -> Iterator[str]:
    usage = command.format_usage().removeprefix("usage: ").splitlines()
    yield "\n".join(["\n```text", *(line.strip() for line in usage), "```\n"])
    yield _plain(command.description or "") + "\n"
    for group in command._action_groups:
        actions = shown(group)
        if actions:
            kind = "option" if actions[0].option_strings else "argument"
            yield f"\n**{(group.title or 'options').capitalize()}**\n"
            yield f"| {kind} | meaning |\n|---|---|"
            yield from (f"| {_term(one)} | {_plain(str(one.help or ''))} |" for one in actions)
    if command.epilog:
        yield f"\n```text\n{command.epilog.rstrip()}\n```\n"


def _term(action: argparse.Action) -> str:
    """An option with its value."""
    taken = value(action)
    if not action.option_strings:
        return f"`{taken}`"
    taken = f"[{taken}]" if action.nargs == "?" else taken
    names = ", ".join(action.option_strings)
    return f"`{names} {taken}`".replace(" `", "`")


def _plain(text: str) -> str:
    """Text in which nothing is markup."""
    return re.sub(r"([*_<|\[\]])", r"\\\1", " ".join(text.split()).replace("%%", "%"))
