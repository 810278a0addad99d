"""`pagewalk reproduce`: the papers' experiments, with their numbers and claims and our numbers."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pagewalk._native import Error, WorkError
from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, shows_text
from pagewalk.commands.flags import FORCE, html, json_of
from pagewalk.commands.parser import UsageError
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk.reproduce import Experiment, Lab, Outcome

EPILOG = """\
examples:
  pagewalk reproduce --list               the experiments, with the verdicts of our saved numbers
  pagewalk reproduce B10/fig4.14          one figure: the paper's numbers and claims, and ours
  pagewalk reproduce E99 --html e99.html  all experiments of a paper, with plots
  pagewalk reproduce K94 --stale          which saved numbers are out of date, and why
  pagewalk reproduce E99 --relabel        updates the wording of saved claims, measures nothing
  pagewalk reproduce                      all experiments, then the scoreboard: it takes a while

Each program is recorded once, up to a number of accesses, into the folder of --cache. A claim that
our numbers do not support is shown as missed, which is no error. A claim that holds for some
placements of frames and fails for others is shown as unstable. The exit status is 1 if something
could not be measured.
"""


class Reproduce(Command):
    """Reruns the papers' experiments, and compares their numbers and claims with our numbers."""

    name = "reproduce"
    help = "rerun the experiments of the papers"
    description = (
        "Rerun tables and figures of the papers with programs of today, and print the papers' "
        "numbers and ours side by side."
    )
    epilog = EPILOG
    flags = (
        Flag("names", nargs="*", metavar="NAME", help="an experiment or a paper (default: all)"),
        Flag("--list", action="store_true", help="list the experiments and run nothing"),
        Flag(
            "--stale",
            action="store_true",
            help="list the experiments whose saved numbers are out of date, with the reason (runs "
            "short probes only)",
        ),
        Flag(
            "--cache",
            type=Path,
            metavar="FOLDER",
            help="folder in which traces and runs are kept (default: ~/.cache/pagewalk)",
        ),
        Flag(
            "--smoke",
            action="store_true",
            help="run with tiny sizes, to test that the experiments work; the numbers are not "
            "meaningful",
        ),
        Flag(
            "--install",
            action="store_true",
            help="install missing packages that contain the experiments' programs",
        ),
        Flag(
            "--save",
            action="store_true",
            help="save the numbers beside the experiments, in last.json",
        ),
        Flag(
            "--relabel",
            action="store_true",
            help="measure nothing: copy the words, kinds and reasons of the claims from the "
            "experiments' files into the saved results (last.json)",
        ),
        html("write one page with plots, for a browser"),
        Flag(
            "--experiments",
            metavar="FOLDER",
            help="folder of the experiments (default: the source tree's)",
        ),
        json_of("all numbers and verdicts"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Measures the named experiments, and prints the verdict on each claim."""
        from pagewalk.reproduce import Lab, find, history, relabelled, root, scoreboard

        if options.smoke and options.save:
            raise UsageError("the numbers of --smoke are not meaningful: leave out --save")
        for flag in ("stale", "relabel"):
            if getattr(options, flag) and (
                options.save or options.json is not None or options.html is not None
            ):
                raise UsageError(f"--{flag} measures nothing: leave out --save, --json and --html")
        folder = root(options.experiments)
        experiments = find(folder, options.names)
        if options.list:
            listed = [
                (
                    experiment.name,
                    experiment.title,
                    experiment.last(),
                    history.complaint(experiment),
                )
                for experiment in experiments
            ]
            if options.json is not None:
                last = {name: document for name, _, document, _ in listed}
                arguments.write_output(
                    options.json, json.dumps(last, indent=1) + "\n", options.force
                )
            if shows_text(options):
                say(scoreboard.listing(listed))
            return 0
        if options.relabel:
            texts = {experiment.folder: relabelled(experiment) for experiment in experiments}
            for at, text in texts.items():
                arguments.write_output(str(at / "last.json"), text, True)
            return 0
        lab = Lab(folder, options.cache, options.install)
        if options.stale:
            return _stale(experiments, lab)
        outcomes, failures = _measure(experiments, lab, options)
        if options.json is not None:
            documents = [outcome.document() for outcome in outcomes]
            text = json.dumps(documents, indent=1, ensure_ascii=False) + "\n"
            arguments.write_output(options.json, text, options.force)
        if options.html is not None:
            from pagewalk.output import write_text
            from pagewalk.reproduce.page import render

            write_text(options.html, render(outcomes, failures), options.force)
        if options.json != "-" and len(experiments) > 1:
            say(scoreboard.summary(outcomes, failures))
        return 1 if failures else 0


def _stale(experiments: "list[Experiment]", lab: "Lab") -> int:
    """Prints the experiments whose saved numbers are out of date, each with the reason."""
    from pagewalk.reproduce.outcome import stale

    found = False
    for experiment in experiments:
        why = stale(experiment, lab)
        found |= bool(why)
        if why:
            say(f"{experiment.name}: {why}")
    if not found:
        say("All saved numbers are up to date.")
    return 0


def _measure(
    experiments: "list[Experiment]", lab: "Lab", options: argparse.Namespace
) -> "tuple[list[Outcome], dict[str, str]]":
    """The outcomes, and the errors of experiments that failed.

    A failure does not stop other experiments.
    """
    from pagewalk.reproduce import history, reproduce, saved, scoreboard

    if options.save:
        for experiment in experiments:
            history.check_saving(experiment)
    outcomes, failures = [], {}
    for number, experiment in enumerate(experiments, 1):
        if len(experiments) > 1 and sys.stderr.isatty():
            say(f"[{number}/{len(experiments)}] {experiment.name}", sys.stderr)
        try:
            lab.cache.mkdir(parents=True, exist_ok=True)
            outcome = reproduce(experiment, lab, options.smoke)
        except Error as error:
            if isinstance(error, WorkError) and str(error) == "interrupted":
                raise
            if len(experiments) == 1:
                raise
            failures[experiment.name] = str(error)
            say(f"pagewalk: {experiment.name}: {error}", sys.stderr)
            continue
        except OSError as error:
            raise WorkError(
                f"{error.filename or lab.cache}: {error.strerror or error}; traces and runs are "
                f"kept in {lab.cache}, and --cache names another folder"
            ) from error
        outcomes.append(outcome)
        if shows_text(options):
            say(scoreboard.outcome(outcome) + "\n")
        if options.save:
            text = saved(outcome, reproduce(experiment, lab, smoke=True))
            arguments.write_output(str(experiment.folder / "last.json"), text, True)
    return outcomes, failures
