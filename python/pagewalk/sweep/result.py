"""`Sweep`: the designs of a sweep as a table, with what is needed to show them."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from pagewalk.report.charts import Chart


class Sweep:
    """A table with a row per design, which has the methods of a `pyarrow.Table` too.

    polars, pandas and DuckDB read it without copies.

    Attributes:
        table: The table: the keys that vary (`trace` first, of several), then the counts of
            `Results` with dots between.
        document: The same as `pagewalk sweep --json` writes it.
    """

    def __init__(self, table: "pa.Table", document: dict[str, Any]) -> None:
        self.table = table
        self.document = document

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "table":
            raise AttributeError(name)
        return getattr(self.table, name)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table for other libraries."""
        stream: object = self.table.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def __len__(self) -> int:
        return self.table.num_rows

    def equals(self, other: "Sweep | pa.Table") -> bool:
        """Whether all rows are equal."""
        return bool(self.table.equals(other.table if isinstance(other, Sweep) else other))

    def __repr__(self) -> str:
        return f"<Sweep of {len(self)} designs over {', '.join(self.document['vary'])}>"

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook
        from pagewalk.report.sweeps import sheet

        whole = sheet(self.document)
        tables = [whole.table] if whole.table else []
        return notebook.shown(whole.title, [figure.sentence for figure in whole.figures], tables)

    def charts(self) -> "list[Chart]":
        """A chart per measure in which the designs differ, with a facet per trace of several."""
        from pagewalk.report.notebook import offline
        from pagewalk.report.sweeps import pictures

        return [offline(chart) for chart in pictures(self.document).values()]

    def html(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Writes the page that `pagewalk sweep --html` writes.

        Raises:
            Error: `path` exists and `force` is not given.
            WorkError: The system refused to write.
        """
        from pagewalk.output import write_text
        from pagewalk.report.sweeps import render

        write_text(path, render(self.document), force)


def spans(table: "pa.Table") -> dict[str, list[object]]:
    """The values of the keys that vary."""
    keys: Sequence[str] = table.column_names[: table.column_names.index("machine_digest")]
    return {key: list(dict.fromkeys(table.column(key).to_pylist())) for key in keys}
