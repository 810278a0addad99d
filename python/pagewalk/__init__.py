"""Pagewalk: record what a program does to memory, replay it through a machine, see the cost.

```
Trace("gzip.pwt") --> Machine("epyc-9005").run(trace) --> Results --> .tlbs  .to_arrow()  .html()
```

>>> import pagewalk
>>> trace = pagewalk.Trace("generate:uniform,size=8M,accesses=100k")
>>> results = pagewalk.Machine("tlb-only").run(trace)
>>> results.tlbs["l1d"].lookups
100000
"""

from pagewalk._native import Error, WorkError
from pagewalk._native import version as _version
from pagewalk.curve import curve
from pagewalk.machine import Builtin, Machine, machines
from pagewalk.marker import include, marker, page_size
from pagewalk.progress import Progress
from pagewalk.recording import Recording, record
from pagewalk.results import Results
from pagewalk.sweep import Sweep, sweep
from pagewalk.trace import Trace
from pagewalk.workbench import Work, Workbench

__version__ = _version()

__all__ = [
    "Builtin",
    "Error",
    "Machine",
    "Progress",
    "Recording",
    "Results",
    "Sweep",
    "Trace",
    "Work",
    "WorkError",
    "Workbench",
    "__version__",
    "curve",
    "include",
    "machines",
    "marker",
    "page_size",
    "record",
    "sweep",
]
