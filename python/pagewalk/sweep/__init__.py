r"""Sweeps: many designs over one trace, as a table with a row per design.

```
 vary ------> designs ------> passes ------> rows --> Sweep
 (vary.py)    one per row     (passes.py)    (rows.py)
                              in this process, or each in a worker of an executor;
                              what is done is kept beside the output (part.py)
```
"""

from pagewalk.sweep.passes import DESIGNS_PER_PASS, MACHINE, sweep
from pagewalk.sweep.result import Sweep
from pagewalk.sweep.vary import combinations, values

__all__ = ["DESIGNS_PER_PASS", "MACHINE", "Sweep", "combinations", "sweep", "values"]
