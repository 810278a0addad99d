"""`pagewalk place`: runs a program with page sizes that the program itself does not request."""

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Flags
from pagewalk.commands.flags import FORCE, json_of, top
from pagewalk.commands.kinds import positive, size
from pagewalk.commands.parser import UsageError
from pagewalk.commands.verify import PROCESS_ID, check, read, rules_of
from pagewalk.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from pagewalk.placing.launch import Variable
    from pagewalk.placing.rules import Rule

UNMET = 125
"""The exit status if a required rule was not met. Rules with `fail` are required; with `--require`,
all rules are.
"""

EPILOG = """\
examples:
  pagewalk place heap=2M -- sqlite3 :memory: "select 1"
  pagewalk place "data=2M, stack=4K" --verify -- python3 -c "x = bytearray(64 << 20)"
  pagewalk place heap=2M --dry-run -- python3 -c "x = 1"
  pagewalk place data=2M --compare --rounds 8 -- python3 -c "x = list(range(1000000))"

A program keeps its own output, input and exit status; the report goes to standard error. With
--require, the exit status is 125 if the program ended with 0 but some memory has smaller pages than
its rule asks for, although the requested pages would fit. The word `fail`, as in `heap=2M fail`,
requires this for one rule only.
"""


def _pool(text_: str) -> tuple[int, int]:
    """Parses `2M=64`: a page size in bytes and a number of pages."""
    bytes_, equals, count = text_.partition("=")
    if not equals or not count.isdecimal() or not 0 < int(count) < 1 << 24:
        raise argparse.ArgumentTypeError(
            f"`{text_}`: write a page size and a number of pages, as in 2M=64"
        )
    return size(bytes_), int(count)


def _share(text_: str) -> float:
    """Parses `1%`: a share."""
    try:
        share = float(text_.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not text_.endswith("%") or not 0 < share < 1:
        raise argparse.ArgumentTypeError(
            f"`{text_}` is not a share of the time: write a percentage between 0 and 100, as in 1%"
        )
    return share


COMPARING = Flags(
    Flag(
        "--within",
        type=_share,
        metavar="N%",
        help="end the comparison when the confidence interval of the gain is at most N%% of the "
        "run time wide (default: 1%%)",
    ),
    Flag(
        "--rounds",
        type=positive,
        metavar="N",
        help="end the comparison after N rounds in any case (default: 60)",
    ),
    Flag(
        "--seconds",
        type=positive,
        metavar="N",
        help="end the comparison after N seconds in any case, but not before 8 rounds (default: "
        "120)",
    ),
    Flag(
        "--prepare",
        metavar="CMD",
        help="run this shell command before each run of the comparison, for example to remove "
        "files that the program leaves behind",
    ),
    title="comparison",
)


class Place(Command):
    """Runs a program with page sizes that the program itself does not request."""

    name = "place"
    help = "run a program with other page sizes, or change those of a running one"
    description = (
        "Run an unmodified program with the page sizes of RULES, or of a place file from "
        "`pagewalk advise -o`. Pagewalk calls madvise in the program at the right moments, also "
        "in its children and in static programs. With -p, the memory of a running process gets "
        "large pages at once."
    )
    usage = (
        "pagewalk place RULES|FILE [options] -- COMMAND [ARGUMENT ...]\n"
        "       pagewalk place RULES|FILE -p PID [options]\n"
        "       pagewalk place --restore"
    )
    epilog = EPILOG
    runs_program = True
    flags = (
        rules_of("page sizes to apply"),
        PROCESS_ID,
        Flag(
            "--dry-run",
            action="store_true",
            help="print the environment variables and system calls that would be used, and run "
            "nothing",
        ),
        Flag(
            "--verify",
            action="store_true",
            help="report at the end which page sizes each region got, and why not larger ones",
        ),
        Flag(
            "--only",
            action="store_true",
            help="give large pages only to the memory that rules name, also where the system's "
            "knob is `always` (needs Linux 6.18)",
        ),
        Flag(
            "--require",
            action="store_true",
            help=f"if the program ends with 0, exit with status {UNMET} if a rule matched no "
            "memory, if a call for it failed, or if memory has smaller pages than its rule asks "
            "for although these would fit",
        ),
        Flag(
            "--inherit",
            action="store_true",
            help="do not remove the variables that pagewalk has set in the program's environment "
            "when the program executes another program",
        ),
        Flag(
            "--system",
            action="store_true",
            help="as root: allow page sizes below 2M and pools of huge pages, by changing "
            "settings (knobs) of the whole system, which are restored when the program ends "
            "or pagewalk is killed",
        ),
        Flag(
            "--pool",
            type=_pool,
            action="append",
            default=[],
            metavar="SIZE=COUNT",
            help="with --system: add COUNT pages of SIZE to the system's pool, from which the C "
            "library takes the pages for heap, mmap and data rules of that size; may be "
            "given several times",
        ),
        Flag(
            "--restore",
            action="store_true",
            help="restore the system's settings (knobs) that an earlier pagewalk changed, if it "
            "was killed together with its watcher",
        ),
        Flag(
            "--no-ptrace",
            action="store_true",
            help="use only environment variables, for systems that forbid ptrace",
        ),
        Flag(
            "--compare",
            action="store_true",
            help="run the program natively, in turns with and without the placement, and report "
            "the gain with its confidence interval; the program's output is discarded",
        ),
        COMPARING,
        json_of("the page sizes that were obtained"),
        top("N regions with the most memory"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Places a program or a process. Returns the program's exit status."""
        from pagewalk.placing.system import System

        if options.restore:
            return _restored(options)
        if options.rules is None:
            raise UsageError(
                "no rules: give the page size of some memory, as in `pagewalk place heap=2M -- "
                "COMMAND`"
            )
        check(options)
        _check_comparing(options)
        system = System()
        if options.pool and not options.system:
            raise UsageError("--pool changes the whole system: run it as root, with --system")
        wanted = read(options.rules, system, has_all=options.system)
        if options.pid is not None:
            return _running(options, wanted, system)
        return _program(options, wanted, system)


def _restored(options: argparse.Namespace) -> int:
    from pagewalk.placing import journal

    done = journal.restore()
    if not options.quiet:
        say("\n".join(done) if done else "no knob is changed")
    return 0


def _program(options: argparse.Namespace, wanted: "list[Rule]", system: Any) -> int:
    from pagewalk import _native
    from pagewalk.placing import journal, launch, show

    command = launch.shelled(arguments.program(options))
    is_traced = not options.no_ptrace and _native.may_trace()
    pools = dict(options.pool)
    changes = journal.plan(wanted, pools, system) if options.system else []
    advised = launch.advised(wanted, pools)
    set_: list[Variable] = launch.of_pools(wanted, pools, system, os.environ)
    if not is_traced:
        set_ += launch.variables(command[0], advised, os.environ)
    if options.dry_run:
        say(
            launch.dry(command, advised, set_, changes=changes, only=options.only, traced=is_traced)
        )
        return 0
    if not is_traced:
        arguments.note(options, [] if options.no_ptrace else [launch.FORBIDDEN])
        arguments.warn(launch.unplaced(advised, set_, command[0]))
        if options.only:
            raise UsageError("--only needs ptrace, which this system forbids: leave --only out")
    if options.compare:

        def placed_() -> dict[str, Any]:
            if not is_traced:
                return launch.untraced(command, set_)
            return launch.launch(command, advised, set_, inherit=options.inherit, only=options.only)

        with journal.changed(changes):
            written = arguments.place_rules(options.rules, "")
            document = compared(options, command, written, placed_)
        if options.json is not None:
            text = json.dumps(document, indent=1, ensure_ascii=False)
            arguments.write_output(options.json, text + "\n", options.force)
        return 0
    by_regions = options.system or not is_traced
    with (
        journal.changed(changes),
        launch.Watch(wanted, system, 3 if options.only else None) as watch,
    ):
        watch.is_on = options.verify or by_regions or options.json is not None
        if is_traced:
            outcome = launch.launch(
                command, advised, set_, inherit=options.inherit, only=options.only, look=watch.end
            )
        else:
            outcome = launch.untraced(command, set_)
    if by_regions:
        outcome["rules"] = show.by_rule(wanted, watch.documents)
    return _told(options, outcome, watch.documents)


def _must_be_met(options: argparse.Namespace, rule: dict[str, Any]) -> bool:
    """Whether the command fails if this rule is not met."""
    return bool(options.require or rule["rule"].endswith(" fail"))


def _say_unused(options: argparse.Namespace, outcome: dict[str, Any]) -> None:
    """Prints the notes on a run, and the rules to which no mapped memory belongs."""
    arguments.note(options, outcome["notes"])
    unused = [one for one in outcome["rules"] if not one["mappings"]]
    arguments.warn(
        [f"{one['rule']}: no memory was mapped that this rule applies to" for one in unused]
    )


def _told(
    options: argparse.Namespace,
    outcome: dict[str, Any],
    documents: list[dict[str, Any]],
) -> int:
    """Prints the outcome, and returns the exit status."""
    from pagewalk.placing import show

    _say_unused(options, outcome)
    if not options.quiet:
        # Rules that the warnings name are not repeated here.
        used = [one for one in outcome["rules"] if one["mappings"]]
        for line in show.placed({**outcome, "rules": used}):
            say(f"pagewalk: {line}", sys.stderr)
    if options.verify and documents and not options.quiet:
        say(show.summary(documents[0], options.top), sys.stderr)
    if options.json is not None:
        text = json.dumps({**outcome, "regions_of": documents}, indent=1, ensure_ascii=False)
        arguments.write_output(options.json, text + "\n", options.force)
    status: int = outcome["status"]
    short = [
        one["rule"] for one in outcome["rules"] if show.is_short(one) and _must_be_met(options, one)
    ]
    if status == 0 and short:
        why = "--require: " if options.require else ""
        say(
            f"pagewalk: error: {why}{'; '.join(short)}: smaller pages than asked for; "
            "--verify says why",
            sys.stderr,
        )
        return UNMET
    return status


def _check_comparing(options: argparse.Namespace) -> None:
    """Raises an error for flags that conflict with `--compare`, or that need it."""
    if options.compare:
        for name in ("pid", "dry_run", "verify", "require"):
            if vars(options)[name]:
                flag = "-p" if name == "pid" else f"--{name.replace('_', '-')}"
                raise UsageError(f"--compare runs a program many times: leave {flag} out")
        return
    check_alone(options, "--compare")


def check_alone(options: argparse.Namespace, flag: str) -> None:
    """Raises an error for flags of a comparison if `flag`, which requests one, is not given."""
    for name in ("within", "rounds", "seconds", "prepare"):
        if vars(options)[name] is not None:
            raise UsageError(f"--{name} needs {flag}: give both")


def compared(
    options: argparse.Namespace,
    command: "list[str]",
    written: str,
    placed: "Callable[[], dict[str, Any]]",
) -> dict[str, Any]:
    """Compares a program with and without a placement. Prints and returns the comparison.

    Args:
        options: The options of `COMPARING`, and `quiet`.
        command: The program.
        written: The text of the rules, which may contain a prediction.
        placed: Runs the program with the placement.
    """
    from pagewalk import here, natively, predictions
    from pagewalk.placing import compare, counters, launch, show

    given = {"within": options.within, "rounds_max": options.rounds, "seconds_max": options.seconds}
    limits = compare.Limits(**{key: value for key, value in given.items() if value is not None})
    of_walks, why_none = counters.of_walks()
    last: dict[str, Any] = {}

    def place_it() -> dict[str, Any]:
        last.update(placed())
        return last

    with (
        natively.spooled_stdin() as stdin,
        arguments.progress(options, "comparing", "rounds") as line,
    ):

        def sample(run: "Callable[[], dict[str, Any]]") -> compare.Sample:
            with compare.streams(stdin):
                return compare.sampled(run, of_walks, options.prepare)

        found = compare.compare(
            lambda: sample(lambda: launch.untraced(command, [])),
            lambda: sample(place_it),
            limits,
            seed=0,
            progress=lambda rounds, _: line(rounds, limits.rounds_max),
        )
    prediction = predictions.read(written)
    if prediction is not None and here.is_of(prediction.machine, here.processor()) is False:
        arguments.note(options, [f"the prediction is for {here.said(prediction.machine, False)}"])
    document = {
        **compare.document(found),
        "command": command,
        "rules": [one for one in written.splitlines() if one and not one.startswith("#")],
        "predicted": prediction and prediction._asdict(),
        "counters_missing": why_none,
        "rules_got": last["rules"],
    }
    _say_unused(options, last)
    if not options.quiet:
        say(show.compared(document), sys.stderr)
    return document


def _running(options: argparse.Namespace, wanted: "list[Rule]", system: Any) -> int:
    """Collapses the base pages of a running process into large pages."""
    from pagewalk.placing import live, show, verify

    refused = [name for name in ("only", "inherit", "no_ptrace", "system") if vars(options)[name]]
    if refused:
        flag = refused[0].replace("_", "-")
        raise UsageError(f"--{flag} is for a program after `--`: leave it out with -p")
    if options.dry_run:
        say(live.dry(options.pid, wanted))
        return 0
    outcome = live.collapse(options.pid, wanted)
    document = verify.verify(options.pid, wanted, system=system)
    lines = show.collapsed(outcome)
    if not options.quiet and options.json != "-":
        for line in lines:
            say(f"pagewalk: {line}", sys.stderr)
        if options.verify:
            say(show.summary(document, options.top))
    arguments.warn(
        [
            f"{one['rule']}: no memory is mapped that this rule applies to"
            for one in outcome["rules"]
            if not one["mappings"]
        ]
    )
    if options.json is not None:
        text = json.dumps({**outcome, "regions_of": [document]}, indent=1, ensure_ascii=False)
        arguments.write_output(options.json, text + "\n", options.force)
    short = any(
        (one["failed"] or not one["mappings"]) and _must_be_met(options, one)
        for one in outcome["rules"]
    )
    return UNMET if short else 0
