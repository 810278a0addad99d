"""Flags that several commands take, each declared once.

The value of a flag of `RECORDING` is in the options under the name of a field of `Recording`, and
the value of a flag of `READING` under the name of an argument of `Trace`. `arguments.recording` and
`arguments.trace` pass them on.
"""

import argparse
from typing import Any

from pagewalk.commands.command import Flag, Flags, Input, Output
from pagewalk.commands.kinds import column, number, positive, sample, shares, size
from pagewalk.commands.parser import UsageError
from pagewalk.names import DEFAULT, KEYS

FORMATS = {
    "drmemtrace": "final traces of DynamoRIO's drmemtrace: a folder, or one file of it",
    "champsim": "ChampSim traces, with records of 64 bytes",
    "cloudsuite": "CloudSuite traces for ChampSim, with records of 96 bytes",
    "lackey": "the output of Valgrind's --tool=lackey --trace-mem=yes",
    "pinatrace": "the output of Pin's pinatrace and of similar pintools",
    "dinero": "traces for Dinero (.din): a label and an address per line",
    "ramulator": "memory and CPU traces for Ramulator, load and store traces for Ramulator 2",
    "usimm": "traces for USIMM",
    "perf": "the output of `perf script`, with data addresses",
    "csv": "a table as text (CSV), with or without a header line",
    "parquet": "a Parquet file with the columns of a CSV table",
}
"""Trace formats of other tools, each with its help."""


TRACE = Input(
    "trace",
    metavar="TRACE",
    help="a trace file (Pagewalk's or another tool's), generate:KIND,KEY=VALUE,..., or "
    "mix:TRACE,TRACE,...",
)
TRACE_UNLESS_PROGRAM = Input(
    "trace",
    nargs="?",
    metavar="TRACE",
    help="a trace file (Pagewalk's or another tool's), - for standard input, "
    "generate:KIND,KEY=VALUE,..., or mix:TRACE,TRACE,... to run several together",
)

FORCE = Flag("--force", action="store_true", help="overwrite output files that exist")


LEAVE_OUT = Flag(
    "--leave-out",
    metavar="KIND:N",
    help="with --check of a whole system: treat every N-th flush of a kind (invlpg, cr3, all, any) "
    "as left out, to see that the check reports it",
)


def json_of(what: str) -> Output:
    """`--json [FILE]`: `what` as JSON."""
    return Output(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help=f"write {what} as JSON to FILE; without FILE, to standard output in place of the text",
    )


def html(what: str) -> Output:
    """`--html FILE`: a page for a browser, with `what` as its help."""
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
                help=f"write the chart as {kind.upper()} to FILE; with several charts, each to "
                f"FILE-CHART.{kind}, where CHART is its name",
            )
            for kind in ("svg", "pdf", "png")
        )
    )


PICTURES = pictures()


def settings(what: str) -> Flags:
    """`--set`, `--aged` and `--memory`: changes of `what`, such as `the machine`."""
    return Flags(
        Flag(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help=f"set a key of {what}, as in tlb.l1d.entries=128 or os.page_size=2M; may be "
            "given several times",
        ),
        Flag(
            "--aged",
            type=shares,
            metavar="FREE,WIRED",
            help="start with memory in the state after long use: FREE and WIRED are the shares of "
            "memory that are free and unmovable, as in 0.5,0.1; the rest is in use and "
            "movable",
        ),
        Flag(
            "--memory",
            metavar="SIZE|N%",
            help="size of memory, such as 64M, or a share of the trace's peak memory use under the "
            "manager base, such as 80%%; with --aged, this is the amount of free memory",
        ),
    )


def machines(what: str) -> Flags:
    """`--machine`, `--place` and the flags of `settings`.

    They change `what`, such as `all designs`.
    """
    return Flags(
        Flag(
            "-m",
            "--machine",
            action="append",
            metavar="NAME|FILE",
            help="a built-in machine or a TOML file; append ,KEY=VALUE to change a key of this "
            f"machine alone; give several machines to compare them (default: {DEFAULT})",
        ),
        settings(what),
        Flag(
            "--place",
            metavar="FILE|RULES",
            help="request page sizes for parts of the program: rules as in data=64K,stack=16K, or "
            "a file of such rules; needs os.manager=irix, first-touch or linux",
        ),
    )


def view(order: str, rows: str, choices: list[str] | None = None) -> Flags:
    """`--sort`, `--top`: which rows the text and the page show, and in what order.

    Files in other formats have all rows, in the order of the run.
    """
    return Flags(
        Flag("--sort", metavar="KEY", choices=choices, help=f"sort the {rows} by {order}"),
        Flag(
            "--top",
            type=positive,
            metavar="N",
            help=f"show only the first N {rows} in the text and the page; other files have all "
            f"{rows}",
        ),
    )


def top(what: str) -> Flags:
    """`--top`, for a command that shows results of other commands."""

    def check(options: argparse.Namespace) -> None:
        if options.top == 0:
            raise UsageError("--top 0 shows no rows: give 1 or more")

    return Flags(
        Flag("--top", type=number, default=20, metavar="N", help=f"show the {what} (default: 20)"),
        check=check,
    )


_WARMUP = Flag(
    "--warmup",
    type=number,
    default=0,
    metavar="N",
    help="simulate the first N accesses (after --skip) without counting them, to fill TLBs and "
    "caches",
)


def _window(*more: Flag) -> Flags:
    return Flags(
        Flag("--skip", type=number, default=0, metavar="N", help="skip the first N accesses"),
        *more,
        Flag(
            "--max-accesses",
            type=number,
            metavar="N",
            help="stop after N more accesses; a program that is being recorded runs on to its end",
        ),
        Flag(
            "--no-fetch",
            action="store_true",
            help="leave out instruction fetches: loads and stores only",
        ),
        title="window",
    )


WINDOW = _window()
WARMED_WINDOW = _window(_WARMUP)
"""`WINDOW` with `--warmup`, for commands that simulate."""

PROCESS = Flag(
    "--process",
    metavar="NAME|PID",
    help="use only one of several processes: give its pid, or the name or path of its program",
)

PHYSICAL = Flag(
    "--physical",
    action="store_true",
    help="parquet, csv and drmemtrace: write each access's physical address too, as the "
    "page walks in a recording of a whole system give it",
)

_LIVE = "is for a live program; for a trace, use --skip and --max-accesses"


def _edge(edge: str, what: str) -> Flags:
    """The flags for one `edge` of the window, `from` or `to`."""
    return Flags(
        Flag(
            f"--{edge}-symbol",
            unless=_LIVE,
            metavar="F",
            help=f"{what} the call of function F, of the program or of a library, by any "
            f"process; the windows of all processes {what} that time",
        ),
        Flag(
            f"--{edge}-marker",
            unless=_LIVE,
            nargs="?",
            type=number,
            const=-1,
            metavar="N",
            help=f"{what} marker N, or any marker if N is left out; pagewalk.h says how a program "
            "sets markers",
        ),
        one_of=True,
    )


SIGNS = Flags(_edge("from", "begin at"), _edge("to", "end at"))
"""The symbols and markers at which windows begin and end."""

INSTRUCTIONS = Flag(
    "--instructions",
    unless=_LIVE,
    type=number,
    metavar="N",
    help="end after N instructions of each process, at the end of a basic block",
)
SAMPLE = Flag(
    "--sample",
    unless=_LIVE,
    type=sample,
    metavar="WINDOW/PERIOD",
    help="of each process, record only the first WINDOW accesses of every PERIOD accesses, as "
    "in 1M/100M; between the windows, a natively recorded program (see --engine) runs nearly "
    "as fast as with no recording",
)
USER_FILTER = Flag(
    "--user-filter",
    unless=_LIVE,
    dest="filter",
    choices=["none", "page16"],
    default="none",
    help="page16: leave out accesses that hit in a 16-entry direct-mapped filter of pages; "
    "exact for programs with one thread, on LRU TLBs with at least 16 sets and separate "
    "entries for code and data",
)

RECORDING = Flags(
    Flag(
        "--no-follow",
        unless=_LIVE,
        dest="follow",
        action="store_false",
        help="record only the program itself, not the programs that it starts or executes",
    ),
    SIGNS,
    INSTRUCTIONS,
    SAMPLE,
    Flag(
        "--end-with-window",
        unless=_LIVE,
        dest="ends",
        action="store_true",
        help="kill the program at the end of the window that is recorded",
    ),
    Flag(
        "--allocations",
        unless=_LIVE,
        action="store_true",
        help="record each program's allocations and where they are made, by a library that is "
        "loaded into it, so that misses can be reported by allocation site",
    ),
    Flag(
        "--small",
        unless=_LIVE,
        nargs="?",
        type=size,
        const=256 << 20,
        metavar="BYTES",
        help="give a 32-bit program, and the programs that it starts, an address space of only "
        "BYTES, as in a small space (256M without BYTES)",
    ),
    Flag(
        "--sysroot",
        unless=_LIVE,
        metavar="DIR",
        help="look for programs and their libraries in this folder, for example one with unpacked "
        "packages, and record in QEMU",
    ),
    Flag(
        "--one-cpu",
        unless=_LIVE,
        action="store_true",
        help="run the program, and the programs that it starts, on one processor of this computer",
    ),
    USER_FILTER,
    Flag(
        "--callbacks",
        unless=_LIVE,
        action="store_true",
        help="record in QEMU through callbacks only, as in a QEMU other than Pagewalk's own: the "
        "trace is the same, but recording takes longer",
    ),
    Flag(
        "--engine",
        unless=_LIVE,
        choices=["auto", "native", "qemu"],
        default="auto",
        help="native: record in the program's own process, on this processor and with the "
        "program's own address space layout; for x86-64 programs and the programs that they "
        "start. qemu: record in QEMU. auto: natively if possible, otherwise in QEMU, with a note "
        "that says why (default: auto)",
    ),
    Flag(
        "--aslr",
        unless=_LIVE,
        action="store_true",
        help="in native recordings (see --engine): leave the kernel's randomization of the address "
        "space on",
    ),
    Flag(
        "--qemu",
        unless=_LIVE,
        metavar="PATH",
        help="record in this QEMU in place of Pagewalk's own; it must support plugins, and takes "
        "longer",
    ),
    title="recording",
)
"""The settings of a stored or live recording, and its filters in addition to `WINDOW`."""

LIVE = Flag(
    "--tell-all",
    unless=_LIVE,
    dest="tells_all",
    action="store_true",
    help="simulate every access of a live program, also guaranteed hits, which are otherwise only "
    "counted in the recorded program: the results are the same, but the run takes longer",
)


def _check_native(options: argparse.Namespace) -> None:
    if options.native_prepare is not None and not options.native:
        raise UsageError("--native-prepare needs --native: give both")


NATIVE = Flags(
    Flag(
        "--native",
        action="store_true",
        help="after the simulation, run the program natively too, with the same standard input, "
        "and report how many milliseconds of its run time address translation takes; the "
        "output of the native run is discarded",
    ),
    Flag(
        "--native-prepare",
        metavar="CMD",
        help="run this shell command before each of the two runs, for example to clean up before "
        "a second `make`",
    ),
    title="native run",
    check=_check_native,
)


def _check_origins(options: argparse.Namespace) -> None:
    if options.merge and "region" not in options.by:
        raise UsageError("--merge needs --by region: give both")


ORIGINS = Flags(
    Flag(
        "--by",
        action="append",
        choices=KEYS,
        default=[],
        help="print a table of the lookups that missed every TLB, by this key; may be given "
        "several times",
    ),
    Flag(
        "--merge",
        action="store_true",
        help="with --by region: report adjacent anonymous mappings as one region",
    ),
    title="where misses come from",
    check=_check_origins,
)

_TOOLS = "is for traces of other tools: leave it out for a live program"

CLOUDSUITE = Flag(
    "--cloudsuite",
    unless=_TOOLS,
    action="store_true",
    help="champsim: the trace is from CloudSuite, with records of 96 bytes instead of 64",
)
DRMEMTRACE = Flags(
    Flag(
        "--interleave",
        unless=_TOOLS,
        choices=["timestamps", "schedule"],
        default="timestamps",
        help="drmemtrace: merge the threads by their timestamps, or by the recorded schedule "
        "(default: timestamps)",
    ),
    Flag(
        "--v2p",
        unless=_TOOLS,
        metavar="FILE",
        help="drmemtrace: the file with the pages' physical addresses (v2p.textproto)",
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
    help="csv, parquet: the name of the table's column for a column of Pagewalk, as in "
    "addr=vaddr, or its number if there is no header line; may be given several times",
)
ARCH = Flag(
    "--arch",
    unless=_TOOLS,
    choices=["x86-64", "i386", "arm", "aarch64", "riscv64"],
    help="the program's instruction set, if the file does not record it; for aarch64, tags are "
    "removed from addresses",
)
FETCHES = Flag(
    "--fetches",
    unless="is for traces of other tools; for a live program, use --no-fetch",
    choices=["blocks", "instructions", "none"],
    default="blocks",
    help="instruction fetches to simulate: one per basic block, one per instruction, or none "
    "(default: blocks)",
)
KEEP_GOING = Flag(
    "--keep-going",
    unless=_TOOLS,
    action="store_true",
    help="end a damaged trace at the damage, with a warning in place of an error; for Pagewalk's "
    "own traces too",
)

READING = Flags(
    KEEP_GOING,
    Flag(
        "--spread",
        unless="is for traces: record the program with `pagewalk record` first",
        type=size,
        metavar="SIZE",
        help="move mappings apart, so that no two of them share an aligned block of SIZE, such as "
        "2M",
    ),
    Flag(
        "--kernel",
        unless="is for traces: record the program with `pagewalk record --calls` first",
        metavar="MODEL",
        help="add the accesses of a kernel at system calls and at switches between processes: "
        "monolithic, or microkernel with Linux as a process; the trace must have been "
        "recorded with --calls",
    ),
    Flags(
        Flag(
            "--format",
            unless=_TOOLS,
            choices=list(FORMATS),
            help="the format of the trace, if its first bytes do not show it",
        ),
        CLOUDSUITE,
        DRMEMTRACE,
        COLUMNS,
        ARCH,
        FETCHES,
        title="traces of other tools",
        description="Traces of other tools can be given in place of Pagewalk's own. The options "
        "that `pagewalk import FORMAT --help` explains work here too; --format NAME is needed if "
        "the first bytes of a file do not show its format.",
        hidden=True,
    ),
)
"""The flags for reading a trace of any format. The help of `pagewalk import` explains the flags of
each format; the help of other commands refers to it.
"""
