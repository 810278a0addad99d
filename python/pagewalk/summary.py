"""Results and trace counts as text for a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import here, origins, text
from pagewalk.report import figures, tables, values
from pagewalk.report.model import Table
from pagewalk.report.order import BY_MISSES, Order

if TYPE_CHECKING:
    from pagewalk import plain

REGIONS_SHOWN = 12
SPACES_SHOWN = 12
PROCESSES_SHOWN = 16
COMMAND_SHOWN = 200
"""The maximum number of letters of a command line. All of it is in the JSON document."""
NEARLY_ALL = 0.9
"""If one process makes at least this share of the accesses, the result is attributed to it."""


def summary(data: "plain.Document", order: Order = BY_MISSES) -> str:
    """The results of one run as text.

    It has the settings, the finding, and the numbers behind the finding.
    """
    accesses = values.accesses(data)
    parts = [_heading(data, accesses), finding(data), _switches(data), _tlbs(data, accesses)]
    parts.append("\n".join(text.paragraph(line) for line in tables.several_pages(data)))
    parts.append(_regions(data, order))
    if data.get("processors"):
        parts.append(_processors(data))
    parts.append(_nodes(data))
    if data["walks"]["references"]:
        parts.append(_walks(data))
    if cache := data.get("mmu_cache"):
        parts.append(_mmu_cache("MMU cache", cache, data["walks"]["walks"]))
    if (predicted := tables.spec_tlb(data)) is not None:
        parts.append(_spec_tlb(predicted))
    if (found := tables.spaces(data)) is not None:
        parts.append(_spaces(found))
    if host := data.get("nested"):
        predictions = tables.host_predictions(host, data["walks"])
        parts.append(_nested(host, data["walks"]["walks"], predictions))
    if manager := data.get("manager"):
        parts.append(_manager(manager, data["time"]))
        parts.append(_wished(data))
    parts.append(text.paragraph(values.promoted(data), "", "  ") if data.get("promotion") else "")
    parts.append(_time(data))
    if data["not_modelled"]:
        lines = (text.paragraph(line, "  ", "  ") for line in data["not_modelled"])
        parts.append("\n".join(["Not modelled", *lines]))
    return "\n\n".join(part for part in parts if part)


def finding(data: "plain.Document") -> str:
    """The finding of the run, and what to do about it, in a few sentences."""
    sentences = values.finding(data)
    if advice := data.get("advice"):
        sentences.append(advice["sentence"])
    return "\n".join(text.paragraph(sentence) for sentence in sentences)


def _switches(data: "plain.Document") -> str:
    return "\n".join(text.paragraph(line) for line in values.switches(data))


def side_by_side(documents: "Sequence[plain.Document]") -> str:
    """The results of several runs, a column per machine; empty for one run."""
    if len(documents) < 2:
        return ""
    table = tables.comparison(documents)
    rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows]
    head = ["Side by side", *(text.shorten(name, 24) for name in table.head[1:])]
    found = values.compared(documents, values.told_apart(documents))
    return f"{text.paragraph(found)}\n\n{text.table(head, rows)}"


def trace_summary(name: str, info: dict[str, Any]) -> str:
    """The counts of `pagewalk info`."""
    accesses = sum(info["accesses"].values())
    parts = [_trace_heading(name, info, accesses)]
    if len(info["processes"]) > 1:
        parts.append(_processes(info["processes"], accesses))
    if info["spaces"]:
        parts.append(_trace_spaces(info["spaces"], accesses))
    parts.append(_trace_kinds(info))
    regions = [region for region in info["regions"] if sum(region["accesses"].values())]
    if regions:
        rows = [
            (
                text.shorten(origins.region_name(region), 40),
                text.address(region["start"]),
                text.size(region["bytes"]),
                text.count(sum(region["accesses"].values())),
                text.percent(sum(region["accesses"].values()) / max(accesses, 1)),
                text.count(region["pages"]),
            )
            for region in sorted(regions, key=lambda r: -sum(r["accesses"].values()))
        ]
        shown = rows[:REGIONS_SHOWN]
        parts.append(
            text.table(
                ("Regions", "start", "size", "accesses", "share of accesses", "pages of 4K"), shown
            )
        )
        if len(rows) > len(shown):
            parts[-1] += f"\n  … and {text.plural(len(rows) - len(shown), 'region')} more"
    if info.get("snapshots"):
        parts.append(_real_pages(info))
    events = {name: n for name, n in info["events"].items() if n}
    if events:
        listed = ", ".join(f"{text.count(n)} {name}" for name, n in events.items())
        parts.append(f"Events\n{text.paragraph(listed, '  ')}")
    missing = info["missing"]
    if missing["accesses"] or missing["instructions"]:
        parts.append(
            f"Not in the trace: {text.plural(missing['accesses'], 'access', 'accesses')}, "
            f"{text.plural(missing['instructions'], 'instruction')}"
        )
    parts += [text.paragraph(f"Warning: {warning}", "", "  ") for warning in info["warnings"]]
    if info["header"]["notes"]:
        notes = (text.paragraph(note, "  ", "  ") for note in info["header"]["notes"])
        parts.append("\n".join(["Notes", *notes]))
    return "\n\n".join(parts)


def _real_pages(info: dict[str, Any]) -> str:
    """The page sizes that the kernel gave to the program, from snapshots of `record --pages`."""
    snapshots = info["snapshots"]

    def resident(snapshot: dict[str, Any]) -> int:
        return sum(snapshot["resident_bytes"].values())

    largest = max(snapshots, key=resident)
    last = snapshots[-1]
    lines = [
        f"largest: {_sizes(largest)}",
        *([] if last is largest else [f"last: {_sizes(last)}"]),
    ]
    told = [region for region in info["regions"] if region.get("resident_bytes")]
    sizes = sorted({size for one in told for size in one["resident_bytes"]}, key=text.bytes_of)
    rows = [
        (
            text.shorten(origins.region_name(region), 40),
            text.address(region["start"]),
            *(
                text.size(bytes_) if (bytes_ := region["resident_bytes"].get(size)) else ""
                for size in sizes
            ),
        )
        for region in sorted(told, key=lambda one: -sum(one["resident_bytes"].values()))
    ]
    shown = rows[:REGIONS_SHOWN]
    head = ("Regions when largest", "start", *(f"in pages of {size}" for size in sizes))
    title = f"Pages of the real run ({text.plural(len(snapshots), 'snapshot')})"
    part = "\n".join([title, *(text.paragraph(line, "  ", "  ") for line in lines)])
    if shown:
        part += "\n\n" + text.table(head, shown)
    if len(rows) > len(shown):
        part += f"\n  … and {text.plural(len(rows) - len(shown), 'region')} more"
    return part


def _sizes(snapshot: dict[str, Any]) -> str:
    """The resident bytes in a snapshot, in total and by page size."""
    by_size = snapshot["resident_bytes"]
    total = sum(by_size.values())
    of = ", ".join(
        f"{text.percent(by_size[size] / max(total, 1))} in pages of {size}"
        for size in sorted(by_size, key=text.bytes_of, reverse=True)
    )
    where = f"before access {text.count(snapshot['access'])}"
    return f"{text.size(total)} resident {where}, {of}" if of else f"nothing resident {where}"


def _trace_heading(name: str, info: dict[str, Any], accesses: int) -> str:
    counts = (
        f"{name}: {text.plural(accesses, 'access', 'accesses')}, "
        f"{text.plural(info['instructions'], 'instruction')}, "
        f"{text.plural(info['threads'], 'thread')}"
    )
    made = f"made by {info['header']['producer']}" + (
        f" from {text.command(info['header']['command'], COMMAND_SHOWN)}"
        if info["header"]["command"]
        else ""
    )
    lines = [text.paragraph(counts, "", "  "), text.paragraph(made, "  ", "  ")]
    if info.get("bytes_on_disk"):
        each = info["bytes_on_disk"] / max(accesses, 1)
        lines.append(f"  {text.size(info['bytes_on_disk'])} on disk, {each:.2f} B per access")
    if info.get("digest"):
        lines.append(f"  digest {info['digest']}")
    return "\n".join(lines)


def _trace_spaces(spaces: list[dict[str, Any]], accesses: int) -> str:
    rows = [
        (
            text.shorten(space["name"], 40),
            "" if space["name"] == "kernel" else str(space["space"]),
            text.count(sum(space["accesses"].values())),
            text.percent(sum(space["accesses"].values()) / max(accesses, 1)),
            text.count(space["instructions"]),
            text.count(space["pages"]),
        )
        for space in spaces
    ]
    shown = rows[:SPACES_SHOWN]
    head = ("Spaces", "number", "accesses", "share of accesses", "instructions", "pages of 4K")
    table = text.table(head, shown)
    if len(rows) > len(shown):
        table += f"\n  … and {text.plural(len(rows) - len(shown), 'space')} more"
    return table


def _processes(processes: list[dict[str, Any]], accesses: int) -> str:
    rows = [
        (
            text.command(process["programs"][-1]["command"], 60),
            str(process["number"]),
            "" if process.get("parent") is None else str(process["parent"]),
            str(process["pid"]),
            text.count(process["accesses"]),
            text.percent(process["accesses"] / max(accesses, 1)),
        )
        for process in processes
    ]
    head = ("Processes", "number", "parent", "pid", "accesses", "share of accesses")
    part = text.table(head, rows[:PROCESSES_SHOWN])
    if len(rows) > PROCESSES_SHOWN:
        more = text.plural(len(rows) - PROCESSES_SHOWN, "process", "processes")
        part += f"\n  … and {more} more"
    return part


def _whose(data: "plain.Document") -> str:
    """If there are several processes, and one of them makes nearly all accesses: this process."""
    processes = data["trace"].get("processes", [])
    total = sum(process["accesses"] for process in processes)
    if len(processes) < 2 or not total or processes[0]["accesses"] < NEARLY_ALL * total:
        return ""
    command = processes[0]["programs"][-1]["command"] or ["process"]
    name = command[0].rpartition("/")[2]
    return (
        f"{text.percent(processes[0]['accesses'] / total)} of the accesses of "
        f"{len(processes)} processes are {name}'s ({processes[0]['pid']}); --process takes one"
    )


def _trace_kinds(info: dict[str, Any]) -> str:
    rows = [
        (
            kind,
            text.count(number),
            text.count(info["pages"][kind]),
            text.count(info["lines"][kind]),
        )
        for kind, number in info["accesses"].items()
    ]
    total = sum(info["accesses"].values())
    pages, lines = info["pages"]["total"], info["lines"]["total"]
    rows.append(("all", text.count(total), text.count(pages), text.count(lines)))
    return text.table(("Kinds", "accesses", "pages of 4K", "lines of 64 B"), rows)


def _heading(data: "plain.Document", accesses: int) -> str:
    machine, kinds = data["machine"], data["accesses"]
    changed = f" with {', '.join(machine['settings'])}" if machine["settings"] else ""
    counts = (("fetches", kinds["fetch"]), ("loads", kinds["load"]), ("stores", kinds["store"]))
    by_kind = ", ".join(f"{text.count(count)} {many}" for many, count in counts if count)
    ran = (
        f"{text.plural(accesses, 'access', 'accesses')}{f' ({by_kind})' if by_kind else ''}, "
        f"{text.plural(data['instructions'], 'instruction')}, "
        f"{text.plural(data['threads'], 'thread')}"
    )
    lines = [
        text.paragraph(f"{data['trace'].get('name', 'trace')} on {machine['name']}{changed}"),
        text.paragraph(machine["title"], "  "),
        text.paragraph(ran, "  ", "  "),
    ]
    if whose := _whose(data):
        lines.append(text.paragraph(whose, "  ", "  "))
    return "\n".join(lines)


def _tlbs(data: "plain.Document", accesses: int) -> str:
    rows = [
        (
            tlb["name"],
            text.count(tlb["entries"]),
            text.count(tlb["lookups"]),
            text.count(tlb["misses"]),
            text.percent(tlb["misses"] / max(tlb["lookups"], 1)),
            text.ratio(1000 * tlb["misses"] / max(accesses, 1)),
            text.count(tlb["cold_misses"]),
        )
        for tlb in data["tlbs"]
    ]
    head = (
        "TLBs", "entries", "lookups", "misses", "misses per lookup", "misses per 1000 accesses",
        "first touches",
    )  # fmt: skip
    return text.table(head, rows)


def _processors(data: "plain.Document") -> str:
    rows = []
    for one in data["processors"]:
        accesses = values.of_all_kinds(one["accesses"])
        shot = one["shootdowns"]
        rows.append(
            (
                str(one["number"]),
                text.count(accesses),
                text.count(one["instructions"]),
                text.count(one["switches"]),
                text.count(one["walks"]["walks"]),
                text.ratio(1000 * one["walks"]["walks"] / max(accesses, 1)),
                text.count(shot["made"]),
                text.count(shot["received"]),
                text.count(shot["entries"]),
            )
        )
    head = (
        "Processors", "accesses", "instructions", "switches", "walks", "walks per 1000 accesses",
        "shootdowns made", "shootdowns received", "entries flushed",
    )  # fmt: skip
    return f"{text.table(head, rows)}\n{text.paragraph(values.shootdowns(data), '  ')}"


def _nodes(data: "plain.Document") -> str:
    table = tables.nodes(data)
    if table is None:
        return ""
    cells = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows]
    head = (
        "Nodes", "processors", "distances", "memory", "in use", "misses", "local",
        "local accesses", "local walk references",
    )  # fmt: skip
    return f"{text.table(head, cells)}\n{text.paragraph(table.caption, '  ', '  ')}"


def _walks(data: "plain.Document") -> str:
    walks = data["walks"]
    lines = [
        text.paragraph(
            f"Walks: {text.count(walks['walks'])}, of them {text.count(walks['cold'])} to the "
            f"first touch of a page; {text.plural(walks['references'], 'reference')}, "
            f"{values.per_walk(data).text} each where the page is mapped"
        )
    ]
    if (handler := walks.get("handler_instructions")) is not None:
        lines.append(
            f"  by software: {text.ratio(handler / max(walks['walks'], 1))} "
            "instructions of the handler per refill"
        )
    if walks.get("nested_misses"):
        levels = ", ".join(
            f"{text.count(n)} at level {level}" for level, n in walks["nested_misses"]
        )
        lines.append(f"  misses on the page table itself: {levels}")
    places = [cache["name"] for cache in data["caches"]] + ["memory"]
    places = [p for p in places if any(level["served"].get(p) for level in walks["by_level"])]
    rows = [
        (
            f"level {level['level']}",
            text.count(level["references"]),
            *(
                text.percent(level["served"].get(place, 0) / max(level["references"], 1))
                for place in places
            ),
        )
        for level in walks["by_level"]
    ]
    if rows:
        shares = [f"served by {place}" for place in places]
        lines.append(text.table(("Levels of the page table", "references", *shares), rows))
    return "\n".join(lines)


def _spec_tlb(table: Table) -> str:
    rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows]
    return text.paragraph(f"SpecTLB: {table.caption}") + "\n" + text.table(table.head, rows)


def _spaces(found: Table) -> str:
    rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in found.rows]
    return text.table(found.head, rows) + "\n" + text.paragraph(found.caption, "  ")


def _nested(host: "plain.NestedCounts", guest_walks: int, predictions: list[str]) -> str:
    walked = f"{text.plural(host['walks'], 'walk')} with"
    lines = [
        text.paragraph(
            f"Host: pages of {host['page_size']}, {text.count(host['first_touches'])} of them "
            f"backed; {walked} {text.plural(host['references'], 'reference')}"
        )
    ]
    if host["tlb"]:
        tlb = host["tlb"]
        lines.append(
            f"  nested TLB: {text.count(tlb['misses'])} of {text.count(tlb['lookups'])} lookups "
            f"missed, {text.percent(tlb['misses'] / max(tlb['lookups'], 1))}"
        )
    if host["splintered"]:
        lines.append(
            text.paragraph(
                f"{text.plural(host['splintered'], 'walk')} of {text.count(guest_walks)} found a "
                "page larger than the host's: the TLB was given a part of it",
                "  ",
            )
        )
    if host["mmu_cache"]:
        lines.append(_mmu_cache("MMU cache of the host", host["mmu_cache"], host["walks"]))
    lines += [text.paragraph(line, "  ") for line in predictions]
    return "\n".join(lines)


def _reservations(manager: "plain.ManagerCounts", work: dict[str, int]) -> list[str]:
    counts = manager.get("reservations")
    lines = []
    for of in counts["sizes"] if counts else []:
        elsewhere = [f"{text.count(n)} {why}" for why, n in of["unplaced"].items() if n]
        lines.append(
            text.paragraph(
                f"reservations of {of['size']}: {text.count(of['made'])} made, "
                f"{text.count(of['filled'])} filled, {text.count(of['emptied'])} given back empty, "
                f"broken: {values.broken(of['broken'])}; "
                f"{text.plural(of['placed'], 'page')} placed, "
                f"not placed: {', '.join(elsewhere) or 'none'}",
                "  ",
            )
        )
    if lines:
        lines.append(
            f"  {text.plural(work['upgrades'], 'page')} promoted, "
            f"{text.count(work['downgrades'])} demoted"
        )
    return lines


def _devices(manager: "plain.ManagerCounts") -> list[str]:
    devices = manager.get("devices")
    if not devices:
        return []
    reservations = manager.get("reservations")
    of_reservations = reservations.get("marks_cleared", 0) if reservations else 0
    cleared = of_reservations + devices["marks_cleared"]
    line = (
        f"devices: {text.plural(devices['lent'], 'frame')} lent, {text.count(devices['returned'])} "
        f"given back, {text.count(devices['refused'])} refused"
    )
    blocks = (
        f", {text.plural(devices['blocks'], 'block')} of their own" if devices["blocks"] else ""
    )
    marks = f"; {text.plural(cleared, 'mark')} cleared" if cleared else ""
    return [text.paragraph(line + blocks + marks, "  ")]


def _manager(manager: "plain.ManagerCounts", time: "plain.Time | None") -> str:
    answered = {how: n for how, n in manager["faults"].items() if n}
    faults = ", ".join(f"{text.count(n)} {how}" for how, n in answered.items())
    uses: Mapping[str, Any] = manager["bytes"]
    kinds = ", ".join(f"{text.size(n)} {kind}" for kind, n in uses.items() if n)
    work = manager["work"]
    kernel = time.get("kernel") if time else None
    cost = []
    if kernel:
        low, high = (text.percent(end) for end in (kernel["share"]["lo"], kernel["share"]["hi"]))
        cost = [
            f"  kernel: {text.count(kernel['cycles'])} cycles, waiting for disks "
            f"{text.count(kernel['io_cycles'])}; {low} to {high} of all cycles"
        ]
    return "\n".join(
        [
            f"Memory, {manager['replacement']}: {kinds}",
            f"  faults: {faults or 'none'}",
            f"  {text.plural(work['reads'], 'page')} read and {text.count(work['writes'])} "
            f"written, {text.count(work['zeroed'])} frames zeroed and "
            f"{text.count(work['copied'])} copied",
            *_reservations(manager, work),
            *_devices(manager),
            *cost,
        ]
    )


def _wished(data: "plain.Document") -> str:
    """The requested and the actual page sizes by region, and the daemon's work."""
    parts = []
    found = tables.wished(data)
    if found is not None:
        rows = [[c if isinstance(c, str) else c.text for c in row] for row in found.rows]
        head = ["Page sizes", *(name.lower() for name in found.head[1:])]
        parts.append(text.table(head, rows[:REGIONS_SHOWN]))
        if len(rows) > REGIONS_SHOWN:
            parts[-1] += f"\n  … and {text.plural(len(rows) - REGIONS_SHOWN, 'row')} more"
    daemon = figures.daemon(data)
    if daemon is not None:
        parts.append(text.paragraph(f"Coalescing daemon: {daemon.sentence}", "", "  "))
    return "\n".join(parts)


def _mmu_cache(name: str, cache: "plain.MmuCacheCounts", walks: int) -> str:
    sizes = " + ".join(text.count(array["entries"]) for array in cache["arrays"])
    lines = [
        text.paragraph(
            f"{name}: {cache['design']}, {sizes} entries, {cache['replacement']}; "
            f"{text.plural(cache['searches'], 'search', 'searches')}, "
            f"{text.ratio(cache['searches'] / max(walks, 1))} per walk"
        )
    ]
    rows = [
        (
            f"level {level['level']}",
            text.count(level["needed"]),
            text.count(level["held"]),
            text.percent(level["held"] / level["needed"]),
        )
        for level in cache["by_level"]
    ]
    if rows:
        lines.append(text.table(("Entries of", "needed by walks", "hits", "hit rate"), rows))
    return "\n".join(lines)


def _regions(data: "plain.Document", order: Order) -> str:
    regions = [data["regions"][at] for at in order.of(data["regions"])]
    total = max(sum(region["misses"] for region in regions), 1)
    rows = [
        (
            text.shorten(origins.region_name(region), 40),
            text.size(region["bytes"]),
            text.count(region["lookups"]),
            text.count(region["misses"]),
            text.percent(region["misses"] / total),
            text.count(region["walk_references"]),
        )
        for region in regions[: order.top or REGIONS_SHOWN]
    ]
    if not rows:
        return ""
    head = ("Regions", "size", "lookups", "misses", "share of misses", "walk references")
    more = len(regions) - len(rows)
    tail = f"\n  … and {text.plural(more, 'region')} more" if more else ""
    return text.table(head, rows) + tail


def _time(data: "plain.Document") -> str:
    time, ran = data["time"], data.get("native")
    native = values.native_lines(ran) if ran else []
    if time is None:
        unknown = "Time: not known, because the machine file leaves out latencies"
        return "\n".join(_wrapped([unknown, *native]))
    cycles, program = time["cycles_per_access"], time["program_cycles"]
    lines = [
        f"Time in translation: {values.share_range(time)} of all cycles, "
        f"{text.span(cycles, text.ratio)} cycles per access"
    ]
    estimate = data.get("estimate")
    if estimate:
        best = text.percent(estimate["share"])
        best += f", {text.ratio(estimate['ms'])} ms" if estimate["ms"] is not None else ""
        lines.append(f"  best estimate {best}: {estimate['how']}")
        lines.append(f"  for {here.said(data['machine']['name'], estimate['here'])}")
    lines += [f"  {line}" for line in values.share_ends(time)]
    lines.append(f"  the program without translation: {text.span(program, text.count)} cycles")
    return "\n".join(_wrapped([*lines, *native]))


def _wrapped(lines: Sequence[str]) -> list[str]:
    """The lines, wrapped to the width of the terminal.

    Continued lines keep the indent of their line.
    """
    found = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        found.append(text.paragraph(line.strip(), indent, "  "))
    return found
