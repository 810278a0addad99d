"""The tables of a report."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import origins, text
from pagewalk.report import values
from pagewalk.report.model import Cell, Table, Value
from pagewalk.report.order import BY_MISSES, Order

if TYPE_CHECKING:
    from pagewalk import plain

REGIONS_IN_SIGHT = 20
PROCESSES_IN_SIGHT = 64
COMMAND_LETTERS = 48


def tlbs(document: "plain.Document") -> Table:
    """A row per TLB."""
    accesses = values.accesses(document)
    rows: list[list[Cell]] = []
    for index, tlb in enumerate(document["tlbs"]):
        at = f"/tlbs/{index}"
        rows.append(
            [
                f"{tlb['name']} ({', '.join(tlb['serves'])})",
                values.count(document, f"{at}/entries"),
                listed(tlb["ways"]),
                listed(tlb["replacement"]),
                values.count(document, f"{at}/lookups"),
                values.count(document, f"{at}/misses"),
                values.share(tlb["misses"], tlb["lookups"]),
                values.per_1000(tlb["misses"], accesses),
                values.count(document, f"{at}/cold_misses"),
                values.count(document, f"{at}/evictions"),
            ]
        )
    head = [
        "TLB", "Entries", "Ways", "Replacement", "Lookups", "Misses", "Misses per lookup",
        "Misses per 1000 accesses", "First touches", "Evictions",
    ]  # fmt: skip
    numeric = [False, True, True, False, True, True, True, True, True, True]
    caption = "; ".join(["Lookups and misses of each TLB", *several_pages(document)])
    return Table(caption, head, rows, numeric)


def processors(document: "plain.Document") -> Table:
    """A row per processor: the programs on it, its misses, and its part in shootdowns."""
    rows: list[list[Cell]] = []
    for index, one in enumerate(document["processors"]):
        at = f"/processors/{index}"
        accesses = values.of_all_kinds(one["accesses"])
        l1_misses = sum(tlb["misses"] for tlb in one["tlbs"] if tlb["level"] == 1)
        rows.append(
            [
                f"processor {one['number']}",
                Value(text.count(accesses), accesses),
                values.count(document, f"{at}/instructions"),
                values.count(document, f"{at}/switches"),
                values.per_1000(l1_misses, accesses),
                values.per_1000(one["walks"]["walks"], accesses),
                values.count(document, f"{at}/walks/references"),
                values.count(document, f"{at}/shootdowns/made"),
                values.count(document, f"{at}/shootdowns/received"),
                values.count(document, f"{at}/shootdowns/entries"),
            ]
        )
    head = [
        "Processor", "Accesses", "Instructions", "Changes of space", "L1 misses per 1000 accesses",
        "Misses of every TLB per 1000 accesses", "Walk references", "Shootdowns made", "Received",
        "Entries flushed",
    ]  # fmt: skip
    return Table(values.shootdowns(document), head, rows, [False] + [True] * 9)


def nodes(document: "plain.Document") -> Table | None:
    """A row per node of memory: its pages, and where its processors' references went."""
    found = document.get("numa")
    if not found:
        return None
    rows: list[list[Cell]] = []
    for home, node in enumerate(found["nodes"]):
        used = node["used_bytes"]

        def own(counts: list[int], home: int = home) -> Cell:
            return values.share(counts[home], sum(counts))

        rows.append(
            [
                f"node {home}",
                listed(node["processors"]),
                listed(node["distances"]),
                Value(text.size(node["total_bytes"]), node["total_bytes"]),
                "unknown" if used is None else Value(text.size(used), used),
                Value(text.count(sum(node["misses"])), sum(node["misses"])),
                own(node["misses"]),
                own(node["accesses"]),
                own(node["walk_references"]),
            ]
        )
    head = [
        "Node", "Processors", "Distances", "Memory", "In use", "Misses", "Of these local",
        "Accesses to local memory", "Walk references to local memory",
    ]  # fmt: skip
    return Table(values.nodes(document), head, rows, [False] * 3 + [True] * 6)


def mmu_cache(document: "plain.Document") -> Table | None:
    """A row per level: the entries that walks needed, and the hits of an MMU cache."""
    cache, walks = document.get("mmu_cache"), document["walks"]["walks"]
    if not cache:
        return None
    rows: list[list[Cell]] = []
    for index, level in enumerate(cache["by_level"]):
        at = f"/mmu_cache/by_level/{index}"
        rows.append(
            [
                f"level {level['level']}",
                values.count(document, f"{at}/needed"),
                values.count(document, f"{at}/held"),
                values.share(level["held"], level["needed"]),
            ]
        )
    sizes = " + ".join(_array(array) for array in cache["arrays"])
    searches = values.ratio(cache["searches"], walks).text
    caption = f"{cache['design']}, {cache['replacement']}, {sizes}; {searches} searches per walk"
    head = ["Entries of", "Needed by walks", "Hits, or skipped by a lower hit", "Hit rate"]
    return Table(caption, head, rows, [False] + [True] * 3)


def _array(array: "plain.MmuCacheArray") -> str:
    bits = (
        f" of {array['tag_bits']} bits of tag and {array['data_bits']} of data"
        if array["tag_bits"]
        else ""
    )
    return f"{text.plural(array['entries'], 'entry', 'entries')}{bits}"


def _remembered(spec: "plain.SpecTlbCounts") -> str:
    """The number of a SpecTLB's entries, and what each of them covers."""
    if spec["page_size"] == "any":
        return f"{spec['entries']} instructions"
    return f"{spec['entries']} pages of {spec['page_size']}"


def spec_tlb(document: "plain.Document") -> Table | None:
    """A row per outcome of predictions: the walks, what they read, and the kinds of access."""
    spec, walks = document.get("spec_tlb"), document["walks"]["walks"]
    if not spec:
        return None
    rows: list[list[Cell]] = []
    for index, one in enumerate(spec["outcomes"]):
        loads, stores = (one["accesses"][kind] for kind in ("load", "store"))
        rows.append(
            [
                one["outcome"].replace("-", ", "),
                values.count(document, f"/spec_tlb/outcomes/{index}/walks"),
                values.share(one["walks"], walks),
                Value(text.count(sum(one["references"].values())), sum(one["references"].values())),
                *(_hits(places) for places in (one["references"], one["ptes"], loads, stores)),
            ]
        )
    wrong = sum(spec["wrong"].values())
    caption = (
        f"{_remembered(spec)}, {spec['replacement']}, {spec['fill']}; "
        f"{text.plural(spec['attempts'], 'prediction')}, "
        f"{values.ratio(spec['attempts'], walks).text} per walk; "
        f"{values.share(spec['right'], walks).text} of the walks rightly predicted, "
        f"{values.share(wrong, spec['attempts']).text} of the predictions wrong"
    )
    if spec["devices"]:
        reached = text.count(spec["devices_reached"])
        caption += (
            f"; {text.plural(spec['devices'], 'prediction')} named a page that a device had, and "
            f"{reached} reached it"
        )
    head = [
        "Prediction", "Walks", "Of all walks", "References", "Served by caches",
        "Page-table entries", "Loads walked for", "Stores",
    ]  # fmt: skip
    return Table(caption, head, rows, [False] + [True] * 7)


def spaces(document: "plain.Document") -> Table | None:
    """A row per effect of switches between spaces.

    `None` if there was only one space, which could not be small, and no trace cache.
    """
    switches, small = document.get("space_switches"), document.get("small_spaces")
    trace_cache = document.get("trace_cache")
    # Documents of earlier versions do not contain this number.
    if not switches or not (switches["switches"] or small or trace_cache):
        return None
    rows: list[list[Cell]] = []

    def row(label: str, pointer: str) -> None:
        rows.append([label, values.count(document, pointer)])

    row("Switches", "/space_switches/switches")
    row("Loads of the base register", "/space_switches/root_loads")
    row("Switches that emptied TLBs", "/space_switches/emptying")
    if switches["cycles"] is not None:
        row("Cycles of all switches", "/space_switches/cycles")
    caption = "Each space has all addresses for itself"
    if small:
        row("Loads of segment or PID registers", "/small_spaces/segment_loads")
        row("Entries of roots copied", "/small_spaces/copies")
        row("Spaces that became large", "/small_spaces/promoted")
        row("Slots taken for another", "/small_spaces/revoked")
        row("Switches to spaces without a slot", "/small_spaces/no_slot")
        row("Roots looked through", "/small_spaces/roots_purged")
        row("Copies emptied", "/small_spaces/entries_purged")
        if small["switch_cycles"]:
            row("Cycles of the dearest switch", "/small_spaces/switch_cycles/worst")
        caption = (
            f"{text.count(small['slots'])} slots of {text.size(small['slot_bytes'])}; "
            f"{small['small']} of {text.plural(small['spaces'], 'space')} had one"
        )
    for index, cache in enumerate(document["caches"]):
        if cache.get("flushes"):
            at = f"/caches/{index}/flushes"
            row(
                f"Lines flushed from virtual {cache['name']}",
                f"{at}/lines",
            )
            row(f"Those of {cache['name']} that were written to memory", f"{at}/written")
    if trace_cache:
        row("Fetches that the trace cache delivered", "/trace_cache/delivered")
        row("Lines of the trace cache built", "/trace_cache/lines_built")
        row("Lines that went when it was emptied", "/trace_cache/lines_emptied")
    return Table(caption, ["Address spaces", "Count"], rows, [False, True])


def _hits(served: Mapping[str, int]) -> Value:
    """The share of references that caches served."""
    everything = sum(served.values())
    return values.share(everything - served.get("memory", 0), everything)


def nested(document: "plain.Document") -> Table | None:
    """A row per level of a virtual machine's host table, with the caches that served references."""
    host = document.get("nested")
    if not host:
        return None
    places = [cache["name"] for cache in document["caches"]] + ["memory"]
    rows: list[list[Cell]] = []
    for index, level in enumerate(host["by_level"]):
        references = values.count(document, f"/nested/by_level/{index}/references")
        served = (values.share(level["served"].get(p, 0), level["references"]) for p in places)
        rows.append([f"level {level['level']}", references, *served])
    parts = [f"Pages of {host['page_size']}", text.plural(host["walks"], "walk")]
    if host["tlb"]:
        missed = values.share(host["tlb"]["misses"], host["tlb"]["lookups"]).text
        parts.append(f"{missed} of the lookups miss the nested TLB")
    if host["splintered"]:
        parts.append(f"{text.count(host['splintered'])} refills with a part of the guest's page")
    parts += host_predictions(host, document["walks"])
    head = ["Host's references", "All", *(f"Served by {place}" for place in places)]
    return Table("; ".join(parts), head, rows, [False] + [True] * (1 + len(places)))


def host_predictions(host: "plain.NestedCounts", walks: "plain.Walks") -> list[str]:
    """Counts of a host's reservations and SpecTLB, and the critical references of walks."""
    reservations = host.get("reservations")
    parts = [
        f"reservations of {of['size']}: {text.count(of['made'])} made, {text.count(of['filled'])} "
        f"filled, {text.count(sum(of['broken'].values()))} broken"
        for of in (reservations["sizes"] if reservations else [])
    ]
    if spec := host.get("spec_tlb"):
        right = values.share(spec["right"], host["walks"]).text
        parts.append(
            f"a SpecTLB of {text.plural(spec['entries'], 'page')} of {spec['page_size']} predicted "
            f"{right} of the host's walks"
        )
    if (critical := host.get("critical_references")) is not None:
        parts.append(
            f"{values.ratio(critical, walks['walks']).text} references per walk of "
            f"{values.ratio(walks['references'], walks['walks']).text} are waited for"
        )
    return parts


def several_pages(document: "plain.Document") -> list[str]:
    """The coverage of entries for several pages, in words: blocks of each TLB, and ranges."""
    lines = [
        f"tlb.{tlb['name']}: {of['kind']} entries of up to {of['pages']} pages, filled in with "
        f"{values.ratio(of['pages_filled'], of['fills']).text} pages on average; "
        f"{text.count(of['tag_hits'])} misses had an entry of the block without the page"
        for tlb in document["tlbs"]
        if (of := tlb.get("blocks"))
    ]
    if rests := document.get("restseg"):
        lines.append(
            f"Restrictive segments: {text.count(rests['hits'])} of "
            f"{text.plural(rests['lookups'], 'lookup')} found the page, "
            f"{values.share(rests['hits'], rests['lookups']).text}, by "
            f"{text.plural(rests['filter_reads'] + rests['tag_reads'], 'reference')} to filter "
            "and tags"
        )
    if ranges := document.get("range_tlb"):
        lines.append(
            f"Range TLB: {text.plural(ranges['entries'], 'range')}, {ranges['replacement']}; "
            f"{text.count(ranges['hits'])} of {text.plural(ranges['lookups'], 'lookup')} hit, "
            f"{values.share(ranges['hits'], ranges['lookups']).text}"
            + (
                "; entries are runs out of lines of page-table entries"
                if ranges.get("from") == "line"
                else f"; the table has {text.plural(ranges['ranges'], 'range')} of "
                f"{text.size(ranges['range_bytes'])} in all"
            )
        )
    return lines


def caches(document: "plain.Document") -> Table:
    """A row per data cache: its requests from the program and from the walker."""
    rows: list[list[Cell]] = []
    for index, cache in enumerate(document["caches"]):
        at = f"/caches/{index}"
        rows.append(
            [
                cache["name"],
                values.size(document, f"{at}/size_bytes"),
                values.count(document, f"{at}/ways"),
                values.count(document, f"{at}/program/reads"),
                values.share(cache["program"]["read_misses"], cache["program"]["reads"]),
                values.count(document, f"{at}/program/writes"),
                values.share(cache["program"]["write_misses"], cache["program"]["writes"]),
                values.count(document, f"{at}/walker/reads"),
                values.share(cache["walker"]["read_misses"], cache["walker"]["reads"]),
                values.count(document, f"{at}/writebacks"),
            ]
        )
    head = [
        "Cache", "Size", "Ways", "Reads", "Misses per read", "Writes", "Misses per write",
        "Walk reads", "Misses per walk read",
        "Write-backs",
    ]  # fmt: skip
    return Table("Lines asked of each data cache", head, rows, [False] + [True] * 9)


def regions(document: "plain.Document", shown: Order = BY_MISSES) -> tuple[Table, Table | None]:
    """One row per region that was accessed, in the given order.

    The other regions are in a second table.
    """
    found = document["regions"]
    order = shown.of(found)
    total = sum(region["misses"] for region in found)
    rows: list[list[Cell]] = []
    for index in order:
        region, at = found[index], f"/regions/{index}"
        rows.append(
            [
                origins.region_name(region),
                text.address(region["start"]),
                values.size(document, f"{at}/bytes"),
                values.count(document, f"{at}/pages"),
                values.count(document, f"{at}/lookups"),
                values.count(document, f"{at}/l1_misses"),
                values.count(document, f"{at}/misses"),
                values.count(document, f"{at}/cold_misses"),
                values.count(document, f"{at}/walk_references"),
                values.share(region["misses"], total),
            ]
        )
    head = [
        "Region", "Start", "Size", "Pages", "Lookups", "L1 misses", "Misses of every TLB",
        "First touches", "Walk references", "Share of misses",
    ]  # fmt: skip
    bars = [found[index]["misses"] / total if total else 0.0 for index in order]
    numeric = [False] + [True] * 9

    def part(caption: str, which: slice) -> Table:
        return Table(caption, head, rows[which], numeric, bars[which])

    top = shown.top or REGIONS_IN_SIGHT
    first = part(f"The regions of the address space, {shown.words}", slice(0, top))
    if len(rows) <= top:
        return first, None
    return first, part(f"The other regions, {shown.words}", slice(top, None))


ORIGINS_IN_SIGHT = 20


def _left_out(found: Sequence[Any], what: str) -> str:
    """The end of a caption: the number of rows that are not shown."""
    more = len(found) - ORIGINS_IN_SIGHT
    return f"; {text.plural(more, what)} more with fewer" if more > 0 else ""


def functions(document: "plain.Document") -> Table | None:
    """A row per function that missed, most misses first. No table if the code is not known."""
    known = document.get("origins")
    if not known or not known["code"]:
        return None
    rows: list[list[Cell]] = []
    found = origins.by(document, "function")
    for origin in found[:ORIGINS_IN_SIGHT]:
        rows.append(
            [
                origin.name,
                Value(text.count(origin.misses), origin.misses),
                Value(text.count(origin.cold_misses), origin.cold_misses),
                origin.mostly,
                Value(text.percent(origin.mostly_share), origin.mostly_share),
                Value(text.percent(origin.share), origin.share, few=origin.misses < 100),
            ]
        )
    caption = "The functions whose accesses miss every TLB, most misses first" + _left_out(
        found, "function"
    )
    head = [
        "Function",
        "Misses of every TLB",
        "First touches",
        "Mostly on",
        "Share there",
        "Share of misses",
    ]
    bars = [origin.share for origin in found[:ORIGINS_IN_SIGHT]]
    return Table(caption, head, rows, [False, True, True, False, True, True], bars)


def sites(document: "plain.Document") -> Table | None:
    """A row per allocation site, most misses first. No table if allocations were not recorded."""
    known = document.get("origins")
    found = known.get("sites", []) if known else []
    if not found:
        return None
    total = sum(region["misses"] for region in document["regions"])
    rows: list[list[Cell]] = []
    for index, site in enumerate(found[:ORIGINS_IN_SIGHT]):
        at = f"/origins/sites/{index}"
        rows.append(
            [
                site["name"],
                values.count(document, f"{at}/allocations"),
                values.size(document, f"{at}/peak_bytes"),
                values.count(document, f"{at}/misses"),
                values.count(document, f"{at}/cold_misses"),
                values.share(site["misses"], total),
            ]
        )
    caption = "Where what was missed on had been allocated, most misses first" + _left_out(
        found, "site"
    )
    head = [
        "Site",
        "Allocations",
        "Bytes, at most",
        "Misses of every TLB",
        "First touches",
        "Share of misses",
    ]
    bars = [site["misses"] / total if total else 0.0 for site in found[:ORIGINS_IN_SIGHT]]
    return Table(caption, head, rows, [False] + [True] * 5, bars)


def processes(document: "plain.Document") -> Table | None:
    """One row per process if there are several processes, those with the most accesses first."""
    found = document["trace"].get("processes", [])
    if len(found) < 2:
        return None
    total = max(1, sum(process["accesses"] for process in found))
    rows: list[list[Cell]] = []
    for index, process in enumerate(found[:PROCESSES_IN_SIGHT]):
        *before, last = (program["command"] for program in process["programs"])
        names = ["".join(words[:1]).rpartition("/")[2] for words in before]
        ran = " → ".join([*names, text.command(last, COMMAND_LETTERS)])
        parent = process.get("parent")
        rows.append(
            [
                ran,
                str(process["number"]),
                "" if parent is None else str(parent),
                str(process["pid"]),
                values.count(document, f"/trace/processes/{index}/accesses"),
                values.share(process["accesses"], total),
            ]
        )
    more = len(found) - len(rows)
    caption = "What each process ran, one program after the other; those of most accesses first"
    if more:
        caption += f"; {text.plural(more, 'process', 'processes')} more are in the JSON document"
    head = ["Programs", "Number", "Parent", "pid", "Accesses", "Share of accesses"]
    bars = [process["accesses"] / total for process in found[:PROCESSES_IN_SIGHT]]
    return Table(caption, head, rows, [False] + [True] * 5, bars)


def switches(document: "plain.Document") -> Table | None:
    """A row per cause for which a processor switched from one program to another."""
    found = document.get("switches")
    if not found:
        return None
    by_cause = found["by_cause"]
    total = sum(by_cause.values())
    rows: list[list[Cell]] = [
        [
            values.CAUSES.get(cause, cause).capitalize(),
            values.count(document, f"/switches/by_cause/{cause}"),
            values.share(times, total),
        ]
        for cause, times in by_cause.items()
    ]
    caption = "; ".join(values.switches(document))
    bars = [times / total if total else 0.0 for times in by_cause.values()]
    return Table(
        caption, ["Cause", "Switches", "Share of switches"], rows, [False, True, True], bars
    )


FAULTS = {
    "minor": "Only the translation was missing",
    "write": "The right to store was given",
    "cache": "In the page cache",
    "zero": "A frame of zeros",
    "copy": "A copy of a shared page",
    "disk": "Read from its file",
    "swap": "Read from swap",
}
"""The way in which a fault was resolved, in words."""


def faults(document: "plain.Document") -> Table | None:
    """A row per way in which faults were resolved, if memory was managed."""
    manager = document.get("manager")
    if not manager:
        return None
    total = max(1, sum(manager["faults"].values()))
    rows: list[list[Cell]] = [
        [
            words,
            values.count(document, f"/manager/faults/{how}"),
            values.share(manager["faults"][how], total),
        ]
        for how, words in FAULTS.items()
    ]
    bars = [manager["faults"][how] / total for how in FAULTS]
    caption = "How faults were answered"
    return Table(
        caption, ["The page", "Faults", "Share of faults"], rows, [False, True, True], bars
    )


def wished(document: "plain.Document") -> Table | None:
    """A row per region, requested size, actual size and reason, most bytes first. May be empty."""
    manager = document.get("manager")
    names = {region["name"]: origins.region_name(region) for region in document["regions"]}
    kinds: list[tuple[str, list[plain.SizeDecision]]] = []
    if manager:
        kinds = [("sizes", manager.get("sizes", [])), ("upgrades", manager.get("upgrades", []))]
    found = [(row, key, at) for key, rows in kinds for at, row in enumerate(rows)]
    if not found:
        return None
    found.sort(key=lambda one: -one[0]["pages"] * text.bytes_of(one[0]["got"]))
    rows: list[list[Cell]] = [
        [
            names.get(row["region"], row["region"]),
            "fault" if key == "sizes" else "upgrade",
            row["wanted"],
            row["got"],
            row["why"],
            values.count(document, f"/manager/{key}/{at}/pages"),
        ]
        for row, key, at in found
    ]
    head = ["Region", "At", "Wished", "Got", "Why", "Pages"]
    numeric = [False, False, True, True, False, True]
    return Table("Page sizes that were wished for, most bytes first", head, rows, numeric)


def in_sight(whole: Table | None, others: str) -> tuple[Table | None, Table | None]:
    """A table's first rows.

    If there are many more rows, they are in a second table called `others`.
    """
    if whole is None or len(whole.rows) <= REGIONS_IN_SIGHT:
        return whole, None
    first, rest = whole.rows[:REGIONS_IN_SIGHT], whole.rows[REGIONS_IN_SIGHT:]
    return whole._replace(rows=first), whole._replace(caption=others, rows=rest)


def work(document: "plain.Document") -> Table | None:
    """A row per kind of kernel work, if memory was managed."""
    manager = document.get("manager")
    if not manager:
        return None
    cycles = manager["cycles"]
    rows: list[list[Cell]] = [
        [
            kind.replace("_", " ").capitalize(),
            values.count(document, f"/manager/work/{kind}"),
            values.count(document, f"/manager/cycles/{kind}") if kind in cycles else "",
        ]
        for kind in manager["work"]
    ]
    return Table("What the kernel did", ["Work", "Times", "Cycles"], rows, [False, True, True])


def comparison(documents: "Sequence[plain.Document]") -> Table:
    """A row per measure, a column per machine."""

    def row(label: str, value: "Callable[[plain.Document], Cell]") -> list[Cell]:
        return [label, *(value(document) for document in documents)]

    def l1_misses(document: "plain.Document") -> int:
        return sum(tlb["misses"] for tlb in document["tlbs"] if tlb["level"] == 1)

    def l1_share(document: "plain.Document") -> Cell:
        return values.per_1000(l1_misses(document), values.accesses(document))

    def missed(document: "plain.Document") -> Cell:
        return values.per_1000(values.missing_all(document), values.accesses(document))

    def references(document: "plain.Document") -> Cell:
        return values.per_walk(document)

    def from_memory(document: "plain.Document") -> Cell:
        levels = document["walks"]["by_level"]
        served = sum(level["served"].get("memory", 0) for level in levels)
        return values.share(served, document["walks"]["references"])

    def time(pointer: str, show: Callable[[Any], str]) -> "Callable[[plain.Document], Cell]":
        return lambda document: (
            "not known" if document["time"] is None else values.at(document, pointer, show)
        )

    def counted(document: "plain.Document") -> Cell:
        has_fetches = document["machine"]["description"].get("core", {}).get("fetches", True)
        accesses = values.accesses(document)
        return Value(text.count(accesses) + ("" if has_fetches else ", no fetches"), accesses)

    # If a machine leaves out a part of the trace, none of its rates contains this part.
    differ = len({values.accesses(document) for document in documents}) > 1
    rows = [
        *([row("Accesses", counted)] if differ else []),
        row("L1 misses per 1000 accesses", l1_share),
        row("Misses of every TLB per 1000 accesses", missed),
        row("Walks", lambda document: values.count(document, "/walks/walks")),
        row("Walk references", lambda document: values.count(document, "/walks/references")),
        row("References per walk of a mapped page", references),
        row("Walk references served by memory", from_memory),
        row(
            "Cycles of translation per access, at most",
            time("/time/cycles_per_access/hi", text.ratio),
        ),
        row("Time in translation, at most", time("/time/share/hi", text.percent)),
        row("Page tables", lambda document: values.size(document, "/memory/table_bytes")),
    ]
    if all(document.get("space_switches") for document in documents) and any(
        document["space_switches"]["switches"] for document in documents
    ):
        rows += [
            row("Switches of space", lambda doc: values.count(doc, "/space_switches/switches")),
            row(
                "Base registers loaded", lambda doc: values.count(doc, "/space_switches/root_loads")
            ),
            row(
                "Switches that emptied TLBs",
                lambda doc: values.count(doc, "/space_switches/emptying"),
            ),
        ]
    if any(document.get("small_spaces") for document in documents):
        rows.append(row("Spaces in slots", lambda doc: _of(doc, "small_spaces", "small")))
    if any(document.get("trace_cache") for document in documents):
        rows.append(
            row("Trace cache lines built", lambda doc: _of(doc, "trace_cache", "lines_built"))
        )
    names = values.told_apart(documents)
    return Table(
        "Each measure is of the whole run", ["Measure", *names], rows, [False] + [True] * len(names)
    )


def _of(document: "plain.Document", part: str, key: str) -> Cell:
    """The count `key` of a part of the results that may be missing."""
    return values.count(document, f"/{part}/{key}") if document.get(part) else "none"


def listed(value: Any) -> str:
    """A value of the description as text. The elements of lists are separated by commas."""
    if isinstance(value, list):
        return ", ".join(listed(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
