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

TYPE_CHECKING = False
"""Type checkers assume that this value is true. Importing `typing.TYPE_CHECKING` would take longer
than all other imports here together.
"""

if TYPE_CHECKING:
    from typing import Any

    from pagewalk.curves import Curves, curve
    from pagewalk.events import stat
    from pagewalk.hat_counts import HatRun, HostRun
    from pagewalk.hat_runs import HatRuns, HostRuns, hat, hat_on_host
    from pagewalk.machine import Builtin, Machine, machines
    from pagewalk.many import Runs, run_many
    from pagewalk.markers import include, marker, page_size
    from pagewalk.memory_managers import Managers, managers
    from pagewalk.memory_share import memory_settings
    from pagewalk.page_sizes import advise
    from pagewalk.page_table import PageTable, Work
    from pagewalk.progress import Progress
    from pagewalk.recording import Recording, record
    from pagewalk.results import Results
    from pagewalk.skeletons import Skeleton, skeleton
    from pagewalk.sweeps.result import Sweep
    from pagewalk.sweeps.run import sweep
    from pagewalk.trace import Trace

__version__ = _version()

_MODULES = {
    "Advised": "page_sizes",
    "Builtin": "machine",
    "Curves": "curves",
    "HatRun": "hat_counts",
    "HatRuns": "hat_runs",
    "HostRun": "hat_counts",
    "HostRuns": "hat_runs",
    "Machine": "machine",
    "Managers": "memory_managers",
    "PageTable": "page_table",
    "Progress": "progress",
    "Recording": "recording",
    "Results": "results",
    "Runs": "many",
    "Skeleton": "skeletons",
    "Sweep": "sweeps.result",
    "Trace": "trace",
    "Work": "page_table",
    "advise": "page_sizes",
    "curve": "curves",
    "hat": "hat_runs",
    "hat_on_host": "hat_runs",
    "include": "markers",
    "machines": "machine",
    "managers": "memory_managers",
    "marker": "markers",
    "memory_settings": "memory_share",
    "page_size": "markers",
    "record": "recording",
    "run_many": "many",
    "skeleton": "skeletons",
    "stat": "events",
    "sweep": "sweeps.run",
}
"""Names that are imported at their first use, so that importing the package takes little time.

No module may have one of these names: once imported, the module would replace the attribute.
"""

__all__ = [
    "Advised",
    "Builtin",
    "Curves",
    "Error",
    "HatRun",
    "HatRuns",
    "HostRun",
    "HostRuns",
    "Machine",
    "Managers",
    "PageTable",
    "Progress",
    "Recording",
    "Results",
    "Runs",
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
    "run_many",
    "skeleton",
    "stat",
    "sweep",
]


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError(f"module `pagewalk` has no attribute `{name}`")
    from importlib import import_module

    found = getattr(import_module(f"pagewalk.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
