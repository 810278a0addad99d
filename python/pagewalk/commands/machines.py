"""`pagewalk machines`: the machines that there are, and their files."""

import argparse
import json
import sys
from typing import Any

from pagewalk import text
from pagewalk._native import Error
from pagewalk.commands import arguments
from pagewalk.machine import Builtin, Machine, machines


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "machines",
        help="list the machines, or print one's file",
        description="List the machines that come with Pagewalk, or print the TOML file of one: "
        "a start for a machine of your own.",
        epilog="examples:\n  pagewalk machines\n"
        "  pagewalk machines opteron-2008 > mine.toml && pagewalk run gzip.pwt -m mine.toml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this machine's file")
    arguments.add_json(parser, "the machines")
    arguments.add_force(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Lists the machines or prints a file."""
    arguments.no_program(options)
    arguments.check_output(options.json, options.force)
    found = machines()
    if options.name is not None:
        found = [machine for machine in found if machine.name == options.name]
        if not found:
            # The same refusal as that of a run, with the name that was most likely meant.
            Machine(options.name)
            raise Error(f"{options.name} is a file already: this prints the built-in machines")
    if options.json is not None:
        document = json.dumps([machine._asdict() for machine in found], indent=1) + "\n"
        arguments.write_output(options.json, document, options.force)
    elif options.name is not None:
        sys.stdout.write(found[0].text + bits(found[0]))
    else:
        print(listing(found))
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
    width = max(len(machine.name) for machine in found)
    blank = " " * width
    return "\n".join(
        f"{machine.name:{width}}  {machine.title}\n{blank}  {text.shorten(machine.source, 96)}"
        for machine in found
    )
