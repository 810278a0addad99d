"""`pagewalk generate`: write a synthetic trace."""

import argparse
import json
from typing import Any

from pagewalk import text
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, shows_text
from pagewalk.commands.flags import FORCE, json_of, output
from pagewalk.terminal import say
from pagewalk.trace import Trace

Option = tuple[str, str, str]
"""A parameter of a generator: its name, the kind of its value, and its help."""

_SIZE: Option = ("size", "BYTES", "size of the region (default: 1G)")
_STORES: Option = ("stores", "SHARE", "share of accesses that are stores (default: 0.3)")

PATTERNS: dict[str, tuple[str, list[Option]]] = {
    "uniform": ("uniformly random words of a region", [_SIZE, _STORES]),
    "zipf": (
        "random lines of a region, Zipf-distributed",
        [_SIZE, ("exponent", "X", "exponent of the distribution, 0 to 10 (default: 1)"), _STORES],
    ),
    "strided": (
        "accesses that cross a region in equal steps, again and again",
        [_SIZE, ("stride", "BYTES", "distance between accesses (default: 64B)"), _STORES],
    ),
    "chase": (
        "a linked list whose nodes lie in random order",
        [_SIZE, ("node", "BYTES", "size of a node (default: 64B)")],
    ),
    "join": (
        "the hash join of Barr 2010, section 4.5.3",
        [
            ("table", "BYTES", "size of each table, and of the result (default: 1G)"),
            ("entry", "BYTES", "size of an entry of a table (default: 16B)"),
            ("fill", "SHARE", "share of the hash table's buckets that are in use (default: 0.5)"),
        ],
    ),
    "pingpong": (
        "two processes that take turns (Uhlig and others 2002, section 4.1)",
        [
            ("code", "N", "instructions without effect per turn (default: 0)"),
            ("itlb", "N", "jumps per turn, each to a page of its own (default: 0)"),
            ("dtlb", "N", "reads per turn, each of a page of its own (default: 0)"),
            ("idle", "N", "1 if the second process only replies (default: 0)"),
            ("ipc", "N", "microkernel instructions per message; 0: no microkernel (default: 0)"),
            (
                "linux",
                "N",
                "send messages through pipes of Linux: 1: Linux is the kernel; 2: Linux is a user "
                "process; 0: no pipes (default: 0)",
            ),
        ],
    ),
    "syscall": (
        "a program that makes system calls to Linux (Uhlig and others 2002, section 4.2)",
        [
            ("linux", "N", "1: Linux is the kernel; 2: Linux is a user process (default: 2)"),
            ("trap", "N", "cycles to enter and leave the kernel (default: 1200)"),
            ("work", "N", "instructions of the system call itself (default: 300)"),
            ("code", "N", "pages of Linux's code per system call (default: 3)"),
            ("data", "N", "pages of Linux's data per system call (default: 4)"),
            ("copied", "BYTES", "bytes that a system call copies (default: 0B)"),
            ("ipc", "N", "microkernel instructions per message (default: 266)"),
        ],
    ),
    "packet": (
        "packets through a driver and a protocol stack (Uhlig and others 2002, section 4.10)",
        [
            ("driver", "N", "pages of the driver's code and of its data (default: 10 each)"),
            ("bottom", "N", "pages of the bottom half's code and of its data (default: 6 each)"),
            ("stack", "N", "pages of the protocol stack's code and of its data (default: 18 each)"),
            ("ring", "N", "pages of buffers per packet (default: 5)"),
            ("each", "N", "instructions executed per page of code (default: 64)"),
            ("device", "N", "cycles for which a packet waits for the device (default: 26000)"),
            ("ipc", "N", "microkernel instructions per message (default: 266)"),
        ],
    ),
}

COMMON: list[Option] = [
    ("accesses", "N", "number of accesses (default: 10M)"),
    ("seed", "N", "seed of the random numbers (default: 1)"),
    ("instructions", "N", "instructions per access (default: 3)"),
    ("bits", "N", "address width in bits: 25, 32 or 47 (default: 47)"),
]


class Generate(Command):
    """Writes a synthetic trace."""

    name = "generate"
    help = "write a synthetic trace"
    description = (
        "Write a synthetic trace; equal parameters give the same trace on every computer. "
        "`pagewalk run generate:PATTERN,KEY=VALUE,...` runs one without storing it."
    )
    epilog = "example:\n  pagewalk generate join --table 16G --accesses 1M -o join.pwt"

    def add(self, commands: "argparse._SubParsersAction[Any]") -> None:
        """Adds the command's parser, with a subparser for each pattern."""
        patterns = self.parser(commands).add_subparsers(
            title="patterns", metavar="PATTERN", required=True
        )
        for name, (what, options) in PATTERNS.items():
            flags = (
                *(
                    Flag(f"--{option}", metavar=metavar, help=text_)
                    for option, metavar, text_ in [*options, *COMMON]
                ),
                output(f"the trace to write (default: {name}.pwt)", default=f"{name}.pwt"),
                json_of("the name and the size of the trace"),
                FORCE,
            )
            parser = patterns.add_parser(name, help=what, description=f"Pattern: {what}.")
            self.fill(parser, flags, pattern=name)

    def run(self, options: argparse.Namespace) -> int:
        """Writes the trace, and prints what was written."""
        with arguments.progress(options, f"generating {options.pattern}") as progress:
            trace = Trace(specification(options))
            made = trace.store(options.output, options.force, progress)
        if options.json is not None:
            arguments.write_output(options.json, json.dumps(made, indent=1) + "\n", options.force)
        if shows_text(options):
            accesses = text.plural(made["accesses"], "access", "accesses")
            say(f"{made['path']}: {accesses} in {text.size(made['bytes'])}")
        return 0


def specification(options: argparse.Namespace) -> str:
    """The given parameters in the form `generate:join,table=16G`."""
    names = [name for name, _, _ in [*PATTERNS[options.pattern][1], *COMMON]]
    given = {name: getattr(options, name) for name in names}
    parts = [f"{name}={value}" for name, value in given.items() if value is not None]
    return ",".join([f"generate:{options.pattern}", *parts])
