"""What `pagewalk advise` found, as text and as a page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import text
from pagewalk.report.model import Cell, Figure, Sheet, Table, ToDo

if TYPE_CHECKING:
    from pagewalk.report.charts import Chart

_HEAD = ["misses", "first touches", "memory added", "cycles gained", "ms gained"]


def summary(advised: Mapping[str, Any]) -> str:
    """For a terminal."""
    parts = [text.paragraph(headline(advised), "", "  ")]
    parts.append(_plain(alone(advised), keys=2))
    parts.append(_plain(sets(advised)))
    lines = []
    for region in advised["regions"]:
        lines.append(
            text.paragraph(
                f"{region['name']}: {region['size'] or 'base pages'}; {region['reason']}",
                "  ",
                "  ",
            )
        )
        if region["write"] is not None:
            lines.append(text.paragraph(region["write"], "    ", "  "))
    if lines:
        parts.append("\n".join(["What to write", *lines]))
    for code, names in codes(advised):
        shown = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
        parts.append(f"{text.paragraph('The code for ' + ', '.join(names), '', '  ')}\n\n{shown}")
    notes = [text.paragraph(note, "  ", "  ") for note in advised["notes"]]
    return "\n\n".join([*parts, "\n".join(["Notes", *notes])])


def render(advised: Mapping[str, Any]) -> str:
    """The page, as the text of an HTML file."""
    from pagewalk.report import page
    from pagewalk.report.data import trace_facts

    rows = [
        {
            "memory": run["memory_added_bytes"] / (1 << 20),
            "gain": run["gain_cycles"]["hi"] / 1e6 if run["gain_cycles"] else saved(advised, run),
            "rules": ", ".join(run["rules"]),
            "which": "advised" if run == advised["best"] else "tried",
        }
        for run in advised["sets"]
    ]
    figure = Figure("Gain against memory", headline(advised), rows, sets(advised))
    sheet = Sheet(
        title=f"{advised['trace']['name']}: which pages it should have",
        subtitle=f"{advised['machine']['title']}; each line of each table was run",
        figures=[figure],
        table=alone(advised),
        facts=trace_facts(advised["trace"]),
        notes=list(advised["notes"]),
        version=advised["pagewalk"],
        document=dict(advised),
        to_do=to_write(advised),
        code=[(f"The code for {', '.join(names)}", code) for code, names in codes(advised)],
    )
    cycles = advised["base"]["translation_cycles"] is not None
    return page.render_sheet(sheet, [[chart(figure, cycles)]])


def to_write(advised: Mapping[str, Any]) -> list[ToDo]:
    """What to write for each region, and why."""
    return [
        ToDo(f"{one['name']}: {one['size'] or 'base pages'}", one["write"] or "", one["reason"])
        for one in advised["regions"]
    ]


def codes(advised: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The functions and classes that are to be written, each with the regions that it is for."""
    found: dict[str, list[str]] = {}
    for region in advised["regions"]:
        if region["code"] is not None:
            found.setdefault(region["code"], []).append(region["name"])
    return list(found.items())


def chart(figure: Figure, cycles: bool) -> "Chart":
    """Gain over memory added, a point per set."""
    import altair as alt

    from pagewalk.report.charts import inline, sized

    unit = "million cycles gained" if cycles else "misses less"
    return sized(
        alt.Chart(inline(figure.rows))
        .mark_point(size=70, filled=True)
        .encode(
            x=alt.X("memory:Q").title("MiB added").axis(grid=False),
            y=alt.Y("gain:Q").title(unit).axis(minExtent=44),
            color=alt.Color("which:N").title(None).legend(orient="top", direction="horizontal"),
            shape=alt.Shape("which:N").title(None),
            tooltip=[
                alt.Tooltip("rules:N"),
                alt.Tooltip("memory:Q", title="MiB added", format=".3g"),
                alt.Tooltip("gain:Q", title=unit, format=".4g"),
            ],
        ),
        240,
    )


def headline(advised: Mapping[str, Any]) -> str:
    """What is advised, in a sentence."""
    best, name = advised["best"], advised["trace"]["name"]
    if best is None:
        return f"{name} on {advised['machine']['name']}: base pages are as good as any."
    regions = [one for one in advised["regions"] if one["size"] is not None]
    which = ", ".join(f"{one['size']} for {one['name']}" for one in regions)
    whole = advised["base"]["misses"] + advised["base"]["cold_misses"]
    less = text.percent(saved(advised, best) / max(whole, 1))
    gain = f", {_cycles(best)} cycles" if best["gain_cycles"] else ""
    ms = f", {_ms(best)} ms" if best["gain_ms"] else ""
    added = text.size(max(best["memory_added_bytes"], 0))
    return (
        f"{name} on {advised['machine']['name']}: {which}. That saves {less} of the misses{gain}"
        f"{ms} and adds {added} of memory."
    )


def saved(advised: Mapping[str, Any], run: Mapping[str, Any]) -> int:
    """Misses that a run has less than base pages, first touches too."""
    base = advised["base"]
    return int(base["misses"] + base["cold_misses"] - run["misses"] - run["cold_misses"])


def alone(advised: Mapping[str, Any]) -> Table:
    """Each region alone at each size, below the run with base pages; then all at one size."""
    rows = [["base pages", "", *_cells(advised["base"])]]
    for region in advised["regions"]:
        name = region["name"]
        rows += [[name, size, *_cells(run)] for size, run in _by_size(region["alone"])]
    rows += [["all of these", size, *_cells(run)] for size, run in _by_size(advised["uniform"])]
    cells: list[list[Cell]] = [list(row) for row in rows]
    return Table(
        "Runs with one region at a page size",
        ["One region alone", "pages", *_HEAD],
        cells,
        [False, True, *[True] * len(_HEAD)],
    )


def sets(advised: Mapping[str, Any]) -> Table:
    """The sets that gain more than all that need no more memory."""
    places = {one["place"]: one["name"] for one in advised["regions"]}

    def called(rule: str) -> str:
        place, _, size = rule.rpartition(" = ")
        return f"{size} {places[place]}"

    cells: list[list[Cell]] = [
        [
            ("* " if run == advised["best"] else "") + ", ".join(map(called, run["rules"])),
            *_cells(run),
        ]
        for run in advised["sets"]
    ]
    return Table(
        "Sets of page sizes by memory; * is advised",
        ["Sets (*: advised)", *_HEAD],
        cells,
        [False, *[True] * len(_HEAD)],
    )


def _by_size(runs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(runs.items(), key=lambda one: text.bytes_of(one[0]))


def _cells(run: Mapping[str, Any]) -> list[str]:
    return [
        text.count(run["misses"]),
        text.count(run["cold_misses"]),
        text.size(run["memory_added_bytes"]),
        _cycles(run),
        _ms(run),
    ]


def _cycles(run: Mapping[str, Any]) -> str:
    return text.span(run["gain_cycles"], text.count) if run["gain_cycles"] else ""


def _ms(run: Mapping[str, Any]) -> str:
    return text.span(run["gain_ms"], text.ratio) if run["gain_ms"] else ""


def _plain(table: Table, keys: int = 1) -> str:
    rows: Sequence[Sequence[str]] = [
        [cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows
    ]
    return text.table(table.head, rows, keys=keys) if rows else f"{table.head[0]}: none"
