"""The build backend of the Python package: adds files that maturin does not know to its work.

```
 qemu/ -------build.py----> python/pagewalk/qemu/qemu-*                         recording QEMUs
 crates/recorder --cargo--> python/pagewalk/plugins/pagewalk-recorder-API.so    for other QEMUs
 crates/engine   --cargo--> python/pagewalk/plugins/pagewalk-engine             put into programs
 preload/        --cc-----> python/pagewalk/plugins/pagewalk-allocations-*.so   preloaded
 experiments/    --copy---> python/pagewalk/data/experiments
 workloads/      --copy---> python/pagewalk/data/workloads
                            maturin: python/ and the native half --> wheel
```

Machines are in the native half. `make build` calls `plugins()` alone, after `make qemu`: in a
source tree the experiments are read where they are.

The parts that record programs are for x86-64 only. A wheel for another processor, which cargo is
told by `CARGO_BUILD_TARGET`, has the native half, the experiments and the workloads: it is for
analysis.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "pagewalk"

PLUGIN_APIS = ("v1", "v4")
"""The plugin interfaces of QEMU that the recorder is built for: 6.0 to 8.2, and 9.2 on."""

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = maturin.prepare_metadata_for_build_editable


def build_wheel(folder: str, settings: Any = None, metadata: str | None = None) -> str:
    """A wheel that records, runs and reproduces: PEP 517."""
    recording()
    data()
    name: str = maturin.build_wheel(folder, settings, metadata)
    return name


def build_editable(folder: str, settings: Any = None, metadata: str | None = None) -> str:
    """A wheel that leads to this source tree: PEP 660."""
    recording()
    name: str = maturin.build_editable(folder, settings, metadata)
    return name


def recording() -> None:
    """Builds what records programs into the package."""
    target = os.environ.get("CARGO_BUILD_TARGET") or platform.machine()
    if target.partition("-")[0] == "x86_64":
        plugins()
        qemu()


def plugins() -> None:
    """Builds the recorder for each plugin interface, and what it preloads, into the package."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    folder = PACKAGE / "plugins"
    folder.mkdir(exist_ok=True)
    for api in PLUGIN_APIS:
        command = ["cargo", "build", "--quiet", "--release", "--package", "recorder"]
        features = ["--no-default-features", "--features", f"api-{api}"]
        subprocess.run([*command, *features], cwd=ROOT, check=True)
        built = ROOT / target / "release" / "librecorder.so"
        name = f"pagewalk-recorder-{api}.so"
        subprocess.run(["install", "-s", "-m", "644", built, folder / name], check=True)
    engine()
    # The library that marks allocations, for the processors that a compiler is here for.
    # A source distribution keeps no mark that a file can be executed.
    subprocess.run(["bash", ROOT / "preload" / "build", folder], check=True)


ENGINE_TARGET = "x86_64-unknown-none"
"""The Rust target without a system, without vector registers, for which the engine is compiled."""


def engine() -> None:
    """Builds the engine of `--engine native` into the package, where its target is installed."""
    to = PACKAGE / "plugins" / "pagewalk-engine"
    found = subprocess.run(
        ["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True
    )
    library = Path(found.stdout.strip()) / "lib" / "rustlib" / ENGINE_TARGET
    if not library.is_dir():
        print(
            f"packaging: --engine native is left out: Rust has no target {ENGINE_TARGET} here; "
            f"`rustup target add {ENGINE_TARGET}` installs it",
            file=sys.stderr,
        )
        to.unlink(missing_ok=True)
        return
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = [
        "cargo",
        "build",
        "--quiet",
        "--release",
        "--package",
        "engine",
        "--bin",
        "pagewalk-engine",
    ]
    subprocess.run(
        [*command, "--features", "blob", "--target", ENGINE_TARGET], cwd=ROOT, check=True
    )
    built = ROOT / target / ENGINE_TARGET / "release" / "pagewalk-engine"
    subprocess.run(["install", "-s", "-m", "644", built, to], check=True)


def qemu() -> None:
    """Puts QEMU with the recorder inside into the package; one that was built before is taken."""
    if subprocess.run([sys.executable, ROOT / "qemu" / "build.py"], check=False).returncode != 0:
        # The script has said why, in one line.
        sys.exit(1)


def data() -> None:
    """Copies what `pagewalk reproduce` reads into the package."""
    for name in ("experiments", "workloads"):
        to = PACKAGE / "data" / name
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(ROOT / name, to)


if __name__ == "__main__":
    plugins()
