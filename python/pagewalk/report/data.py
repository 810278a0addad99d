"""Computes the report's plain data from results documents.

A `Value` has a number as text, the exact number, and the number's place in the results document. So
the page can be compared with the document.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report import figures, tables, values
from pagewalk.report.missmap import miss_map
from pagewalk.report.model import Card, Part, Report, Run, Value
from pagewalk.report.order import BY_MISSES, Order

if TYPE_CHECKING:
    from pagewalk import plain

PARTS = ("core", "tlb", "page_table", "walker", "cache", "memory", "os")
"""The tables of a machine's file, in the order in which an access uses these parts."""


def report(documents: "Sequence[plain.Document]", order: Order = BY_MISSES) -> Report:
    """The report of one or more results documents of schema 2, with their regions in `order`."""
    first = documents[0]
    trace = first["trace"]
    name = trace.get("name", "trace")
    # A machine may leave accesses out. The facts of the trace are from the run with the most
    # accesses.
    whole = max(documents, key=values.accesses)
    accesses = values.accesses(whole)
    names = values.told_apart(documents)
    runs = [
        run(document, index, order, name)
        for index, (document, name) in enumerate(zip(documents, names, strict=True))
    ]
    return Report(
        title=f"{name} on {' and '.join(names)}",
        subtitle=(
            f"{text.plural(accesses, 'access', 'accesses')} in "
            f"{text.plural(whole['instructions'], 'instruction')} of "
            f"{text.plural(whole['threads'], 'thread')}"
        ),
        facts=trace_facts(trace),
        notes=[*trace["notes"], *(live.get("lost", []) if (live := trace.get("live")) else [])],
        runs=runs,
        processes=tables.processes(first),
        finding=values.compared(documents, names) if len(documents) > 1 else "",
        comparison=tables.comparison(documents) if len(documents) > 1 else None,
        together=figures.together(documents) if len(documents) > 1 else None,
        version=first["pagewalk"],
        documents=list(documents),
    )


def run(
    document: "plain.Document", index: int = 0, order: Order = BY_MISSES, name: str | None = None
) -> Run:
    """The data of one run. `index` and `name` distinguish runs on machines with the same name."""
    machine = document["machine"]
    word = re.sub(r"[^a-z0-9]+", "-", machine["name"].lower()).strip("-") or "machine"
    regions = tables.regions(document, order)
    wished, wished_more = tables.in_sight(
        tables.wished(document), "The other page sizes that were wished for"
    )
    return Run(
        anchor=f"run-{index}-{word}",
        name=name or machine["name"],
        title=machine["title"],
        settings=list(machine["settings"]),
        headline=_headline(document),
        advice=advice.get("sentence", "") if (advice := document.get("advice")) else "",
        cards=_cards(document),
        switches=tables.switches(document),
        tlbs=tables.tlbs(document),
        memory=figures.memory(document),
        page_sizes=figures.page_sizes(document),
        wished=wished,
        wished_more=wished_more,
        promotion=values.promoted(document),
        daemon=figures.daemon(document),
        reservations=figures.reservations(document),
        free=figures.free(document),
        kernel=figures.kernel(document) if document.get("manager") else None,
        faults=tables.faults(document),
        work=tables.work(document),
        processors=tables.processors(document) if document.get("processors") else None,
        nodes=tables.nodes(document),
        mmu_cache=tables.mmu_cache(document),
        spec_tlb=tables.spec_tlb(document),
        spaces=tables.spaces(document),
        nested=tables.nested(document),
        caches=tables.caches(document) if document["caches"] else None,
        regions=regions[0],
        regions_more=regions[1],
        functions=tables.functions(document),
        sites=tables.sites(document),
        origin_notes=known.get("notes", []) if (known := document.get("origins")) else [],
        timeline=figures.timeline(document),
        map=miss_map(document),
        serving=figures.serving(document),
        parts=parts(machine["description"]),
        source=machine["source"],
        not_modelled=list(document["not_modelled"]),
        digest=machine["digest"],
        checked=document["checked"],
    )


def _headline(document: "plain.Document") -> str:
    sentences = values.finding(document)
    if (time := document["time"]) is not None and len(sentences) > 1:
        if ends := values.share_ends(time):
            sentences[-1] = f"{values.taken(document)}; {'; '.join(ends)}."
        if (taken := values.milliseconds(document.get("native"))) is not None:
            sentences.append(f"Natively that is {taken} in user mode.")
    return " ".join(sentences)


def _cards(document: "plain.Document") -> list[Card]:
    accesses, missed = values.accesses(document), values.missing_all(document)
    walks, faults = document["walks"], document["faults"]
    kinds, memory = document["accesses"], document["memory"]
    cards = [
        Card(
            "Accesses",
            Value(text.count(accesses), accesses),
            f"{text.count(kinds['fetch'])} fetches, {text.count(kinds['load'])} loads, "
            f"{text.count(kinds['store'])} stores",
        ),
        Card(
            "Misses of every TLB",
            Value(text.count(missed), missed),
            f"{text.ratio(1000 * missed / max(accesses, 1))} per 1000 accesses, "
            f"{text.ratio(1000 * missed / max(document['instructions'], 1))} per 1000 instructions",
        ),
    ]
    if walks["references"]:
        cards.append(
            Card(
                "Walk references",
                values.count(document, "/walks/references"),
                f"{text.count(walks['walks'])} walks, "
                f"{values.per_walk(document).text} each where the page is mapped",
            )
        )
    cards.append(
        Card(
            "First touches",
            values.count(document, "/faults/first_touch"),
            f"{text.percent(faults['first_touch'] / missed) if missed else '0 %'} of the misses; "
            f"{text.size(memory['frames_peak_bytes'])} of memory in use at the peak; at the end "
            f"{text.size(memory['mapped_bytes'])} mapped, "
            f"{text.size(memory['table_bytes'])} of page tables",
        )
    )
    time = document["time"]
    if time is None:
        cards.append(Card("Time", Value("not known"), "the machine file leaves out latencies"))
    else:
        cards.append(
            Card(
                "Time in translation",
                Value(values.share_range(time), time["share"]["hi"], "/time/share/hi"),
                f"of all cycles, depending on what overlaps; {_estimated(document)}"
                f"{text.span(time['cycles_per_access'], text.ratio)} cycles per access",
            )
        )
    return cards


def _estimated(document: "plain.Document") -> str:
    estimate = document.get("estimate")
    return f"best estimate {text.percent(estimate['share'])}; " if estimate else ""


def trace_facts(trace: "plain.TraceSummary") -> list[tuple[str, str]]:
    """The facts that a trace records about itself."""
    facts = [("Made by", trace["producer"])]
    if trace["command"]:
        facts.append(("From", " ".join(trace["command"])))
    facts.append(("Instruction set", trace["arch"]))
    facts.append(("Fetches", "recorded" if trace["fetches"] else "not in the trace"))
    if trace["filter"] != "none":
        facts.append(("Filter", trace["filter"]))
    facts.append(("Digest", trace["digest"] or "none: the trace was not stored"))
    return facts


def parts(description: Mapping[str, Any], prefix: str = "") -> list[Part]:
    """The tables of the description, each with the numbers that are directly in it."""
    facts: list[tuple[str, str]] = []
    found: list[Part] = []
    order = {name: index for index, name in enumerate(PARTS)}
    for key, value in sorted(description.items(), key=lambda item: order.get(item[0], len(order))):
        if isinstance(value, Mapping):
            found += parts(value, f"{prefix}.{key}" if prefix else key)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for index, item in enumerate(value):
                found += parts(item, f"{prefix}.{key}[{index}]")
        elif key not in ("source", "title"):
            facts.append((key, tables.listed(value)))
    if facts:
        found.insert(0, Part(prefix, facts, str(description.get("source", ""))))
    return found
