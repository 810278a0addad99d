"""Flags that several commands take, each declared once.

What a flag of a recording gives is in the options under its name in `Recording`, and what one of
reading a trace gives is there under its name in `Trace`: `arguments.recording` and
`arguments.trace` hand it over.
"""

import argparse
from typing import Any

from pagewalk.commands.command import Flag, Flags, Input, Output
from pagewalk.commands.kinds import column, number, positive, shares, size
from pagewalk.commands.parser import UsageError
from pagewalk.names import DEFAULT, KEYS

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


TRACE = Input(
    "trace",
    metavar="TRACE",
    help="a trace file, of another tool as well, generate:KIND,... or mix:TRACE,TRACE,...",
)
TRACE_UNLESS_PROGRAM = Input(
    "trace",
    nargs="?",
    metavar="TRACE",
    help="a trace file, of another tool as well, - for standard input, or "
    "generate:KIND,KEY=VALUE,..., or several as mix:TRACE,TRACE,...",
)

FORCE = Flag("--force", action="store_true", help="replace output files that exist")


def json_of(what: str) -> Output:
    """`--json [FILE]`: `what` as JSON."""
    return Output(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help=f"write {what} as JSON to FILE, or to standard output in place of the text",
    )


def html(what: str) -> Output:
    """`--html FILE`: a page, of which the help says `what`."""
    return Output("--html", pipes=False, metavar="FILE", help=what)


def output(what: str, *, pipes: bool = True, metavar: str = "FILE", **how: Any) -> Output:
    """`-o FILE`, `--output FILE`."""
    return Output("-o", "--output", pipes=pipes, metavar=metavar, help=what, **how)


def pictures(unless: str | None = None) -> Flags:
    """`--svg`, `--pdf`, `--png`."""
    return Flags(
        *(
            Output(
                f"--{kind}",
                unless=unless,
                ends=f".{kind}",
                metavar="FILE",
                help=f"write the charts as {kind.upper()}, of several each to FILE-NAME.{kind}",
            )
            for kind in ("svg", "pdf", "png")
        )
    )


PICTURES = pictures()


def settings(what: str) -> Flags:
    """`--set`, `--aged` and `--memory`: what changes `what`."""
    return Flags(
        Flag(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help=f"change {what}, as in tlb.l1d.entries=128 or os.page_size=2M; may be given again",
        ),
        Flag(
            "--aged",
            type=shares,
            metavar="FREE,WIRED",
            help="begin with memory that was used for long: these shares of it are free and wired, "
            "as in 0.5,0.1, and the rest is in use and could be moved",
        ),
        Flag(
            "--memory",
            metavar="SIZE|N%",
            help="how much memory there is, as 64M, or as a share of the most that the manager "
            "base uses for the trace, as 80%%; of aged memory so much is free",
        ),
    )


def machines(what: str) -> Flags:
    """`--machine`, `--place` and what `settings` has, of one machine or several: `what`."""
    return Flags(
        Flag(
            "-m",
            "--machine",
            action="append",
            metavar="NAME|FILE",
            help="a built-in machine or a TOML file, with ,KEY=VALUE behind it to change it alone; "
            f"again for a comparison (default: {DEFAULT})",
        ),
        settings(what),
        Flag(
            "--place",
            metavar="FILE|RULES",
            help="page sizes that are wished for parts of the program, as in data=64K,stack=16K, "
            "or a file of such rules; for os.manager=irix, first-touch and linux",
        ),
    )


def view(order: str, rows: str, choices: list[str] | None = None) -> Flags:
    """`--sort`, `--top`: what text and page show, and in what order; files have all."""
    return Flags(
        Flag("--sort", metavar="KEY", choices=choices, help=f"the order of {rows}: {order}"),
        Flag(
            "--top",
            type=positive,
            metavar="N",
            help=f"show the first N {rows} in text and page; files have all",
        ),
    )


def top(what: str) -> Flags:
    """`--top` of a command that shows results of others."""

    def check(options: argparse.Namespace) -> None:
        if options.top == 0:
            raise UsageError("--top 0 shows nothing: give 1 or more")

    return Flags(
        Flag("--top", type=number, default=20, metavar="N", help=f"show the {what} (default: 20)"),
        check=check,
    )


_WARMUP = Flag(
    "--warmup",
    type=number,
    default=0,
    metavar="N",
    help="run N accesses, after those that are left out, without counting them",
)


def _window(*more: Flag) -> Flags:
    return Flags(
        Flag("--skip", type=number, default=0, metavar="N", help="leave out the first N accesses"),
        *more,
        Flag(
            "--max-accesses",
            type=number,
            metavar="N",
            help="stop after N accesses more; a program that is recorded runs on",
        ),
        Flag(
            "--no-fetch",
            action="store_true",
            help="leave out the executed blocks: loads and stores only",
        ),
        title="window",
    )


WINDOW = _window()
WARMED_WINDOW = _window(_WARMUP)
"""`WINDOW` with `--warmup`, for commands that simulate."""

PROCESS = Flag(
    "--process",
    metavar="NAME|PID",
    help="only this process of several: its pid, or the name or path of its program",
)

_LIVE = "is for a live program; a trace has --skip and --max-accesses"


def _edge(edge: str, what: str) -> Flags:
    """What a window begins or ends with."""
    return Flags(
        Flag(
            f"--{edge}-symbol",
            unless=_LIVE,
            metavar="F",
            help=f"{what} the call of function F, of the program or a library, in all processes",
        ),
        Flag(
            f"--{edge}-marker",
            unless=_LIVE,
            nargs="?",
            type=number,
            const=-1,
            metavar="N",
            help=f"{what} marker N (any, if N is left out), which the program contains: pagewalk.h",
        ),
        one_of=True,
    )


RECORDING = Flags(
    Flag(
        "--no-follow",
        unless=_LIVE,
        dest="follow",
        action="store_false",
        help="the program alone: what it executes or starts runs unseen",
    ),
    _edge("from", "begin with"),
    _edge("to", "end with"),
    Flag(
        "--instructions",
        unless=_LIVE,
        type=number,
        metavar="N",
        help="end after N instructions of each process, with the block that they end in",
    ),
    Flag(
        "--end-with-window",
        unless=_LIVE,
        dest="ends",
        action="store_true",
        help="kill the program when what is to be recorded has been",
    ),
    Flag(
        "--allocations",
        unless=_LIVE,
        action="store_true",
        help="mark what each program allocates, and where, by a library that is loaded into it: "
        "misses are then told apart by allocation site",
    ),
    Flag(
        "--small",
        unless=_LIVE,
        nargs="?",
        type=size,
        const=256 << 20,
        metavar="BYTES",
        help="let the program, of 32 bits, and what it starts have so many bytes of addresses, as "
        "in a small space (256M if left out)",
    ),
    Flag(
        "--sysroot",
        unless=_LIVE,
        metavar="DIR",
        help="the folder in which programs and their libraries are, as unpacked from packages",
    ),
    Flag(
        "--one-cpu",
        unless=_LIVE,
        action="store_true",
        help="let the program and what it starts run on one processor of this machine",
    ),
    Flag(
        "--user-filter",
        unless=_LIVE,
        dest="filter",
        choices=["none", "page16"],
        default="none",
        help="page16: leave out accesses to a page that a 16-entry direct-mapped filter holds; "
        "exact for LRU TLBs of 16 sets and more that serve code and data apart, and one thread",
    ),
    Flag(
        "--callbacks",
        unless=_LIVE,
        action="store_true",
        help="record by callbacks alone, as in a QEMU of others: the same trace, more slowly",
    ),
    Flag(
        "--engine",
        unless=_LIVE,
        choices=["qemu", "native"],
        default="qemu",
        help="native: record in the program's own process, with its processor and its layout: for "
        "programs of x86-64 with one thread that start no other and change no code",
    ),
    Flag(
        "--aslr",
        unless=_LIVE,
        action="store_true",
        help="with --engine native, leave the layout of the address space to chance, as the "
        "kernel does",
    ),
    Flag(
        "--qemu",
        unless=_LIVE,
        metavar="PATH",
        help="record in another QEMU than Pagewalk's own, which must load plugins and takes longer",
    ),
    title="recording",
)
"""What a recording, stored or live, leaves out besides `WINDOW`, and how it is made."""

LIVE = Flag(
    "--tell-all",
    unless=_LIVE,
    dest="tells_all",
    action="store_true",
    help="tell the machine each access of a live program, also those that surely hit and "
    "could be counted where the program runs: the same results, more slowly",
)


def _check_native(options: argparse.Namespace) -> None:
    if options.native_prepare is not None and not options.native:
        raise UsageError("--native-prepare is for --native: give both")


NATIVE = Flags(
    Flag(
        "--native",
        action="store_true",
        help="run the program natively as well, afterwards and with the same standard input, and "
        "say how many of its milliseconds translation takes; its output is thrown away",
    ),
    Flag(
        "--native-prepare",
        metavar="CMD",
        help="run this shell command before each of the two runs, as where a second `make` has "
        "nothing to do",
    ),
    title="native run",
    check=_check_native,
)


def _check_origins(options: argparse.Namespace) -> None:
    if options.merge and "region" not in options.by:
        raise UsageError("--merge is for --by region")


ORIGINS = Flags(
    Flag(
        "--by",
        action="append",
        choices=KEYS,
        default=[],
        help="a table of the misses of every TLB by this; may be given again",
    ),
    Flag(
        "--merge",
        action="store_true",
        help="anonymous mappings that adjoin are one region in --by region",
    ),
    title="where misses come from",
    check=_check_origins,
)

_TOOLS = "is for traces of other tools, not for a live program"

CLOUDSUITE = Flag(
    "--cloudsuite",
    unless=_TOOLS,
    action="store_true",
    help="champsim: the records are those of 96 bytes",
)
DRMEMTRACE = Flags(
    Flag(
        "--interleave",
        unless=_TOOLS,
        choices=["timestamps", "schedule"],
        default="timestamps",
        help="drmemtrace: what orders the threads (default: timestamps)",
    ),
    Flag(
        "--v2p",
        unless=_TOOLS,
        metavar="FILE",
        help="drmemtrace: where pages were, a v2p.textproto",
    ),
)
COLUMNS = Flag(
    "--column",
    unless=_TOOLS,
    dest="columns",
    action="append",
    type=column,
    default=[],
    metavar="OURS=THEIRS",
    help="tables: what a column is called, as in addr=vaddr, or its number where no line names "
    "them; may be given again",
)
ARCH = Flag(
    "--arch",
    unless=_TOOLS,
    choices=["x86-64", "i386", "arm", "aarch64", "riscv64"],
    help="the program's instruction set, where the file does not tell it; tags in addresses of "
    "aarch64 are left out",
)
FETCHES = Flag(
    "--fetches",
    unless="is for traces of other tools; a live program has --no-fetch",
    choices=["blocks", "instructions", "none"],
    default="blocks",
    help="which fetches instructions are: one per block, one each, or none (default: blocks)",
)
KEEP_GOING = Flag(
    "--keep-going",
    unless=_TOOLS,
    action="store_true",
    help="end the trace with a warning where it is damaged, Pagewalk's own as well",
)

READING = Flags(
    KEEP_GOING,
    Flag(
        "--spread",
        unless="is for traces: record the program first",
        type=size,
        metavar="SIZE",
        help="put mappings apart, so that each has blocks of SIZE, as 2M, of its own",
    ),
    Flag(
        "--kernel",
        unless="is for recordings; record the program with --calls first",
        metavar="MODEL",
        help="add what a kernel does where programs call it and where one goes on after another: "
        "monolithic, or microkernel with Linux as a process; a recording needs --calls for it",
    ),
    Flags(
        Flag(
            "--format",
            unless=_TOOLS,
            choices=list(FORMATS),
            help="the format, where the first bytes do not tell",
        ),
        CLOUDSUITE,
        DRMEMTRACE,
        COLUMNS,
        ARCH,
        FETCHES,
        title="traces of other tools",
        description="They are read as they are. The options of `pagewalk import FORMAT --help` are "
        "taken here too, and --format NAME where a file's first bytes do not tell its format.",
        hidden=True,
    ),
)
"""How a trace is read, whatever its format. The help of `pagewalk import` explains the flags of
formats; that of other commands names it."""
