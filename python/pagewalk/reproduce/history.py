r"""The origin of saved numbers: their commit, their sources, and whether they are up to date.

```
 commit A   bands, from the paper        experiment.toml
    |
 commit B   measured here                last.json: commit B, digests of sources, of a smoke run
    |
 commit C   last.json is committed       A is before B: the bands were not made for the numbers
```

Saved numbers are *stale*, that is, out of date, if two conditions hold. The sources that the
experiment uses have changed; and its smoke run gives another result than when the numbers were
saved.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pagewalk._native import Error
from pagewalk.reproduce.experiment import Experiment, parse_toml, read_toml

BENCH: tuple[str, ...] = ("addr", "pagetable", "physmem", "hat", "vm", "mmu", "description",
                          "ram", "hardware", "machine", "python")  # fmt: skip
"""The crates that are used by operations on a page table alone."""
LAYER = ("addr", "pagetable", "physmem", "hat", "vm", "smp", "python")
"""The crates that are used by loads on memory management, and by clients in small spaces."""
RUN = (*BENCH, "trace", "results", "os", "managers", "run")
"""The crates that are used by a run of a generated trace."""
RECORD = (*RUN, "ring", "recorder", "capture")
"""The crates that are used by a run of a recorded trace."""


def git(folder: Path, *arguments: str) -> str | None:
    """The output of `git` in `folder`. `None` if git fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit(experiment: Experiment) -> str | None:
    """The commit that is checked out, if the experiment is in a git clone."""
    return git(experiment.folder, "rev-parse", "HEAD")


def check_saving(experiment: Experiment) -> None:
    """Checks that numbers that are measured now may be saved. Their bands must be committed.

    Raises:
        Error: The bands are not committed, or there is no commit.
    """
    if commit(experiment) is None:
        raise Error(
            f"{experiment.name} is not in a git clone, so that no commit can be saved with its "
            "numbers: leave --save out"
        )
    if git(experiment.folder, "status", "--porcelain", "--", "experiment.toml"):
        raise Error(
            f"{experiment.folder / 'experiment.toml'} is not committed: commit it before "
            "the numbers are measured, then run with --save"
        )


def complaint(experiment: Experiment) -> str:
    """Why the saved numbers do not count, or "". Each band must be older than the numbers."""
    last = experiment.last()
    if last is None:
        return "not measured yet"
    measured = last["measured_on"].get("commit")
    if measured is None:
        return "saved without its commit: measure again"
    if git(experiment.folder, "merge-base", "--is-ancestor", measured, "HEAD") is None:
        return f"measured at {measured[:12]}, which is not among the commits before this one"
    then = as_measured(experiment, measured)
    if then is None:
        return f"measured at {measured[:12]}, which does not have this experiment"
    bands = [claim.stated() for claim in then.claims]
    for claim in experiment.claims:
        if claim.stated() not in bands:
            return f"the band of `{claim.says}` is not from before our number: measure again"
    return ""


def as_measured(experiment: Experiment, measured: str) -> Experiment | None:
    """The experiment as its file in the commit `measured` describes it, if there is such a file."""
    path = f"{measured}:./experiment.toml"
    stated = git(experiment.folder, "show", path)
    if stated is None:
        return None
    return Experiment.of(parse_toml(stated, path), experiment.folder)


def as_labelled(experiment: Experiment) -> Experiment | None:
    """The experiment as its file was when `last.json` was last written, if that was committed."""
    written = git(experiment.folder, "log", "-1", "--format=%H", "--", "last.json")
    return as_measured(experiment, written) if written else None


def sources(experiment: Experiment) -> dict[str, str]:
    """A digest of each part of the sources that the experiment uses."""
    top = experiment.folder.parents[2]
    crates = dict.fromkeys(name for each in _made_of(experiment) for name in _crates(each))
    parts = {f"crates/{name}": sorted((top / "crates" / name).glob("src/**/*.rs"))
             for name in crates}  # fmt: skip
    parts["python/pagewalk/reproduce"] = sorted((top / "python/pagewalk/reproduce").rglob("*.py"))
    return {name: _digest(path.read_bytes() for path in paths) for name, paths in parts.items()}


def definition(experiment: Experiment, smoke: bool = False) -> str:
    """A digest of what is measured: the parameters, and everything that they name."""
    top = experiment.folder.parents[2]
    folder = top / "experiments"
    parameters = experiment.smoke if smoke else experiment.parameters
    named = _named(parameters)
    known = {**read_toml(folder / "programs.toml"), **read_toml(folder / "designs.toml")}
    parts: list[Any] = [experiment.method, experiment.placements, parameters]
    for name in sorted(named & set(known)):
        entry = known[name]
        parts.append([name, entry])
        if "source" in entry:
            parts.append(_digest([(top / "workloads" / entry["source"]).read_bytes()]))
    for name in sorted(named):
        for path in (folder / name, top / "machines" / f"{name}.toml"):
            if path.suffix == ".toml" and path.is_file():
                parts.append(_digest([path.read_bytes()]))
    parts += [definition(each, smoke) for each in _made_of(experiment)[1:]]
    return _digest([json.dumps(parts, sort_keys=True).encode()])


def _made_of(experiment: Experiment) -> list[Experiment]:
    """The experiment itself, and then the experiments whose numbers it summarises."""
    rows = experiment.parameters["rows"].values() if experiment.method == "order" else ()
    folder = experiment.folder.parents[1]
    return [experiment, *(Experiment.load(folder / row["experiment"]) for row in rows)]


def _crates(experiment: Experiment) -> tuple[str, ...]:
    named = _named(experiment.parameters)
    if named & set(read_toml(experiment.folder.parents[1] / "programs.toml")):
        return RECORD
    if any(name.startswith("generate:") for name in named):
        return RUN
    return LAYER if experiment.method in ("hat", "clients") else BENCH


def _named(parameters: Any) -> set[str]:
    """The names that the parameters contain.

    For `fastcgi@20`, the name of the program without the value.
    """
    return {name for text in _texts(parameters) for name in (text, text.partition("@")[0])}


def changed(experiment: Experiment) -> list[str]:
    """The sources that have changed since the numbers were saved."""
    last = experiment.last()
    then = last["measured_on"].get("sources", {}) if last else {}
    now = sources(experiment)
    return [name for name in now if now[name] != then.get(name)]


def _texts(value: Any) -> Iterator[str]:
    """All texts in nested parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _texts(part)


def _digest(contents: Any) -> str:
    whole = hashlib.sha256()
    for part in contents:
        whole.update(part)
    return whole.hexdigest()[:16]
