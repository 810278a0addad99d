"""`run_many`: each of several traces on each of several machines, in this process or in workers.

```
 traces x machines --run, or executor.submit(run)--> Runs: [Results, ...], a table of a row per run
```
"""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pagewalk._native import Error
from pagewalk.machine import Machine
from pagewalk.progress import Progress, bar
from pagewalk.results import Results
from pagewalk.tabled import Tabled
from pagewalk.trace import Trace

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa

    from pagewalk.formats import Made
    from pagewalk.report.model import Cell, Table

Source = Trace | str | os.PathLike[str]
"""A trace, or a value that `Trace` accepts."""
Design = Machine | str | os.PathLike[str]
"""A machine, or a value that `Machine` accepts."""


class Runs(list[Results], Tabled):
    """The results of `run_many`: a list that can also be used as a table.

    Its chart shows the misses over time.
    """

    nothing_drawn = "a chart of runs needs at least two, with misses: plot a run by itself"

    def __init__(self, results: Iterable[Results]) -> None:
        super().__init__(results)

    def __repr__(self) -> str:
        return f"<Runs: {len(self)}>"

    def to_arrow(self) -> "pa.Table":
        """A row for each run: `trace`, `machine`, and the counts of a sweep's table."""
        from pagewalk.sweeps import rows

        return rows.table(
            [
                rows.row(
                    {"trace": one.data["trace"]["name"], "machine": one.data["machine"]["name"]},
                    one.data["machine"]["digest"],
                    one.data,
                )
                for one in self
            ],
            ["trace", "machine"],
        )

    def made(self) -> "Made":
        """The contents of the files that `save` writes: a comparison and a chart of the runs."""
        from pagewalk.formats import Made
        from pagewalk.report import charts, data

        return Made(
            counted=self.to_arrow,
            document=lambda: [one.data for one in self],
            shown=self._shown,
            charts=lambda: charts.shared_charts(data.report([one.data for one in self])),
        )

    def _shown(self) -> "Table":
        from pagewalk.report.model import Table
        from pagewalk.report.tables import comparison

        documents = [one.data for one in self]
        measures = comparison(documents).rows
        names = [(one["trace"]["name"], one["machine"]["name"]) for one in documents]
        head = ["Trace", "Machine", *(str(row[0]) for row in measures)]
        rows: list[list[Cell]] = [
            [*name, *(row[at] for row in measures)] for at, name in enumerate(names, 1)
        ]
        return Table("The runs", head, rows, [False, False, *[True] * len(measures)])

    def _repr_html_(self) -> str:
        from pagewalk.report import notebook

        return notebook.shown(f"{len(self)} runs", [], [self.made().shown()])


def run_many(
    traces: Source | Sequence[Source],
    machines: Design | Sequence[Design],
    *,
    executor: "Executor | None" = None,
    progress: Progress | bool | None = None,
) -> Runs:
    """Runs each trace on each machine. For variants of one machine, `sweep` is faster.

    Args:
        traces: Traces, or values that `Trace` accepts.
        machines: Machines, or values that `Machine` accepts.
        executor: The executor of the runs, such as `dask.distributed.Client(...).get_executor()`;
            its workers must find traces and machines under the same names. If absent, the runs are
            made in this process.
        progress: Called with the number of runs done and of all runs; `True` shows a bar by tqdm.

    Returns:
        The results, ordered by trace and then by machine.

    Raises:
        Error: There is no such trace or machine.
        WorkError: A trace is damaged, or a run failed.
    """
    given = [traces] if isinstance(traces, Trace | str | os.PathLike) else list(traces)
    designs = [machines] if isinstance(machines, Machine | str | os.PathLike) else list(machines)
    if not given or not designs:
        raise Error("nothing to run: give at least one trace and one machine")
    opened = [one if isinstance(one, Trace) else Trace(one) for one in given]
    built = [one if isinstance(one, Machine) else Machine(one) for one in designs]
    if len(built) > 1 and any(one.is_pipe for one in opened):
        raise Error("a pipe can be read only once: import it with `pagewalk import` first")
    asked = [(trace, machine) for trace in opened for machine in built]
    results = []
    with bar(progress, "running") as told:
        if executor is not None:
            futures = [executor.submit(_run, *one) for one in asked]
        for done, (trace, machine) in enumerate(asked):
            if told is not None:
                told(done, len(asked))
            results.append(_run(trace, machine) if executor is None else futures[done].result())
    return Runs(results)


def _run(trace: Trace, machine: Machine) -> Results:
    return machine.run(trace)
