"""`Outcome`: what reproducing an experiment gave, beside what the paper has."""

import datetime
import importlib
import platform
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from pagewalk import _native
from pagewalk._native import Error
from pagewalk.reproduce.claims import Verdict
from pagewalk.reproduce.experiment import Experiment
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table


@dataclass
class Outcome:
    """Our numbers and what they say of the paper's claims.

    Attributes:
        experiment: What was reproduced.
        table: Our numbers.
        verdicts: What became of each claim; none where sizes were small.
        smoke: Whether sizes were small, so that the numbers mean nothing.
        used: The programs and traces behind the numbers: a name, and version and length.
    """

    experiment: Experiment
    table: Table
    verdicts: list[Verdict]
    smoke: bool = False
    used: dict[str, str] = field(default_factory=dict)

    @property
    def reached(self) -> int:
        """How many claims are reached."""
        return sum(verdict.reached is True for verdict in self.verdicts)

    def document(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        published = self.experiment.published
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "source": self.experiment.source,
            "notes": self.experiment.notes,
            "smoke": self.smoke,
            "measured_on": {
                "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
                "pagewalk": _native.version(),
                "processor": _processor(),
                "used": self.used,
            },
            "ours": self.table.document(),
            "published": published.document() if published else None,
            "claims": [verdict.document() for verdict in self.verdicts],
        }


def reproduce(experiment: Experiment, lab: Lab, smoke: bool = False) -> Outcome:
    """Measures `experiment`.

    Args:
        experiment: What to measure.
        lab: Where traces and runs come from.
        smoke: With small sizes: to see that it works, not to learn anything.

    Raises:
        Error: It cannot be measured here: the message says what is missing.
        WorkError: Measuring failed.
    """
    parameters = {**experiment.parameters, **(experiment.smoke if smoke else {})}
    lab.used.clear()
    table: Table = _method(experiment).measure(parameters, lab)
    table.unit = table.unit or experiment.unit
    verdicts = [] if smoke else [claim.judge(table) for claim in experiment.claims]
    return Outcome(experiment, table, verdicts, smoke, dict(lab.used))


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
