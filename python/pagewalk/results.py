"""`Results`: the counts of a run, as plain data, Arrow tables, charts, JSON and HTML."""

import json
import os
from typing import TYPE_CHECKING, Any

from pagewalk import _native, origins
from pagewalk.document import Document
from pagewalk.origins import Origin
from pagewalk.tabled import Tabled, flat, pandas_frame, polars_frame, table_of

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa

    from pagewalk.formats import Made
    from pagewalk.report.charts import Chart

TABLES = ("tlbs", "walk_levels", "caches", "processors", "regions", "timeline", "map")
"""The names of the tables of `Results.to_arrow`."""


class Results(Document, Tabled):
    """The counts of one run: the fields of `Document`, as in `results.tlbs["l1d"].misses`.

    Attributes:
        data: The results document, schema 2, as plain dictionaries and lists. Addresses and
            sizes are bytes, latencies cycles; all counts are exact.
    """

    drawn_first = ("map", "timeline")

    def __repr__(self) -> str:
        return f"<Results of {self.data['trace'].get('name')} on {self.data['machine']['name']}>"

    def to_arrow(self, table: str = "tlbs") -> "pa.Table":
        """One table of the results.

        Args:
            table: `tlbs`, `walk_levels`, `caches`, `regions` (one row each; counts by kind and
                size are columns such as `by_kind_load_misses`), `processors` (one row each, none
                if there is one, with columns such as `shootdowns_made` and `l1d_misses`),
                `timeline` (one row per time bin) or `map` (one row per cell: `first_access`,
                `addr`, `misses`).

        Raises:
            Error: There is no such table.
        """
        if table not in TABLES:
            raise _native.Error(f"there is no table `{table}`: choose one of {', '.join(TABLES)}")
        return table_of(_rows(self.data, table))

    def to_pandas(self, table: str = "tlbs") -> "pandas.DataFrame":
        """One table of the results for pandas; arguments and errors as for `to_arrow`."""
        return pandas_frame(self.to_arrow(table))

    def to_polars(self, table: str = "tlbs") -> "polars.DataFrame":
        """One table of the results for polars; arguments and errors as for `to_arrow`."""
        return polars_frame(self.to_arrow(table))

    def by(self, key: str, merge: bool = False) -> list[Origin]:
        """The lookups that missed every TLB, by their origin, the origin with most misses first.

        The numbers add up to all misses.

        Args:
            key: `region`, `site` (the call that allocated the data, or its region if the call is
                not known), `function`, `line`, `thread` or `page-size`.
            merge: Whether adjacent anonymous mappings are one region.

        Raises:
            Error: There is no such key, or these are results of a sweep.
        """
        return origins.by(self.data, key, merge)

    def folded(self, key: str = "function") -> list[str]:
        """The misses as folded stacks for flame graphs, a line per stack.

        Args:
            key: `function` or `line` for the code that missed, `site` for the calls that allocated
                the data.

        Raises:
            Error: There are no stacks by `key`, or these are results of a sweep.
        """
        return origins.folded(self.data, key)

    def export(
        self, path: str | os.PathLike[str], by: str = "function", force: bool = False
    ) -> None:
        """Writes the misses for another tool, in the format of the file's name.

        Args:
            path: `.folded` (flamegraph.pl, speedscope), `.speedscope.json` (speedscope),
                `.callgrind` or `callgrind.out.NAME` (KCachegrind, callgrind_annotate),
                `.perfetto-trace` (Perfetto: the misses of each region over time).
            by: The elements of stacks of the first two formats: `function`, `line` or `site`.
            force: Whether `path` may replace a file.

        Raises:
            Error: The end of the name is not known, there are no stacks by `by`, these are results
                of a sweep, or `path` exists and `force` is not given.
            WorkError: The system refused to write.
        """
        from pagewalk import exports

        exports.write(path, self.data, by, force)

    def to_json(self) -> str:
        """The document as JSON text, indented, with a final newline."""
        return json.dumps(self.data, indent=1, ensure_ascii=False) + "\n"

    def made(self) -> "Made":
        """The content of the files that `save` writes: table of TLBs, document and charts."""
        from pagewalk.formats import Made
        from pagewalk.report import tables
        from pagewalk.report.charts import charts
        from pagewalk.report.data import run

        return Made(
            counted=self.to_arrow,
            document=lambda: self.data,
            shown=lambda: tables.tlbs(self.data),
            charts=lambda: charts(run(self.data)),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Results":
        """Reads a JSON file that `save` has written.

        Raises:
            Error: The file cannot be read or is not a results document of schema 2.
        """
        name = os.fspath(path)
        try:
            with open(name, encoding="utf-8") as file:  # noqa: PTH123
                data = json.load(file)
        except OSError as error:
            raise _native.Error(f"{name} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise _native.Error(
                f"{name} is not JSON: `pagewalk run TRACE --json FILE` writes results"
            ) from error
        schema = data.get("schema") if isinstance(data, dict) else None
        if isinstance(data, list) and data:
            raise _native.Error(
                f"{name} contains the results of several machines: give the results of one machine"
            )
        if schema != 2:
            raise _native.Error(
                f"{name} is not a results document of schema 2 (its schema is {schema}): write one "
                "with `pagewalk run --json FILE`"
            )
        # The documents of curves and sweeps also have a schema number.
        missing = [key for key in ("trace", "machine", "tlbs", "walks") if key not in data]
        if missing:
            raise _native.Error(
                f"{name} does not have the results of one run: it lacks `{missing[0]}`"
            )
        return cls(data)

    def html(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Writes the report: one HTML file that works without a network.

        Raises:
            Error: `path` exists and `force` is not given.
            WorkError: The system refused to write.
        """
        from pagewalk.output import write_text
        from pagewalk.report import render

        write_text(path, render([self]), force)

    def charts(self) -> "dict[str, Chart]":
        """The report's charts for a notebook: those for which the run has data.

        Keys: `l1` and `timeline` (misses over time of the first-level TLBs, and of all levels),
        `map` (misses over address and time), `serving` (which caches served walk references). They
        are drawn
        without a network, as pictures, unless another of altair's renderers has been chosen.
        """
        from pagewalk.report.charts import charts
        from pagewalk.report.data import run
        from pagewalk.report.notebook import offline

        return {name: offline(chart) for name, chart in charts(run(self.data)).items()}

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook

        return notebook.results(self.data)


def _rows(data: dict[str, Any], table: str) -> list[dict[str, Any]]:
    if table == "walk_levels":
        return [flat(row) for row in data["walks"]["by_level"]]
    if table == "timeline":
        line = data["timeline"]
        columns = zip(line["l1_misses"], line["misses"], line["cold_misses"], strict=True)
        return [
            {
                "first_access": index * line["bin_accesses"],
                "l1_misses": l1,
                "misses": misses,
                "cold_misses": cold,
            }
            for index, (l1, misses, cold) in enumerate(columns)
        ]
    if table == "map":
        grid = data["map"]
        return [
            {
                "first_access": time * grid["bin_accesses"],
                "addr": granule * grid["granule_bytes"],
                "misses": misses,
            }
            for time, granule, misses in grid["cells"]
        ]
    if table == "processors":
        return [_processor(row) for row in data.get("processors", [])]
    return [flat(row) for row in data[table]]


def _processor(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: row[name] for name in ("number", "accesses", "instructions", "switches")}
    walks = {name: row["walks"][name] for name in ("walks", "cold", "references")}
    parts = {"walks": walks, "shootdowns": row["shootdowns"]}
    tlbs = {
        tlb["name"]: {name: tlb[name] for name in ("lookups", "hits", "misses", "flushed")}
        for tlb in row["tlbs"]
    }
    return flat(plain | parts | tlbs)
