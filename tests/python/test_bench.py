import os
import re
import subprocess
from pathlib import Path

import pytest

from pagewalk.memory_managers import kinds

HASHES = Path(__file__).parents[2] / "benches" / "hashes.txt"


def test_every_manager_has_hashes_of_runs_that_end() -> None:
    text = HASHES.read_text()
    found = {
        name: re.findall(rf"^([0-9a-f]{{16}}|\w+) .* {re.escape(name)} ", text, re.MULTILINE)
        for kind in kinds()
        for name in kind["settings"]
        if name.startswith("os.manager=")
    }
    assert len(found) == 8
    for name, hashes in found.items():
        assert all(re.fullmatch("[0-9a-f]{16}", each) for each in hashes), (name, hashes)
        assert len(hashes) >= 9, (name, hashes)


@pytest.mark.skipif("BENCH" not in os.environ, reason="`make test` builds it and names it in BENCH")
def test_the_bench_counts_the_same_in_two_runs(recorded: Path) -> None:
    def hashes() -> list[str]:
        done = subprocess.run(
            [os.environ["BENCH"], "--smoke", recorded], capture_output=True, text=True, check=True
        )
        return re.findall(r"[0-9a-f]{16}\b", done.stdout)

    first = hashes()
    assert len(first) >= 9
    assert hashes() == first
