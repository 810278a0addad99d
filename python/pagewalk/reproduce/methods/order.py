"""Numbers of other experiments side by side, for a table that summarises them.

Parameter: `rows`, by name: an `experiment` and `cells` of its table, each given by its row and
column. The result has a column for each name, and two rows: `least` and `most` of the cells'
numbers.
"""

from typing import Any

from pagewalk._native import Error
from pagewalk.reproduce.experiment import Experiment
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.table import Table


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Measures the named experiments; runs only what is not in the cache."""
    from pagewalk.reproduce.outcome import measure as measured

    table = Table(list(parameters["rows"]), {"least": [], "most": []})
    for name, row in parameters["rows"].items():
        experiment = Experiment.load(lab.folder / row["experiment"])
        small = experiment.smoke if parameters.get("smoke") else {}
        numbers = measured(experiment, {**experiment.parameters, **small}, lab)
        cells = [numbers.value((of, column)) for of, column in row["cells"]]
        known = [cell for cell in cells if cell is not None]
        if not known and not small:
            raise Error(f"{row['experiment']} has none of the numbers that row `{name}` needs")
        table.rows["least"].append(min(known, default=None))
        table.rows["most"].append(max(known, default=None))
    return table
