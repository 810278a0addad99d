"""`pagewalk machines`: the machines that there are, and their files."""

import argparse
import json
from typing import Any

from pagewalk import text
from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.machine import Builtin, Machine, machines
from pagewalk.terminal import say


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "machines",
        help="list the machines, or print one's file",
        description="List the machines that come with Pagewalk, or print the TOML file of one: "
        "a start for a machine of your own.",
        epilog="examples:\n  pagewalk machines\n"
        "  pagewalk machines opteron-2008 > mine.toml && pagewalk run gzip.pwt -m mine.toml",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this machine's file")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the file of machine NAME to FILE"
    )
    arguments.add_json(parser, "the machines")
    arguments.add_force(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Lists the machines or prints a file."""
    arguments.no_program(options)
    for path in (options.output, options.json):
        arguments.check_output(path, options.force)
    if options.output is not None and options.name is None:
        raise UsageError("-o writes the file of one machine: name it")
    found = machines()
    if options.name is not None:
        found = [machine for machine in found if machine.name == options.name]
        if not found:
            # The same refusal as that of a run, with the name that was most likely meant.
            Machine(options.name)
            raise UsageError(f"{options.name} is a file already: this prints the built-in machines")
    if options.json is not None:
        document = json.dumps([machine._asdict() for machine in found], indent=1) + "\n"
        arguments.write_output(options.json, document, options.force)
    if options.name is not None and (options.output is not None or options.json is None):
        made = found[0].text + bits(found[0])
        arguments.write_output(options.output or "-", made, options.force)
    elif options.json is None:
        say(listing(found))
    return 0


def bits(machine: Builtin) -> str:
    """What its MMU cache takes, as comments at the end of its file."""
    known = [array for array in machine.mmu_cache if array["tag_bits"] is not None]
    lines = []
    total = 0
    for array in known:
        tag, data = array["tag_bits"], array["data_bits"]
        total += array["entries"] * (tag + data)
        level = "" if array["level"] is None else f" for level {array['level']}"
        entries = text.plural(array["entries"], "entry", "entries")
        lines.append(f"#   {entries}{level}: {tag} bits of tag and {data} of data each")
    if not known:
        return ""
    return "\n".join(["", f"# The MMU cache takes {total} bits (B10 table 4.1):", *lines, ""])


def listing(found: list[Builtin]) -> str:
    """Name, title and source of each machine."""
    width = max(len(machine.name) for machine in found) + 2
    return "\n".join(
        f"{machine.name:{width}}{text.paragraph(machine.title, ' ' * width).lstrip()}\n"
        f"{' ' * width}{text.shorten(machine.source, text.width() - width)}"
        for machine in found
    )
