"""`pagewalk sweep`: simulates a trace on every combination of some parameters of a machine."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk._native import Error
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Flags, Input, Table, shows_text
from pagewalk.commands.flags import (
    FORCE,
    PICTURES,
    PROCESS,
    READING,
    WARMED_WINDOW,
    html,
    json_of,
    machines,
    view,
)
from pagewalk.commands.kinds import positive
from pagewalk.commands.parser import UsageError
from pagewalk.machine import Machine
from pagewalk.names import COLUMN_MM, DEFAULT, MACHINE, MEANS, TRACE
from pagewalk.sweeps.vary import values
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk.formats import Made
    from pagewalk.sweeps.result import Sweep as Swept

EPILOG = """\
examples:
  pagewalk sweep gzip.pwt --vary tlb.l2d.entries=2^9..2^12
  pagewalk sweep join.pwt -m opteron-2008 -o join.parquet --html join.html \\
      --vary mmu_cache.design=utc,stc,tpc --vary mmu_cache.entries=1..64
  pagewalk sweep join.pwt -m epyc-9005 -m xeon-6900p --vary os.page_size=4K,2M
  pagewalk sweep join.pwt -o figure.pdf --vary tlb.l2d.entries=2^5..2^10 \\
      --vary tlb.l2d.ways=4,8 --x tlb.l2d.entries --color tlb.l2d.ways --y misses
  pagewalk sweep join.pwt gzip.pwt --vary tlb.l2d.entries=2^8..2^11 \\
      --normalize-to tlb.l2d.entries=256 --sort misses --top 3

Values are written as for --set, separated by commas. 1..64 stands for the whole numbers from 1 to
64, 1..64:3 for every third of them, 2^0..2^10 for powers of two. With several --vary, every
combination of their values is simulated. A design that cannot be built is a row with its error. An
interrupted sweep continues where it stopped if it is started again with the same output file. With
several --machine, or with --vary machine=NAME,NAME, the machine varies too. With several traces,
the text and the page show each trace, and for each design the mean over the traces (--mean).
"""


class Sweep(Command):
    """Simulates a trace on every combination of some parameters of a machine."""

    name = "sweep"
    help = "simulate a trace on many designs at once"
    description = (
        "Simulate a trace on every combination of some parameters of a machine; what several "
        "designs have in common is simulated once."
    )
    epilog = EPILOG
    flags = (
        Input(
            "traces",
            nargs="+",
            metavar="TRACE",
            help="a trace file (Pagewalk's or another tool's), generate:KIND,KEY=VALUE,..., or "
            "mix:TRACE,TRACE,...; several traces are swept one after another and summarized "
            "by their mean",
        ),
        machines("all designs"),
        Flag(
            "--vary",
            action="append",
            default=[],
            metavar="KEY=VALUES",
            help="a key of the machine file and its values, as in tlb.l2d.entries=512,1024; "
            "with several --vary, every combination is simulated",
        ),
        Flag(
            "--normalize-to",
            action="append",
            default=[],
            metavar="DESIGN",
            help="show each design relative to the design that has these values and is equal in "
            "all other keys: KEY=VALUE, several separated by commas",
        ),
        Flag(
            "--mean",
            choices=MEANS,
            default=MEANS[0],
            metavar="MEAN",
            help=f"the mean over several traces: {', '.join(MEANS)} (default: {MEANS[0]})",
        ),
        view(
            "a key that varies, or by a measure, best first: misses, references, from_memory, "
            "hit_rate_3, hit_rate_2, time",
            "designs of each trace",
        ),
        Table("a row per design"),
        json_of("the table"),
        html("write a page for a browser with charts of the designs"),
        PICTURES,
        Flags(
            Flag(
                "--y",
                action="append",
                default=[],
                metavar="MEASURE",
                help="show only this measure; may be given several times (default: all measures "
                "in which the designs differ)",
            ),
            Flag("--x", metavar="KEY", help="the key on the x axis"),
            Flag(
                "--color", metavar="KEY", help="the key whose values are shown as lines, or as bars"
            ),
            Flag("--facet", metavar="KEY", help="the key whose values have one chart each"),
            Flag(
                "--label",
                action="append",
                default=[],
                metavar="KEY=TEXT",
                help="text to show for a key or a measure (KEY=TEXT), or for a value "
                "(KEY:VALUE=TEXT); may be given several times",
            ),
            Flag(
                "--width",
                type=positive,
                default=COLUMN_MM,
                metavar="MM",
                help=f"width of a picture in millimetres (default: {COLUMN_MM}, a column of a "
                "paper)",
            ),
            title="figures",
        ),
        Flag(
            "--designs-per-pass",
            type=positive,
            metavar="N",
            help="number of designs that are simulated in one pass over the trace; an interrupted "
            "sweep repeats the pass during which it was interrupted",
        ),
        Flag(
            "--threads", type=positive, metavar="N", help="number of threads (default: all cores)"
        ),
        FORCE,
        PROCESS,
        WARMED_WINDOW,
        READING,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Runs the sweep, and writes the requested text, table, JSON and page."""
        from pagewalk.report.sweeps import Drawn, View, render, summary
        from pagewalk.sweeps import sweep

        vary = _vary(options.vary)
        if options.machine and MACHINE in vary:
            raise UsageError(
                "the machines are given twice: leave out --machine or --vary machine=..."
            )
        machines = options.machine or vary.pop(MACHINE, [DEFAULT])
        settings = arguments.settings(options)
        arguments.note(
            options, [line for name in machines for line in _notes(name, settings, vary)]
        )
        view = View(options.sort, options.top)
        view.check([MACHINE, TRACE, *vary])
        given = {TRACE: options.traces, MACHINE: machines}
        several = [key for key, values_ in given.items() if len(values_) > 1]
        drawn = Drawn(options.x, options.color, options.facet, options.y, _labels(options.label))
        drawn.check([*several, *vary])
        traces = [arguments.trace(options, source) for source in options.traces]
        names = " and ".join(trace.name for trace in traces)

        def made(swept: "Swept") -> "Made":
            return swept.made(view, drawn, options.width)

        try:
            with arguments.progress(options, f"sweeping {names}") as progress:
                swept = sweep(
                    traces,
                    machines,
                    vary=vary,
                    set=settings,
                    normalize=_normalize(options.normalize_to),
                    mean=options.mean,
                    aged=options.aged,
                    memory=options.memory,
                    output=options.output,
                    force=options.force,
                    save=lambda swept: arguments.write_table(options, made(swept), options.width),
                    designs_per_pass=options.designs_per_pass,
                    threads=options.threads,
                    progress=progress,
                )
        except KeyboardInterrupt:
            _say_what_is_kept(options.output)
            raise
        arguments.warn([warning for trace in traces for warning in trace.warnings])
        document = swept.document
        arguments.warn(_empty(document["designs"], names))
        if options.json is not None:
            text = json.dumps(document, ensure_ascii=False) + "\n"
            arguments.write_output(options.json, text, options.force)
        if options.html is not None:
            from pagewalk.output import write_text

            write_text(options.html, render(document, view, drawn), options.force)
        if options.svg or options.pdf or options.png:
            arguments.write_pictures(options, made(swept).charts(), options.width)
        if shows_text(options):
            say(summary(document, view, drawn))
        return _failed([design.get("error") for design in document["designs"]])


def _notes(machine: str, settings: list[str], vary: dict[str, list[str]]) -> Sequence[str]:
    """Notes on the machine with the first value of each varied key.

    If it cannot be built, without these values.
    """
    first = [f"{key}={one[0]}" for key, one in vary.items()]
    for given in ([*settings, *first], settings):
        # The row of this design will say why it cannot be built.
        with suppress(Error):
            return Machine(machine, given).notes
    return []


def _empty(designs: list[dict[str, Any]], name: str) -> list[str]:
    """Notes on traces without accesses; `name` is the name of the trace if there is only one."""
    ran: dict[str, bool] = {}
    for design in designs:
        if not design.get("error"):
            counts = (count for key, count in design.items() if key.startswith("accesses."))
            ran[design.get(TRACE, name)] = any(counts)
    return [
        f"{one} holds no access: nothing was simulated" for one, any_ in ran.items() if not any_
    ]


def _failed(errors: list[str | None]) -> int:
    """Prints how many designs have no counts, and returns the exit status."""
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
            raise UsageError(
                f"--vary {key}: the key is given twice; give it once, with its values separated by "
                "commas"
            )
        try:
            vary[key.strip()] = values(text)
        except Error as error:
            raise UsageError(f"--vary {key.strip()}: {error}") from error
    return vary


def _normalize(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in [part for design in given for part in design.split(",")]:
        key, equals, value = one.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise UsageError(f"--normalize-to {one}: write KEY=VALUE, as in tlb.l2d.entries=512")
        found[key.strip()] = value.strip()
    return found


def _labels(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        key, equals, label = one.partition("=")
        if not (key.strip() and equals and label.strip()):
            raise UsageError(f"--label {one}: write KEY=TEXT, as in 'tlb.l2d.entries=L2 entries'")
        found[key.strip()] = label.strip()
    return found


def _say_what_is_kept(output: str | None) -> None:
    part = None if output is None else Path(f"{output}.part")
    if part is not None and part.exists():
        done = len(part.read_text(encoding="utf-8").splitlines())
        say(
            f"pagewalk: {done} designs are done and kept in {part}; the same command continues "
            "from there",
            sys.stderr,
        )
