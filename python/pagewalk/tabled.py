r"""`Tabled`: the base class of all results. It converts them into tables, charts and files.

```
 Results, Sweep, Curves, ...  --to_arrow--> pyarrow.Table --> pandas, polars
                      \--save(NAME.END)--> a file in the format of its name
```
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk._native import Error

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa

    from pagewalk.formats import Made
    from pagewalk.report.charts import Chart


class Tabled:
    """A result that is a table."""

    width_mm: int | None = None
    """The width in millimetres of a picture that `save` writes for paper. If absent, a page's
    width.
    """
    drawn_first: Sequence[str] = ()
    """The charts that `plot` prefers if none is named."""
    nothing_drawn = "nothing is drawn of it"
    """The message of `plot` if there are no charts."""

    def to_arrow(self) -> "pa.Table":
        """The result as a table."""
        raise NotImplementedError

    def made(self) -> "Made":
        """The contents of the files that `save` writes."""
        raise NotImplementedError

    def to_pandas(self) -> "pandas.DataFrame":
        """The table of `to_arrow` for pandas.

        Raises:
            Error: pandas is not installed.
        """
        return pandas_frame(self.to_arrow())

    def to_polars(self) -> "polars.DataFrame":
        """The table of `to_arrow` for polars.

        Raises:
            Error: polars is not installed.
        """
        return polars_frame(self.to_arrow())

    def plot(self, name: str | None = None) -> "Chart":
        """One of the charts that `save` writes as pictures. Without a name, it is the first one.

        Raises:
            Error: There is no such chart.
        """
        from pagewalk.report.notebook import offline

        drawn = self.made().charts()
        if not drawn:
            raise Error(self.nothing_drawn)
        first = next(one for one in (*self.drawn_first, *drawn) if one in drawn)
        chosen = first if name is None else name
        if chosen not in drawn:
            raise Error(f"there is no chart `{chosen}`: choose one of {', '.join(drawn)}")
        return offline(drawn[chosen])

    def save(self, path: str | os.PathLike[str], force: bool = False) -> list[str]:
        """Writes a file in the format that its ending selects.

        Returns the names of the files written.

        Args:
            path: `.parquet`, `.arrow`, `.csv` and `.json` have everything; `.tex` and `.md` have
                the table for people; `.svg`, `.pdf` and `.png` have the charts.
            force: Whether an existing file may be replaced.

        Raises:
            Error: The end of the name is not known, or `path` exists and `force` is not given.
            WorkError: The system refused to write.
        """
        from pagewalk import formats

        return formats.write(path, self.made(), force, self.width_mm)


class TableLike(Tabled):
    """A result that has the methods of a `pyarrow.Table` too.

    polars, pandas and DuckDB read it without copies.

    Attributes:
        table: The table.
    """

    def __init__(self, table: "pa.Table") -> None:
        self.table = table

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

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def equals(self, other: "TableLike | pa.Table") -> bool:
        """Whether all rows are equal."""
        return bool(self.table.equals(other.table if isinstance(other, TableLike) else other))

    def to_arrow(self) -> "pa.Table":
        """The table."""
        return self.table


def pandas_frame(table: "pa.Table") -> "pandas.DataFrame":
    """A table for pandas. Raises `Error` if pandas is not installed."""
    _needs("pandas")
    frame: pandas.DataFrame = table.to_pandas()
    return frame


def polars_frame(table: "pa.Table") -> "polars.DataFrame":
    """A table for polars. Raises `Error` if polars is not installed."""
    _needs("polars")
    import polars

    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    return frame


def table_of(rows: Sequence[Mapping[str, Any]]) -> "pa.Table":
    """Rows as a table with a column for each name.

    The value is `null` if a row has no value for that name.
    """
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A row whose nested rows are flattened: `load` in `by` becomes `by_load`."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}_")
        else:
            found[prefix + key] = value
    return found


def _column(values: list[Any]) -> "pa.Array[Any]":
    """An Arrow array; whole numbers of 0 and more are uint64, which holds any address."""
    import pyarrow as pa

    known = [value for value in values if value is not None]
    whole = all(
        isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in known
    )
    array: pa.Array[Any] = pa.array(values, pa.uint64() if known and whole else None)
    return array


def _needs(library: str) -> None:
    from importlib.util import find_spec

    if find_spec(library) is None:
        raise Error(f"{library} is not installed: pip install {library}")
