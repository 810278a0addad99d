"""Windows of natively recorded programs: what is left out in the program is counted exactly.

A program's whole recording is cut here in the places where `--skip`, symbols, markers and
`--sample` cut it there.
"""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_windows import PROGRAM

import pagewalk as library
from pagewalk import Trace

ROUNDS = 10 if os.environ.get("PAGEWALK_TORTURE") else 1
Rows = list[tuple[int, str]]

THREADS = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static long sums[64];
__attribute__((noinline)) void begin(void) { sums[63] = 1; }
static void *run(void *arg) {
    volatile long *own = malloc(8000);
    for (long i = 0; i < ROUNDS; i++) own[i % 1000] = i;
    sums[(long)arg] = own[999];
    free((void *)own);
    return 0;
}
int main(int argc, char **argv) {
    int count = atoi(argv[1]);
    pthread_t all[64];
    for (long i = 0; i < count; i++) pthread_create(&all[i], 0, run, (void *)i);
    begin();
    for (int i = 0; i < count; i++) pthread_join(all[i], 0);
    long sum = 0;
    for (int i = 0; i < count; i++) sum += sums[i];
    printf("%ld\\n", sum);
    return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("windows")
    (folder / "windowed.c").write_text(PROGRAM)
    (folder / "threads.c").write_text(THREADS)
    for name in ("windowed", "threads"):
        subprocess.run(
            ["gcc", "-O1", "-no-pie", "-pthread", "-DROUNDS=40000L", "-I", library.include(),
             f"{name}.c", "-o", name],
            cwd=folder, check=True,
        )  # fmt: skip
    return folder


@pytest.fixture
def recorded(pagewalk, tmp_path: Path) -> Callable[..., Path]:
    """Records a command natively with these flags."""
    numbers = itertools.count()

    def record(command: list[str | Path], *flags: str, says: str | None = None) -> Path:
        trace = tmp_path / f"{next(numbers)}.pwt"
        done = pagewalk("record", "--engine", "native", "-o", trace, *flags, "--", *command)
        assert done.returncode == 0, done.stderr
        assert says is None or done.stdout == says
        return trace

    return record


def rows(trace: Path) -> Rows:
    def each() -> Iterator[tuple[int, str]]:
        for batch in Trace(trace).batches():
            yield from zip(batch["addr"].to_pylist(), batch["kind"].to_pylist(), strict=True)

    return list(each())


def test_what_is_skipped_and_the_rest_are_the_whole(folder: Path, recorded) -> None:
    program = [folder / "windowed"]
    whole = rows(recorded(program))
    for skip in (1, 4096, len(whole) // 3, len(whole) - 5):
        assert rows(recorded(program, "--skip", str(skip))) == whole[skip:]


def test_windows_from_signs_are_parts_of_the_whole(folder: Path, recorded) -> None:
    program = [folder / "windowed"]
    whole = rows(recorded(program))
    ways = [["--from-symbol", "work"], ["--from-marker", "1"], ["--from-symbol", "puts"]]
    for flags in ways:
        part = rows(recorded(program, *flags))
        assert 0 < len(part) < len(whole) and whole[-len(part) :] == part
        behind = rows(recorded(program, *flags, "--skip", "100", "--max-accesses", "200"))
        assert behind == part[100:300]


def test_a_sample_is_cut_from_the_whole(folder: Path, recorded) -> None:
    program = [folder / "windowed"]
    whole = rows(recorded(program))
    for window, period in ((1000, 5000), (10_000, 30_000)):
        part = rows(recorded(program, "--sample", f"{window}/{period}"))
        places = range(0, len(whole), period)
        assert part == [row for at in places for row in whole[at : at + window]]


def test_children_and_executed_programs_have_windows_of_their_own(folder: Path, recorded) -> None:
    command = ["sh", "-c", f"{folder}/windowed; exec {folder}/windowed"]
    trace = recorded(command, "--sample", "2000/20000", says="done\ndone\n")
    info = Trace(trace).info()
    assert len(info["processes"]) == 2
    for process in info["processes"]:
        assert process["accesses"] >= 2000
    trace = recorded(command, "--from-symbol", "work", says="done\ndone\n")
    assert all(process["accesses"] > 1000 for process in Trace(trace).info()["processes"][-1:])


@pytest.mark.parametrize("count", [3, 40])
def test_programs_with_threads_work_and_their_accesses_are_all_counted(
    folder: Path, recorded, count: int
) -> None:
    program = [folder / "threads", str(count)]
    says = f"{count * 39999}\n"
    for _ in range(ROUNDS):
        for flags in (
            ["--skip", "300k"],
            ["--sample", "20k/200k"],
            ["--from-symbol", "begin"],
            ["--skip", "10G"],
        ):
            trace = recorded(program, *flags, says=says)
            accesses = sum(Trace(trace).info()["accesses"].values())
            assert (accesses == 0) == (flags[1] == "10G"), flags


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ("5", "write WINDOW/PERIOD"),
        ("10/1000", "a window of at least 1000"),
        ("1000/1500", "at least twice as long"),
        ("1x/5M", "is not a count"),
    ],
)
def test_a_sample_that_is_none_is_one_line(pagewalk, sample: str, says: str) -> None:
    done = pagewalk("record", "--sample", sample, "--", "true")
    assert done.returncode == 2 and says in done.stderr
