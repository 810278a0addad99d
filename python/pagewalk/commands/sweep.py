"""`pagewalk sweep`: a trace through every combination of some parameters of a machine."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagewalk._native import Error
from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.machine import DEFAULT, Machine
from pagewalk.sweep.vary import MACHINE, TRACE, values
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk sweep gzip.pwt --vary tlb.l2d.entries=2^9..2^12
  pagewalk sweep join.pwt -m opteron-2008 -o join.parquet --html join.html \\
      --vary mmu_cache.design=utc,stc,tpc --vary mmu_cache.entries=1..64
  pagewalk sweep join.pwt -m epyc-9005 -m xeon-6900p --vary os.page_size=4K,2M
  pagewalk sweep join.pwt gzip.pwt --vary tlb.l2d.entries=2^8..2^11 \\
      --normalize tlb.l2d.entries=256 --sort misses --top 3

Values are those of --set, separated by commas. 1..64 are the whole numbers from 1 to 64, 1..64:3
every third of them, 2^0..2^10 powers of two. Several --vary give every combination. A design that
cannot be built is a row with its error. A sweep that is interrupted goes on where it stopped if it
is started again with the same output. Several --machine, or --vary machine=NAME,NAME, are one more
thing that varies. Several traces are one more too: text and page show each by itself, and the
geometric mean over them of each design.
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sweep",
        help="run a trace through many designs at once",
        description="Run a trace through every combination of some parameters of a machine; what "
        "designs have in common is simulated once.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="a trace file, of another tool as well, generate:KIND,... or mix:TRACE,TRACE,...; "
        "several are swept one by one, and their geometric mean is told",
    )
    arguments.add_machine(parser, "all designs")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="KEY=VALUES",
        help="a key of the machine's file and its values, as in tlb.l2d.entries=512,1024",
    )
    parser.add_argument(
        "--normalize",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="show each design as a factor of the one with this value that is otherwise the same; "
        "may be given again",
    )
    arguments.add_view(
        parser,
        "a key that varies, or a measure, best first: misses, references, from_memory, hit_rate_3, "
        "hit_rate_2, time",
        "designs of each trace",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the table, a row per design, as Parquet"
    )
    arguments.add_json(parser, "the table")
    parser.add_argument("--html", metavar="FILE", help="write a page with the designs drawn")
    arguments.add_pictures(parser)
    parser.add_argument(
        "--designs-per-pass",
        type=arguments.positive,
        metavar="N",
        help="designs that share a pass over the trace; what is interrupted is done anew by passes",
    )
    parser.add_argument(
        "--threads",
        type=arguments.positive,
        metavar="N",
        help="threads that work (default: all cores)",
    )
    arguments.add_force(parser)
    arguments.add_process(parser)
    arguments.add_window(parser, warmup=True)
    arguments.add_reading(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Sweeps, and gives the text, the table, the JSON and the page that were asked for."""
    from pagewalk.report.sweeps import View, pictures, render, summary
    from pagewalk.sweep import sweep

    arguments.no_program(options)
    arguments.check_documents(options)
    arguments.check_output(options.output, options.force)
    if options.output == "-":
        raise UsageError("--output needs the name of a file")
    vary = _vary(options.vary)
    if options.machine and MACHINE in vary:
        raise UsageError("the machines are given twice: leave out --machine or --vary machine=...")
    machines = options.machine or vary.pop(MACHINE, [DEFAULT])
    settings = arguments.settings(options)
    arguments.note(options, [line for name in machines for line in _notes(name, settings, vary)])
    view = View(options.sort, options.top)
    view.check([MACHINE, TRACE, *vary])
    traces = [arguments.trace(options, source) for source in options.traces]
    names = " and ".join(trace.name for trace in traces)
    try:
        with arguments.progress(options, f"sweeping {names}") as progress:
            swept = sweep(
                traces,
                machines,
                vary=vary,
                set=settings,
                normalize=_normalize(options.normalize),
                aged=options.aged,
                memory=options.memory,
                output=options.output,
                force=options.force,
                designs_per_pass=options.designs_per_pass,
                threads=options.threads,
                progress=progress,
            )
    except KeyboardInterrupt:
        _say_what_is_kept(options.output)
        raise
    arguments.warn([warning for trace in traces for warning in trace.warnings])
    made = swept.document
    arguments.warn(_empty(made["designs"], names))
    if options.json is not None:
        text = json.dumps(made, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if options.html is not None:
        from pagewalk.output import write_text

        write_text(options.html, render(made, view), options.force)
    if options.svg or options.pdf or options.png:
        arguments.write_pictures(options, pictures(made))
    if arguments.shows_text(options):
        say(summary(made, view))
    return _failed([design.get("error") for design in made["designs"]])


def _notes(machine: str, settings: list[str], vary: dict[str, list[str]]) -> Sequence[str]:
    """What is to be said of a machine with the first values of all that varies, or before that."""
    first = [f"{key}={one[0]}" for key, one in vary.items()]
    for given in ([*settings, *first], settings):
        # Its row will say why it cannot be built.
        with suppress(Error):
            return Machine(machine, given).notes
    return []


def _empty(designs: list[dict[str, Any]], name: str) -> list[str]:
    """Says which traces hold no access: of the `name` if there is but one."""
    ran: dict[str, bool] = {}
    for design in designs:
        if not design.get("error"):
            counts = (count for key, count in design.items() if key.startswith("accesses."))
            ran[design.get(TRACE, name)] = any(counts)
    return [
        f"{one} holds no access: nothing was simulated" for one, any_ in ran.items() if not any_
    ]


def _failed(errors: list[str | None]) -> int:
    """Says how many designs have no counts; the exit status."""
    failed = [error for error in errors if error]
    if not failed:
        return 0
    what = (
        "no design has counts"
        if len(failed) == len(errors)
        else (f"{len(failed)} of {len(errors)} designs have no counts")
    )
    arguments.warn([f"{what}: {failed[0]}"])
    return 1 if len(failed) == len(errors) else 0


def _vary(given: list[str]) -> dict[str, list[str]]:
    vary: dict[str, list[str]] = {}
    for one in given:
        key, equals, text = one.partition("=")
        if not (key.strip() and equals):
            raise UsageError(f"--vary {one}: write KEY=VALUES, as in tlb.l2d.entries=512,1024")
        if key.strip() in vary:
            raise UsageError(f"--vary {key}: given twice; separate its values by commas")
        try:
            vary[key.strip()] = values(text)
        except Error as error:
            raise UsageError(f"--vary {key.strip()}: {error}") from error
    return vary


def _normalize(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise UsageError(f"--normalize {one}: write KEY=VALUE, as in tlb.l2d.entries=512")
        found[key.strip()] = value.strip()
    return found


def _say_what_is_kept(output: str | None) -> None:
    part = None if output is None else Path(f"{output}.part")
    if part is not None and part.exists():
        done = len(part.read_text(encoding="utf-8").splitlines())
        say(
            f"pagewalk: {done} designs are done and kept in {part}; the same command goes on there",
            sys.stderr,
        )
