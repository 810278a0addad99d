"""Kinds of argument that several commands take."""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.commands.parser import UsageError
from pagewalk.machine import DEFAULT, Machine
from pagewalk.origins import KEYS
from pagewalk.output import refuse_existing, write_text
from pagewalk.progress import ProgressLine
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk.recording import Recording
    from pagewalk.report.charts import Chart
    from pagewalk.trace import Trace

FORMATS = {
    "drmemtrace": "DynamoRIO's final traces: a folder, or one of its files",
    "champsim": "ChampSim's records of 64 bytes",
    "cloudsuite": "ChampSim's records of 96 bytes",
    "lackey": "the output of Valgrind's --tool=lackey --trace-mem=yes",
    "pinatrace": "the output of Pin's pinatrace and of pintools like it",
    "dinero": "traces for Dinero (.din): a label and an address a line",
    "ramulator": "traces for Ramulator, or of addresses for Ramulator 2",
    "usimm": "traces for USIMM",
    "perf": "the text of `perf script`, with the addresses of data",
    "csv": "a text table, with or without a line of names",
    "parquet": "a Parquet file with the same columns",
}
"""Formats of traces of other tools, and what each is."""

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?:([kKMGTP])(i?)B?)?")
COUNT_END = 1 << 64
"""The first number that is no count."""
_POWER = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def number(text: str) -> int:
    """A count: `50M` is fifty million, `134.3M` 134300000, `1Ki` 1024."""
    found = _NUMBER.fullmatch(text.replace("_", ""))
    if not found:
        raise argparse.ArgumentTypeError(f"`{text}` is no count: write 50000000, 50M or 1.5G")
    digits, prefix, binary = found.groups()
    base = 1024 if binary else 1000
    power: int = _POWER[prefix] if prefix else 0
    from decimal import Decimal

    value = Decimal(digits) * base**power
    if value != int(value):
        raise argparse.ArgumentTypeError(f"`{text}` is no whole number")
    if value >= COUNT_END:
        raise argparse.ArgumentTypeError(f"`{text}` is more than any count: below 2^64, as 1G")
    return int(value)


def add_trace(parser: argparse.ArgumentParser) -> None:
    """`TRACE`."""
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="a trace file, of another tool as well, generate:KIND,... or mix:TRACE,TRACE,...",
    )


def add_machine(parser: argparse.ArgumentParser, what: str) -> None:
    """`--machine`, `--set`, `--aged`, `--memory` and `--place`."""
    parser.add_argument(
        "-m",
        "--machine",
        action="append",
        metavar="NAME|FILE",
        help="a built-in machine or a TOML file, with ,KEY=VALUE behind it to change it alone; "
        f"again for a comparison (default: {DEFAULT})",
    )
    add_settings(parser, what)
    parser.add_argument(
        "--place",
        metavar="FILE|RULES",
        help="page sizes that are wished for parts of the program, as in data=64K,stack=16K, or a "
        "file of such rules; for os.manager=irix, first-touch and linux",
    )


def add_settings(parser: argparse.ArgumentParser, what: str) -> None:
    """`--set`, `--aged` and `--memory`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"change {what}, as in tlb.l1d.entries=128 or os.page_size=2M; may be given again",
    )
    parser.add_argument(
        "--aged",
        type=_shares,
        metavar="FREE,WIRED",
        help="begin with memory that was used for long: these shares of it are free and wired, as "
        "in 0.5,0.1, and the rest is in use and could be moved",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE|N%",
        help="how much memory there is, as 64M, or as a share of the most that the manager base "
        "uses for the trace, as 80%%; of aged memory so much is free",
    )


def _shares(text: str) -> tuple[float, float]:
    free, comma, wired = text.partition(",")
    try:
        shares = float(free), float(wired)
    except ValueError:
        shares = (-1.0, -1.0)
    if not comma or min(shares) < 0 or sum(shares) > 1:
        raise argparse.ArgumentTypeError(
            f"`{text}`: write the shares of memory that are free and wired, as in 0.5,0.1; "
            "together they are 1 at most"
        )
    return shares


def settings(options: argparse.Namespace) -> list[str]:
    """What `--set` and `--place` change in a machine, whatever the trace."""
    given: list[str] = list(options.set)
    if vars(options).get("place") is not None:
        given.append(f"os.place={place_rules(options.place)}")
    return given


def machine(name: str, options: argparse.Namespace, trace: "Trace | None" = None) -> Machine:
    """The machine that `name` means: NAME, or NAME,KEY=VALUE,... with settings of its own.

    Its memory is as `--aged` and `--memory` say for `trace`; `None`: for a program that is live.
    """
    from pagewalk import memory_share

    given = settings(options)
    if "=" in name and not Path(name).exists():
        name, *own = _parts(name)
        given += own
    if options.memory is None and options.aged is None:
        return Machine(name, given)
    if trace is not None:
        about = f"what base uses for {trace.name}"
        share = memory_share.share_of(options.memory)
        if (
            share is not None
            and share < 1
            and "manager" not in Machine(name, given).description["os"]
        ):
            raise UsageError(
                f"--memory {options.memory}: the operating system of {name} never takes a page "
                "back: choose one that does, as with --set os.manager=base"
            )
        with progress(options, about) if share is not None else nullcontext() as told:
            given += memory_share.memory_settings(
                trace, name, set=given, aged=options.aged, memory=options.memory, progress=told
            )
    elif memory_share.share_of(options.memory) is not None:
        raise UsageError(
            f"--memory {options.memory}: a live program runs once, so that what base uses "
            "is not known: write a size as 64M, or `pagewalk record` it first"
        )
    else:
        given += memory_share.sized(given, options.memory, options.aged)
    return Machine(name, given)


def _parts(text: str) -> list[str]:
    """What commas part, but for those within brackets, braces and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote or letter in "\"'":
            quote = "" if letter == quote else quote or letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        if letter == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def place_rules(place: str) -> str:
    """The rules that are given, or those that the file of that name has."""
    path = Path(place)
    if "=" not in place and place.strip() and not path.is_file():
        raise UsageError(
            f"--place {place}: there is no such file, and a rule is written as in data=64K"
        )
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else place
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--place {place}: byte {error.start} is no text: give a file of rules, as in data=64K"
        ) from error
    except OSError as error:
        raise UsageError(f"--place {place}: cannot be read: {error.strerror}") from error


def add_force(parser: argparse.ArgumentParser) -> None:
    """`--force`."""
    parser.add_argument("--force", action="store_true", help="replace output files that exist")


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """`--json [FILE]`."""
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help=f"write {what} as JSON to FILE, or to standard output in place of the text",
    )


def add_view(
    parser: argparse.ArgumentParser, order: str, rows: str, choices: Sequence[str] | None = None
) -> None:
    """`--sort`, `--top`: what text and page show, and in what order; files have all."""
    parser.add_argument(
        "--sort", metavar="KEY", choices=choices, help=f"the order of {rows}: {order}"
    )
    parser.add_argument(
        "--top",
        type=positive,
        metavar="N",
        help=f"show the first N {rows} in text and page; files have all",
    )


def add_top(parser: argparse.ArgumentParser, what: str) -> None:
    """`--top` of a command that shows results of others."""
    parser.add_argument(
        "--top", type=number, default=20, metavar="N", help=f"show the {what} (default: 20)"
    )


def positive(text: str) -> int:
    """A count of 1 or more."""
    found = number(text)
    if found == 0:
        raise argparse.ArgumentTypeError("0 is none: give 1 or more")
    return found


_FILES = ("json", "html", "output", "svg", "pdf", "png")


_INPUTS = ("trace", "traces", "a", "b", "results", "path")


def keep_inputs(options: argparse.Namespace) -> None:
    """Raises `UsageError` if a file that is to be written is one that is read."""
    given = vars(options)
    read = [given.get(name) for name in _INPUTS]
    inputs = [one for some in read for one in (some if isinstance(some, list) else [some]) if one]
    for name in _FILES:
        path = given.get(name)
        # Of what is no path, as a long generator, `Path.is_file` may raise.
        if not isinstance(path, str) or not os.path.isfile(path):  # noqa: PTH113
            continue
        for one in inputs:
            if os.path.isfile(one) and Path(one).samefile(path):  # noqa: PTH113
                raise UsageError(f"--{name} {path}: it is what is read; choose another name")


def shows_text(options: argparse.Namespace) -> bool:
    """Whether there is text for standard output: not with `--json -`, nor with `-q` and a file."""
    given = vars(options)
    if given.get("json") == "-":
        return False
    return not (options.quiet and any(given.get(name) for name in _FILES))


def progress(options: argparse.Namespace, doing: str) -> ProgressLine:
    """The line that says how far `doing` is; silent with `-q`."""
    return ProgressLine(doing, quiet=options.quiet)


def add_pictures(parser: argparse.ArgumentParser) -> None:
    """`--svg`, `--pdf`, `--png`."""
    for kind in ("svg", "pdf", "png"):
        parser.add_argument(
            f"--{kind}",
            metavar="FILE",
            help=f"write the charts as {kind.upper()}, of several each to FILE-NAME.{kind}",
        )


def write_pictures(options: argparse.Namespace, charts: "Mapping[str, Chart]") -> None:
    """Writes the charts that were asked for as files, and says their names unless `-q` is given."""
    for kind in ("svg", "pdf", "png"):
        path = getattr(options, kind)
        if path is None:
            continue
        from pagewalk.report import pictures

        specifications = {name: chart.to_dict() for name, chart in charts.items()}
        written = pictures.write(specifications, kind, path, options.force)
        note(options, [f"written: {', '.join(written)}"])


def check_output(path: str | None, force: bool) -> None:
    """Refuses an output file that cannot be written, before the work begins."""
    if path is not None and path != "-":
        refuse_existing(path, force)


def leave_output(options: argparse.Namespace) -> None:
    """Refuses `--json -` and `--output -` where a program runs, whose output is there."""
    for name in ("json", "output"):
        if options.program is not None and vars(options).get(name) == "-":
            raise UsageError(
                f"--{name} -: standard output is the program's own; give --{name} a file"
            )


def check_documents(options: argparse.Namespace) -> None:
    """Refuses what `--json` or `--html` names if it cannot be written, before the work begins."""
    leave_output(options)
    for path in (options.json, options.html):
        check_output(path, options.force)
    for kind in ("svg", "pdf", "png"):
        if (path := vars(options).get(kind)) is not None:
            check_output(path, options.force)
            if path == "-" or not path.endswith(f".{kind}"):
                raise UsageError(f"--{kind} {path}: give a file whose name ends in .{kind}")
    if options.html == "-":
        raise UsageError("--html needs the name of a file")


def write_output(path: str, text: str, force: bool) -> None:
    """Writes `text` to a file, or to standard output if it is called `-`."""
    if path == "-":
        sys.stdout.write(text)
    else:
        write_text(path, text, force)


def program(options: argparse.Namespace) -> list[str]:
    """The program after `--`.

    Raises:
        UsageError: There is none.
    """
    command: Sequence[Any] | None = options.program
    if not command:
        raise UsageError("no program to run: put it after `--`, as in `-- gzip -9 -k big.tar`")
    return [str(part) for part in command]


def no_program(options: argparse.Namespace) -> None:
    """Raises `UsageError` if there is something after `--` for a command that runs no program."""
    if options.program is not None:
        raise UsageError(f"this command runs no program: remove `-- {' '.join(options.program)}`")


def add_window(parser: argparse.ArgumentParser, warmup: bool = False) -> None:
    """`--skip` and `--max-accesses`; and `--warmup` for a command that simulates."""
    group = parser.add_argument_group("window")
    group.add_argument(
        "--skip", type=number, default=0, metavar="N", help="leave out the first N accesses"
    )
    if warmup:
        group.add_argument(
            "--warmup",
            type=number,
            default=0,
            metavar="N",
            help="run N accesses, after those that are left out, without counting them",
        )
    group.add_argument(
        "--max-accesses",
        type=number,
        metavar="N",
        help="stop after N accesses more; a program that is recorded runs on",
    )
    group.add_argument(
        "--no-fetch",
        action="store_true",
        help="leave out the executed blocks: loads and stores only",
    )


def add_process(parser: argparse.ArgumentParser) -> None:
    """`--process`."""
    parser.add_argument(
        "--process",
        metavar="NAME|PID",
        help="only this process of several: its pid, or the name or path of its program",
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """What a recording, stored or live, leaves out besides `add_window`."""
    group = parser.add_argument_group("recording")
    group.add_argument(
        "--no-follow",
        action="store_true",
        help="the program alone: what it executes or starts runs unseen",
    )
    for edge, what in (("from", "begin with"), ("to", "end with")):
        either = group.add_mutually_exclusive_group()
        either.add_argument(
            f"--{edge}-symbol",
            metavar="F",
            help=f"{what} the call of function F, of the program or a library, in all processes",
        )
        either.add_argument(
            f"--{edge}-marker",
            nargs="?",
            type=number,
            const=-1,
            metavar="N",
            help=f"{what} marker N (any, if N is left out), which the program contains: pagewalk.h",
        )
    group.add_argument(
        "--instructions",
        type=number,
        metavar="N",
        help="end after N instructions of each process, with the block that they end in",
    )
    group.add_argument(
        "--end-with-window",
        action="store_true",
        help="kill the program when what is to be recorded has been",
    )
    group.add_argument(
        "--allocations",
        action="store_true",
        help="mark what each program allocates, and where, by a library that is loaded into it: "
        "misses are then told apart by allocation site",
    )
    group.add_argument(
        "--small",
        nargs="?",
        type=size,
        const=256 << 20,
        metavar="BYTES",
        help="let the program, of 32 bits, and what it starts have so many bytes of addresses, as "
        "in a small space (256M if left out)",
    )
    group.add_argument(
        "--sysroot",
        metavar="DIR",
        help="the folder in which programs and their libraries are, as unpacked from packages",
    )
    group.add_argument(
        "--one-cpu",
        action="store_true",
        help="let the program and what it starts run on one processor of this machine",
    )
    group.add_argument(
        "--user-filter",
        choices=["none", "page16"],
        default="none",
        help="page16: leave out accesses to a page that a 16-entry direct-mapped filter holds; "
        "exact for LRU TLBs of 16 sets and more that serve code and data apart, and one thread",
    )
    group.add_argument(
        "--callbacks",
        action="store_true",
        help="record by callbacks alone, as in a QEMU of others: the same trace, more slowly",
    )
    group.add_argument(
        "--engine",
        choices=["qemu", "native"],
        default="qemu",
        help="native: record in the program's own process, with its processor and its layout: for "
        "programs of x86-64 with one thread that start no other and change no code",
    )
    group.add_argument(
        "--aslr",
        action="store_true",
        help="with --engine native, leave the layout of the address space to chance, as the "
        "kernel does",
    )
    group.add_argument(
        "--qemu",
        metavar="PATH",
        help="record in another QEMU than Pagewalk's own, which must load plugins and takes longer",
    )


def add_live(parser: argparse.ArgumentParser) -> None:
    """`--tell-all`: every access of a live program, also those that surely hit."""
    parser.add_argument(
        "--tell-all",
        action="store_true",
        help="tell the machine each access of a live program, also those that surely hit and "
        "could be counted where the program runs: the same results, more slowly",
    )


def add_origins(parser: argparse.ArgumentParser) -> None:
    """`--by`, `--merge`: where misses come from."""
    group = parser.add_argument_group("where misses come from")
    group.add_argument(
        "--by",
        action="append",
        choices=KEYS,
        default=[],
        help="a table of the misses of every TLB by this; may be given again",
    )
    group.add_argument(
        "--merge",
        action="store_true",
        help="anonymous mappings that adjoin are one region in --by region",
    )


def check_origins(options: argparse.Namespace) -> None:
    """Refuses `--merge` without regions."""
    if options.merge and "region" not in options.by:
        raise UsageError("--merge is for --by region")


def origins_text(options: argparse.Namespace, documents: "Sequence[Mapping[str, Any]]") -> str:
    """The tables that `--by` asks for, of each document; says what makes them incomplete."""
    from pagewalk import origins

    if {"function", "line", "site"} & set(options.by):
        warn([line for document in documents for line in origins.notes(document)])
    parts = []
    for document in documents:
        if len(documents) > 1:
            parts.append(f"On {document['machine']['name']}")
        for key in options.by:
            merge = options.merge and key == "region"
            parts.append(origins.summary(document, key, vars(options).get("top") or 20, merge))
    return "\n\n".join(parts)


def add_native(parser: argparse.ArgumentParser) -> None:
    """`--native`: the program natively as well."""
    group = parser.add_argument_group("native run")
    group.add_argument(
        "--native",
        action="store_true",
        help="run the program natively as well, afterwards and with the same standard input, and "
        "say how many of its milliseconds translation takes; its output is thrown away",
    )
    group.add_argument(
        "--native-prepare",
        metavar="CMD",
        help="run this shell command before each of the two runs, as where a second `make` has "
        "nothing to do",
    )


def check_native(options: argparse.Namespace) -> None:
    """Refuses `--native-prepare` alone."""
    if options.native_prepare is not None and not options.native:
        raise UsageError("--native-prepare is for --native: give both")


def recording(options: argparse.Namespace, command: Sequence[str]) -> "Recording":
    """A recording of `command` as `add_recording` and `add_window` were told."""
    from pagewalk.recording import Recording

    # What warms a machine is recorded before what counts.
    limit = options.max_accesses
    if limit is not None:
        limit += vars(options).get("warmup", 0)
    return Recording(
        command,
        skip=options.skip,
        max_accesses=limit,
        max_bytes=vars(options).get("max_bytes"),
        fetches=not options.no_fetch,
        filter=options.user_filter,
        follow=not options.no_follow,
        process=options.process,
        calls=vars(options).get("calls", False),
        arguments=not vars(options).get("no_arguments", False),
        allocations=options.allocations,
        callbacks=options.callbacks,
        engine=options.engine,
        aslr=options.aslr,
        qemu=options.qemu,
        tells_all=vars(options).get("tell_all", False),
        ends=options.end_with_window,
        from_symbol=options.from_symbol,
        to_symbol=options.to_symbol,
        from_marker=options.from_marker,
        to_marker=options.to_marker,
        instructions=options.instructions,
        one_cpu=options.one_cpu,
        small=options.small,
        sysroot=options.sysroot,
    )


def no_recording(options: argparse.Namespace) -> None:
    """Raises `UsageError` if an option of `add_recording` is given where nothing is recorded."""
    given = vars(options)
    flags = (
        "no_follow", "allocations", "aslr", "callbacks", "end_with_window", "one_cpu", "tell_all",
    )  # fmt: skip
    texts = (
        "from_symbol", "to_symbol", "from_marker", "to_marker", "instructions", "small", "sysroot",
        "qemu",
    )  # fmt: skip
    found = [name for name in flags if given[name]]
    found += [name for name in texts if given[name] is not None]
    if options.user_filter != "none":
        found.append("user_filter")
    if options.engine != "qemu":
        found.append("engine")
    if found:
        flag = found[0].replace("_", "-")
        raise UsageError(f"--{flag} is for a live program; a trace has --skip and --max-accesses")


def size(text_: str) -> int:
    """Bytes, for argparse: `256M` is 256 MiB."""
    try:
        found = int(text_) if text_.isdecimal() else text.bytes_of(text_)
    except (ValueError, IndexError):
        found = -1
    if found < 0:
        raise argparse.ArgumentTypeError(
            f"`{text_}` is no size: write bytes with a unit, as in 256M"
        )
    return found


def _column(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise argparse.ArgumentTypeError(f"`{text}`: write it as addr=NAME")
    return ours, theirs


def no_program_as_trace(trace: str) -> None:
    """Raises `UsageError` if the trace is a program: what runs it stands after `--`."""
    import shutil

    found = shutil.which(trace)
    if found is None or (os.path.exists(trace) and not _is_program(trace)):  # noqa: PTH110
        return
    raise UsageError(f"{trace} is a program, not a trace: put it after `--`, as in `-- {trace}`")


def _is_program(path: str) -> bool:
    if not os.path.isfile(path):  # noqa: PTH113
        return False
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read(4) in (b"\x7fELF", b"#!/b", b"#!/u")


_Parser = argparse.ArgumentParser | argparse._ArgumentGroup


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How a file of another tool is read, whatever its format.

    The help of `pagewalk import` explains these options; that of other commands names it.
    """
    add_keep_going(parser)
    parser.add_argument(
        "--spread",
        type=size,
        metavar="SIZE",
        help="put mappings apart, so that each has blocks of SIZE, as 2M, of its own",
    )
    parser.add_argument(
        "--kernel",
        metavar="MODEL",
        help="add what a kernel does where programs call it and where one goes on after another: "
        "monolithic, or microkernel with Linux as a process; a recording needs --calls for it",
    )
    group = parser.add_argument_group(
        "traces of other tools",
        "They are read as they are. The options of `pagewalk import FORMAT --help` are taken "
        "here too, and --format NAME where a file's first bytes do not tell its format.",
    )
    group.add_argument(
        "--format",
        choices=list(FORMATS),
        help="the format, where the first bytes do not tell",
    )
    add_cloudsuite(group)
    add_drmemtrace(group)
    add_columns(group)
    add_arch(group)
    add_fetches(group)
    for action in group._group_actions:
        action.help = argparse.SUPPRESS


def add_cloudsuite(parser: _Parser) -> None:
    """`--cloudsuite`."""
    parser.add_argument(
        "--cloudsuite", action="store_true", help="champsim: the records are those of 96 bytes"
    )


def add_drmemtrace(parser: _Parser) -> None:
    """`--interleave`, `--v2p`."""
    parser.add_argument(
        "--interleave",
        choices=["timestamps", "schedule"],
        default="timestamps",
        help="drmemtrace: what orders the threads (default: timestamps)",
    )
    parser.add_argument(
        "--v2p", metavar="FILE", help="drmemtrace: where pages were, a v2p.textproto"
    )


def add_arch(parser: _Parser) -> None:
    """`--arch`."""
    parser.add_argument(
        "--arch",
        choices=["x86-64", "i386", "arm", "aarch64", "riscv64"],
        help="the program's instruction set, where the file does not tell it; tags in addresses of "
        "aarch64 are left out",
    )


def add_columns(parser: _Parser) -> None:
    """`--column`."""
    parser.add_argument(
        "--column",
        action="append",
        type=_column,
        default=[],
        metavar="OURS=THEIRS",
        help="tables: what a column is called, as in addr=vaddr, or its number where no line names "
        "them; may be given again",
    )


def add_fetches(parser: _Parser) -> None:
    """`--fetches`."""
    parser.add_argument(
        "--fetches",
        choices=["blocks", "instructions", "none"],
        default="blocks",
        help="which fetches instructions are: one per block, one each, or none (default: blocks)",
    )


def add_keep_going(parser: _Parser) -> None:
    """`--keep-going`."""
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="end the trace with a warning where it is damaged, Pagewalk's own as well",
    )


def trace(options: argparse.Namespace, source: str) -> "Trace":
    """The trace `source`, read as the options say that the command has."""
    from pagewalk.trace import Trace

    given = vars(options)
    format_ = given.get("format")
    if given.get("cloudsuite"):
        if format_ not in (None, "champsim", "cloudsuite"):
            raise UsageError(f"--cloudsuite is for ChampSim's records, not for {format_}")
        format_ = "cloudsuite"
    return Trace(
        source,
        format=format_,
        keep_going=given["keep_going"],
        fetches=given.get("fetches", "blocks"),
        arch=given.get("arch"),
        columns=dict(given.get("column", [])),
        interleave=given.get("interleave", "timestamps"),
        v2p=given.get("v2p"),
        process=given.get("process"),
        no_fetch=given.get("no_fetch", False),
        spread=given.get("spread"),
        skip=given.get("skip", 0),
        warmup=given.get("warmup", 0),
        max_accesses=given.get("max_accesses"),
        kernel=given.get("kernel"),
    )


def no_reading(options: argparse.Namespace) -> None:
    """Raises `UsageError` if an option of `add_reading` is given where no file is read."""
    given = vars(options)
    for name in ("format", "cloudsuite", "v2p", "column", "arch", "keep_going"):
        if given[name]:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} is for traces of other tools, not for a live program")
    if options.spread is not None:
        raise UsageError("--spread is for traces: record the program first")
    if given["kernel"]:
        raise UsageError("--kernel is for recordings; record the program with --calls first")
    if options.fetches != "blocks":
        raise UsageError("--fetches is for traces of other tools; a live program has --no-fetch")
    if options.interleave != "timestamps":
        raise UsageError("--interleave is for traces of other tools, not for a live program")


def note(options: argparse.Namespace, notes: Sequence[str]) -> None:
    """Says on standard error what is good to know, each thing once; nothing with `-q`."""
    for line in () if options.quiet else dict.fromkeys(notes):
        say(f"pagewalk: note: {line}", sys.stderr)


def warn(warnings: Sequence[str]) -> None:
    """Says on standard error what must be known of a trace, each thing once."""
    for warning in dict.fromkeys(warnings):
        say(f"pagewalk: warning: {warning}", sys.stderr)
