"""The HTML file: one page that contains the report's plain data and charts.

The page contains its style, script, charting library and results. Its content security policy
forbids it to fetch anything.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup, escape

from pagewalk.report.charts import Chart, charts, shared_charts, theme
from pagewalk.report.model import Report, Sheet, Value
from pagewalk.report.pictures import embedded

_CODE = re.compile("`([^`]+)`")
_NUMBER_UNIT = re.compile(r"(\d) (?=(?:%|[kMGT]|[KMGT]iB|B)(?:\W|$))")


def render(report: Report) -> str:
    """The page of runs as text."""
    specifications = {name: chart.to_dict() for name, chart in all_charts(report).items()}
    return poured("template.html", report, specifications, report.documents)


def all_charts(report: Report) -> dict[str, Chart]:
    """The charts of all runs together and those of each run, by different names."""
    found = shared_charts(report)
    for run in report.runs:
        found |= {f"{run.anchor}-{name}": chart for name, chart in charts(run).items()}
    return found


def render_sheet(sheet: Sheet, drawn: Sequence[Sequence[Chart]]) -> str:
    """The page of a sheet as text. `drawn` contains the charts of each of its figures."""
    specifications = {
        f"figure-{index}" + (f"-{facet}" if len(charts) > 1 else ""): chart.to_dict()
        for index, charts in enumerate(drawn)
        for facet, chart in enumerate(charts)
    }
    return poured("sheet.html", sheet, specifications, sheet.document)


def poured(template: str, report: Any, charts: dict[str, Any], document: Any) -> str:
    """A page as text: the template, filled with the plain data `report`.

    Args:
        template: A file beside this one that extends `layout.html`.
        report: The data to show, with at least `title`, `subtitle` and `version`.
        charts: Vega-Lite specifications by the name of the element that each is drawn in.
        document: The document, which the page contains as JSON so that programs can read it.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_unbroken,
    )
    environment.tests["value"] = lambda cell: isinstance(cell, Value)
    environment.filters["code"] = _coded
    return environment.get_template(template).render(
        report=report,
        charts=charts,
        pictures={name: embedded(chart) for name, chart in charts.items()},
        style=Markup(_asset("style.css")),
        script=Markup(_asset("script.js")),
        library=Markup(_library() if charts else ""),
        data=_json({"charts": charts, "themes": {s: theme(s) for s in ("light", "dark")}}),
        results=_json(document),
    )


def _coded(sentence: str) -> Markup:
    """A sentence in which words in backticks become code."""
    return Markup(_CODE.sub("<code>\\1</code>", str(escape(_unbroken(sentence)))))


def _unbroken(thing: Any) -> Any:
    """Text in which a number and its unit cannot be separated by a line break."""
    return _NUMBER_UNIT.sub("\\1\u00a0", thing) if type(thing) is str else thing


def _asset(name: str) -> str:
    return files("pagewalk.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    # A script element ends at the first closing tag, even if this tag is in a string.
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace(
        "</script", "<\\/script"
    )


def _json(value: Any) -> Markup:
    """JSON that can be put into a script element: it contains no `<`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))
