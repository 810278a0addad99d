"""`pagewalk run`: simulates a trace, a generator or a live program on one or several machines."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, refuse, shows_text
from pagewalk.commands.flags import (
    FORCE,
    LEAVE_OUT,
    LIVE,
    NATIVE,
    ORIGINS,
    PICTURES,
    PROCESS,
    READING,
    RECORDING,
    TRACE_UNLESS_PROGRAM,
    WARMED_WINDOW,
    html,
    json_of,
    machines,
    view,
)
from pagewalk.commands.parser import UsageError
from pagewalk.machine import Machine
from pagewalk.names import DEFAULT
from pagewalk.report.order import FIELDS, Order
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk.results import Results
    from pagewalk.trace import Trace

EPILOG = f"""\
examples:
  pagewalk run gzip.pwt                                  on {DEFAULT}; prints a summary
  pagewalk run gzip.pwt --machine opteron-2008 --set tlb.l2d.entries=1024 --json gzip.json
  pagewalk run gzip.pwt --machine opteron-2008 --machine {DEFAULT} --html both.html
  pagewalk run gzip.pwt --machine epyc-9005 --machine epyc-9005,tlb.l2d.entries=4096
  pagewalk run --machine tlb-only -- gzip -9 -k big.tar  simulates while the program runs
  pagewalk run gzip.pwt --sort size --top 5              the five largest regions
  pagewalk run generate:join,table=16G,accesses=1M       generates the trace during the run
  pagewalk run gzip.pwt --by function --by region        where the misses come from

With one machine, --json writes its results document; with several, an array of results documents
in the order of the machines, and the report compares them. Standard output belongs to a program
after `--`: the summary goes to standard error, and --json needs the name of a file.
"""


class Run(Command):
    """Simulates a trace, a generator or a live program on one or several machines."""

    name = "run"
    help = "simulate a trace or a program on a machine"
    description = "Simulate a trace on a machine: its TLBs, page walks and data caches."
    usage = "pagewalk run TRACE [options]\n       pagewalk run [options] -- COMMAND [ARGUMENT ...]"
    epilog = EPILOG
    runs_program = True
    flags = (
        TRACE_UNLESS_PROGRAM,
        machines("the machines"),
        view(f"one of {', '.join(FIELDS)} (default: misses)", "regions", list(FIELDS)),
        json_of("the results"),
        html("write the report, one page for a browser"),
        PICTURES,
        ORIGINS,
        Flag(
            "--check",
            action="store_true",
            help="check each translation against the page table, and check that counts agree with "
            "each other; for the recording of a whole system, without --machine: report each use "
            "of a translation that its kernel should have flushed",
        ),
        LEAVE_OUT,
        PROCESS,
        WARMED_WINDOW,
        READING,
        RECORDING,
        LIVE,
        NATIVE,
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Runs the trace or program, and writes the requested summary, JSON and report."""
        names = options.machine or [DEFAULT]
        trace = None if options.program is not None else stored_trace(options, len(names))
        if trace is not None and options.check and options.machine is None and trace.is_system:
            return flushes(options, trace)
        if options.leave_out is not None:
            raise UsageError(
                "--leave-out needs --check, the recording of a whole system, and no --machine"
            )
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
        if shows_text(options):
            from pagewalk.summary import side_by_side, summary

            # Standard output belongs to a live program.
            stream = sys.stdout if options.program is None else sys.stderr
            documents = [result.data for result in results]
            parts = [side_by_side(documents), *(summary(document, order) for document in documents)]
            if options.by:
                parts.append(arguments.origins_text(options, documents))
            say("\n\n".join(part for part in parts if part), stream)
        return status


def flushes(options: argparse.Namespace, trace: "Trace") -> int:
    """Checks a recorded system for flushes that are missing; 1 if there is one."""
    from pagewalk.flushes import check, lines

    with arguments.progress(options, f"checking {trace.name}") as progress:
        found = check(trace, options.leave_out, progress)
    if options.json is not None:
        arguments.write_output(options.json, json.dumps(found, indent=1) + "\n", options.force)
    if shows_text(options):
        say("\n".join(lines(found)), sys.stdout)
    return 1 if found["uses"] else 0


def stored_trace(options: argparse.Namespace, machines: int = 1) -> "Trace":
    """The trace that `options` names, which is to be run on this number of machines."""
    if options.trace is None:
        raise UsageError("no trace to run: give a file, generate:KIND, or a program after `--`")
    if options.native or options.native_prepare is not None:
        raise UsageError(
            "--native needs a program after `--`; for a trace, record it with `pagewalk record "
            "--native`"
        )
    refuse(options, RECORDING, LIVE)
    arguments.no_program_as_trace(options.trace)
    trace = arguments.trace(options, options.trace)
    if trace.is_pipe and machines > 1:
        raise UsageError(
            "a pipe can be read only once: `pagewalk import` it, then compare machines"
        )
    return trace


def stored(
    machines: list[Machine], trace: "Trace", options: argparse.Namespace, advised: bool = True
) -> "list[Results]":
    """The results of the trace on each machine, with advice if `advised`."""
    results = []
    for machine in machines:
        with arguments.progress(options, f"{trace.name} on {machine.name}") as progress:
            results.append(
                machine.run(
                    trace,
                    vars(options).get("check", False),
                    progress,
                    names=_shows_names(options),
                    advice=advised,
                )
            )
    arguments.warn(trace.warnings)
    return results


def live(
    machines: list[Machine], options: argparse.Namespace, advised: bool = True
) -> "tuple[list[Results], int]":
    """The results of the program that `options` names, and its exit status."""
    if options.trace is not None:
        raise UsageError(f"give either the trace {options.trace} or a program after `--`, not both")
    if len(machines) > 1:
        raise UsageError(
            "a live program runs on one machine: `pagewalk record` it, then compare machines"
        )
    refuse(options, READING)
    command = arguments.program(options)
    with arguments.progress(options, f"{command[0]} on {machines[0].name}") as progress:
        recording = arguments.recording(options, command)
        results, status, notes = machines[0].run_live(
            recording,
            vars(options).get("check", False),
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
    """Whether a requested output shows names of code. The summary shows none."""
    given = vars(options)
    return any(given.get(name) for name in ("by", "json", "html", "svg", "pdf", "png"))
