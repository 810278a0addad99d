"""The results of `pagewalk managers`, as text and as a page."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pagewalk import here, text
from pagewalk.names import WHY
from pagewalk.report.model import Cell, Figure, Sheet, Table

if TYPE_CHECKING:
    from pagewalk import plain
    from pagewalk.report.charts import Chart

LINUX = "os.manager=linux"
"""The setting that selects Linux's own manager. Users of a real Linux can also apply the other
settings in a row with this one.
"""

_RUNS = ((0, 64 << 10, "runs < 64K"), (64 << 10, 2 << 20, "64K to 2M"), (2 << 20, 1 << 62, "2M up"))
"""The classes of contiguous runs by length in the table. The document has a class for each power of
two.
"""


def listing(kinds: "Sequence[plain.ManagerKind]") -> str:
    """All managers and their keys, for a terminal."""
    parts = []
    for kind in kinds:
        parts.append(
            "\n".join(
                [
                    text.paragraph(f"{kind['name']}: {kind['what']}", "", "  "),
                    text.paragraph("set by " + " ".join(kind["settings"]), "  ", "  "),
                    text.paragraph("keys: " + ", ".join(kind["keys"]), "  ", "  "),
                ]
            )
        )
    return "\n\n".join(parts)


def summary(managed: "plain.Managed") -> str:
    """The results as text for a terminal."""
    parts = []
    for table in managed["traces"]:
        parts.append(text.paragraph(headline(table), "", "  "))
        parts += [_plain(sizes(table)), _plain(costs(table))]
        parts += [
            text.paragraph(f"{name}: {why}", "  ", "  ") for name, why in table["refused"].items()
        ]
    notes = [text.paragraph(note, "  ", "  ") for note in (*whose(managed), *managed["notes"])]
    return "\n\n".join([*parts, "\n".join(["Notes", *notes])])


def render(managed: "plain.Managed") -> str:
    """The page, as the text of an HTML file."""
    from pagewalk.report import page

    figures, charts = [], []
    for table in managed["traces"]:
        for figure, chart in _figures(table):
            figures.append(figure)
            charts.append([chart])
    refused = [
        f"{name} did not run {table['trace']['name']}: {why}"
        for table in managed["traces"]
        for name, why in table["refused"].items()
    ]
    names = ", ".join(table["trace"]["name"] for table in managed["traces"])
    facts = [("Machine", managed["machine"])]
    facts += [("Memory", managed["memory"])] if managed["memory"] else []
    sheet = Sheet(
        title=f"{names}: memory managers",
        subtitle=f"{managed['title']}: the page sizes that each manager gives, and their price",
        figures=figures,
        table=None,
        facts=facts,
        notes=[*refused, *whose(managed), *managed["notes"]],
        version=managed["pagewalk"],
        document=dict(managed),
        finding=[headline(table) for table in managed["traces"]],
    )
    return page.render_sheet(sheet, charts)


def charts(managed: "plain.Managed") -> "dict[str, Chart]":
    """The page's charts by their titles, such as `memory-by-page-size`.

    Equal titles are numbered.
    """
    found = {}
    for number, table in enumerate(managed["traces"], 1):
        for figure, chart in _figures(table):
            name = "-".join(figure.title.lower().replace("'s", "").split())
            found[name if number == 1 else f"{name}-{number}"] = chart
    return found


def shown(managed: "plain.Managed") -> Table:
    """Page sizes and costs by manager, for all traces."""
    head: list[str] = []
    rows: list[list[Cell]] = []
    numeric: list[bool] = []
    for table in managed["traces"]:
        both = sizes(table), costs(table)
        head = ["Trace", *both[0].head, *both[1].head[1:]]
        numeric = [False, *both[0].numeric, *both[1].numeric[1:]]
        rows += [
            [table["trace"]["name"], *got, *cost[1:]]
            for got, cost in zip(both[0].rows, both[1].rows, strict=True)
        ]
    return Table("Page sizes by manager, and what they cost", head, rows, numeric)


def whose(managed: "plain.Managed") -> list[str]:
    """Notes: the machine of the times, whether it is this computer, and the basis of estimates."""
    return list(
        dict.fromkeys(
            line
            for table in managed["traces"]
            if table["how"] is not None
            for line in (
                f"Cycles are for {here.said(managed['machine'], table['here'])}.",
                f"Best estimates: {table['how']}.",
            )
        )
    )


def headline(table: "plain.ManagedTrace") -> str:
    """A sentence about the managers with most large pages, those with fewest misses, and Linux."""
    large, few = _largest(table), _fewest(table)
    both, name = f"{large}; {few}", f"{_least(table)['manager']} "
    if large.startswith(name) and few.startswith(name):
        both = f"{large} and {few.removeprefix(name)}"
    return f"{table['trace']['name']}: {both}.{_on_linux(table)}"


def _on_linux(table: "plain.ManagedTrace") -> str:
    """A sentence that names the setting of Linux with the fewest misses.

    Empty if this setting has the fewest misses of all managers.
    """
    base = table["rows"][0]
    fewest = _least(table)
    linux = [row for row in table["rows"] if LINUX in row["settings"]]
    least = min(linux, key=lambda row: row["tlb_misses"], default=fewest)
    if LINUX in fewest["settings"] or least["tlb_misses"] >= base["tlb_misses"]:
        return ""
    name = least["manager"]
    saved = 1 - least["tlb_misses"] / base["tlb_misses"]
    return (
        f" Of Linux's settings, {name} misses least, {text.percent(saved)} less than "
        f"{base['manager']}."
    )


def _largest(table: "plain.ManagedTrace") -> str:
    largest = max(table["rows"], key=lambda row: row["large_share"])
    if largest["large_share"] == 0:
        return "none gives it large pages"
    return (
        f"{largest['manager']} has most of its memory in large pages "
        f"({text.percent(largest['large_share'])})"
    )


def _least(table: "plain.ManagedTrace") -> "plain.ManagedRow":
    """The row with the fewest misses. Of several such rows, one that a user of Linux can set."""
    return min(table["rows"], key=lambda row: (row["tlb_misses"], LINUX not in row["settings"]))


def _fewest(table: "plain.ManagedTrace") -> str:
    base = table["rows"][0]
    fewest = _least(table)
    if fewest["tlb_misses"] == base["tlb_misses"]:
        return f"none misses less than {base['manager']}"
    saved = 1 - fewest["tlb_misses"] / base["tlb_misses"]
    return f"{fewest['manager']} misses least, {text.percent(saved)} less than {base['manager']}"


def _figures(table: "plain.ManagedTrace") -> Iterator["tuple[Figure, Chart]"]:
    """A trace's figures: page sizes, their reasons, contiguous runs, misses, and kernel work."""
    name, rows = table["trace"]["name"], table["rows"]
    shares = [
        {"manager": row["manager"], "of": size, "share": 100 * bytes_ / max(_mapped(row), 1)}
        for row in rows
        for size, bytes_ in row["mapped_by_size"].items()
    ]
    figure = Figure("Memory by page size", f"{name}: {_largest(table)}.", shares, sizes(table))
    yield figure, _shares(figure)
    if any(row["why"] for row in rows):
        why = [
            {"manager": row["manager"], "of": WHY[reason], "share": 100 * pages / all_}
            for row in rows
            if (all_ := sum(row["why"].values()))
            for reason, pages in sorted(row["why"].items(), key=lambda one: -one[1])
        ]
        what = f"{name}: the reason for the size of each page that a fault or a daemon loaded."
        figure = Figure("Why not larger", what, why, sizes(table))
        yield figure, _shares(figure, are_reasons=True)
    runs = [
        {"manager": row["manager"], "of": label, "share": 100 * share}
        for row in rows
        for (*_, label), share in zip(_RUNS, _in_runs(row), strict=True)
    ]
    longest = max(rows, key=lambda row: _in_runs(row)[-1])
    share = _in_runs(longest)[-1]
    who = (
        "None has runs of 2M and more."
        if share == 0
        else f"{longest['manager']} has the largest share of its memory in runs of 2M and more "
        f"({text.percent(share)})."
    )
    what = (
        "Adjacent pages in adjacent frames, whatever their size: what coalescing TLBs, range TLBs "
        f"and SpOT can use. {who}"
    )
    figure = Figure("Memory by length of run", f"{name}. {what}", runs, sizes(table))
    yield figure, _shares(figure)
    misses = [{"manager": row["manager"], "count": row["tlb_misses"]} for row in rows]
    figure = Figure("Misses", f"{name}: {_fewest(table)}.", misses, costs(table))
    yield figure, _bars(figure, "TLB misses")
    spent = {row["manager"]: row["kernel_cycles"] for row in rows}
    known = {manager: cycles for manager, cycles in spent.items() if cycles is not None}
    if len(known) == len(rows):
        cycles = [{"manager": manager, "count": count} for manager, count in known.items()]
        least = min(known, key=lambda manager: known[manager])
        what = f"{name}: faults, zeroing, copies and scans take least with {least}."
        figure = Figure("The kernel's work", what, cycles, costs(table))
        yield figure, _bars(figure, "cycles")


def sizes(table: "plain.ManagedTrace") -> Table:
    """Sizes, bloat, reasons and contiguity by manager."""
    head = [
        "Manager",
        "in large pages",
        "memory",
        "bloat",
        *(name for *_, name in _RUNS),
        "why not",
    ]
    rows: list[list[Cell]] = []
    for row in table["rows"]:
        bloat = row["bloat_bytes"]
        rows.append(
            [
                row["manager"],
                text.percent(row["large_share"]),
                text.size(row["memory_bytes"]),
                "" if bloat is None else text.size(bloat),
                *map(text.percent, _in_runs(row)),
                _why(row),
            ]
        )
    return Table("Page sizes by manager", head, rows, [False, *[True] * (len(head) - 2), False])


def costs(table: "plain.ManagedTrace") -> Table:
    """Misses and times by manager."""
    head = [
        "Manager", "TLB misses", "references", "cycles of translation", "best estimate",
        "of the kernel", "faults",
        "zeroed", "copied", "shootdowns",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for row in table["rows"]:
        cycles, kernel, work = row["translation_cycles"], row["kernel_cycles"], row["work"]
        best = row["translation_best_cycles"]
        rows.append(
            [
                row["manager"],
                text.count(row["tlb_misses"]),
                text.count(row["references"]),
                text.span(cycles, text.count) if cycles else "",
                "" if best is None else text.count(round(best)),
                "" if kernel is None else text.count(kernel),
                text.count(row["faults"]),
                text.count(work["zeroed"]),
                text.count(work["copied"]),
                text.count(work["shootdowns"]),
            ]
        )
    return Table("What it costs", head, rows, [False, *[True] * (len(head) - 1)])


def _why(row: "plain.ManagedRow") -> str:
    """The two most frequent reasons of pages that did not get the requested size."""
    others = {reason: pages for reason, pages in row["why"].items() if reason != "obtained"}
    most = sorted(others.items(), key=lambda one: -one[1])[:2]
    return ", ".join(f"{WHY[reason]} {text.count(pages)}" for reason, pages in most)


def _mapped(row: "plain.ManagedRow") -> int:
    return sum(row["mapped_by_size"].values())


def _in_runs(row: "plain.ManagedRow") -> list[float]:
    """The share of mapped memory in runs of each class."""
    return [
        sum(run["bytes"] for run in row["runs"] if low <= run["bytes_min"] < high)
        / max(_mapped(row), 1)
        for low, high, _ in _RUNS
    ]


def _shares(figure: Figure, are_reasons: bool = False) -> "Chart":
    import altair as alt

    from pagewalk.report.charts import inline, legend, sized

    kinds, managers = (
        list(dict.fromkeys(row[key] for row in figure.rows)) for key in ("of", "manager")
    )
    above = legend(kinds, beside=max(map(len, managers), default=0))
    color = alt.Color("of:N").title(None).sort(None).legend(above)
    title = "% of decisions" if are_reasons else "% of mapped memory"
    return sized(
        alt.Chart(inline(figure.rows))
        .mark_bar()
        .encode(
            # Rounding may add a little to 100. The axis must not extend to 110 because of this.
            x=alt.X("share:Q")
            .title(title)
            .axis(grid=False, tickCount=5)
            .scale(domain=[0, 100], clamp=True),
            y=alt.Y("manager:N").title(None).sort(None),
            color=color,
            tooltip=["manager:N", "of:N", alt.Tooltip("share:Q", format=".3g")],
        ),
        200,
    )


def _bars(figure: Figure, title: str) -> "Chart":
    import altair as alt

    from pagewalk.report.charts import SI, inline, sized

    return sized(
        alt.Chart(inline(figure.rows))
        .mark_bar()
        .encode(
            x=alt.X("count:Q").title(title).axis(grid=False, tickCount=5, labelExpr=SI),
            y=alt.Y("manager:N").title(None).sort(None),
            tooltip=["manager:N", "count:Q"],
        ),
        200,
    )


def _plain(table: Table) -> str:
    rows: Sequence[Sequence[str]] = [
        [cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows
    ]
    return text.table(table.head, rows, keys=1)
