"""`pagewalk verify`: each reason is provoked, and what is told agrees with the kernel's smaps."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import run_command
from mapped import THP, compiled, knobs, needs_root, needs_thp, running

from pagewalk._native import Error
from pagewalk.placing import mappings, pages, reasons, rules, show
from pagewalk.placing.pages import LARGE
from pagewalk.placing.system import System
from pagewalk.placing.verify import verify

pytestmark = needs_thp

MIB = 1 << 20
SYSTEM = System()
MADVISE = pytest.mark.skipif(
    SYSTEM.allowed(LARGE) != "madvise", reason="the knob of large pages is not madvise"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("verify"))


def seen(
    program: Path, words: list[str], folder: Path, text: str = "", **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document of a program, and the region of the last of its words."""
    wanted = rules.read(text, SYSTEM, pools=True) if text else []
    with running(program, words, folder) as (pid, places):
        document = verify(pid, wanted, **more)
        agrees(document, pid)
    place = list(places.values())[-1]
    inside = [
        one for one in document["regions"] if one["start"] <= place < one["start"] + one["bytes"]
    ]
    return document, inside[0] if inside else {"why": [], "got": {}, "wanted": []}


def agrees(document: dict[str, Any], pid: int) -> None:
    """Region by region what is told is what smaps counts."""
    told = {one["start"]: one for one in document["regions"]}
    for one in mappings.read(pid):
        if one.kind == mappings.HUGETLB:
            continue
        region = told.get(one.start)
        large = region["got"].get("2M", 0) if region else 0
        assert large == one.huge, (one, region)
        # Pages of files that other processes use may be loaded at any time.
        if region and one.kind in mappings.OWN:
            assert sum(region["got"].values()) == region["resident_bytes"], (one, region)


def why(region: dict[str, Any]) -> list[str]:
    return [row["reason"] for row in region["why"]]


@MADVISE
def test_memory_that_has_what_it_asked_for_has_no_reason(program: Path, tmp_path: Path) -> None:
    document, region = seen(program, ["advised:16"], tmp_path)
    assert region["got"] == {"2M": 16 * MIB} and region["wanted"] == ["2M"]
    assert region["by"] == ["advice"] and region["why"] == []
    assert document["wanted_bytes"] - document["missing_bytes"] == 16 * MIB


@MADVISE
@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (["advised:1"], "", ("smaller-than-page", MIB, "no room for a page of 2M")),
        (["unaligned:2"], "", ("unaligned", 2 * MIB, "multiples of 2M")),
        (["unaligned:6"], "", ("unaligned", 2 * MIB, "multiples of 2M")),
        (["thread:6"], "range 0x1000..0x7fffffffffff=2M", ("thread-stack", None, "MAP_STACK")),
        (["file:8"], "", ("private-file", 8 * MIB, "copies a private, writable mapping")),
        (["against:8"], "mmap=2M", ("advised-against", 8 * MIB, "MADV_NOHUGEPAGE")),
        (["plain:8"], "mmap=2M", ("no-advice", 8 * MIB, "is not advised (MADV_HUGEPAGE)")),
        (["disable", "advised:8"], "", ("prctl", 8 * MIB, "PR_SET_THP_DISABLE")),
        (["shared:8"], "", ("knob", 8 * MIB, "shared memory has a knob of its own")),
        (["brk:8"], "heap=2M", ("no-advice", None, "is not advised (MADV_HUGEPAGE)")),
    ],
)  # fmt: skip
def test_each_reason_is_told(
    program: Path,
    tmp_path: Path,
    words: list[str],
    text: str,
    expected: tuple[str, int | None, str],
) -> None:  # fmt: skip
    reason, bytes_, words_of_it = expected
    if words[0].startswith("shared") and "[never]" not in (THP / "shmem_enabled").read_text():
        pytest.skip("shared memory has large pages here")
    document, region = seen(program, words, tmp_path, text)
    assert reason in why(region), region
    row = next(row for row in region["why"] if row["reason"] == reason)
    assert words_of_it in row["means"]
    assert bytes_ is None or row["bytes"] == bytes_
    shown = show.summary(document)
    assert f"{reason}, " in shown and "Why not" in shown
    assert row["change"] is None or "to change it: " in shown


@needs_root
@MADVISE
def test_what_khugepaged_leaves_is_told_with_its_limit(program: Path, tmp_path: Path) -> None:
    with knobs({"khugepaged/max_ptes_none": "0"}):
        _, region = seen(program, ["late:8"], tmp_path)
    assert why(region) == ["khugepaged"] and region["why"][0]["bytes"] == 4 * MIB
    assert region["why"][0]["knob"] == f"{THP}/khugepaged/max_ptes_none = 0"
    assert "more than 0 of 512 pages were never touched" in region["why"][0]["means"]


@contextlib.contextmanager
def without_large_folios(folder: Path) -> Iterator[Path]:
    """A file system whose files are in base pages."""
    place = folder / "ram"
    place.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@needs_root
def test_a_file_system_without_large_folios_is_told(program: Path, tmp_path: Path) -> None:
    try:
        with without_large_folios(tmp_path) as folder:
            _, region = seen(program, ["read:8"], folder, "range 0x1000..0x7fffffffffff=2M")
    except subprocess.CalledProcessError:
        pytest.skip("nothing can be mounted here")
    assert region["why"][0]["reason"] == "file-system"
    assert "ramfs is not known to keep files in large folios" in region["why"][0]["means"]


@needs_root
def test_the_knob_is_told_with_the_line_that_changes_it(program: Path, tmp_path: Path) -> None:
    with knobs({"enabled": "never"}):
        _, region = seen(program, ["advised:8"], tmp_path)
    assert why(region) == ["knob"]
    assert region["why"][0]["knob"] == f"{THP}/enabled = never"
    assert region["why"][0]["change"] == f"echo madvise > {THP}/enabled"


@needs_root
@pytest.mark.skipif(not (THP / "hugepages-2048kB").exists(), reason="no knob for each size")
def test_the_knob_of_the_size_is_told_where_it_decides(program: Path, tmp_path: Path) -> None:
    with knobs({"enabled": "madvise", "hugepages-2048kB/enabled": "never"}):
        _, region = seen(program, ["advised:8"], tmp_path)
    assert region["why"][0]["knob"] == f"{THP}/hugepages-2048kB/enabled = never"


@needs_root
def test_under_always_what_nobody_advised_is_wanted_by_the_knob(
    program: Path, tmp_path: Path
) -> None:
    with knobs({"enabled": "always"}):
        _, region = seen(program, ["plain:8"], tmp_path)
        assert region["by"] == ["knob"] and region["got"] == {"2M": 8 * MIB}
        _, excepted = seen(program, ["except", "plain:8"], tmp_path)
        _, small = seen(program, ["brk:8"], tmp_path)
    if SYSTEM.version() >= (6, 18):
        assert why(excepted) == ["prctl"] and "EXCEPT_ADVISED" in excepted["why"][0]["means"]
    assert "khugepaged" in why(small)


@needs_root
@pytest.mark.skipif(not (THP / "hugepages-64kB").exists(), reason="no pages of 64K")
def test_pages_smaller_than_2m_are_counted_for_root(program: Path, tmp_path: Path) -> None:
    values = {"enabled": "madvise", "hugepages-2048kB/enabled": "never"}
    with knobs({**values, "hugepages-64kB/enabled": "madvise"}):
        _, region = seen(program, ["advised:8"], tmp_path)
    assert region["wanted"] == ["64K"] and region["got"].get("64K", 0) >= 7 * MIB


@contextlib.contextmanager
def limited(bytes_: int) -> Iterator[Path]:
    """A memory group with a limit: the file that takes members."""
    for top, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        folder = Path(top) / f"pagewalk-{uuid.uuid4().hex[:8]}"
        try:
            folder.mkdir()
            if not (folder / limit).exists():
                folder.rmdir()
                continue
            (folder / limit).write_text(str(bytes_))
        except OSError:
            continue
        try:
            yield folder / "cgroup.procs"
        finally:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return
    pytest.skip("no memory group can be made here")


@needs_root
@MADVISE
def test_the_limit_of_a_memory_group_is_told(program: Path, tmp_path: Path) -> None:
    with limited(24 * MIB) as members:
        join = lambda: members.write_text(str(os.getpid()))  # noqa: E731
        before = SYSTEM.counters()
        with running(program, ["every:64"], tmp_path, preexec_fn=join) as (pid, places):
            after = SYSTEM.counters()
            document = verify(pid, grown={name: after[name] - before[name] for name in after})
            agrees(document, pid)
    region = next(one for one in document["regions"] if one["start"] == places["every"])
    assert why(region) == ["cgroup-limit"], region
    assert str(members.parent) in region["why"][0]["knob"]
    assert 0 < region["got"]["2M"] < 24 * MIB


LEFT = 64
"""Free blocks of 2M that a program takes by itself, so that there is none for the next."""


@needs_root
@MADVISE
def test_the_lack_of_free_blocks_is_told(program: Path, tmp_path: Path) -> None:
    pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    many = SYSTEM.free_blocks() - LEFT
    [available] = [
        int(line.split()[1]) << 10
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    ]
    if not Path(pool).exists() or available - many * LARGE < 1 << 30:
        pytest.skip("without its free blocks of 2M this system has too little memory for others")
    with knobs({"defrag": "never", pool: Path(pool).read_text()}):
        # For a moment they lie in a pool, which takes them without touching them. It may have made
        # some of its pages from other memory.
        for _ in range(8):
            if (many := SYSTEM.free_blocks() - LEFT) > 0:
                Path(pool).write_text(str(int(Path(pool).read_text()) + many))
        before = SYSTEM.counters()
        words = [f"every:{2 * LEFT + 512}"]
        with running(program, words, tmp_path) as (pid, places):
            after = SYSTEM.counters()
            document = verify(pid, grown={name: after[name] - before[name] for name in after})
    region = next(one for one in document["regions"] if one["start"] == places["every"])
    assert "no-free-block" in why(region), region
    assert "defrag" in region["why"][0]["change"]


def test_an_empty_pool_is_told(program: Path, tmp_path: Path) -> None:
    if any(free for _, free in SYSTEM.pools().values()):
        pytest.skip("a pool has pages here")
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"}
    with running(program, ["plain:4"], tmp_path, env=environment) as (pid, _):
        document = verify(pid)
    assert any("asks for pages of a pool, and none is left" in note for note in document["notes"])
    done = run_command(["verify", "--", program, "pool:4", "exit:0"], cwd=tmp_path)
    assert "got none, because the pool is empty" in done.stderr


@MADVISE
def test_a_pool_that_a_rule_needs_and_that_is_empty_is_the_reason(
    program: Path, tmp_path: Path
) -> None:
    if SYSTEM.pools().get(1 << 30) != (0, 0):
        pytest.skip("there is no empty pool of 1G here")
    _, region = seen(program, ["far:3072"], tmp_path, "mmap=1G")
    assert "pool-empty" in why(region) and set(why(region)) <= {"pool-empty", "unaligned"}
    row = next(row for row in region["why"] if row["reason"] == "pool-empty")
    assert "hugepages-1048576kB/nr_hugepages" in row["change"]


@needs_root
def test_pages_of_a_pool_are_what_was_wanted(program: Path, tmp_path: Path) -> None:
    knob = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    if not knob.exists():
        pytest.skip("no pool")
    before = knob.read_text()
    try:
        knob.write_text(str(int(before) + 4))
        document, region = seen(program, ["pool:8"], tmp_path)
    finally:
        knob.write_text(before)
    assert region["backing"] == "hugetlb" and region["got"] == {"2M": 8 * MIB}
    assert region["by"] == ["pool"] and document["large_bytes"] >= 8 * MIB


def test_each_reason_but_the_last_has_a_test_that_provokes_it() -> None:
    text = Path(__file__).read_text()
    for reason in reasons.REASONS[:-1]:
        assert text.count(f'"{reason}"') >= 1, reason
    assert reasons.REASONS[-1] == reasons.host().reason


def test_every_reason_is_in_the_closed_list(program: Path, tmp_path: Path) -> None:
    document, _ = seen(
        program, ["advised:1", "unaligned:2", "file:8", "plain:4", "against:4"], tmp_path, "data=2M"
    )
    told = {row["reason"] for one in document["regions"] for row in one["why"]}
    assert told and told <= set(reasons.REASONS)
    assert reasons.host().reason in reasons.REASONS


def test_without_pagemap_scan_the_rest_is_told(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> list[pages.Range]:
        raise pages.UnsupportedError(25, "absent")

    monkeypatch.setattr(pages, "present", absent)
    document, _ = seen(program, ["advised:16", "unaligned:6"], tmp_path)
    assert any("no PAGEMAP_SCAN (Linux 6.7)" in note for note in document["notes"])


def test_what_is_present_agrees_between_the_two_ways(program: Path, tmp_path: Path) -> None:
    with running(program, ["sparse:8"], tmp_path) as (pid, places):
        start = places["sparse"]
        scanned = pages.present(pid, start, start + 8 * MIB)
        words = pages.words(pid, start, start + 8 * MIB)
    assert [one[:2] for one in scanned] == [one[:2] for one in words]
    assert len(words) == 8 * MIB // 8192


def test_a_program_is_looked_at_when_it_ends(program: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    done = run_command(
        ["verify", "mmap=2M", "--json", output, "--", program, "plain:32", "exit:5"], cwd=tmp_path
    )
    assert done.returncode == 5 and done.stdout.startswith("plain 0x")
    [document] = json.loads(output.read_text())["processes"]
    region = max(document["regions"], key=lambda one: one["resident_bytes"])
    assert region["wanted_bytes"] == 32 * MIB
    assert "32 MiB" in done.stderr and "in memory" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify"], "give a process with -p PID, or a program after `--`"),
        (["verify", "-p", "999999999"], "there is no process 999999999"),
        (["verify", "-p", "1", "--", "true"], "not both"),
        (["verify", "heap=3M", "-p", "1"], "heap=3M: line 1: "),
        (["verify", "heap=8M", "-p", "1"], "this kernel has no pages of 8M: write one of 4K, "),
        (["verify", "nosuch.place", "-p", "1"], "there is no such file"),
        (["verify", "site a.c:1=2M", "-p", "1"], "known only in recordings"),
        (["verify", "heap=2M wait", "-p", "1"], "leave `wait` out"),
        (["verify", "heap=2M node 1", "-p", "1"], "numactl"),
        (["verify", "", "-p", "1"], "the text contains no rules"),
        (["verify", "--json", "-", "--", "true"], "standard output belongs to the program"),
        (["verify", "--", "nosuch-program"], "no such program"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = run_command(arguments, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_a_rule_for_nothing_is_told(program: Path, tmp_path: Path) -> None:
    document, _ = seen(program, ["plain:4"], tmp_path, "lib nosuch.so=2M, mmap=2M")
    assert document["rules_unmet"] == ["lib nosuch.so = 2M"]
    assert "lib nosuch.so = 2M: no memory is mapped that this rule applies to" in show.summary(
        document
    )


def test_the_python_that_runs_this_can_be_looked_at() -> None:
    document = verify(os.getpid())
    assert document["command"][0] == sys.argv[0] or document["resident_bytes"] > 0
    with pytest.raises(Error, match="there is no process"):
        verify(2**22 + 1)


@pytest.mark.parametrize("command", [["verify"], ["place", "heap=2M"]])
def test_a_thread_of_the_kernel_has_no_memory(pagewalk, command: list[str]) -> None:
    kernel = "2"
    comm = Path(f"/proc/{kernel}/comm")
    if not comm.exists() or comm.read_text() != "kthreadd\n":
        pytest.skip("threads of the kernel are not seen here")
    done = pagewalk(*command, "-p", kernel)
    assert done.returncode != 0 and done.stdout == ""
    assert f"process {kernel} has no memory of its own" in done.stderr or not os.access(
        f"/proc/{kernel}/smaps", os.R_OK
    )


def test_a_folder_is_no_rule(pagewalk, tmp_path: Path) -> None:
    done = pagewalk("verify", str(tmp_path), "--", "true")
    assert done.returncode == 2 and f"{tmp_path} is a folder" in done.stderr
