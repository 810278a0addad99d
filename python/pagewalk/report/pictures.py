"""Charts as pictures: for pages without JavaScript, and for papers.

```
 Vega-Lite --numbers for "container"--> vl_convert --> SVG, PNG or PDF
```
"""

import base64
from collections.abc import Mapping
from typing import Any, Literal

import vl_convert

from pagewalk.report.charts import theme

Kind = Literal["svg", "png", "pdf"]
KINDS: tuple[Kind, ...] = ("svg", "png", "pdf")

WIDTH = 900
"""Pixels across a picture where the page has no width to give it."""
PNG_SCALE = 1.5
GROUNDS = {"light": "#ffffff", "dark": "#16181b"}


def fixed(specification: Mapping[str, Any], width: int = WIDTH) -> dict[str, Any]:
    """A chart that is as wide as a page made as wide as `width` pixels."""
    found = dict(specification)
    if found.get("width") == "container":
        found["width"] = width
    return found


def picture(
    specification: Mapping[str, Any],
    kind: Kind,
    shade: Literal["light", "dark"] = "light",
    width: int = WIDTH,
) -> bytes:
    """The chart as the bytes of an SVG, PNG or PDF file; no network is used."""
    chart = fixed(specification, width)
    config = {**theme(shade), "background": GROUNDS[shade]}
    if kind == "svg":
        return str(vl_convert.vegalite_to_svg(chart, config=config)).encode()
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(chart, config=config))
    return bytes(vl_convert.vegalite_to_png(chart, config=config, scale=PNG_SCALE))


def embedded(specification: Mapping[str, Any]) -> dict[str, str]:
    """The chart light and dark, as addresses that hold the pictures themselves."""
    return {shade: _address(picture(specification, "png", shade)) for shade in ("light", "dark")}


def _address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
