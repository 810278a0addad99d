import os
import re
import subprocess
from pathlib import Path

import pytest


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
