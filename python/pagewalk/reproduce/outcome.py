"""`Outcome`: the result of reproducing an experiment, with the paper's numbers."""

import datetime
import hashlib
import importlib
import json
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from pagewalk import _native
from pagewalk._native import Error
from pagewalk.reproduce import history
from pagewalk.reproduce.cells import Agreement, compare
from pagewalk.reproduce.claims import Verdict
from pagewalk.reproduce.experiment import Experiment
from pagewalk.reproduce.lab import Lab, cpu_seconds
from pagewalk.reproduce.table import Table, over


@dataclass
class Outcome:
    """Our numbers, and the verdicts on the paper's claims, for one experiment.

    Attributes:
        experiment: The experiment that was reproduced.
        tables: Our numbers: a table for each placement.
        verdicts: The verdict on each claim. Empty after a smoke run.
        smoke: Whether this was a smoke run, so that the numbers mean nothing.
        used: The programs and traces behind the numbers: versions and lengths by name.
        inputs: The digest of each of these traces.
        seconds: CPU seconds of the whole experiment with an empty cache.
    """

    experiment: Experiment
    tables: list[Table]
    verdicts: list[Verdict]
    smoke: bool = False
    used: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def table(self) -> Table:
        """Our numbers. For several placements, the median of each."""
        return over(self.tables)

    @property
    def agreement(self) -> Agreement | None:
        """How well our table agrees with the paper's table, if the paper has one."""
        experiment = self.experiment
        if experiment.published is None or self.smoke:
            return None
        return compare(experiment.published, self.table, experiment.aggregates)

    def digest(self) -> str:
        """A digest of the numbers, except times on the host, and of the programs behind them."""
        timed = self.experiment.parameters.get("timed", [])
        tables = [table.document() for table in self.tables]
        for table in tables:
            for name in timed:
                table["rows"].pop(name, None)
        text = json.dumps([tables, self.used], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def document(self) -> dict[str, Any]:
        """The outcome as plain data, for JSON."""
        experiment, agreement = self.experiment, self.agreement
        published = experiment.published
        document = {
            "name": experiment.name,
            "title": experiment.title,
            "source": experiment.source,
            "notes": experiment.notes,
            "smoke": self.smoke,
            "measured_on": {
                "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
                "pagewalk": _native.version(),
                "processor": _processor(),
                "commit": history.commit(experiment),
                "cpu_seconds": round(self.seconds, 1),
                "used": self.used,
                "inputs": self.inputs,
            },
            "ours": self.table.document(),
            "published": published.document() if published else None,
            "cells": agreement.document() if agreement else None,
            "claims": [verdict.document() for verdict in self.verdicts],
        }
        if len(self.tables) > 1:
            document["least"] = over(self.tables, min).document()["rows"]
            document["most"] = over(self.tables, max).document()["rows"]
        return document


def reproduce(experiment: Experiment, lab: Lab, smoke: bool = False) -> Outcome:
    """Measures `experiment`, with each of its placements. A smoke run measures only one.

    Args:
        experiment: What to measure.
        lab: Makes the traces and the runs.
        smoke: Whether to run with tiny sizes, which only shows that the experiment works.

    Raises:
        Error: The experiment cannot be measured here; the message says what is missing.
        WorkError: Measuring failed.
    """
    parameters = {**experiment.parameters, **(experiment.smoke if smoke else {})}
    lab.clear()
    began = cpu_seconds()
    placements: Sequence[int | None] = range(1, experiment.placements + 1) or [None]
    tables: list[Table] = []
    for placement in placements[:1] if smoke else placements:
        lab.placement = placement
        tables.append(measure(experiment, parameters, lab))
    for table in tables:
        table.unit = table.unit or experiment.unit
    seconds = cpu_seconds() - began + lab.kept_seconds
    verdicts = [] if smoke else [claim.judge(tables) for claim in experiment.claims]
    return Outcome(experiment, tables, verdicts, smoke, dict(lab.used), dict(lab.inputs), seconds)


def measure(experiment: Experiment, parameters: dict[str, Any], lab: Lab) -> Table:
    """The table that the experiment's method computes from `parameters`.

    Raises:
        Error: As for `reproduce`.
        WorkError: As for `reproduce`.
    """
    table: Table = _method(experiment).measure(parameters, lab)
    return table


def saved(outcome: Outcome, small: Outcome) -> str:
    """The text of `last.json` for `outcome`. `small` is a smoke run by the same build."""
    document = outcome.document()
    experiment = outcome.experiment
    document["measured_on"]["definition"] = history.definition(experiment)
    document["measured_on"]["sources"] = history.sources(experiment)
    document["measured_on"]["smoke"] = small.digest()
    return _text(document)


def relabelled(experiment: Experiment) -> str:
    """The text of `last.json` with the current words and kinds of the claims.

    A claim keeps the verdict of the claim that was checked in the same way when the numbers were
    measured. Numbers, their commit and their CPU seconds stay as they are.

    Raises:
        Error: There are no saved numbers, or the check of a claim has changed since they were
            measured.
    """
    last = experiment.last()
    complaint = history.complaint(experiment)
    then = history.as_measured(experiment, last["measured_on"]["commit"]) if last else None
    if last is None or then is None or complaint:
        raise Error(f"{experiment.name}: {complaint}")
    labelled = history.as_labelled(experiment)
    saved = {claim["says"]: claim for claim in last["claims"]}
    verdicts = []
    before = [*then.claims, *(labelled.claims if labelled else [])]
    for claim in experiment.claims:
        # The words that the claim had when it was measured, or the words that it got since then.
        words = [each.says for each in before if each.stated() == claim.stated()]
        known = [saved[says] for says in (*words, claim.says) if says in saved]
        if not known:
            raise Error(f"{experiment.name}: no verdict is saved for `{claim.says}`: measure again")
        verdicts.append(claim.relabelled(known[0]).document())
    named = {"title": experiment.title, "source": experiment.source, "notes": experiment.notes}
    return _text({**last, **named, "claims": verdicts})


def stale(experiment: Experiment, lab: Lab) -> str:
    """Why the saved numbers must be measured again, or ""."""
    complaint = history.complaint(experiment)
    if complaint:
        return complaint
    last = experiment.last()
    measured = last["measured_on"] if last else {}
    if measured.get("definition") != history.definition(experiment):
        return "its parameters, or a program, machine or experiment that it names, have changed"
    changed = history.changed(experiment)
    if not changed or reproduce(experiment, lab, smoke=True).digest() == measured.get("smoke"):
        return ""
    return f"{', '.join(changed)} changed, and a smoke run gives other numbers"


def _text(document: dict[str, Any]) -> str:
    text = json.dumps(document, indent=1, ensure_ascii=False)
    # Each row of numbers is in one line.
    return re.sub(r"\[\s+([^\[\]{}\"]*?)\s+\]", _in_a_line, text) + "\n"


def _in_a_line(found: "re.Match[str]") -> str:
    return "[" + " ".join(found.group(1).split()) + "]"


def _method(experiment: Experiment) -> ModuleType:
    name = f"pagewalk.reproduce.methods.{experiment.method}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        path = experiment.folder / "experiment.toml"
        raise Error(f"{path}: there is no method `{experiment.method}`") from None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
