"""`Sweep`: the designs of a sweep as a table, with the data for showing them."""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pagewalk.names import COLUMN_MM
from pagewalk.tabled import TableLike

if TYPE_CHECKING:
    import pyarrow as pa

    from pagewalk.formats import Made
    from pagewalk.report.charts import Chart
    from pagewalk.report.sweeps import Drawn, View


class Sweep(TableLike):
    """A table with a row per design, which has the methods of a `pyarrow.Table` too.

    Attributes:
        table: The table: the keys that vary (`trace` first, if there are several traces), then the
            counts of `Results` with dots between.
        document: The JSON document that `pagewalk sweep --json` writes.
    """

    width_mm = COLUMN_MM
    """Width in millimetres of a picture that `save` writes."""

    def __init__(self, table: "pa.Table", document: dict[str, Any]) -> None:
        super().__init__(table)
        self.document = document

    def __repr__(self) -> str:
        return f"<Sweep of {len(self)} designs over {', '.join(self.document['vary'])}>"

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook
        from pagewalk.report.sweeps import sheet

        whole = sheet(self.document)
        tables = [whole.table] if whole.table else []
        return notebook.shown(whole.title, [figure.sentence for figure in whole.figures], tables)

    def made(
        self,
        view: "View | None" = None,
        drawn: "Drawn | None" = None,
        width_mm: int = COLUMN_MM,
    ) -> "Made":
        """The content of the files that `save` writes.

        Args:
            view: The designs that are in the tables for people.
            drawn: The layout of the charts.
            width_mm: The width of pictures in millimetres.
        """
        from pagewalk.formats import Made
        from pagewalk.report import sweeps
        from pagewalk.report.pictures import POINTS_PER_MM

        points = round(width_mm * POINTS_PER_MM)
        return Made(
            counted=self.to_arrow,
            document=lambda: self.document,
            shown=lambda: sweeps.table(
                self.document, view or sweeps.ALL, drawn or sweeps.AUTOMATIC
            ),
            charts=lambda: sweeps.pictures(self.document, drawn or sweeps.AUTOMATIC, points),
        )

    def charts(self) -> "list[Chart]":
        """A chart per measure in which the designs differ, with a facet for each trace."""
        from pagewalk.report.notebook import offline
        from pagewalk.report.sweeps import pictures

        return [offline(chart) for chart in pictures(self.document).values()]

    def plot(
        self,
        y: str | None = None,
        *,
        x: str | None = None,
        color: str | None = None,
        facet: str | None = None,
        labels: Mapping[str, str] = MappingProxyType({}),
    ) -> "Chart":
        """A chart of one measure.

        Args:
            y: The measure: `misses`, `references`, `from_memory`, `hit_rate_3`, `hit_rate_2` or
                `time`. If absent, the first measure in which the designs differ.
            x: The key along the x axis.
            color: The key whose values are series.
            facet: The key whose values have a chart each.
            labels: Labels of keys, of measures and, as `KEY:VALUE`, of values of keys.

        Raises:
            Error: There is no such measure, or no such key varies.
        """
        from pagewalk.report.notebook import offline
        from pagewalk.report.sweeps import Drawn, pictures

        drawn = Drawn(x, color, facet, [] if y is None else [y], labels)
        drawn.check(list(self.document["vary"]))
        return offline(next(iter(pictures(self.document, drawn).values())))

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
