"""The whole life of memory, of recorded programs: forks, pipelines, a compile, little memory."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command import run_command

from pagewalk import Machine, Results, Trace

FORKS = """
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
/* fork|vfork PAGES: touches 256 pages; a child reads all of them and writes to so many. */
int main(int argc, char **argv)
{
    int writes = atoi(argv[2]);
    char *pages = mmap(0, 256 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char *touched = pages;
    for (int page = 0; page < 256; page++) touched[page << 12] = 1;
    int child = strcmp(argv[1], "fork") ? vfork() : fork();
    if (child == 0) {
        for (int page = 0; page < 256; page++) (void)touched[page << 12];
        for (int page = 0; page < writes; page++) touched[page << 12] = 2;
        _exit(0);
    }
    int status;
    return waitpid(child, &status, 0) != child || status;
}
"""


def record(trace: Path, command: Sequence[object]) -> Path:
    done = run_command(["record", "-q", "--calls", "-o", trace, "--", *command])
    assert done.returncode == 0, done.stderr
    return trace


def run(trace: Path, *settings: str, process: str | None = None) -> dict[str, Any]:
    machine = Machine("epyc-9005", ["os.manager=base", *settings])
    found: Results = machine.run(Trace(trace, process=process))
    return found.data


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forks")
    (folder / "forks.c").write_text(FORKS)
    subprocess.run(["gcc", "-O1", "-o", folder / "forks", folder / "forks.c"], check=True)
    return folder / "forks"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = tmp_path_factory.mktemp("pipeline") / "pipeline.pwt"
    return record(trace, ["sh", "-c", "seq 1 2000 | sort -n | wc -l"])


@pytest.mark.parametrize("how", ["fork", "vfork"])
def test_a_child_takes_no_frames_until_it_writes_and_none_if_it_shares(
    how: str, forks: Path, tmp_path: Path
) -> None:
    none, some = (
        run(record(tmp_path / f"{writes}.pwt", [forks, how, writes])) for writes in (0, 100)
    )
    copies = [data["manager"]["faults"]["copy"] for data in (none, some)]
    zeros = [data["manager"]["faults"]["zero"] for data in (none, some)]
    assert copies[1] - copies[0] == (100 if how == "fork" else 0)
    assert zeros[0] == zeros[1] >= 256, "a child that only reads has its parent's frames"
    # Pages that both processes share are in memory once, so the peak is less than twice that of one
    # process.
    peak = none["memory"]["frames_peak_bytes"]
    alone = max(
        run(tmp_path / "0.pwt", process=str(one["pid"]))["memory"]["frames_peak_bytes"]
        for one in none["trace"]["processes"]
    )
    assert peak < alone + 200 * 4096


def compare_with_each_alone(trace: Path) -> None:
    """Files are in memory once, and all processes take less than they do one by one."""
    whole = run(trace)
    processes = whole["trace"]["processes"]
    assert len(processes) >= 3
    alone = [run(trace, process=str(one["pid"])) for one in processes]
    files = [data["manager"]["bytes"]["file"] for data in alone]
    cached = whole["manager"]["bytes"]["file"]
    # No page is evicted here, so no page is read twice. Some pages that calls write need not be
    # read.
    assert whole["manager"]["faults"]["disk"] * 4096 <= cached
    assert whole["manager"]["work"]["reads"] * 4096 <= cached
    assert max(files) <= cached < sum(files)
    assert whole["manager"]["faults"]["cache"] > 0
    peaks = [data["memory"]["frames_peak_bytes"] for data in alone]
    assert max(peaks) <= whole["memory"]["frames_peak_bytes"] < sum(peaks)


def test_the_processes_of_a_pipeline_share(pipeline: Path) -> None:
    compare_with_each_alone(pipeline)


def test_the_processes_of_a_compile_share(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int main(void) { return 0; }\n")
    command = ["gcc", "-c", tmp_path / "x.c", "-o", tmp_path / "x.o"]
    compare_with_each_alone(record(tmp_path / "compile.pwt", command))


def test_less_memory_means_more_transfers_and_nothing_lost(pipeline: Path) -> None:
    plenty = run(pipeline)
    peak = plenty["memory"]["frames_peak_bytes"]
    runs = [
        run(pipeline, f"memory.size={peak * share // 100 >> 12 << 2}K", "swap.size=1G",
            "swap.io_cycles=300000")
        for share in (100, 75, 50, 25)
    ]  # fmt: skip
    came_back = [data["faults"]["returned"] for data in runs]
    read = [data["manager"]["work"]["reads"] for data in runs]
    assert came_back == sorted(came_back) and read == sorted(read), (came_back, read)
    assert read[0] < read[1] < read[2] < read[3]
    zeros = {data["manager"]["faults"]["zero"] for data in [plenty, *runs]}
    assert len(zeros) == 1, "what was stored comes back, and never as zeros"
    waits = [data["time"]["kernel"]["io_cycles"] for data in runs]
    transfers = [
        data["manager"]["work"]["reads"] + data["manager"]["work"]["writes"] for data in runs
    ]
    requests = [data["manager"]["io_requests"] for data in runs]
    assert waits == [300_000 * number for number in requests]
    # Adjacent pages are transferred by one request.
    pairs = list(zip(requests, transfers, strict=True))
    assert all(0.9 * pages < number <= pages for number, pages in pairs), pairs


@pytest.mark.parametrize("memory", ["64M", "8M"], ids=["plenty", "swapping"])
def test_memory_does_not_grow_with_the_length_of_a_trace(memory: str) -> None:
    """The same 4096 pages, touched ten times as often; with 8M half of them are away."""
    managed = ["os.manager=base", f"memory.size={memory}", "swap.size=64M"]
    settings = [word for setting in managed for word in ("--set", setting)]

    def peak_bytes(accesses: int) -> int:
        spec = f"generate:uniform,size=16M,stores=0.5,accesses={accesses}"
        run = [sys.executable, "-m", "pagewalk", "run", spec, *settings]
        with subprocess.Popen(run, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss << 10

    short, long = peak_bytes(300_000), peak_bytes(3_000_000)
    # Five bytes per access, or three per fault, would be more.
    assert long - short < 4 << 20
