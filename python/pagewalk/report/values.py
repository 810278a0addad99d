"""Numbers of a results document as values of the report."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report.model import Value

if TYPE_CHECKING:
    from pagewalk import plain


def told_apart(documents: "Sequence[plain.Document]") -> list[str]:
    """The machines' names.

    Equal names are distinguished by settings or, if these are equal, by number.
    """
    machines = [document["machine"] for document in documents]
    names = []
    for machine in machines:
        alike = [other for other in machines if other["name"] == machine["name"]]
        own = [
            setting
            for setting in machine["settings"]
            if not all(setting in other["settings"] for other in alike)
        ]
        names.append(", ".join([machine["name"], *own]))
    return [
        name if names.count(name) == 1 else f"{number}: {name}"
        for number, name in enumerate(names, 1)
    ]


def at(document: "plain.Document", pointer: str, show: Callable[[Any], str]) -> Value:
    """The number at a JSON pointer of the document."""
    found: Any = document
    for step in pointer.strip("/").split("/"):
        found = found[int(step)] if isinstance(found, list) else found[step]
    return Value(show(found), found, pointer)


def count(document: "plain.Document", pointer: str) -> Value:
    """The count at a JSON pointer."""
    return at(document, pointer, text.count)


def size(document: "plain.Document", pointer: str) -> Value:
    """The bytes at a JSON pointer."""
    return at(document, pointer, text.size)


EVENTS_MIN = 100
"""If a rate is computed from fewer events than this, chance alone can change it by a tenth or
more.
"""


def share(part: float, whole: float) -> Value:
    """`part` as a share of `whole`. 0 if `whole` is 0."""
    exact = part / whole if whole else 0.0
    return Value(text.percent(exact), exact, few=0 < part < EVENTS_MIN)


def ratio(part: float, whole: float) -> Value:
    """`part` divided by `whole`. 0 if `whole` is 0."""
    exact = part / whole if whole else 0.0
    return Value(text.ratio(exact), exact, few=0 < part < EVENTS_MIN)


def per_1000(part: float, whole: float) -> Value:
    """`part` per 1000 of `whole`."""
    exact = 1000 * part / whole if whole else 0.0
    return Value(text.ratio(exact), exact, few=0 < part < EVENTS_MIN)


def of_all_kinds(counts: "plain.ByKind[int]") -> int:
    """The sum of counts over all kinds of access."""
    return counts["fetch"] + counts["load"] + counts["store"]


def accesses(document: "plain.Document") -> int:
    """The number of accesses of all kinds."""
    return of_all_kinds(document["accesses"])


def per_walk(document: "plain.Document") -> Value:
    """The mean number of references of a walk for a mapped page.

    If all walks ended in a first touch, of all walks.
    """
    walks = document["walks"]
    if walks["walks"] > walks["cold"]:
        references = walks["references"] - walks["cold_references"]
        return ratio(references, walks["walks"] - walks["cold"])
    return ratio(walks["references"], walks["walks"])


def length(document: "plain.Document") -> int:
    """The number of accesses of the trace, including those that the machine leaves out.

    Time bins count all accesses. If the machine has left some out, the last bin may be shorter.
    """
    bins = len(document["timeline"]["misses"])
    ran, bin_accesses = accesses(document), document["timeline"]["bin_accesses"]
    return ran if bins <= -(-ran // bin_accesses) else bins * bin_accesses


def missing_all(document: "plain.Document") -> int:
    """The number of lookups that missed every TLB."""
    last = max((tlb["level"] for tlb in document["tlbs"]), default=1)
    of_ranges = int((document.get("range_tlb") or {"hits": 0})["hits"])
    return sum(int(tlb["misses"]) for tlb in document["tlbs"] if tlb["level"] == last) - of_ranges


def finding(document: "plain.Document") -> list[str]:
    """The results of a run in sentences: misses, walks, regions and time."""
    missed = missing_all(document)
    if not accesses(document):
        return ["No access ran."]
    if not missed:
        return ["Every access found its translation in a TLB."]
    one_in = round(accesses(document) / missed)
    often = f"One access in {text.count(one_in)}" if one_in > 1 else "Nearly every access"
    parts = [f"{often} misses every TLB"]
    if document["walks"]["references"]:
        parts.append(f"a walk makes {per_walk(document).text} references")
    busiest = max(document["regions"], key=lambda region: region["misses"], default=None)
    if busiest and busiest["misses"]:
        total = sum(region["misses"] for region in document["regions"])
        part = text.percent(busiest["misses"] / total)
        parts.append(f"the busiest region is {busiest['name']}, with {part} of the misses")
    sentences = ["; ".join(parts) + "."]
    if document["time"] is not None:
        ends = "; ".join(short_ends(document["time"]))
        sentences.append(f"{taken(document)}{': ' if ends else ''}{ends}.")
    return sentences


def taken(document: "plain.Document") -> str:
    """The cost of translation as a sentence without a full stop.

    It has the best estimate if there is one.
    """
    time, estimate = document["time"], document.get("estimate")
    if time is None:
        return "What translation takes is not known"
    if estimate is None or time["share"]["lo"] == time["share"]["hi"]:
        return f"Translation takes {share_range(time)} of all cycles"
    return f"Translation takes {text.percent(estimate['share'])} of all cycles by the best estimate"


def short_ends(time: "plain.Time") -> list[str]:
    """What the two ends of translation's share assume, in words. Empty if the ends are equal."""
    share, cycles = time["share"], time["translation_cycles"]
    if share["lo"] == share["hi"]:
        return []
    least = "every walk is hidden" if cycles["lo"] == 0 else "what can be hidden is"
    return [
        f"{text.percent(share['lo'])} if {least} behind other work",
        f"{text.percent(share['hi'])} if all of it is waited for",
    ]


def compared(documents: "Sequence[plain.Document]", names: Sequence[str]) -> str:
    """A sentence or two: the machine with the fewest misses, and the one with the least time.

    Args:
        documents: Results of one trace.
        names: The names of the machines.
    """

    def ends(numbers: Sequence[float], shown: Callable[[float], str]) -> str:
        low, high = (end(zip(numbers, names, strict=True)) for end in (min, max))
        if shown(low[0]) == shown(high[0]):
            return f"{shown(low[0])} on every machine"
        return f"fewest {shown(low[0])} on {low[1]}, most {shown(high[0])} on {high[1]}"

    rates = [1000 * missing_all(one) / max(accesses(one), 1) for one in documents]
    sentences = [f"Misses of every TLB per 1000 accesses: {ends(rates, text.ratio)}."]
    shares = [estimate["share"] for one in documents if (estimate := one.get("estimate"))]
    if len(shares) == len(documents):
        least = ends(shares, text.percent).replace("fewest", "least")
        sentences.append(f"Share of all cycles in translation, by the best estimate: {least}.")
    return " ".join(sentences)


def share_range(time: "plain.Time") -> str:
    """Translation's share of all cycles, as a range."""
    return text.span(time["share"], text.percent)


def share_ends(time: "plain.Time") -> list[str]:
    """The assumptions of the two ends of the range. Empty if both ends are equal."""
    share, program, cycles = time["share"], time["program_cycles"], time["translation_cycles"]
    if share["lo"] == share["hi"]:
        return ["nothing of it can be hidden: the core waits for each miss"] if share["hi"] else []
    overlapped = program["lo"] < program["hi"]
    least = "TLB lookups are hidden behind other work, which refills by software never are"
    if cycles["lo"] == cycles["hi"]:
        least = "refills by software are never hidden"
    if cycles["lo"] == 0:
        least = "every walk is hidden behind other work"
    return [
        f"at least {text.percent(share['lo'])}: {least}"
        + (", and every data-cache miss is waited for" if overlapped else ""),
        f"at most {text.percent(share['hi'])}: every lookup and walk is waited for"
        + (", and data-cache misses overlap as far as the core lets them" if overlapped else ""),
    ]


def milliseconds(native: "plain.Native | None") -> str | None:
    """The milliseconds of the native run that translation takes, if they are known."""
    if not native or native["translation_ms"] is None:
        return None
    most, user = native["translation_ms"]["hi"], 1000 * native["user_seconds"]
    return f"up to {text.ratio(most)} ms of your {text.ratio(user)} ms"


def native_lines(native: "plain.Native") -> list[str]:
    """The known facts of the native run."""
    taken = milliseconds(native)
    user, wall = 1000 * native["user_seconds"], 1000 * native["wall_seconds"]
    took = f"{text.ratio(wall)} ms of wall time, {text.ratio(user)} ms in user mode"
    lines = [f"Native run: {took}, exit status {native['exit_status']}"]
    if native.get("recorded_status", native["exit_status"]) != native["exit_status"]:
        lines[0] += f" (recorded: {native['recorded_status']})"
    if taken is not None:
        lines.append(f"  translation takes {taken} in user mode")
    elif native["no_ms"] is not None:
        lines.append(f"  no milliseconds of translation: {native['no_ms']}")
    if native["peak"] is not None:
        sizes = native["peak"]["by_page_size"].items()
        pages = ", ".join(f"{text.size(held)} in {size}" for size, held in sizes if held)
        lines.append(f"  at its peak: {text.size(native['peak']['resident_bytes'])}: {pages}")
    if not native.get("stdin", True):
        lines.append("  standard input is a terminal: the native run had nothing to read")
    return lines


CAUSES = {
    "quantum": "a quantum ended",
    "blocked": "a call waited",
    "ended": "a program ended",
    "recorded": "they were recorded",
}
"""The causes of switches to another program, in words."""


def shootdowns(document: "plain.Document") -> str:
    """The cost of shootdowns on all processors, in words. Empty if there is one processor."""
    if not document.get("processors"):
        return ""
    found = document["shootdowns"]
    sentence = (
        f"{text.plural(found['made'], 'shootdown')}, for which "
        f"{text.plural(found['asked'], 'interrupt went', 'interrupts went')} to other processors; "
        f"{text.plural(found['entries'], 'TLB entry', 'TLB entries')} flushed"
    )
    sent, received = found["sender_cycles"], found["receiver_cycles"]
    if sent is None or received is None:
        return sentence
    return (
        f"{sentence}; {text.count(sent)} cycles of those who asked, "
        f"{text.count(received)} of those who were asked"
    )


def switches(document: "plain.Document") -> list[str]:
    """How several programs took turns, in words. Empty if there is one program."""
    found = document.get("switches")
    if not found:
        return []
    by_cause = [
        f"{text.count(times)} as {CAUSES.get(cause, cause)}"
        for cause, times in found["by_cause"].items()
        if times
    ]
    switched = text.plural(sum(found["by_cause"].values()), "switch", "switches")
    quantum = found["quantum_instructions"]
    lines = [
        f"{switched} between programs on {text.plural(found['cpus'], 'processor')}, in order "
        f"`{found['order']}`"
        + (f", quantum {text.count(quantum)} instructions" if quantum is not None else "")
        + (f": {', '.join(by_cause)}" if by_cause else "")
    ]
    if found["unexplained"]:
        lines.append(
            f"{text.plural(found['unexplained'], 'wait')} ended for a reason that is not in the "
            "recording"
        )
    return lines


BROKEN = {
    "frame": "for a frame",
    "block": "for frames in a row",
    "wanted": "for just these frames",
}
"""The causes of broken reservations, in words."""


def broken(counts: Mapping[str, int]) -> str:
    """The number of broken reservations, by cause."""
    return ", ".join(f"{text.count(n)} {BROKEN[why]}" for why, n in counts.items() if n) or "none"


def nodes(document: "plain.Document") -> str:
    """Local and remote references, and moved pages. Empty if there is only one node of memory."""
    found = document.get("numa")
    if found is None:
        return ""
    misses = found["local_misses"] + found["remote_misses"]
    remote = sum(
        count
        for home, node in enumerate(found["nodes"])
        for place, count in enumerate(node["accesses"])
        if place != home
    )
    accesses = sum(sum(node["accesses"]) for node in found["nodes"])
    line = (
        f"{share(found['remote_misses'], misses).text} of the misses were of another node's pages"
    )
    if accesses:
        line += (
            f", and {share(remote, accesses).text} of the accesses that memory served went to "
            "another node"
        )
    moved = found["migration"]
    if moved:
        kept = ", ".join(f"{text.count(n)} {why}" for why, n in moved["refused"].items())
        line += (
            f". {text.plural(moved['pages'], 'page')} moved to another node, after "
            f"{text.plural(moved['references'], 'reference')} counted in "
            f"{text.count(moved['counting_cycles'])} cycles"
        ) + (f"; due and not moved: {kept}" if kept else "")
    return f"{line}."


def promoted(document: "plain.Document") -> str:
    """Charges and promotions of on-line promotion, in a sentence. Empty if there is none."""
    found = document.get("promotion")
    if found is None:
        return ""
    made = [
        f"{text.plural(of['promoted'], 'page')} of {of['size']} made after "
        f"{text.plural(of['threshold_misses'], 'miss', 'misses')} each"
        + (f" and {text.count(of['refused'])} refused" if of["refused"] else "")
        for of in found["sizes"]
        if of["promoted"] or of["refused"]
    ]
    return (
        f"On-line promotion: {text.plural(found['misses'], 'miss', 'misses')} counted in "
        f"{text.count(found['counting_cycles'])} cycles, {text.count(found['charged'])} charged; "
        f"{', '.join(made) or 'no page made'}."
    )
