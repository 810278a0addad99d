"""Where the kernel places mappings, and where the model does.

    python tests/kernel/places.py OUTPUT.json

```
 places.c: random calls, without random addresses --> calls with results
                                      |
    places.rs: calls at other addresses, placed by the model: equal?
```

It needs no rights. Programs of other systems have the addresses that `places.rs` makes up.
"""

import datetime
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from model import ROOT, example

STREAMS = 300
CALLS = 60
FILE_BYTES = 8 << 20


def main() -> int:
    """The record, and a line for each stream that differs."""
    (output,) = sys.argv[1:]
    judge = example("trace", "places")
    different = {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        program, file = folder / "places", folder / "file"
        source = ROOT / "tests/kernel/places.c"
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        file.write_bytes(bytes(FILE_BYTES))
        for seed in range(1, STREAMS + 1):
            command = [program, str(seed), str(CALLS), file]
            calls = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
            done = subprocess.run([judge], input=calls, stdout=subprocess.PIPE, check=False)
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
    print(
        f"{STREAMS - len(different)} of {STREAMS} streams have each mapping where the kernel has it"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
