"""`pagewalk run`: a trace, a generator or a live program through one machine or several."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.machine import DEFAULT, Machine
from pagewalk.report.order import FIELDS, Order
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk.results import Results
    from pagewalk.trace import Trace

EPILOG = f"""\
examples:
  pagewalk run gzip.pwt                                  on {DEFAULT}, a summary as text
  pagewalk run gzip.pwt --machine opteron-2008 --set tlb.l2d.entries=1024 --json gzip.json
  pagewalk run gzip.pwt --machine opteron-2008 --machine {DEFAULT} --html both.html
  pagewalk run gzip.pwt --machine epyc-9005 --machine epyc-9005,tlb.l2d.entries=4096
  pagewalk run --machine tlb-only -- gzip -9 -k big.tar  simulates while it runs, stores nothing
  pagewalk run gzip.pwt --sort size --top 5              the five largest regions
  pagewalk run generate:join,table=16G,accesses=1M       makes the trace as it goes
  pagewalk run gzip.pwt --by function --by region        whose misses they are

With one machine, --json writes its results document; with several, an array of them in order,
and the report compares them. A program after `--` owns standard output: the summary goes to
standard error, and --json needs the name of a file.
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run a trace or a program through a machine",
        description="Run a trace through a machine: its TLBs, page walks and data caches.",
        usage="pagewalk run TRACE [options]\n"
        "       pagewalk run [options] -- COMMAND [ARGUMENT ...]",
        epilog=EPILOG,
    )
    parser.add_argument(
        "trace",
        nargs="?",
        metavar="TRACE",
        help="a trace file, of another tool as well, - for standard input, or "
        "generate:KIND,KEY=VALUE,..., or several as mix:TRACE,TRACE,...",
    )
    arguments.add_machine(parser, "the machines")
    arguments.add_view(parser, f"{', '.join(FIELDS)} (default: misses)", "regions", list(FIELDS))
    arguments.add_json(parser, "the results")
    parser.add_argument("--html", metavar="FILE", help="write the report, one page for a browser")
    arguments.add_pictures(parser)
    arguments.add_origins(parser)
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare each translation with the page table, and all counts with their identities",
    )
    arguments.add_process(parser)
    arguments.add_window(parser, warmup=True)
    arguments.add_reading(parser)
    arguments.add_recording(parser)
    arguments.add_live(parser)
    arguments.add_native(parser)
    arguments.add_force(parser)
    parser.set_defaults(run=run, runs_program=True)


def run(options: argparse.Namespace) -> int:
    """Runs, and gives the summary, the JSON and the report that were asked for."""
    names = options.machine or [DEFAULT]
    arguments.check_documents(options)
    arguments.check_origins(options)
    trace = None if options.program is not None else stored_trace(options, len(names))
    machines = [arguments.machine(name, options, trace) for name in names]
    arguments.note(options, [line for machine in machines for line in machine.notes])
    if trace is not None:
        results, status = stored(machines, trace, options), 0
    else:
        results, status = live(machines, options)
    if options.json is not None:
        documents = [result.data for result in results]
        document = documents[0] if len(documents) == 1 else documents
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    order = Order(options.sort or "misses", options.top)
    if options.html is not None:
        from pagewalk.output import write_text
        from pagewalk.report import render

        write_text(options.html, render(results, order), options.force)
    if options.svg or options.pdf or options.png:
        from pagewalk.report import data
        from pagewalk.report.page import all_charts

        report = data.report([result.data for result in results], order)
        arguments.write_pictures(options, all_charts(report))
    if arguments.shows_text(options):
        from pagewalk.summary import side_by_side, summary

        # A live program owns standard output.
        stream = sys.stdout if options.program is None else sys.stderr
        documents = [result.data for result in results]
        parts = [side_by_side(documents), *(summary(document, order) for document in documents)]
        if options.by:
            parts.append(arguments.origins_text(options, documents))
        say("\n\n".join(part for part in parts if part), stream)
    return status


def stored_trace(options: argparse.Namespace, machines: int = 1) -> "Trace":
    """The trace that `options` names, for so many machines."""
    if options.trace is None:
        raise UsageError("no trace to run: give a file, generate:KIND, or a program after `--`")
    if options.native or options.native_prepare is not None:
        raise UsageError(
            "--native is for a live program: `pagewalk record --native` keeps it for traces"
        )
    arguments.no_recording(options)
    arguments.no_program_as_trace(options.trace)
    trace = arguments.trace(options, options.trace)
    if trace.is_pipe and machines > 1:
        raise UsageError("a pipe is read once: `pagewalk import` it, then compare machines")
    return trace


def stored(
    machines: list[Machine], trace: "Trace", options: argparse.Namespace, advised: bool = True
) -> "list[Results]":
    """The results of the trace, of each machine, with advice if wished."""
    results = []
    for machine in machines:
        with arguments.progress(options, f"{trace.name} on {machine.name}") as progress:
            results.append(
                machine.run(
                    trace, options.check, progress, names=_shows_names(options), advice=advised
                )
            )
    arguments.warn(trace.warnings)
    return results


def live(
    machines: list[Machine], options: argparse.Namespace, advised: bool = True
) -> "tuple[list[Results], int]":
    """The results of the program that `options` names, and its exit status."""
    if options.trace is not None:
        raise UsageError(f"either the trace {options.trace} or a program after `--`, not both")
    if len(machines) > 1:
        raise UsageError(
            "a live program runs on one machine: `pagewalk record` it, then compare machines"
        )
    arguments.no_reading(options)
    arguments.check_native(options)
    command = arguments.program(options)
    with arguments.progress(options, f"{command[0]} on {machines[0].name}") as progress:
        recording = arguments.recording(options, command)
        results, status, notes = machines[0].run_live(
            recording,
            options.check,
            progress,
            options.warmup,
            native=options.native,
            native_prepare=options.native_prepare,
            names=_shows_names(options),
            advice=advised,
        )
    from pagewalk.commands.record import warnings

    arguments.note(options, notes)
    arguments.warn(results.data["trace"]["live"].get("lost", []))
    arguments.warn(warnings(sum(results.data["accesses"].values()), recording))
    return [results], status


def _shows_names(options: argparse.Namespace) -> bool:
    """Whether anything that is asked for has the names of code: the summary alone has none."""
    given = vars(options)
    return any(given.get(name) for name in ("by", "json", "html", "svg", "pdf", "png"))
