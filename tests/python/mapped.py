"""Programs whose memory has every kind of page size, and knobs that tests change and put back."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "mapped.c"
THP = Path("/sys/kernel/mm/transparent_hugepage")


def compiled(folder: Path, *options: str) -> Path:
    """The program of mapped.c."""
    compiler = shutil.which("cc") or pytest.fail("cc is missing: `make test` installs it")
    program = folder / ("mapped" + "".join(options).replace("-", "_"))
    command = [compiler, "-O1", "-pthread", *options, "-o", program, SOURCE]
    subprocess.run(command, check=True)
    return program


@contextmanager
def running(
    program: Path, words: Sequence[str], folder: Path, **options: object
) -> Iterator[tuple[int, dict[str, int]]]:
    """Runs it until the block ends: its number, and the address of each kind of memory."""
    process = subprocess.Popen(
        [program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
        **options,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    found = {}
    try:
        for _ in words:
            kind, _, place = process.stdout.readline().strip().partition(" ")
            found[kind] = int(place, 16) if place.startswith("0x") else -1
        assert "" not in found, (words, found)
        # The program allocates a buffer for its input, and then waits.
        deadline = time.monotonic() + 10
        while "S" not in (Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2][:3]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield process.pid, found
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


def is_root() -> bool:
    return os.geteuid() == 0


needs_root = pytest.mark.skipif(
    not is_root() or "PYTEST_XDIST_WORKER" in os.environ,
    reason="it changes a knob of the system: run as root, and without -n",
)
alone = pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ,
    reason="the launcher collapses in a tenth of the time that it gets: run without -n",
)
needs_thp = pytest.mark.skipif(
    not THP.is_dir() or not Path("/proc/self/pagemap").exists(), reason="no large pages here"
)


@contextmanager
def knobs(values: dict[str, str]) -> Iterator[None]:
    """Knobs below the folder of large pages as these values say, and back however this ends."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
    import knobs as kernel

    sys.path.pop(0)
    changed = [THP / "enabled", THP / "defrag", *(THP / name for name in values)]
    with kernel.kept(kernel.JOURNAL.with_name("pagewalk-place-knobs.json"), changed):
        for name, value in values.items():
            (THP / name).write_text(value)
        yield
