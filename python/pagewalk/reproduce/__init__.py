r"""The papers' experiments, run again: the papers' numbers and claims, and our numbers.

```
 B10/fig4.14/experiment.toml --> Experiment --method--> Table --claims--> Outcome
 programs.toml --> programs --record--> traces ---\        ^                   |
 designs.toml  --> settings ----------------------- Lab --/     text, JSON, HTML, last.json
```

An experiment is data: what to run, what the paper printed, and what the paper claims. A method
defines how to measure. Each method is one file, which is used by all experiments that are measured
in this way.
"""

from pagewalk.reproduce.experiment import Experiment, find, root
from pagewalk.reproduce.lab import Lab
from pagewalk.reproduce.outcome import Outcome, relabelled, reproduce, saved
from pagewalk.reproduce.table import Table

__all__ = [
    "Experiment", "Lab", "Outcome", "Table", "find", "relabelled", "reproduce", "root", "saved",
]  # fmt: skip
