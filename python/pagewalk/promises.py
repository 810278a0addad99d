"""The promised gain in a place file: the line that `advise -o` writes and `place --compare` reads.

```
 # promised: 0 to 3.6 % of the time in user mode, best estimate 1.8 %, for epyc-9005
```
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_LINE = re.compile(
    r"^# promised: (?P<lo>[-\d.]+) to (?P<hi>[-\d.]+) % of the time in user mode, "
    r"best estimate (?P<best>[-\d.]+) %, for (?P<machine>.+)$",
    re.MULTILINE,
)


class Promise(NamedTuple):
    """Shares of the time in user mode that page sizes save, as a model says."""

    lo: float
    hi: float
    best: float
    machine: str

    def line(self) -> str:
        """As a comment of a place file."""
        lo, hi, best = (f"{100 * share:.2f}" for share in (self.lo, self.hi, self.best))
        return (
            f"# promised: {lo} to {hi} % of the time in user mode, best estimate {best} %, "
            f"for {self.machine}"
        )


def of(run: Mapping[str, Any], machine: str) -> Promise | None:
    """The promised gain of a `PlacedRun`, the likely one if known; `None` without latencies."""
    share, best = run["gain_likely"] or run["gain_share"], run["gain_best"]
    if share is None or best is None:
        return None
    return Promise(share["lo"], share["hi"], best, machine)


def read(place_file: str) -> Promise | None:
    """The promise in the text of a place file."""
    found = _LINE.search(place_file)
    if found is None:
        return None
    try:
        lo, hi, best = (float(found[end]) / 100 for end in ("lo", "hi", "best"))
    except ValueError:
        return None
    return Promise(lo, hi, best, found["machine"].strip())
