"""The kernel's pool of 2M pages beside a model of it: `python tests/kernel/pools.py OUTPUT.json`.

`pools.c` plays random calls and compares the numbers of pages after each. It needs root. The pool
is afterwards as it was. No other program may use the pool meanwhile.
"""

import datetime
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import knobs
from model import ROOT

STREAMS = 100
CALLS = 200
POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
JOURNAL = Path("/run/pagewalk-kernel-pools.json")


def main() -> int:
    """The record, and a line for each stream that differs."""
    (output,) = sys.argv[1:]
    different = {}
    pools = (POOL / "nr_overcommit_hugepages", POOL / "nr_hugepages")
    with tempfile.TemporaryDirectory() as text, knobs.kept(JOURNAL, pools):
        program = Path(text) / "pools"
        subprocess.run(["cc", "-O2", "-o", program, ROOT / "tests/kernel/pools.c"], check=True)
        for seed in range(1, STREAMS + 1):
            command = [program, str(seed), str(CALLS)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
            if done.returncode != 0:
                different[seed] = done.stdout.decode().strip()
                print(f"seed {seed}: {different[seed]}", flush=True)
    record = {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "kernel": platform.release(),
        "streams": STREAMS,
        "calls": CALLS,
        "different": different,
    }
    Path(output).write_text(json.dumps(record, indent=1) + "\n")
    print(f"{STREAMS - len(different)} of {STREAMS} streams have the pool that the kernel has")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(knobs.run(main))
