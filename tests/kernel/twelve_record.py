"""The record of `twelve.py`: what all its pieces came to, how that is judged, and its tables."""

import datetime
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import kept  # noqa: E402

sys.path.remove(str(ROOT / "tests"))

KEPT = ROOT / "experiments/host/placing.json"
"""The record that the tree has."""
PAGE = ROOT / "docs/method/placing.md"
"""The page that shows its tables, between lines such as `<!-- gains -->` and `<!-- /gains -->`."""
VALUES = ("always", "madvise", "never")
NEAR = 0.05
"""How far from the gain a best estimate may be, as a share of the time."""
WIDTH_MAX = 0.10
"""How wide a prediction may be."""
GAINS = 0.05
"""What a program gains that has to be among the twelve."""
_OF_A_PIECE = ("said", "took_seconds", "commit", "small")


def of(results: Path, order: Sequence[str]) -> dict[str, Any]:
    """The pieces that are done, of programs in this order, as one record."""
    gains, agreed, own = (_done(results, part) for part in ("gain", "agree", "self"))
    predicted = _done(results, "predict")
    pieces = [{**predicted[name], **gains[name]} for name in order if name in gains]
    rows = [_gained(row) for row in pieces]
    kills, here = results / "kills.json", results / "calibrate.json"
    return {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": kept.commit(),
        "machine": kept.machine(),
        "command": "python tests/kernel/twelve.py FOLDER",
        "is_small": any(row["small"] for row in (*gains.values(), *agreed.values())),
        "gains": rows,
        "judged": judged(rows),
        "agree": [
            _plain(row)
            for name in order
            for value in VALUES
            if (row := agreed.get(f"{name}-{value}")) is not None
        ],
        "buffers": [_plain(row) for row in _done(results, "buffers").values()],
        "cost": [_plain(row) for row in _done(results, "cost").values()],
        "itself": {
            "comparisons": sum(row["comparisons"] for row in own.values()),
            "excluded": sum(row["excluded"] for row in own.values()),
        },
        "kills": json.loads(kills.read_text())["said"] if kills.exists() else None,
        "machine_file": json.loads(here.read_text())["file"] if here.exists() else None,
    }


def _done(results: Path, part: str) -> dict[str, dict[str, Any]]:
    """The pieces of a part, by the rest of their names."""
    files = sorted(results.glob(f"{part}-*.json"))
    return {file.stem.removeprefix(f"{part}-"): json.loads(file.read_text()) for file in files}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in row if key not in _OF_A_PIECE}


def _gained(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table of gains."""
    predicted, gained = row["predicted"], row["placed"]["gain"]
    by_knob = row["always"]["gain"]["cpu_seconds"]["share"]
    return {
        "program": row["program"],
        "cpu_seconds": row["placed"]["without"]["cpu_seconds"],
        "of": predicted["time"],
        "predicted": [predicted["lo"], predicted["hi"]],
        "best": predicted["best"],
        "by": row["by"],
        "gained": [gained[predicted["time"]]["share"][end] for end in _ENDS],
        "gained_of_user": [gained["user_seconds"]["share"][end] for end in _ENDS],
        "rounds": row["placed"]["rounds"],
        "by_always": [by_knob[end] for end in _ENDS],
        "advise_cpu_seconds": row["advise"]["cpu_seconds"],
        "run_cpu_seconds": row["run"]["cpu_seconds"],
        "passes": row["passes"],
        "load": row["load"],
    }


def judged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of how many programs predictions hold."""
    inside = [row["predicted"][0] <= row["gained"][1] <= row["predicted"][1] for row in rows]
    return {
        "programs": len(rows),
        "narrow": sum(row["predicted"][1] - row["predicted"][0] <= WIDTH_MAX for row in rows),
        "inside": sum(inside),
        "near": sum(abs(row["best"] - row["gained"][1]) <= NEAR for row in rows),
        "outside": [row["program"] for row, is_in in zip(rows, inside, strict=True) if not is_in],
        "gain_by_always": [row["program"] for row in rows if row["by_always"][1] >= GAINS],
    }


def tables(found: Mapping[str, Any]) -> dict[str, str]:
    """The tables of the page, by name."""
    gains = [
        [
            row["program"], f"{row['cpu_seconds']:.2f} s", _range(row["predicted"]),
            _percent(row["best"]), _interval(row["gained"]), _interval(row["gained_of_user"]),
            _interval(row["by_always"]),
        ]
        for row in found["gains"]
    ]  # fmt: skip
    agreed = []
    for name in dict.fromkeys(row["program"] for row in found["agree"]):
        of_ = {row["enabled"]: row for row in found["agree"] if row["program"] == name}
        differ = sum(len(row["differ"]) for row in of_.values())
        why = of_.get("madvise", {}).get("why", {})
        agreed.append(
            [
                name,
                *(_mib(of_.get(value)) for value in VALUES),
                f"{sum(row['regions'] for row in of_.values())}, {differ}",
                ", ".join(f"`{key}` {size / 2**20:.1f}" for key, size in sorted(why.items())),
            ]
        )
    cost = [
        [
            f"{row['kilobytes']} KiB", f"{row['least']['without']:.3f} s",
            f"{row['least']['placed']:.3f} s", _interval([row["cost"][end] for end in _ENDS]),
        ]
        for row in sorted(found["cost"], key=lambda row: row["kilobytes"])
    ]  # fmt: skip
    return {
        "gains": kept.table(
            ("program", "CPU time", "predicted", "best estimate", "gained",
             "gained of the time in user mode", "gained by `enabled=always`"), gains,
        ),
        "agree": kept.table(
            ("program", *(f"`{value}`" for value in VALUES), "regions compared, and that differ",
             "why not more, under `madvise`"), agreed,
        ),
        "cost": kept.table(
            ("10,000 mappings of", "fastest run alone", "fastest run under `place`",
             "cost in per cent of CPU time"), cost,
        ),
    }  # fmt: skip


_ENDS = ("lo", "median", "hi")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _range(ends: Sequence[float]) -> str:
    return f"{_percent(ends[0])} to {_percent(ends[1])}"


def _interval(ends: Sequence[float]) -> str:
    return f"{_percent(ends[1])} ({_range((ends[0], ends[2]))})"


def _mib(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['got_bytes'] / 2**20:.0f} of {row['wanted_bytes'] / 2**20:.0f}"


def told(found: Mapping[str, Any]) -> str:
    """How the record is judged, in some lines."""
    of_, own = found["judged"], found["itself"]
    regions = sum(row["regions"] for row in found["agree"])
    differ = sum(len(row["differ"]) for row in found["agree"])
    otherwise = [row for row in found["agree"] if not row["ends_alike"]]
    ends = [f"{row['program']} ({row['enabled']})" for row in otherwise]
    lines = [
        f"{of_['programs']} programs: {of_['narrow']} ranges of at most 10 points, {of_['inside']} "
        f"gains inside, {of_['near']} best estimates within 5 points",
        f"outside: {', '.join(of_['outside']) or 'none'}",
        f"gain 5 % by the knob alone: {', '.join(of_['gain_by_always']) or 'none'}",
        f"{regions} regions beside smaps, {differ} differ; ended otherwise: "
        f"{', '.join(ends) or 'none'}",
        f"{own['excluded']} of {own['comparisons']} comparisons with itself exclude zero",
        f"kills: {found['kills']}",
    ]
    for row in found["buffers"]:
        lines.append(
            f"advice for {row['buffers']} buffers: {row['advise']['wall_seconds']:.1f} s, "
            f"{row['ratio']:.2f} times a run"
        )
    ratios = [row["advise_cpu_seconds"] / row["run_cpu_seconds"] for row in found["gains"]]
    if ratios:
        lines.append(f"advise / run, CPU time: median {median(ratios):.2f}, most {max(ratios):.2f}")
    return "\n".join(lines)


def write(found: Mapping[str, Any]) -> None:
    """Keeps the record in the tree, and its tables in the page."""
    KEPT.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(shown(PAGE.read_text(), found))


def shown(page: str, found: Mapping[str, Any]) -> str:
    """The page with the tables of a record."""
    return kept.shown(page, tables(found))
