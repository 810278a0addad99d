"""What `pagewalk managers` found, as text and as a page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report.model import Cell, Figure, Sheet, Table

if TYPE_CHECKING:
    from pagewalk.report.charts import Chart

_RUNS = ((0, 64 << 10, "runs < 64K"), (64 << 10, 2 << 20, "64K to 2M"), (2 << 20, 1 << 62, "2M up"))
"""Classes of runs in the table; the document has them by powers of two."""


def listing(kinds: Sequence[Mapping[str, Any]]) -> str:
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


def summary(managed: Mapping[str, Any]) -> str:
    """For a terminal."""
    parts = []
    for table in managed["traces"]:
        parts.append(text.paragraph(headline(table), "", "  "))
        parts += [_plain(sizes(table)), _plain(costs(table))]
        parts += [
            text.paragraph(f"{name}: {why}", "  ", "  ") for name, why in table["refused"].items()
        ]
    notes = [text.paragraph(note, "  ", "  ") for note in managed["notes"]]
    return "\n\n".join([*parts, "\n".join(["Notes", *notes])])


def render(managed: Mapping[str, Any]) -> str:
    """The page, as the text of an HTML file."""
    from pagewalk.report import page

    figures, charts = [], []
    for table in managed["traces"]:
        rows = [
            {"manager": row["manager"], "size": size, "share": 100 * bytes_ / max(_mapped(row), 1)}
            for row in table["rows"]
            for size, bytes_ in row["mapped_by_size"].items()
        ]
        figure = Figure("Memory by page size", headline(table), rows, sizes(table))
        other = Figure("Misses", headline(table), _misses(table), costs(table))
        figures += [figure, other]
        charts += [[_shares(figure)], [_bars(other)]]
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
        subtitle=f"{managed['title']}; each row was run",
        figures=figures,
        table=None,
        facts=facts,
        notes=[*refused, *managed["notes"]],
        version=managed["pagewalk"],
        document=dict(managed),
    )
    return page.render_sheet(sheet, charts)


def headline(table: Mapping[str, Any]) -> str:
    """Who has most large pages, who the fewest misses."""
    rows = table["rows"]
    fewest = min(rows, key=lambda row: row["tlb_misses"])
    largest = max(rows, key=lambda row: row["large_share"])
    base = rows[0]
    large = "none gives it large pages"
    if largest["large_share"] > 0:
        share = text.percent(largest["large_share"])
        large = f"{largest['manager']} has most of its memory in large pages ({share})"
    misses = f"none misses less than {base['manager']}"
    if fewest["tlb_misses"] < base["tlb_misses"]:
        saved = text.percent(1 - fewest["tlb_misses"] / base["tlb_misses"])
        misses = f"{fewest['manager']} misses least, {saved} less than {base['manager']}"
    return f"{table['trace']['name']}: {large}; {misses}."


def sizes(table: Mapping[str, Any]) -> Table:
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
        mapped = max(_mapped(row), 1)
        runs = [
            sum(run["bytes"] for run in row["runs"] if low <= run["bytes_min"] < high) / mapped
            for low, high, _ in _RUNS
        ]
        bloat = row["bloat_bytes"]
        rows.append(
            [
                row["manager"],
                text.percent(row["large_share"]),
                text.size(row["memory_bytes"]),
                "" if bloat is None else f"{'-' if bloat < 0 else ''}{text.size(abs(bloat))}",
                *map(text.percent, runs),
                _why(row),
            ]
        )
    return Table("Page sizes by manager", head, rows, [False, *[True] * (len(head) - 2), False])


def costs(table: Mapping[str, Any]) -> Table:
    """Misses and times by manager."""
    head = [
        "Manager", "TLB misses", "references", "cycles of translation", "of the kernel", "faults",
        "zeroed", "copied", "shootdowns",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for row in table["rows"]:
        cycles, kernel, work = row["translation_cycles"], row["kernel_cycles"], row["work"]
        rows.append(
            [
                row["manager"],
                text.count(row["tlb_misses"]),
                text.count(row["references"]),
                text.span(cycles, text.count) if cycles else "",
                "" if kernel is None else text.count(kernel),
                text.count(row["faults"]),
                text.count(work["zeroed"]),
                text.count(work["copied"]),
                text.count(work["shootdowns"]),
            ]
        )
    return Table("What it costs", head, rows, [False, *[True] * (len(head) - 1)])


def _why(row: Mapping[str, Any]) -> str:
    """The two reasons that most pages have, but for having what was wanted."""
    others = {reason: pages for reason, pages in row["why"].items() if reason != "obtained"}
    most = sorted(others.items(), key=lambda one: -one[1])[:2]
    return ", ".join(f"{reason} {text.count(pages)}" for reason, pages in most)


def _mapped(row: Mapping[str, Any]) -> int:
    return sum(row["mapped_by_size"].values())


def _misses(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"manager": row["manager"], "misses": row["tlb_misses"]} for row in table["rows"]]


def _shares(figure: Figure) -> "Chart":
    import altair as alt

    from pagewalk.report.charts import inline, sized

    return sized(
        alt.Chart(inline(figure.rows))
        .mark_bar()
        .encode(
            x=alt.X("share:Q").title("% of mapped memory").axis(grid=False),
            y=alt.Y("manager:N").title(None).sort(None),
            color=alt.Color("size:N").title(None).legend(orient="top", direction="horizontal"),
            tooltip=["manager:N", "size:N", alt.Tooltip("share:Q", format=".3g")],
        ),
        200,
    )


def _bars(figure: Figure) -> "Chart":
    import altair as alt

    from pagewalk.report.charts import inline, sized

    return sized(
        alt.Chart(inline(figure.rows))
        .mark_bar()
        .encode(
            x=alt.X("misses:Q").title("TLB misses").axis(grid=False),
            y=alt.Y("manager:N").title(None).sort(None),
            tooltip=["manager:N", "misses:Q"],
        ),
        200,
    )


def _plain(table: Table) -> str:
    rows: Sequence[Sequence[str]] = [
        [cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows
    ]
    return text.table(table.head, rows, keys=1)
