"""How a notebook shows traces, machines, results and sweeps: as lines and tables.

Scripts and a network are not needed: tables are plain HTML, and charts are pictures made by
vl-convert.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from markupsafe import escape

from pagewalk import text
from pagewalk.report.model import Cell, Table

if TYPE_CHECKING:
    from pagewalk import plain
    from pagewalk.report.charts import Chart

CHART_WIDTH = 640
"""Width of a chart in pixels."""


def shown(title: str, sentences: Sequence[str], tables: Sequence[Table]) -> str:
    """A heading, sentences and tables."""
    parts = [f"<p><strong>{escape(title)}</strong></p>"]
    parts += [f"<p>{escape(sentence)}</p>" for sentence in sentences if sentence]
    return "\n".join([*parts, *(_table(one) for one in tables)])


def results(document: "plain.Document") -> str:
    """The finding of a run, its TLBs and its busiest regions."""
    from pagewalk.report import tables, values

    advised = document.get("advice")
    advice = advised.get("sentence", "") if advised else ""
    name, machine = document["trace"].get("name", "trace"), document["machine"]["name"]
    return shown(
        f"{name} on {machine}",
        [advice, *values.finding(document)],
        [tables.tlbs(document), tables.regions(document)[0]],
    )


def facts(caption: str, found: Mapping[str, object]) -> Table:
    """A table of names and values."""
    rows: list[list[Cell]] = [[name, str(value)] for name, value in found.items()]
    return Table(caption, ["", ""], rows, [False, False])


def trace(name: str, header: Mapping[str, Any], accesses: int | None, digest: str | None) -> str:
    """The facts of a trace that are known before it is read."""
    from pagewalk.report.data import trace_facts

    known = (
        dict(trace_facts(cast("plain.TraceSummary", {**header, "digest": digest})))
        if header
        else {}
    )
    count = "not known before its end" if accesses is None else text.count(accesses)
    return shown(name, [], [facts("The trace", {"Accesses": count, **known})])


def machine(name: str, description: Mapping[str, Any]) -> str:
    """The parts of a machine."""
    title = f"{name}: {description.get('title', '')}"
    return shown(title, [], [parts_table(description)])


def parts_table(description: Mapping[str, Any]) -> Table:
    """A row for each part of a machine."""
    from pagewalk.report.data import parts

    rows: list[list[Cell]] = [
        [part.name or "machine", ", ".join(f"{key} {value}" for key, value in part.facts)]
        for part in parts(description)
    ]
    return Table("Its parts", ["Part", "Values"], rows, [False, False])


def offline(chart: "Chart") -> "Chart":
    """`chart` for a notebook: with a fixed width, and drawn without a network.

    Altair's usual renderer loads its scripts from the network. If the user has not chosen another
    renderer, charts become pictures by vl-convert.
    """
    import altair as alt

    if alt.renderers.active in ("", "default"):
        alt.renderers.enable("svg")
    if isinstance(chart, alt.ConcatChart):
        return chart
    return chart.properties(width=CHART_WIDTH)


def _table(content: Table) -> str:
    def cell(entry: Cell, numeric: bool) -> str:
        shown = entry if isinstance(entry, str) else entry.text
        align = "right" if numeric else "left"
        return f'<td style="text-align: {align}">{escape(shown)}</td>'

    head = "".join(f"<th>{escape(name)}</th>" for name in content.head)
    body = "\n".join(f"<tr>{''.join(map(cell, row, content.numeric))}</tr>" for row in content.rows)
    caption = f"<caption>{escape(content.caption)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
