"""What all tests share: programs to record, and their traces, made once a session.

```
 pytest -n auto
   FIRST       what takes longest begins first, so that no worker is left with it at the end
   other files a worker takes a file whole: fixtures of a file are made once
   SPREAD      a worker takes test after test; they need nothing of each other
```
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

sys.path.insert(0, str(Path(__file__).parent / "python"))
from command import run_command

FIRST = ("test_wheel.py", "test_reproductions.py")
SPREAD = (
    "test_reproductions.py",
    "test_reproduce.py",
    "test_examples.py",
    "test_tutorials.py",
)

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Touches 1024 pages of a mapping in order, eight times, then ends with the status asked for. */
int main(int argc, char **argv) {
    volatile char *pages = mmap(0, 1024 * 4096, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return 99;
    for (int round = 0; round < 8; round++)
        for (int page = 0; page < 1024; page++) pages[page * 4096] = (char)round;
    puts("touched");
    return argc > 1 ? atoi(argv[1]) : 0;
}
"""


class Files(LoadScopeScheduling):
    """Hands out files whole, in the order of collection, and the tests of `SPREAD` one by one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return nodeid if Path(file).name in SPREAD else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Files:
    config.option.loadscopereorder = False
    return Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts first what takes longest, and last what fills the gaps."""

    def turn(item: pytest.Item) -> int:
        name = item.path.name
        if name in FIRST:
            return FIRST.index(name)
        return len(FIRST) + (name in SPREAD)

    items.sort(key=turn)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where experiments keep recordings and runs: one place for all workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that stores to 1024 pages, eight times over."""
    compiler = shutil.which("gcc") or pytest.fail("gcc is missing: `make test` installs it")
    folder = tmp_path_factory.mktemp("program")
    (folder / "touch.c").write_text(PROGRAM)
    binary = folder / "touch"
    subprocess.run([compiler, "-O1", "-o", binary, folder / "touch.c"], check=True)
    return binary


@pytest.fixture(scope="session")
def recorded(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's trace, made by the recorder itself."""
    trace = tmp_path_factory.mktemp("traces") / "touch.pwt"
    done = run_command(["record", "-o", trace, "--", program])
    assert done.returncode == 0, done.stderr
    return trace


@pytest.fixture
def pagewalk() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """The command: a function of its arguments."""
    return lambda *arguments, **options: run_command(arguments, **options)


@pytest.fixture(scope="session")
def machines() -> None:
    """Skips a test where the QEMU for whole systems, or what a kernel alone needs, is missing."""
    from pagewalk import Error
    from pagewalk.systems import machine, packages

    try:
        machine.qemu()
        packages.firmware()
        packages.option_rom()
    except Error as error:
        pytest.skip(str(error))
