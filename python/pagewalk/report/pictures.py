"""Charts as pictures: for pages without JavaScript, and for papers.

```
 Vega-Lite --numbers for "container"--> vl_convert --> SVG, PNG or PDF
```
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import vl_convert

from pagewalk.report.charts import paper, theme

Kind = Literal["svg", "png", "pdf"]
KINDS: tuple[Kind, ...] = ("svg", "png", "pdf")

WIDTH = 900
"""The width of a picture in pixels if the page determines none."""
PNG_SCALE = 1.5
PAPER_SCALE = 300 / 72
"""The number of dots of a PNG file for each point on paper."""
POINTS_PER_MM = 72 / 25.4
GROUNDS = {"light": "#ffffff", "dark": "#16181b"}


def fixed(specification: Mapping[str, Any], width: int = WIDTH) -> dict[str, Any]:
    """A chart that would be as wide as its page, with its width changed to `width` pixels."""
    found = dict(specification)
    if found.get("width") == "container":
        found["width"] = width
    return found


def picture(
    specification: Mapping[str, Any],
    kind: Kind,
    shade: Literal["light", "dark"] = "light",
    millimetres: int | None = None,
) -> bytes:
    """The chart as the bytes of an SVG, PNG or PDF file. No network is used.

    Args:
        specification: The chart.
        kind: The format of the file.
        shade: The page's theme, light or dark.
        millimetres: The width of the picture on paper; its text then has the size of text in a
            paper. If absent, the picture is for a screen.
    """
    look = theme(shade) if millimetres is None else paper()
    points = WIDTH if millimetres is None else round(millimetres * POINTS_PER_MM)
    chart = fixed(specification, points)
    config = {**look, "background": GROUNDS[shade]}
    if kind == "svg":
        return str(vl_convert.vegalite_to_svg(chart, config=config)).encode()
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(chart, config=config))
    scale = PNG_SCALE if millimetres is None else PAPER_SCALE
    return bytes(vl_convert.vegalite_to_png(chart, config=config, scale=scale))


def embedded(specification: Mapping[str, Any]) -> dict[str, str]:
    """The chart in light and in dark colours, as URLs that contain the pictures themselves."""
    return {shade: _address(picture(specification, "png", shade)) for shade in ("light", "dark")}


def _address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def write(
    charts: Mapping[str, Mapping[str, Any]],
    kind: Kind,
    path: str,
    force: bool = False,
    millimetres: int | None = None,
) -> list[str]:
    """Writes a file per chart, and returns their names.

    Args:
        charts: Specifications by name.
        kind: The format of the files.
        path: The file of one chart. If there are several, the name of each is put before the
            ending.
        force: Whether files may be replaced.
        millimetres: As for `picture`.

    Raises:
        Error: A file exists and `force` is not given.
        WorkError: The system refused to write.
    """
    from pagewalk.output import replacing

    written = []
    for name, chart in charts.items():
        with replacing(named(path, name, len(charts)), force) as temporary:
            temporary.write_bytes(picture(chart, kind, millimetres=millimetres))
        written.append(named(path, name, len(charts)))
    return written


def named(path: str, name: str, charts: int) -> str:
    """The file of a chart: `join.svg`, or `join-map.svg` if there are several charts."""
    target = Path(path)
    return path if charts == 1 else str(target.with_name(f"{target.stem}-{name}{target.suffix}"))
