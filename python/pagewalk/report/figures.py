"""The figures of a report except the map, such as misses over time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report import values
from pagewalk.report.model import Cell, Figure, Table, Value

if TYPE_CHECKING:
    from pagewalk import plain

TIMELINE_BINS_MAX = 240
TABLE_ROWS_MAX = 48


def timeline(document: "plain.Document") -> Figure | None:
    """Misses per 1000 accesses over time.

    There are lines for the first level and for all levels; first touches are separate.
    """
    line = document["timeline"]
    bins = len(line["misses"])
    if not bins or not values.accesses(document):
        return None
    length = values.length(document)
    merged = -(-bins // TIMELINE_BINS_MAX)
    rows = []
    for first in range(0, bins, merged):
        start = first * line["bin_accesses"]
        end = min((first + merged) * line["bin_accesses"], length)
        window = slice(first, first + merged)
        thousands = (end - start) / 1000
        misses, cold = sum(line["misses"][window]), sum(line["cold_misses"][window])
        rows.append(
            {
                "start": start,
                "end": end,
                "l1": sum(line["l1_misses"][window]) / thousands,
                "again": (misses - cold) / thousands,
                "cold": cold / thousands,
            }
        )
    total, cold = sum(line["misses"]), sum(line["cold_misses"])
    peak = max(rows, key=lambda row: row["again"] + row["cold"])
    sentence = (
        f"On average {text.ratio(1000 * total / length)} of 1000 accesses miss every TLB, "
        f"{text.percent(cold / total) if total else '0 %'} of them on the first touch of a page; "
        f"at most {text.ratio(peak['again'] + peak['cold'])} in 1000, from access "
        f"{text.count(peak['start'])} on."
    )
    table = Table(
        "Misses per 1000 accesses, at some points in time",
        ["From access", "L1 misses", "Misses of every TLB", "First touches"],
        [
            [
                Value(text.count(row["start"]), row["start"]),
                Value(text.ratio(row["l1"]), row["l1"]),
                Value(text.ratio(row["again"] + row["cold"]), row["again"] + row["cold"]),
                Value(text.ratio(row["cold"]), row["cold"]),
            ]
            for row in _thin(rows)
        ],
        [True] * 4,
    )
    return Figure("Misses over time", sentence, rows, table)


LARGE = 2 << 20
"""A free block of at least this size counts as large. It is the next page size of most machines."""

MEMORY = ("anonymous", "file", "shared", "tables", "reserved")
"""The uses of frames that are in use or reserved, in the order in which they are drawn."""

SWAP = "in swap"
"""Pages in swap, shown beside the uses of frames."""


def memory(document: "plain.Document") -> Figure | None:
    """Memory by use, over time, if the machine has a manager that reports it."""
    manager = document.get("manager")
    if not manager:
        return None
    now: Mapping[str, Any] = manager["bytes"]
    samples: list[Mapping[str, Any]] = [*manager["over_time"]]
    kinds = [kind for kind in MEMORY if now.get(kind) or any(row.get(kind) for row in samples)]
    points = [*samples, {"access": values.length(document), **now}]
    most = max(points, key=lambda point: point["swapped"])
    swapped = [("swapped", SWAP)] if most["swapped"] else []
    names = [*((kind, kind) for kind in kinds), *swapped]
    rows = [
        {"start": point["access"], **{name: point.get(key, 0) / 2**20 for key, name in names}}
        for point in points
    ]
    used = ", ".join(f"{text.size(now[kind])} {kind}" for kind in kinds if now[kind])
    total = document["memory"]["frames_total_bytes"]
    sentence = (
        f"At the end {text.size(now['free'])} of {text.size(total)} are free and "
        f"{text.size(now['swapped'])} in swap; in use: {used or 'nothing'}."
    )
    if swapped:
        sentence += (
            f" Most in swap: {text.size(most['swapped'])}, from access "
            f"{text.count(most['access'])} on."
        )
    table = Table(
        "Memory at some points in time",
        ["From access", *(name.capitalize() for _, name in names)],
        [
            [
                Value(text.count(point["access"]), point["access"]),
                *(Value(text.size(point.get(key, 0)), point.get(key, 0)) for key, _ in names),
            ]
            for point in _thin(points)
        ],
        [True] * (1 + len(names)),
    )
    return Figure("Memory over time", sentence, rows, table)


def page_sizes(document: "plain.Document") -> Figure | None:
    """Mapped memory by page size, over time, if there are several sizes."""
    manager = document.get("manager")
    if not manager:
        return None
    now = document["memory"]["pages_by_size"]
    end = {"access": values.length(document), "pages_by_size": now}
    points: list[Mapping[str, Any]] = [*manager["over_time"], end]
    sizes = sorted({size for at in points for size in at["pages_by_size"]}, key=text.bytes_of)
    if len(sizes) < 2:
        return None

    def mapped(point: Mapping[str, Any], size: str) -> int:
        return int(point["pages_by_size"].get(size, 0)) * text.bytes_of(size)

    rows = [
        {"start": at["access"], **{size: mapped(at, size) / 2**20 for size in sizes}}
        for at in points
    ]
    most = max(points, key=lambda at: sum(mapped(at, size) for size in sizes))
    shares = ", ".join(f"{text.size(mapped(most, size))} in pages of {size}" for size in sizes)
    table = Table(
        "Mapped memory by page size at some points in time",
        ["From access", *sizes],
        [
            [
                Value(text.count(at["access"]), at["access"]),
                *(Value(text.size(mapped(at, size)), mapped(at, size)) for size in sizes),
            ]
            for at in _thin(points)
        ],
        [True] * (1 + len(sizes)),
    )
    # A program's memory is unmapped when it ends, so its last moment would show nothing.
    sentence = f"When most is mapped, from access {text.count(most['access'])} on: {shares}."
    return Figure("Mapped memory by page size", sentence, rows, table)


def daemon(document: "plain.Document") -> Figure | None:
    """Pages that the coalescing daemon moved, and large pages that it made, over time."""
    manager = document.get("manager")
    found = manager.get("daemon") if manager else None
    if not found or not found["over_time"]:
        return None
    samples = found["over_time"]
    # A sample counts the work before its access, but a step of the chart is drawn after its start.
    starts = [0, *(sample["access"] for sample in samples)]
    rows: list[dict[str, Any]] = [
        {"start": start, "moved": sample["moved"]}
        for start, sample in zip(starts, samples, strict=False)
    ]
    rows.append({"start": starts[-1], "moved": 0})
    levels = ", ".join(
        f"{text.plural(counts['passes'], level + ' pass', level + ' passes')} made "
        f"{text.count(counts['made'])}"
        for level, counts in found["levels"].items()
        if counts["passes"]
    )
    moved = text.plural(sum(sample["moved"] for sample in samples), "base page")
    sentence = f"Large free pages: {levels or 'no pass was made'}; {moved} moved for them."
    keys = ("passes", "made", "moved", "flushes")
    table = Table(
        "The daemon's work up to some points in time",
        ["Up to access", "Passes", "Large pages made", "Base pages moved", "Shootdowns"],
        [
            [
                Value(text.count(sample["access"]), sample["access"]),
                *(Value(text.count(sample[key]), sample[key]) for key in keys),
            ]
            for sample in _summed(samples)
        ],
        [True] * 5,
    )
    return Figure("The coalescing daemon over time", sentence, rows, table)


def _summed(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, int]]:
    """At most twenty samples. Each counts the work since the previous sample."""
    step = -(-len(samples) // 20)
    return [
        {
            "access": samples[min(first + step, len(samples)) - 1]["access"],
            **{
                key: sum(sample[key] for sample in samples[first : first + step])
                for key in ("passes", "made", "moved", "flushes")
            },
        }
        for first in range(0, len(samples), step)
    ]


def reservations(document: "plain.Document") -> Figure | None:
    """Reservations made, filled and broken over time, if the manager makes reservations."""
    manager = document.get("manager")
    counts = manager.get("reservations") if manager else None
    if not manager or not counts:
        return None
    last = {"access": values.length(document), "reservations": _all_sizes(counts["sizes"])}
    points: list[Mapping[str, Any]] = [*manager["over_time"], last]

    def what(point: Mapping[str, Any]) -> dict[str, int]:
        held = point["reservations"]
        broken = {f"broken {values.BROKEN[why]}": n for why, n in held["broken"].items()}
        return {"made": held["made"], "filled": held["filled"], **broken}

    kinds = [kind for kind, count in what(last).items() if count or kind in ("made", "filled")]
    rows = [
        {"start": point["access"], **{kind: what(point)[kind] for kind in kinds}}
        for point in points
    ]
    by_size = "; ".join(
        f"of {of['size']}: {text.count(of['made'])} made, {text.count(of['filled'])} filled, "
        f"{text.count(of['emptied'])} given back empty, "
        f"broken: {values.broken(of['broken'])}"
        for of in counts["sizes"]
    )
    table = Table(
        "Reservations till some points in time",
        ["Till access", *(kind.capitalize() for kind in kinds)],
        [
            [
                Value(text.count(point["access"]), point["access"]),
                *(Value(text.count(what(point)[kind]), what(point)[kind]) for kind in kinds),
            ]
            for point in _thin(points)
        ],
        [True] * (1 + len(kinds)),
    )
    return Figure("Reservations over time", f"Reservations {by_size}.", rows, table)


def _all_sizes(sizes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    broken: dict[str, int] = {}
    for of in sizes:
        for why, count in of["broken"].items():
            broken[why] = broken.get(why, 0) + count
    return {
        "made": sum(of["made"] for of in sizes),
        "filled": sum(of["filled"] for of in sizes),
        "broken": broken,
    }


def free(document: "plain.Document") -> Figure | None:
    """Free memory by the size of its blocks, if the machine has a manager that reports it."""
    if not document.get("manager"):
        return None
    blocks = document["memory"]["free_by_size"]
    sizes = sorted(blocks, key=text.bytes_of)
    rows: list[dict[str, Any]] = [
        {
            "order": order,
            "size": size,
            "blocks": blocks[size],
            "mib": blocks[size] * text.bytes_of(size) / 2**20,
        }
        for order, size in enumerate(sizes)
    ]
    total = sum(row["mib"] for row in rows)
    large = sum(row["mib"] for row in rows if text.bytes_of(row["size"]) >= LARGE)
    share = text.percent(large / total) if total else "none"
    sentence = f"At the end {share} of the free memory lies in blocks of 2M and more."
    table = Table(
        "Free memory by the size of its blocks",
        ["Blocks of", "Blocks", "MiB"],
        [
            [
                row["size"],
                values.count(document, f"/memory/free_by_size/{row['size']}"),
                Value(text.ratio(row["mib"]), row["mib"]),
            ]
            for row in rows
        ],
        [False, True, True],
    )
    return Figure("Free memory by size", sentence, rows, table)


def kernel(document: "plain.Document") -> Figure | None:
    """The kernel's cycles by kind of work, if its work has prices.

    Waiting for disks can take a thousand times as long as all other work. If it takes most of the
    time, only the sentence and the table contain it, and the picture shows the other work.
    """
    time = document.get("time")
    cost = time.get("kernel") if time else None
    if not cost:
        return None
    disks = "waiting for disks"
    parts = {**cost["by_work"], disks: cost["io_cycles"]}
    parts = {name.replace("_", " "): cycles for name, cycles in parts.items() if cycles}
    rows: list[dict[str, Any]] = [
        {"work": name, "cycles": cycles}
        for name, cycles in sorted(parts.items(), key=lambda part: -part[1])
    ]
    total = sum(parts.values())
    if not total:
        return None
    low, high = (text.percent(cost["share"][end]) for end in ("lo", "hi"))
    share = low if low == high else f"{low} to {high}"
    sentence = f"{text.count(total)} cycles, {share} of all."
    shown = [row for row in rows if row["work"] != disks]
    if not total / 2 < parts.get(disks, 0) < total:
        shown = rows
    else:
        sentence += (
            f" {text.count(parts[disks])} of them wait for disks. The picture has the other "
            f"{text.count(total - parts[disks])}."
        )
    table = Table(
        "The kernel's cycles by what was done",
        ["Work", "Cycles", "Share of cycles"],
        [
            [
                row["work"],
                Value(text.count(row["cycles"]), row["cycles"]),
                values.share(row["cycles"], total),
            ]
            for row in rows
        ],
        [False, True, True],
        [row["cycles"] / total for row in rows],
    )
    return Figure("What the kernel took", sentence, shown, table)


def together(documents: "Sequence[plain.Document]") -> Figure | None:
    """The misses over time of all machines in one chart.

    Time is shown as a share of the run, because machines that leave accesses out run fewer accesses
    of the same trace.
    """
    rows = []
    for document, label in zip(documents, values.told_apart(documents), strict=True):
        figure = timeline(document)
        if figure is None:
            return None
        rows += [
            {
                "share": row["start"] / figure.rows[-1]["end"],
                "machine": label,
                "misses": row["again"] + row["cold"],
            }
            for row in figure.rows
        ]
    labels = list(dict.fromkeys(row["machine"] for row in rows))
    means = {
        label: 1000 * values.missing_all(document) / max(values.accesses(document), 1)
        for label, document in zip(labels, documents, strict=False)
    }
    sentence = (
        "Misses of every TLB per 1000 accesses, on average: "
        + ", ".join(f"{label} {text.ratio(mean)}" for label, mean in means.items())
        + "."
    )
    table = Table(
        "Misses of every TLB per 1000 accesses, at some points in time",
        ["Machine", "From", "Misses"],
        [
            [
                row["machine"],
                Value(text.percent(row["share"]), row["share"]),
                Value(text.ratio(row["misses"]), row["misses"]),
            ]
            for name in labels
            for row in _thin([row for row in rows if row["machine"] == name])
        ],
        [False, True, True],
    )
    return Figure("Misses over time, side by side", sentence, rows, table)


def serving(document: "plain.Document") -> Figure | None:
    """Walk references by level of the page table and by serving cache, nearest first."""
    walks = document["walks"]
    if not walks["references"]:
        return None
    places = list(
        dict.fromkeys(
            [cache["name"] for cache in document["caches"]]
            + [place for level in walks["by_level"] for place in level["served"]]
        )
    )
    places = sorted(places, key=lambda place: place == "memory")
    rows = [
        {
            "level": f"level {level['level']}",
            "place": place,
            "order": places.index(place),
            "references": level["served"].get(place, 0),
            "per_walk": level["served"].get(place, 0) / max(walks["walks"], 1),
        }
        for level in walks["by_level"]
        for place in places
        if level["served"].get(place, 0)
    ]
    cells: list[list[Cell]] = []
    for index, level in enumerate(walks["by_level"]):
        at = f"/walks/by_level/{index}"
        cells.append(
            [
                f"level {level['level']}",
                values.count(document, f"{at}/references"),
                *(
                    values.count(document, f"{at}/served/{place}")
                    if place in level["served"]
                    else "-"
                    for place in places
                ),
            ]
        )
    served = {
        place: sum(level["served"].get(place, 0) for level in walks["by_level"]) for place in places
    }
    sentence = (
        f"{text.count(walks['references'])} references in {text.count(walks['walks'])} walks: "
        + ", ".join(
            f"{text.percent(number / walks['references'])} served by {place}"
            for place, number in served.items()
            if number
        )
        + "."
    )
    table = Table(
        "Walk references by level of the page table and by what served them",
        ["Level", "References", *places],
        cells,
        [False] + [True] * (1 + len(places)),
    )
    return Figure("Where walk references are served", sentence, rows, table)


def _thin(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A selection of rows at equal distances, so that the table is not too long."""
    return list(rows[:: max(1, -(-len(rows) // TABLE_ROWS_MAX))])
