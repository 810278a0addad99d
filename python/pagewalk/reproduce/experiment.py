"""Experiments as their files describe them.

```
experiments/
  programs.toml  designs.toml       shared by all
  B10/fig4.14/experiment.toml       parameters, published numbers, claims
  B10/fig4.14/last.json             our last numbers, and what they were measured on
```
"""

import difflib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagewalk._native import Error
from pagewalk.reproduce.claims import Claim
from pagewalk.reproduce.table import Table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KEYS = {
    "title", "source", "method", "unit", "notes", "placements", "parameters", "smoke",
    "published", "plot", "claim",
}  # fmt: skip


def root(folder: str | Path | None = None) -> Path:
    """The folder of the experiments.

    It is `folder`, or the folder of the source tree, or that of the package.

    Raises:
        Error: The folder was not found.
    """
    if folder is not None:
        found = Path(folder)
        if not (found / "programs.toml").is_file():
            raise Error(f"{found} has no programs.toml: give the folder `experiments` of Pagewalk")
        return found
    package = Path(__file__).resolve().parents[1]
    for above in [package.parents[1], package / "data", Path.cwd()]:
        if (above / "experiments" / "programs.toml").is_file():
            return above / "experiments"
    raise Error(
        "the experiments are neither in this package nor here: name the folder `experiments` of "
        "Pagewalk's source tree with --experiments"
    )


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper.

    Attributes:
        name: Its name, such as `B10/fig4.14`.
        folder: The folder of its files.
        title: What is measured.
        source: Its place in the paper.
        method: The method of measurement: a module of `pagewalk.reproduce.methods`.
        unit: The unit of our numbers.
        notes: Differences from the paper's setting.
        placements: The number of placements of frames, or of sequences of addresses, with which it
            is measured. A claim is reached if it is reached with each of them.
        parameters: The parameters of the method.
        smoke: The parameters of a smoke run, which replace these parameters.
        published: The numbers that the paper prints, if it prints any.
        aggregates: Rows of `published` that are averages of its other rows.
        plot: How the experiment is drawn: `kind` (`lines` over the columns, or `bars`), `x`, `y`,
            `log`, `rows`, `columns`. If it is empty, only the table is shown.
        claims: The claims of the paper.
    """

    name: str
    folder: Path
    title: str
    source: str
    method: str
    unit: str
    notes: str
    placements: int
    parameters: dict[str, Any]
    smoke: dict[str, Any]
    published: Table | None
    aggregates: list[str]
    plot: dict[str, Any]
    claims: list[Claim]

    @classmethod
    def load(cls, folder: Path) -> "Experiment":
        """Reads `folder/experiment.toml`.

        Raises:
            Error: The file describes no experiment; the message says what is wrong.
        """
        return cls.of(read_toml(folder / "experiment.toml"), folder)

    @classmethod
    def of(cls, data: dict[str, Any], folder: Path) -> "Experiment":
        """The experiment in `folder` whose file has `data`, now or at another commit.

        Raises:
            Error: The file describes no experiment; the message says what is wrong.
        """
        path = folder / "experiment.toml"
        name = f"{folder.parent.name}/{folder.name}"
        if unknown := set(data) - KEYS:
            raise Error(f"{path}: unknown key {', '.join(sorted(unknown))}: remove it")
        for key in ("title", "source", "method"):
            if not isinstance(data.get(key), str):
                raise Error(f"{path}: `{key}` is missing")
        published = data.get("published")
        return cls(
            name=name,
            folder=folder,
            title=data["title"],
            source=data["source"],
            method=data["method"],
            unit=data.get("unit", ""),
            notes=" ".join(data.get("notes", "").split()),
            placements=int(data.get("placements", 0)),
            parameters=data.get("parameters", {}),
            smoke=data.get("smoke", {}),
            published=_published(published, path) if published else None,
            aggregates=list((published or {}).get("aggregates", [])),
            plot=data.get("plot", {}),
            claims=[Claim(stated, str(path)) for stated in data.get("claim", [])],
        )

    def last(self) -> dict[str, Any] | None:
        """Our last numbers, as `Outcome.document` has written them. `None` if there are none."""
        path = self.folder / "last.json"
        if not path.is_file():
            return None
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document


def find(folder: Path, names: Sequence[str] = ()) -> list[Experiment]:
    """The experiments in `folder` with these names or of these papers. If none is named, all.

    Raises:
        Error: There is no experiment of a given name.
    """
    folders = sorted((path.parent for path in folder.glob("*/*/experiment.toml")), key=_order)
    known = [f"{each.parent.name}/{each.name}" for each in folders]
    for name in names:
        if name not in known and not any(one.startswith(f"{name}/") for one in known):
            near = difflib.get_close_matches(name, known, 3)
            guess = f"; did you mean {' or '.join(near)}?" if near else ""
            raise Error(
                f"there is no experiment `{name}`; `pagewalk reproduce --list` names all{guess}"
            )
    return [
        Experiment.load(each)
        for each, name in zip(folders, known, strict=True)
        if not names or any(name == wanted or name.startswith(f"{wanted}/") for wanted in names)
    ]


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file.

    Raises:
        Error: The file cannot be read or is no TOML.
    """
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror}") from error


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The TOML document `text`, which comes from `where`.

    Raises:
        Error: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Error(f"{where}: {error}") from error


def _published(data: dict[str, Any], path: Path) -> Table:
    table = Table.of(data)
    for name, values in table.rows.items():
        if len(values) != len(table.columns):
            raise Error(
                f"{path}: published row `{name}` has {len(values)} numbers for "
                f"{len(table.columns)} columns"
            )
    return table


def _order(folder: Path) -> tuple[str, bool, list[float]]:
    """The order of experiments: by paper, then by number. So `fig9` comes before `fig10`."""
    digits = "".join(c if c.isdigit() or c == "." else " " for c in folder.name).strip(". ")
    numbers = [float(part) for part in digits.replace(".", " ").split()]
    return folder.parent.name, not folder.name.startswith("table"), numbers
