"""Flushes that a recorded kernel has left out: each use of a translation that should be gone."""

import json
from typing import TYPE_CHECKING, Any

from pagewalk import _native, text

if TYPE_CHECKING:
    from pagewalk.progress import Progress
    from pagewalk.trace import Trace

SHOWN = 20
"""The most uses that are shown as text."""


def check(
    trace: "Trace", leave_out: str | None = None, progress: "Progress | None" = None
) -> dict[str, Any]:
    """Checks the recording of a whole system.

    Args:
        trace: The recording, read as a whole.
        leave_out: Flushes that count as left out, to see the check report them: `invlpg:N`,
            `cr3:N`, `all:N` or `any:N` for every N-th one of a kind.
        progress: Called about ten times per second.

    Returns:
        The number of `uses` of translations whose flush is overdue, and the first 200 `reports`
        with processor, task, code, access, what is wrong, and the change before; counts of changes,
        flushes, and of what is `allowed` by which rule.

    Raises:
        Error: The trace is not the recording of a whole system with stores to its page tables.
    """
    said = _native.check_flushes(trace.source, trace.reading, leave_out, progress)
    result: dict[str, Any] = json.loads(said)
    return result


def lines(found: dict[str, Any]) -> list[str]:
    """The result as lines of text."""
    flushes, allowed = found["flushes"], found["allowed"]
    checked = (
        f"{text.plural(found['accesses'], 'access', 'accesses')} on "
        f"{text.plural(found['processors'], 'processor')} checked; "
        f"{text.plural(found['changes'], 'change')} of page tables needed a flush; flushes: "
        f"{flushes['invlpg']:,} INVLPG, {flushes['cr3']:,} writes of CR3, {flushes['all']:,} of all"
    )
    said = [checked]
    if flushes["left_out"]:
        left_out = text.plural(flushes["left_out"], "flush", "flushes")
        said.append(f"{left_out} left out by --leave-out")
    said.append(
        f"allowed: {allowed['appeared']:,} entries appeared, {allowed['grown']:,} got more rights, "
        f"{allowed['marked']:,} were marked; {allowed['deferred']:,} uses before the end of the "
        "operation that changed the entry"
    )
    if found["unknown"]:
        unknown = text.plural(found["unknown"], "use or change", "uses or changes")
        said.append(f"not checked: {unknown} of page tables that the trace does not have")
    if not found["uses"]:
        return [*said, "no use of a translation whose flush is overdue"]
    uses = text.plural(found["uses"], "use", "uses")
    said.append(f"{uses} of translations whose flush is overdue:")
    for report in found["reports"][:SHOWN]:
        said += _report(report)
    if len(found["reports"]) > SHOWN:
        said.append(f"  and {len(found['reports']) - SHOWN} more, which --json has")
    return said


def _report(report: dict[str, Any]) -> list[str]:
    who = "the program" if report["program"] else "the kernel"
    wrong = {
        "frame": f"the page table says {report['should_be'] or 0:#x}",
        "absent": "the page table has no page there",
        "right": f"the page table does not permit a {report['access']}",
        "clean": "the page counts as clean",
    }[report["wrong"]]
    where = f" goes to {report['physical']:#x}" if report["physical"] is not None else ""
    said = [
        f"  access {report['at']:,}: processor {report['processor']}, {report['task']}: a "
        f"{report['access']} of {who} at {report['address']:#x}{where}; {wrong}",
        f"    in {_code(report['code'])}",
    ]
    change = report["change"]
    if change is not None:
        what = "entry changed" if report["cause"] == "entry" else "page table loaded"
        said.append(
            f"    {what} at access {change['at']:,} by processor {change['processor']}, "
            f"{change['task']}, in {_code(change['code'])}"
        )
    return [*said, f"    {report['why']}"]


def _code(code: dict[str, Any]) -> str:
    """The name of code, with its address."""
    name = code["function"]
    return f"{name} ({code['block']:#x})" if name else f"{code['block']:#x}"
