r"""Sweeps: many designs over one trace or several, as a table with a row per design.

```
 vary ------> designs ------> passes, per trace ------> rows --> Sweep
 (vary.py)    one per row     (passes.py)               (rows.py)
                              in this process, or each in a worker of an executor;
                              what is done is kept beside the output (part.py)
```
"""

from pagewalk.sweep.result import Sweep
from pagewalk.sweep.run import sweep
from pagewalk.sweep.vary import MACHINE, TRACE, combinations, values

__all__ = ["MACHINE", "TRACE", "Sweep", "combinations", "sweep", "values"]
