"""Which space runs after which: pairs, groups, and a graph (U02 section 5.2, figures 9, 10).

The graph's nodes are spaces, on a circle. An arrow leads from a space to the one that runs next,
and its width is the logarithm of the number of these switches.
"""

import json
import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from pagewalk import _native, text

if TYPE_CHECKING:
    from pagewalk.progress import Progress
    from pagewalk.trace import Trace

SLOTS = 8
"""Slots of 256M in U02's largest area."""
EVERYONE = 500
"""A space that communicates with at least this many thousandths of all other spaces is in every
group.
"""
SHOWN = 16
NODES_MAX = 40
_SIZE = 640


def switches(
    trace: "Trace", slots: int = SLOTS, progress: "Progress | None" = None
) -> dict[str, Any]:
    """Reads a trace and counts, for each pair of spaces, how often one runs after the other.

    Args:
        trace: The trace. Accesses of a kernel in it are ignored.
        slots: The number of small spaces for which a group has room.
        progress: Called about ten times per second.

    Returns:
        `switches`, the number of all switches; `pairs` of spaces with the number of switches,
        `[from, to, count]`; `accesses` of each space; `names` of spaces; `groups` of spaces that
        communicate with each other, and the spaces in all groups (`everywhere`), both in the format
        of `os.small`.

    Raises:
        WorkError: The file is damaged.
    """
    found = _native.trace_switches(trace.source, trace.reading, slots, EVERYONE, progress)
    document: dict[str, Any] = json.loads(found)
    return document


def summary(document: dict[str, Any]) -> str:
    """The document as text: the pairs with the most switches, and the groups as settings."""
    names, total = document["names"], max(document["switches"], 1)
    pairs = sorted(document["pairs"], key=lambda pair: -pair[2])
    rows = [
        (names[str(one)], names[str(other)], text.count(count), text.percent(count / total))
        for one, other, count in pairs[:SHOWN]
    ]
    if not rows:
        return "Switches: none, the trace has one space"
    parts = [text.table(("Switches from", "to", "count", "share"), rows)]
    if len(pairs) > SHOWN:
        parts.append(f"  … and {text.plural(len(pairs) - SHOWN, 'pair')} more")
    groups = [[str(space) for space in group] for group in document["groups"] if len(group) > 1]
    everywhere = [str(space) for space in document["everywhere"]]
    if groups or everywhere:
        parts.append("Groups, as --set takes them")
    if groups:
        parts.append(text.paragraph(f"os.small.groups={json.dumps(groups)}", "  "))
    if everywhere:
        parts.append(text.paragraph(f"os.small.everywhere={json.dumps(everywhere)}", "  "))
    return "\n".join(parts)


def warnings(info: Mapping[str, Any]) -> list[str]:
    """Warnings about the order in which `Trace.info` counted the switches."""
    is_blocking = any("in the order `blocking`" in note for note in info["header"]["notes"])
    if not is_blocking or info["events"].get("call"):
        return []
    return [
        "the recording has no calls, so that programs take turns by quantum alone, as if none "
        "waited for another: record it with --calls, or read it as mix:order=stamps,FILE"
    ]


def graph(document: dict[str, Any], title: str) -> str:
    """The graph as SVG. If there are many spaces, it shows only those with the most switches."""
    counts: dict[int, int] = {}
    for one, other, count in document["pairs"]:
        counts[one] = counts.get(one, 0) + count
        counts[other] = counts.get(other, 0) + count
    shown = sorted(sorted(counts, key=lambda space: -counts[space])[:NODES_MAX])
    middle, radius = _SIZE / 2, _SIZE / 2 - 110
    places = {}
    for index, space in enumerate(shown):
        angle = 2 * math.pi * index / max(len(shown), 1) - math.pi / 2
        places[space] = (middle + radius * math.cos(angle), middle + radius * math.sin(angle))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" '
        'markerHeight="6" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0L6 3L0 6z" fill="#4269d0"/></marker></defs>',
    ]
    for one, other, count in sorted(document["pairs"], key=lambda pair: pair[2]):
        if one in places and other in places:
            parts.append(_arrow(places[one], places[other], count))
    for space, (x, y) in places.items():
        everywhere = space in document["everywhere"]
        fill = "#efb118" if everywhere else "#fff"
        anchor = "middle" if abs(x - middle) < 20 else "start" if x > middle else "end"
        shift_x = 0 if anchor == "middle" else 14 if anchor == "start" else -14
        shift_y = 4 if anchor != "middle" else 26 if y > middle else -16
        name = escape(document["names"][str(space)])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="{fill}" stroke="#333"/>')
        at = f'x="{x + shift_x:.1f}" y="{y + shift_y:.1f}"'
        parts.append(f'<text {at} text-anchor="{anchor}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _arrow(one: tuple[float, float], other: tuple[float, float], count: int) -> str:
    """A curved arrow between the edges of two nodes."""
    (x1, y1), (x2, y2) = one, other
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    (along_x, along_y) = ((x2 - x1) / length, (y2 - y1) / length)
    bend_x = (x1 + x2) / 2 - along_y * length * 0.12
    bend_y = (y1 + y2) / 2 + along_x * length * 0.12
    start = (x1 + along_x * 10, y1 + along_y * 10)
    end = (x2 - along_x * 12, y2 - along_y * 12)
    width = 0.6 + 0.6 * math.log2(1 + count) / 2
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{bend_x:.1f} {bend_y:.1f} {end[0]:.1f} {end[1]:.1f}"
    return (
        f'<path d="{path}" fill="none" stroke="#4269d0" stroke-opacity="0.75" '
        f'stroke-width="{width:.2f}" marker-end="url(#tip)"><title>{count}</title></path>'
    )
