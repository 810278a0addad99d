"""Experiments run whole: those that take at most a minute, ten minutes together.

A verdict that is not the saved one fails: either what changed it is wrong, or `pagewalk reproduce
NAME --save` keeps the new numbers.
"""

import json
from pathlib import Path

import pytest

from pagewalk.reproduce import find

FOLDER = Path(__file__).parents[2] / "experiments"
SECONDS_MAX = 60
ALL_SECONDS_MAX = 600
APART = {
    "B10/server", "U02/fig10", "U02/fig7", "U02/fig8", "U02/fig9", "U02/sec4.4", "U02/sec4.6",
    "U02/sec4.7", "U02/sec4.9", "U02/table3", "U02/table5",
}  # fmt: skip
"""Experiments with programs that `make tools` does not install."""


def quick() -> list[str]:
    """The experiments that take the least, by the seconds saved with them; the longest first."""
    took = sorted(
        (last["measured_on"]["cpu_seconds"], experiment.name)
        for experiment in find(FOLDER)
        if (last := experiment.last()) is not None and experiment.name not in APART
    )
    chosen, sum_ = [], 0.0
    for seconds, name in took:
        sum_ += seconds
        if seconds <= SECONDS_MAX and sum_ <= ALL_SECONDS_MAX:
            chosen.append(name)
    return chosen[::-1]


@pytest.mark.parametrize("name", quick())
def test_verdicts_are_the_saved_ones(pagewalk, cache: Path, name: str) -> None:
    done = pagewalk("reproduce", name, "--cache", cache, "--json")
    assert done.returncode == 0, done.stderr
    [experiment] = find(FOLDER, [name])
    [now], last = json.loads(done.stdout), experiment.last()
    timed = {claim.says for claim in experiment.claims if claim.timed}
    verdicts = [
        {c["says"]: (c["verdict"], c["ours"]) for c in each["claims"] if c["says"] not in timed}
        for each in (now, last)
    ]
    changed = {
        says: (then, verdicts[0][says])
        for says, then in verdicts[1].items()
        if then[0] != verdicts[0][says][0]
    }
    assert not changed, "saved, and now: " + json.dumps(changed, indent=1, ensure_ascii=False)
