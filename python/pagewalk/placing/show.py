"""Documents of `verify` and `place` as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from pagewalk import predictions, text
from pagewalk.placing.pages import BASE
from pagewalk.placing.rules import Rule, shown

TOP = 20
"""The number of regions that the text shows."""
_SHOWN_MIN = 1 << 20
"""Regions with fewer bytes in memory are not shown, but only counted together."""


def summary(document: Mapping[str, Any], top: int = TOP) -> str:
    """The requested and actual page sizes of a process, and the reasons where they differ."""
    name = (document["command"] or ["a process"])[0].rpartition("/")[2]
    wanted, missing = document["wanted_bytes"], document["missing_bytes"]
    head = (
        f"{name} ({document['pid']}), {document['moment']}: "
        f"{text.size(document['resident_bytes'])} in memory, "
        f"{text.size(document['large_bytes'])} of it in large pages"
    )
    if wanted:
        got = wanted - missing
        head += f"; large pages were wanted for {text.size(wanted)}, and {text.size(got)} have them"
    parts = [text.paragraph(head + ".")]
    regions = document["regions"]
    shown = [one for one in regions if one["resident_bytes"] >= _SHOWN_MIN][:top]
    if shown:
        rows = [_row(one) for one in shown]
        parts.append(text.table(("Regions", "memory", "wanted", "large", "why not"), rows))
    left = [one for one in regions if one not in shown]
    if left:
        bytes_ = sum(one["resident_bytes"] for one in left)
        parts.append(
            f"  … and {text.plural(len(left), 'region')} more with {text.size(bytes_)} in all"
        )
    if not regions:
        parts.append(_nothing(document))
    parts += _reasons(regions)
    for rule in document["rules_unmet"]:
        parts.append(
            text.paragraph(
                f"Warning: {rule}: no memory is mapped that this rule applies to", "", "  "
            )
        )
    parts += [text.paragraph(f"Note: {note}", "", "  ") for note in document["notes"]]
    return "\n".join(parts)


def compared(document: Mapping[str, Any]) -> str:
    """The result of a comparison as text."""
    without, placed, gains = (document[key] for key in ("without", "placed", "gain"))
    name = document["command"][0].rpartition("/")[2]
    head = (
        f"{name} without and with the placement: {document['rounds']} rounds in "
        f"{document['seconds']:.3g} s; ended by: {document['ended']}."
    )
    rows = []
    for key, title in (
        ("cpu_seconds", "CPU time"),
        ("user_seconds", "in user mode"),
        ("system_seconds", "in the kernel"),
        ("wall_seconds", "wall time"),
    ):
        seconds, share = gains[key]["seconds"], gains[key]["share"]
        rows.append(
            (
                title,
                _ms(without[key]),
                _ms(placed[key]),
                _ms(seconds["median"]),
                f"{_ms(seconds['lo'])} to {_ms(seconds['hi'])}",
                f"{100 * share['median']:.1f} %",
                f"{100 * share['lo']:.1f} to {100 * share['hi']:.1f} %",
            )
        )
    sure = f"{100 * document['confidence']:.0f} % sure"
    table = text.table(("Time (ms)", "without", "with", "gained", sure, "share", f"{sure} "), rows)
    faults = [text.count(round(side["minor_faults"])) for side in (without, placed)]
    memory = [text.size(round(side["resident_bytes_max"])) for side in (without, placed)]
    lines = [
        f"page faults: {faults[0]} without, {faults[1]} with; peak memory: {memory[0]} and "
        f"{memory[1]}"
    ]
    if without["counts"]:
        walks = [sum(side["counts"].values()) for side in (without, placed)]
        lines.append(
            f"TLB misses counted: {text.count(round(walks[0]))} without, "
            f"{text.count(round(walks[1]))} with"
        )
    elif document["counters_missing"] is not None:
        lines.append(document["counters_missing"])
    lines.append(verdict(document))
    return "\n".join([text.paragraph(head), table, *(text.paragraph(one) for one in lines)])


def verdict(document: Mapping[str, Any]) -> str:
    """Whether there was a gain, and how it compares with the predicted gain."""
    share = document["gain"]["cpu_seconds"]["share"]
    gained = f"{100 * share['lo']:.1f} to {100 * share['hi']:.1f} %"
    if share["lo"] > 0:
        found = f"The placement gains {gained} of the CPU time."
    elif share["hi"] < 0:
        found = f"The placement costs {-100 * share['hi']:.1f} to {-100 * share['lo']:.1f} %."
    else:
        found = f"The placement shows no certain gain or cost: {gained} of the CPU time."
    predicted = document["predicted"]
    if predicted is None:
        return found
    measured = document["gain"][predicted["time"]]["share"]
    said = (
        f"Predicted for {predicted['machine']}: {100 * predicted['lo']:.1f} to "
        f"{100 * predicted['hi']:.1f} % of {predictions.TIMES[predicted['time']]}, best estimate "
        f"{100 * predicted['best']:.1f} %. Measured: {100 * measured['median']:.1f} % "
        f"({100 * measured['lo']:.1f} to {100 * measured['hi']:.1f} %), "
    )
    if measured["lo"] > predicted["hi"]:
        return f"{found} {said}more than predicted."
    if measured["hi"] < predicted["lo"]:
        return f"{found} {said}less than predicted."
    if predicted["lo"] <= measured["median"] <= predicted["hi"]:
        return f"{found} {said}as predicted."
    return f"{found} {said}outside of the prediction, but by too little to be certain."


def _ms(seconds: float) -> str:
    return text.ratio(1000 * seconds) if seconds >= 0 else f"-{text.ratio(-1000 * seconds)}"


def _nothing(document: Mapping[str, Any]) -> str:
    knob = next((f"{path} = {value}" for path, value in document["knobs"].items()), "no knob")
    return text.paragraph(
        f"Nothing asked for large pages, and the kernel gives none by itself ({knob}). Say what "
        "should have them: pagewalk verify heap=2M -p PID, or place it with pagewalk place.",
        "  ",
    )


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    why = ", ".join(f"{row['reason']} ({text.size(row['bytes'])})" for row in one["why"][:1])
    if len(one["why"]) > 1:
        why += ", …"
    large = {size: bytes_ for size, bytes_ in one["got"].items() if size != "4K"}
    got = ", ".join(
        text.size(bytes_) + ("" if [size] == one["wanted"] else f" in {size}")
        for size, bytes_ in large.items()
    )
    # A size that a rule requests is shown with its rule.
    wanted = ", ".join(one["wanted"])
    by = next((word for word in one["by"] if word in ("advice", "knob", "pool")), "rule")
    return (
        one["name"], text.size(one["resident_bytes"]), f"{wanted} by {by}" if wanted else "-",
        got or "-", why or "-",
    )  # fmt: skip


def _reasons(regions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each reason once, with the setting that decides and the command that changes it."""
    found: dict[str, dict[str, Any]] = {}
    for one in regions:
        for row in one["why"]:
            entry = found.setdefault(row["reason"], {"bytes": 0, "row": row, "most": 0})
            entry["bytes"] += row["bytes"]
            # If a reason has several forms, the one with the most bytes is shown.
            if row["bytes"] > entry["most"]:
                entry["row"], entry["most"] = row, row["bytes"]
    parts = ["Why not"] if found else []
    for reason, entry in sorted(found.items(), key=lambda item: -item[1]["bytes"]):
        row = entry["row"]
        parts.append(
            text.paragraph(f"{reason}, {text.size(entry['bytes'])}: {row['means']}.", "  ", "  ")
        )
        if row["knob"]:
            parts.append(f"    decided by: {row['knob']}")
        if row["change"]:
            parts.append(text.paragraph(f"to change it: {row['change']}", "    ", "  "))
    return parts


def placed(document: Mapping[str, Any]) -> list[str]:
    """A line for each rule of a program that was placed."""
    lines = []
    for rule in document["rules"]:
        size = rule["rule"].removesuffix(" fail").rpartition(" ")[2]
        line = f"{rule['rule']}: "
        if not rule["mappings"]:
            line += "no memory was mapped that this rule applies to"
        elif not document["is_counted"]:
            line += (
                f"{text.plural(rule['mappings'], 'mapping')} advised; this kernel has no "
                "PAGEMAP_SCAN (Linux 6.7) to count what came of it"
            )
        else:
            line += (
                f"{text.size(rule['large_bytes'])} of {text.size(rule['resident_bytes'])} in "
                f"pages of {size} ({text.plural(rule['mappings'], 'mapping')})"
            )
        if rule["by_length"]:
            line += "; found by its length, as the recording had another layout"
        if rule["failed"]:
            line += f"; {text.plural(rule['failed'], 'call')} failed: {rule['error']}"
        lines.append(line)
    return lines


def is_short(rule: Mapping[str, Any]) -> bool:
    """Whether a rule was not met.

    It matched no memory, a call failed, or 2M pages are missing where they fit.

    Bytes at the ends of a mapping, outside of its whole blocks, do not count if they are fewer than
    one large page has. No large page would fit there, wherever the mapping began.
    """
    is_large = not rule["rule"].removesuffix(" fail").endswith("4K")
    missing = is_large and rule["missing_bytes"] > 0
    return bool(not rule["mappings"] or rule["failed"] or missing)


def _missing(region: Mapping[str, Any], size: int) -> int:
    """The number of bytes of a region that could be in pages of `size`, but are in smaller ones."""
    by_place = {"smaller-than-page", "unaligned"}
    at_ends = sum(row["bytes"] for row in region["why"] if row["reason"] in by_place)
    all_: int = sum(row["bytes"] for row in region["why"])
    return all_ - (at_ends if at_ends < size else 0)


def by_rule(rules: Sequence[Rule], documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The outcome of each rule, computed from the regions of documents.

    It is used if no launcher has counted.
    """
    found = []
    for rule in rules:
        regions = [
            region
            for one in documents
            for region in one["regions"]
            if rule.title in region["by"]
            or (region["backing"] == "hugetlb" and region["wanted"] == [shown(rule.size)])
        ]
        found.append(
            {
                "rule": rule.title,
                "line": rule.line,
                "mappings": len(regions),
                "resident_bytes": sum(one["resident_bytes"] for one in regions),
                "large_bytes": sum(
                    bytes_
                    for one in regions
                    for size, bytes_ in one["got"].items()
                    if text.bytes_of(size) >= rule.size > BASE
                ),
                "missing_bytes": sum(_missing(one, rule.size) for one in regions),
                "failed": 0,
                "error": None,
                "by_length": False,
            }
        )
    return found


def collapsed(outcome: Mapping[str, Any]) -> list[str]:
    """A line for each rule of a process whose memory was collapsed."""
    lines = []
    for rule in outcome["rules"]:
        done = rule["blocks"] - rule["failed"]
        line = f"{rule['rule']}: {text.size(done << 21)} made large"
        if not rule["blocks"]:
            line = f"{rule['rule']}: no block of 2M had base pages in it"
        if rule["failed"]:
            line += f", {text.size(rule['failed'] << 21)} not: {rule['error']}"
        lines.append(line)
    return lines
