"""The skeletons that `pagewalk skeleton` has written, as a page."""

from typing import Any

from pagewalk import _native, text
from pagewalk.document import SkeletonMade
from pagewalk.report import page
from pagewalk.report.model import Cell, Sheet, Table, Value


def render(document: dict[str, Any]) -> str:
    """The page, as the text of an HTML file: each process, and the sums over all processes."""
    return page.render_sheet(sheet(document), [])


def sheet(document: dict[str, Any]) -> Sheet:
    """The page's data."""
    made = SkeletonMade(document)
    rows: list[list[Cell]] = [
        [process.name, Value(text.count(process.steps), process.steps)]
        for process in made.processes
    ]
    return Sheet(
        title="Requests of recorded processes to memory management",
        subtitle=f"{made.path}: `pagewalk hat --work` plays it on many processors",
        figures=[],
        table=Table("Processes and their steps", ["Program", "Steps"], rows, [False, True]),
        facts=[
            ("processes", text.count(len(made.processes))),
            ("mapped files", text.count(made.files)),
            ("steps", text.count(made.steps)),
            ("instructions", text.count(made.instructions)),
            ("bytes", text.count(made.bytes)),
        ],
        notes=made.warnings,
        version=_native.version(),
        document=document,
    )
