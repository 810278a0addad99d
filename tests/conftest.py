"""What all tests share: programs to record, and their traces, made once a session."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "python"))
from command import run_command

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
    if not shutil.which("qemu-x86_64"):
        pytest.fail("qemu-x86_64 is missing: `make test` installs it")
    trace = tmp_path_factory.mktemp("traces") / "touch.pwt"
    done = run_command(["record", "-o", trace, "--", program])
    assert done.returncode == 0, done.stderr
    return trace


@pytest.fixture
def pagewalk() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """The command: a function of its arguments."""
    return lambda *arguments, **options: run_command(arguments, **options)
