"""The counts of `pagewalk stat`, as text and as a page."""

from typing import TYPE_CHECKING

from pagewalk import text
from pagewalk.report.model import Cell, Figure, Sheet, Table, Value

if TYPE_CHECKING:
    from pagewalk import plain
    from pagewalk.report.charts import Chart


def summary(stat: "plain.Stat") -> str:
    """The counts as text for a terminal: one screen."""
    found = table(stat)
    rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in found.rows]
    parts = [
        text.paragraph(
            f"{stat['trace']['name']} on {stat['machine']['name']}: {total(stat)}", "", "  "
        ),
        text.table(found.head, rows),
    ]
    return "\n\n".join(parts)


def total(stat: "plain.Stat") -> str:
    """All cycles in a sentence."""
    if stat["cycles"] is None:
        return "No cycles: the machine file leaves out latencies that the cycles depend on."
    sentence = f"All together {text.span(stat['cycles'], text.count)} cycles"
    if stat["translation_ms"] is not None:
        sentence += (
            f"; translation takes {text.span(stat['translation_ms'], text.ratio)} ms natively"
        )
    if stat["cycles"]["lo"] < stat["cycles"]["hi"]:
        sentence += ", the fewest if all waits overlap, the most if none does"
    costly = [(cycles, event["name"]) for event in stat["events"] if (cycles := event["cycles"])]
    if costly:
        most, name = max(costly, key=lambda one: one[0]["hi"])
        sentence += f". Of these, {text.span(most, text.count)}: {name}"
    return f"{sentence}."


def table(stat: "plain.Stat") -> Table:
    """A row per event."""
    rows: list[list[Cell]] = []
    instructions = max(stat["events"][0]["count"] or 0, 1)
    for event in stat["events"]:
        count, cycles, share = event["count"], event["cycles"], event["share"]
        rate = "" if count is None else text.ratio(1000 * count / instructions)
        rows.append(
            [
                event["name"],
                "" if count is None else Value(text.count(count), count),
                "" if event["name"] == "instructions" else rate,
                text.span(cycles, text.count) if cycles else "",
                text.span(share, text.percent) if share else "",
            ]
        )
    head = ["Events", "count", "per 1000 instructions", "cycles", "share of all cycles"]
    return Table(
        "Events, and the cycles that each takes", head, rows, [False, True, True, True, True]
    )


def render(stat: "plain.Stat") -> str:
    """The page, as the text of an HTML file."""
    from pagewalk.report import page
    from pagewalk.report.data import trace_facts

    figures = []
    if stat["cycles"] is not None:
        rows = [
            {"event": one["name"], "part": one["part"], **one["share"]}
            for one in stat["events"]
            if one["share"] and one["share"]["hi"]
        ]
        what = "Each bar reaches from the least that an event can take to the most."
        figures.append(Figure("Share of all cycles by event", what, rows, share=True))
    sheet = Sheet(
        title=f"{stat['trace']['name']}: counts and what they cost",
        subtitle=stat["machine"]["title"],
        figures=figures,
        table=table(stat),
        facts=trace_facts(stat["trace"]),
        notes=stat["not_modelled"],
        version=stat["pagewalk"],
        document=dict(stat),
        finding=[total(stat)],
    )
    return page.render_sheet(sheet, [[chart(figure)] for figure in figures])


def chart(figure: Figure) -> "Chart":
    """A bar for each event, from the least share to the most."""
    import altair as alt

    from pagewalk.report.charts import inline, legend, sized

    parts, names = (
        list(dict.fromkeys(row[key] for row in figure.rows)) for key in ("part", "event")
    )
    above = legend(parts, beside=max(map(len, names), default=0))

    return sized(
        alt.Chart(inline(figure.rows))
        .mark_bar(minBandSize=2)
        .encode(
            x=alt.X("lo:Q").title("share of all cycles").axis(format="%", grid=False, tickCount=5),
            x2="hi:Q",
            y=alt.Y("event:N").title(None).sort(None),
            color=alt.Color("part:N").title(None).legend(above),
            tooltip=[
                alt.Tooltip("event:N"),
                alt.Tooltip("lo:Q", title="least", format=".3%"),
                alt.Tooltip("hi:Q", title="most", format=".3%"),
            ],
        ),
        24 * max(len(figure.rows), 4),
    )
