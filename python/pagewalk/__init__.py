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

from typing import TYPE_CHECKING, Any

from pagewalk._native import Error, WorkError
from pagewalk._native import version as _version

# Functions that are called as their modules are: what is imported later would be the module.
from pagewalk.curve import curve
from pagewalk.hat import HatRun, HostRun, hat, hat_on_host
from pagewalk.marker import include, marker, page_size
from pagewalk.skeleton import Skeleton, skeleton
from pagewalk.sweep import sweep

if TYPE_CHECKING:
    from pagewalk.events import stat
    from pagewalk.machine import Builtin, Machine, machines
    from pagewalk.memory_managers import managers
    from pagewalk.memory_share import memory_settings
    from pagewalk.page_sizes import advise
    from pagewalk.page_table import PageTable, Work
    from pagewalk.progress import Progress
    from pagewalk.recording import Recording, record
    from pagewalk.results import Results
    from pagewalk.sweep.result import Sweep
    from pagewalk.trace import Trace

__version__ = _version()

_MODULES = {
    "Builtin": "machine",
    "Machine": "machine",
    "Progress": "progress",
    "Recording": "recording",
    "Results": "results",
    "Sweep": "sweep.result",
    "Trace": "trace",
    "Work": "page_table",
    "PageTable": "page_table",
    "advise": "page_sizes",
    "machines": "machine",
    "managers": "memory_managers",
    "memory_settings": "memory_share",
    "record": "recording",
    "stat": "events",
}
"""What is imported when it is first asked for, so that the import of the package is cheap."""

__all__ = [
    "Builtin",
    "Error",
    "HatRun",
    "HostRun",
    "Machine",
    "PageTable",
    "Progress",
    "Recording",
    "Results",
    "Skeleton",
    "Sweep",
    "Trace",
    "Work",
    "WorkError",
    "__version__",
    "advise",
    "curve",
    "hat",
    "hat_on_host",
    "include",
    "machines",
    "managers",
    "marker",
    "memory_settings",
    "page_size",
    "record",
    "skeleton",
    "stat",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module `pagewalk` has no attribute `{name}`")
    from importlib import import_module

    found = getattr(import_module(f"pagewalk.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
