r"""Sweeps: many designs over one trace or several, as a table with a row per design.

```
 vary ------> designs ------> passes, per trace ------> rows --> Sweep
 (vary.py)    one per row     (passes.py)               (rows.py)
                              in this process, or each in a worker of an executor;
                              what is done is kept beside the output (part.py)
```
"""

from pagewalk.sweeps.result import Sweep
from pagewalk.sweeps.run import sweep
from pagewalk.sweeps.vary import combinations, values

__all__ = ["Sweep", "combinations", "sweep", "values"]
