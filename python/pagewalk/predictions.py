"""The predicted gain in a place file: the line that `advise -o` writes and `place --compare` reads.

```
 # predicted: 12 to 18 % of the CPU time, best estimate 15 %, for here.toml
 # predicted: 0 to 3.6 % of the time in user mode, best estimate 1.8 %, for epyc-9005
```

The gain of CPU time contains the page faults that larger pages save. It is predicted with a native
run and a calibrated machine file. Otherwise the prediction is of translation alone.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

TIMES = {"cpu_seconds": "the CPU time", "user_seconds": "the time in user mode"}
"""The names of the times of which a gain can be a share."""
_LINE = re.compile(
    r"^# predicted: (?P<lo>[-\d.]+) to (?P<hi>[-\d.]+) % of (?P<time>[\w ]+), "
    r"best estimate (?P<best>[-\d.]+) %, for (?P<machine>.+)$",
    re.MULTILINE,
)


class Prediction(NamedTuple):
    """A predicted gain of page sizes, as shares of a time."""

    lo: float
    hi: float
    best: float
    time: str
    """The time, a key of `TIMES`."""
    machine: str

    def line(self) -> str:
        """The prediction as a comment of a place file."""
        lo, hi, best = (f"{100 * share:.2f}" for share in (self.lo, self.hi, self.best))
        return (
            f"# predicted: {lo} to {hi} % of {TIMES[self.time]}, best estimate {best} %, "
            f"for {self.machine}"
        )


def of(run: Mapping[str, Any], machine: str) -> Prediction | None:
    """The predicted gain of a `PlacedRun`: of CPU time, if that is known.

    `None` if the machine has no latencies.
    """
    if cpu := run["gain_of_cpu"]:
        return Prediction(cpu["lo"], cpu["hi"], cpu["best"], "cpu_seconds", machine)
    share, best = run["gain_likely"] or run["gain_share"], run["gain_best"]
    if share is None or best is None:
        return None
    return Prediction(share["lo"], share["hi"], best, "user_seconds", machine)


def read(place_file: str) -> Prediction | None:
    """Reads the prediction from the text of a place file."""
    found = _LINE.search(place_file)
    time = found and next((key for key, words in TIMES.items() if words == found["time"]), None)
    if found is None or time is None:
        return None
    try:
        lo, hi, best = (float(found[end]) / 100 for end in ("lo", "hi", "best"))
    except ValueError:
        return None
    return Prediction(lo, hi, best, time, found["machine"].strip())
