r"""Tables and charts as files, in the format that the end of the file's name selects.

```
 .parquet .pq .arrow .feather .csv .json    each row and column, exactly as counted
 .tex .md                                   the table that text and page show
 .svg .pdf .png                             the charts, of several each to NAME-CHART.svg
```

A name from a user (of a trace, a region, a function) could be a formula to a spreadsheet or a
command to LaTeX, so it is written as plain text for both.
"""

import json
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from pagewalk._native import Error

if TYPE_CHECKING:
    import pyarrow as pa

    from pagewalk.report.charts import Chart
    from pagewalk.report.model import Cell, Table

COUNTED = (".parquet", ".pq", ".arrow", ".feather", ".csv", ".json")
SHOWN = (".tex", ".md")
DRAWN = (".svg", ".pdf", ".png")
HEAD_LETTERS = 12
"""The number of letters of a column's name in a line of LaTeX."""

_TEX = {
    "\\": r"\textbackslash{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "…": r"\ldots{}",
    "\u00d7": r"$\times$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "\u2212": r"$-$",
    "\u2013": "--",
    "\u202f": r"\,",
    "\u00a0": "~",
}


class Made(NamedTuple):
    """The possible contents of a file; each part is computed when a file needs it."""

    counted: "Callable[[], pa.Table]"
    document: Callable[[], Any]
    """The content of a JSON file."""
    shown: "Callable[[], Table]"
    charts: "Callable[[], Mapping[str, Chart]]"
    """The charts by name. Empty if there are no charts."""


def end(path: str | os.PathLike[str]) -> str:
    """The ending of a file's name that selects the format, in lower case.

    Raises:
        Error: No format has the ending of this name.
    """
    known = (*COUNTED, *SHOWN, *DRAWN)
    start, found = os.path.splitext(os.fspath(path))  # noqa: PTH122
    if found.lower() not in known:
        raise Error(
            f"{os.fspath(path)}: the end of the name chooses the format, and must be one of "
            f"{', '.join(known)}: for example, name it {start}{known[0]}"
        )
    return found.lower()


def write(
    path: str | os.PathLike[str], made: Made, force: bool = False, width: int | None = None
) -> list[str]:
    """Writes a file in the format that its ending selects. Returns the names of the files written.

    Args:
        path: The file.
        made: Its content in all formats.
        force: Whether an existing file may be overwritten.
        width: The width of a picture for a paper in millimetres. If absent, pictures have a page's
            width on a screen.

    Raises:
        Error: The ending of its name is not known, the file exists and `force` is not given, or
            there is nothing to draw.
        WorkError: The system refused to write.
    """
    from pagewalk.output import refuse_existing, replacing, write_text

    what, name = end(path), os.fspath(path)
    if what in DRAWN:
        from pagewalk.report import pictures

        kind = cast("Literal['svg', 'pdf', 'png']", what[1:])
        charts = {key: chart.to_dict() for key, chart in made.charts().items()}
        if not charts:
            raise Error(
                f"{name}: these results have no charts: choose .csv, .json or another format of "
                "tables"
            )
        return pictures.write(charts, kind, name, force, width)
    refuse_existing(name, force)
    if what == ".tex":
        write_text(name, latex(made.shown()), force)
    elif what == ".md":
        write_text(name, markdown(made.shown()), force)
    elif what == ".json":
        text = json.dumps(made.document(), indent=1, ensure_ascii=False) + "\n"
        write_text(name, text, force)
    else:
        table = made.counted()
        with replacing(name, force) as temporary:
            _write_counted(table, what, str(temporary))
    return [name]


def _write_counted(table: "pa.Table", what: str, path: str) -> None:
    if what in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        pq.write_table(table, path)
    elif what in (".arrow", ".feather"):
        from pyarrow import feather

        feather.write_feather(table, path, compression="zstd")
    else:
        from pyarrow import csv

        csv.write_csv(_inert(table), path)


def _inert(table: "pa.Table") -> "pa.Table":
    """The table, with a quote before each text that a spreadsheet would interpret as a formula."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def safe(name: str) -> str:
        return f"'{name}" if name[:1] in "=+-@\t\r" else name

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.replace_substring_regex(column, r"\A([=+\-@\t\r])", r"'\1")  # noqa: PLW2901
        elif pa.types.is_nested(column.type):
            texts = [None if one is None else json.dumps(one) for one in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, pa.string())])  # noqa: PLW2901
        columns[safe(name)] = column
    return pa.table(columns)


def latex(table: "Table") -> str:
    """The table as LaTeX with the rules of the package booktabs; its caption is a comment."""
    columns = "".join("r" if numeric else "l" for numeric in table.numeric)
    rows = [[_tex(_shown(cell)) for cell in row] for row in table.rows]
    lines = [
        "% \\usepackage{booktabs}",
        "% " + " ".join(table.caption.split()),
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        " & ".join(map(_tex_head, table.head, table.numeric)) + r" \\",
        "\\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def markdown(table: "Table") -> str:
    """The table in Markdown, below its caption."""
    lines = [
        _plain(table.caption),
        "",
        "| " + " | ".join(_md(name) for name in table.head) + " |",
        "|" + "|".join("---:" if numeric else "---" for numeric in table.numeric) + "|",
        *("| " + " | ".join(_md(_shown(cell)) for cell in row) + " |" for row in table.rows),
    ]
    return "\n".join(lines) + "\n"


def _shown(cell: "Cell") -> str:
    return cell if isinstance(cell, str) else cell.text


def _plain(text: str) -> str:
    return " ".join(text.split())


def _tex(text: str) -> str:
    # LaTeX would interpret a row that begins with a bracket as an option of the previous line.
    escaped = "".join(_TEX.get(char, char) for char in _plain(text))
    return f"{{}}{escaped}" if escaped[:1] in ("[", "*") else escaped


def _tex_head(name: str, numeric: bool) -> str:
    """The name of a column, in short lines, so that several columns fit into a paper's column."""
    lines = textwrap.wrap(_plain(name), HEAD_LETTERS, break_long_words=False)
    if len(lines) < 2:
        return _tex(name)
    stacked, side = r"\\".join(map(_tex, lines)), "r" if numeric else "l"
    return f"\\shortstack[{side}]{{{stacked}}}"


def _md(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", _plain(text))
