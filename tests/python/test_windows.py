"""Windows by what a program does: symbols, markers, instructions."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pagewalk as library
from pagewalk import Trace

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "pagewalk.h"
enum { N = 1000 };
volatile long first[N], second[N], third[N];
__attribute__((noinline)) void before(void) { for (int i = 0; i < N; i++) first[i] = i; }
__attribute__((noinline)) void work(void) { for (int i = 0; i < N; i++) second[i] = i; }
__attribute__((noinline)) void after(void) { for (int i = 0; i < N; i++) third[i] = i; }
int main(void)
{
    before();
    pagewalk_page_size((void *)second, sizeof second, 1 << 16);
    pagewalk_marker(1);
    work();
    pagewalk_marker(2);
    after();
    if (getenv("STAYS"))
        sleep(100);
    puts("done");
    return 0;
}
"""


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("windowed")
    (folder / "windowed.c").write_text(PROGRAM)
    subprocess.run(
        ["gcc", "-O1", "-no-pie", "-I", library.include(), "windowed.c", "-o", "windowed"],
        cwd=folder, check=True,
    )  # fmt: skip
    return folder / "windowed"


def stores(program: Path, trace: Path) -> dict[str, int]:
    """Stores to each of the program's arrays."""
    listed = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    place = {line.split()[2]: int(line.split()[0], 16) for line in listed.splitlines()
             if line.split()[-1] in ("first", "second", "third")}  # fmt: skip
    counts = dict.fromkeys(place, 0)
    for batch in Trace(trace).batches():
        rows = zip(batch["addr"].to_pylist(), batch["kind"].to_pylist(), strict=True)
        for addr, kind in rows:
            for name, start in place.items():
                counts[name] += kind == "store" and start <= addr < start + 8000
    return counts


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ([], (1000, 1000, 1000)),
        (["--from-symbol", "work", "--to-symbol", "after"], (0, 1000, 0)),
        (["--from-symbol", "after"], (0, 0, 1000)),
        (["--to-symbol", "work"], (1000, 0, 0)),
        (["--from-marker", "1", "--to-marker", "2"], (0, 1000, 0)),
        (["--from-marker", "--to-marker"], (0, 1000, 0)),
        (["--from-marker", "2"], (0, 0, 1000)),
        (["--from-symbol", "main", "--to-marker", "1"], (1000, 0, 0)),
        (["--from-marker", "1", "--to-symbol", "puts"], (0, 1000, 1000)),
    ],
)
def test_a_window_is_what_happens_between_two_signs(
    pagewalk, windowed: Path, tmp_path: Path, window: list[str], expected: tuple[int, int, int]
) -> None:
    done = pagewalk("record", "-o", tmp_path / "t.pwt", *window, "--", windowed)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert tuple(stores(windowed, tmp_path / "t.pwt").values()) == expected
    if "--from-marker" in window:
        assert Trace(tmp_path / "t.pwt").info()["events"]["marker"] >= 1


def test_a_window_of_instructions_ends_with_their_block(
    pagewalk, windowed: Path, tmp_path: Path
) -> None:
    window = ["--from-symbol", "work", "--instructions", "2000", "--skip", "10"]
    done = pagewalk("record", "-o", tmp_path / "t.pwt", *window, "--", windowed)
    assert done.stdout == "done\n", done.stderr
    counts = stores(windowed, tmp_path / "t.pwt")
    assert counts["first"] == counts["third"] == 0 and 100 < counts["second"] < 1000
    # The program must not end by itself before it is killed.
    done = pagewalk(
        "record", "-o", tmp_path / "e.pwt", *window, "--end-with-window", "--", "sh", "-c",
        f"STAYS=1 {windowed}; sleep 100",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "killed when its window had ended" in done.stderr
    assert stores(windowed, tmp_path / "e.pwt") == counts
    # If a program ends by itself before it is killed, its exit status is kept.
    done = pagewalk(
        "record", "-o", tmp_path / "f.pwt", *window, "--end-with-window", "--", "sh", "-c", "exit 7"
    )
    assert done.returncode != 0 and "killed" not in done.stderr


def test_a_live_run_has_the_same_window(pagewalk, windowed: Path, tmp_path: Path) -> None:
    window = ["--from-marker", "1", "--to-marker", "2"]
    assert pagewalk("record", "-o", tmp_path / "t.pwt", *window, "--", windowed).returncode == 0
    pagewalk("run", tmp_path / "t.pwt", "-m", "tlb-only", "--json", tmp_path / "t.json")
    live = pagewalk("run", *window, "-m", "tlb-only", "--json", tmp_path / "l.json", "--", windowed)
    assert live.returncode == 0, live.stderr
    stored, run = (json.loads((tmp_path / f"{name}.json").read_text()) for name in "tl")
    assert stored["accesses"] == run["accesses"] and stored["tlbs"] == run["tlbs"]


def test_python_programs_have_markers_too(pagewalk, tmp_path: Path) -> None:
    program = "import pagewalk; pagewalk.marker(7); x = bytearray(1 << 16); pagewalk.marker(8)"
    done = pagewalk(
        "record", "-o", tmp_path / "p.pwt", "--from-marker", "7", "--to-marker", "8", "--",
        sys.executable, "-c", program,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    accesses = sum(Trace(tmp_path / "p.pwt").info()["accesses"].values())
    assert 0 < accesses < 200_000


@pytest.mark.parametrize(
    ("window", "says"),
    [
        (["--from-symbol", "nobody"], "has a symbol of that name"),
        (["--from-symbol", "mkfifo"], "the function was never called"),
        (["--from-marker", "9"], "never executed marker 9"),
    ],
)
def test_a_sign_that_never_comes_is_one_line(
    pagewalk, windowed: Path, tmp_path: Path, window: list[str], says: str
) -> None:
    for command in (["record", "-o", tmp_path / "t.pwt"], ["run", "-m", "tlb-only"]):
        done = pagewalk(*command, *window, "--", windowed)
        assert done.returncode != 0 and done.stdout == "done\n"
        assert says in done.stderr.strip().splitlines()[-1]
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "t.pwt").exists()


def test_an_end_that_never_comes_is_noted(pagewalk, windowed: Path, tmp_path: Path) -> None:
    done = pagewalk("record", "-o", tmp_path / "t.pwt", "--to-marker", "9", "--", windowed)
    assert done.returncode == 0 and "which never reached marker 9" in done.stderr
    done = pagewalk("run", tmp_path / "t.pwt", "--from-symbol", "main")
    assert done.returncode == 2 and "--from-symbol is for a live program" in done.stderr


def test_a_pipeline_waits_as_often_as_its_pipe_is_full_and_empty(pagewalk, tmp_path: Path) -> None:
    pipeline = "dd if=/dev/zero bs=4096 count=256 2>/dev/null | dd bs=4096 of=/dev/null 2>/dev/null"
    done = pagewalk(
        "record", "--calls", "--one-cpu", "-o", tmp_path / "p.pwt", "--", "sh", "-c", pipeline
    )
    assert done.returncode == 0, done.stderr
    # The writer and the reader wait 15 times each, and the shell for both.
    for pipe, fills in (("64K", 16), ("16K", 64)):
        spec = f"mix:pipe={pipe},quantum=1G,{tmp_path / 'p.pwt'}"
        results = library.Machine("tlb-only").run(Trace(spec)).data["switches"]
        waits = results["by_cause"]["blocked"] - 2 * (fills - 1)
        assert 1 <= waits <= 2 and results["by_cause"]["quantum"] == 0, results
        assert results["unexplained"] == 0
