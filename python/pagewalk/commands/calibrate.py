"""`pagewalk calibrate`: a machine file of this computer, and how accurate its predictions are."""

import argparse
import json
import platform
import sys
from typing import TYPE_CHECKING, Any

from pagewalk import _native, text
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flags, Input, shows_text
from pagewalk.commands.flags import FORCE, json_of, output
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk.calibrate.judge import Case, Limits

EPILOG = """\
examples:
  pagewalk calibrate -o here.toml
  pagewalk run gzip.pwt --machine here.toml
  pagewalk calibrate --judge here.toml

Timing takes about fifteen seconds and fitting about a minute. Other programs that run meanwhile
make the numbers less accurate.
"""


class Calibrate(Command):
    """A machine file of this computer, and how accurate its predictions are."""

    name = "calibrate"
    help = "measure this computer and write a machine file for it"
    description = (
        "Time this computer's TLBs, page walks, caches and kernel, and write a machine file, with "
        "the spread of each number. The file lists what timing cannot measure."
    )
    epilog = EPILOG
    flags = (
        Flags(
            output("the machine file to write"),
            Input(
                "--judge",
                metavar="FILE",
                help="time small programs on this computer with 4K and with 2M pages, and report "
                "how often the measured gain is within the range that this machine file "
                "predicts",
            ),
            one_of=True,
            required=True,
        ),
        json_of("the measurements (with --judge, the cases)"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Calibrates, or judges a machine file."""
        if options.judge is not None:
            return _judge(options)
        return _calibrate(options)


def _calibrate(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from pagewalk.calibrate import machine_file, measure, see

    say = _silent if options.quiet else _say
    say("timing this machine for some fifteen seconds")
    seen = see(measure())
    say("fitting the host and the caches to the times of random loads")
    title = f"This machine, measured by timing: {platform.machine()}, {platform.system()}"
    arguments.write_output(options.output, machine_file(seen, title, say), options.force)
    if options.json is not None:
        document = json.dumps({"schema": 1, **asdict(seen)}, indent=1) + "\n"
        arguments.write_output(options.json, document, options.force)
    for what in seen.unseen:
        say(f"not measured: {what}")
    return 0


def _judge(options: argparse.Namespace) -> int:
    from pagewalk.calibrate import judge

    limits = _limits(options.judge)
    cases = judge.judge(options.judge, limits, _silent if options.quiet else _say)
    made = judge.document(cases)
    if options.json is not None:
        arguments.write_output(options.json, json.dumps(made, indent=1) + "\n", options.force)
    if shows_text(options):
        say(shown(cases, made["score"]))
    return 0


def _limits(file: str) -> "Limits":
    """The limits in the table `[calibrated]` of a file, and how many misses overlap."""
    from pagewalk.calibrate.judge import Limits
    from pagewalk.machine import Machine

    described = Machine(file).description
    seen = described.get("calibrated")
    misses = described["core"].get("misses_in_flight")
    if seen is None or misses is None:
        key = "[calibrated]" if seen is None else "core.misses_in_flight"
        raise _native.Error(
            f"{file} has no {key}: write the file again with `pagewalk calibrate --force -o {file}`"
        )
    low, high = seen["gain_errors"]
    # If the overlap of walks was not measured, as many walks as misses are assumed to overlap.
    walks = seen.get("walks_in_flight", misses)
    return Limits(seen["ghz"], misses, walks, seen["time_error"], (low, high))


def shown(cases: "list[Case]", score: dict[str, Any]) -> str:
    """The cases as a table, and the score in words."""

    def gains(predicted: Any) -> str:
        return f"{100 * predicted.lo:.0f} to {100 * predicted.hi:.0f} %"

    rows = [
        (
            f"{case.kind}, {text.size(case.size_bytes)}",
            *(f"{case.timed[page]:.1f} ns" for page in ("4K", "2M")),
            f"{100 * case.gain:.0f} %",
            gains(case.alone),
            case.outside(case.alone) or "inside",
            gains(case.informed),
            case.outside(case.informed) or "inside",
        )
        for case in cases
    ]
    head = ("Program", "4K", "2M", "gain", "file alone", "", "4K time known", "")
    lines = [text.table(head, rows), ""]
    for name, of in (
        ("Predicted from the file alone", "alone"),
        ("Predicted with the known time of 4K pages", "informed"),
    ):
        part = score[of]
        lines.append(
            f"{name}: {100 * part['inside']:.0f} % of {score['cases']} gains lie in their ranges; "
            f"median width of a range {100 * part['median_width']:.1f} points; mean error of its "
            f"middle {100 * part['middle_error']:.1f} points"
        )
    lines += [
        f'The prediction "no gain" has an error of {100 * score["no_gain_error"]:.1f} points, and '
        f"is right for {100 * score['no_gain_inside']:.0f} % of the cases",
        f"Times: {100 * score['times_inside']:.0f} % lie in their ranges; median range "
        f"{score['times_median_ratio']:.1f}:1",
    ]
    return "\n".join(lines)


def _say(what: str) -> None:
    say(f"pagewalk: {what}", sys.stderr)


def _silent(_: str) -> None:
    """A progress function that prints nothing, for `-q`."""
