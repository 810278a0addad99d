"""What choices of page sizes cost, so that `advise` can compare them.

```
                       translation            page faults
 counts alone          cycles, or misses      not known
 a native run, and a   seconds            +   seconds                <- what the program waits for
 calibrated machine
```

Larger pages save faults where each page of memory is touched once or twice, and translation where
memory is touched again and again. A program that only fills its memory gains by the first alone.
"""

from collections.abc import Mapping
from typing import Any

from pagewalk import estimates, fault_gains
from pagewalk.page_size_groups import Part


class Costs:
    """The costs of the runs of one program, all in one unit."""

    def __init__(self, base: Mapping[str, Any], run: Mapping[str, Any]) -> None:
        """With the results of base pages, and the same run as a `PlacedRun`."""
        self.cycles = _cycles(run)
        self.prices = fault_gains.Prices.of(base) if run["gain_of_cpu"] else None
        seconds = estimates.seconds_of_translation(base)
        if self.prices is None or seconds is None or not self.cycles:
            self.prices, self.unit, self.base = None, 1.0, self.cycles
            self.of_what = "the translation"
            return
        self.unit = seconds / self.cycles
        self.base = seconds + _middle(self.prices.saved(base["walks"]["cold"], 0, 0))
        self.of_what = "translation and page faults"

    def of(self, run: Mapping[str, Any]) -> float:
        """The cost of a `PlacedRun`."""
        saved = run["gain_of_cpu"]
        if self.prices is None or saved is None:
            return _cycles(run) * self.unit
        return float(self.base - (saved["translation_ms"] + saved["faults_ms"]) / 1000)

    def saved(self, cycles: float, before: Part, after: Part) -> float:
        """What a group of regions saves with large pages.

        Args:
            cycles: Cycles of translation that it saves, or misses if nothing has cycles.
            before: Its counts with base pages.
            after: Its counts with large pages.
        """
        faults = 0.0
        if self.prices is not None:
            pages = (before.cold, after.cold - after.large, after.large)
            faults = _middle(self.prices.saved(*pages))
        return cycles * self.unit + faults

    def share(self, saved: float) -> float:
        """A saving as a share of the cost of base pages."""
        return saved / self.base if self.base > 0 else 0.0


def _cycles(run: Mapping[str, Any]) -> float:
    """Cycles of translation (the middle of their range), or misses if the run has no cycles."""
    cycles = run["translation_cycles"]
    if cycles is None:
        return float(run["misses"] + run["cold_misses"])
    return float(cycles["lo"] + cycles["hi"]) / 2


def _middle(ends: tuple[float, float]) -> float:
    return sum(ends) / 2
