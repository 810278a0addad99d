"""`pagewalk machines`: the built-in machines and the calibrated ones, and their files."""

import argparse
import json

from pagewalk import text
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag
from pagewalk.commands.flags import FORCE, json_of, output
from pagewalk.commands.parser import UsageError
from pagewalk.machine import Builtin, Machine, machines
from pagewalk.terminal import say


class Machines(Command):
    """Lists the machines, or prints their files."""

    name = "machines"
    help = "list the machines, or print the file of one"
    description = (
        "List the machines that come with Pagewalk, or print the TOML file of one, as a start "
        "for a machine file of your own."
    )
    epilog = (
        "examples:\n  pagewalk machines\n"
        "  pagewalk machines opteron-2008 > mine.toml && pagewalk run gzip.pwt -m mine.toml"
    )
    flags = (
        Flag("name", nargs="?", metavar="NAME", help="print the file of this machine"),
        Flag(
            "--here",
            action="store_true",
            help="list only machines with this computer's processor, calibrated files in the "
            "current folder first; exit status 1 if there is none",
        ),
        output("write the file of machine NAME to FILE"),
        json_of("the machines"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Lists the machines or prints a file."""
        if options.output is not None and options.name is None:
            raise UsageError("-o writes the file of one machine: give its name")
        found = machines()
        if options.here:
            return _here(options, found)
        if options.name is not None:
            found = [machine for machine in found if machine.name == options.name]
            if not found:
                # Raises the same error as a run, which suggests the name that was probably meant.
                Machine(options.name)
                raise UsageError(
                    f"{options.name} is a file: `pagewalk machines NAME` prints built-in machines "
                    "only"
                )
        if options.json is not None:
            document = json.dumps([machine._asdict() for machine in found], indent=1) + "\n"
            arguments.write_output(options.json, document, options.force)
        if options.name is not None and (options.output is not None or options.json is None):
            made = found[0].text + bits(found[0])
            arguments.write_output(options.output or "-", made, options.force)
        elif options.json is None:
            say(listing(found))
        return 0


def _here(options: argparse.Namespace, found: list[Builtin]) -> int:
    """Prints the names of the machines that have this computer's processor."""
    import sys
    from pathlib import Path

    from pagewalk import here

    if options.name is not None:
        raise UsageError(f"--here lists machines and takes no name: leave {options.name} out")
    processor = here.processor()
    fitting = here.fitting([machine.name for machine in found], processor, Path())
    if options.json is not None:
        document = {"processor": processor and processor._asdict(), "machines": fitting}
        arguments.write_output(options.json, json.dumps(document, indent=1) + "\n", options.force)
    elif fitting:
        say("\n".join(fitting))
    if fitting:
        return 0
    name = (processor.name or processor.vendor) if processor else "a processor that is not known"
    what = f", family {processor.family}, model {processor.model}" if processor else ""
    say(
        f"pagewalk: no machine file describes this computer ({name}{what}): "
        "`pagewalk calibrate -o here.toml` writes one",
        sys.stderr,
    )
    return 1


def bits(machine: Builtin) -> str:
    """The bits of a machine's MMU cache, as comments for the end of the machine's file."""
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
    """The name, the title and the source of each machine."""
    width = max(len(machine.name) for machine in found) + 2
    return "\n".join(
        f"{machine.name:{width}}{text.paragraph(machine.title, ' ' * width).lstrip()}\n"
        f"{' ' * width}{text.shorten(machine.source, text.width() - width)}"
        for machine in found
    )
