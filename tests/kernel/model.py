"""Programs of the model that play what the kernel has played."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def example(package: str, name: str) -> Path:
    """Builds an example of a crate, and says where it is."""
    command = ["cargo", "build", "--release", "--quiet", "-p", package, "--example", name]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    return ROOT / target / "release/examples" / name
