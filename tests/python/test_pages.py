"""`record --pages`: page sizes in the trace are those of smaps and kpageflags, for any knobs."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from command import run_command
from mapped import compiled, knobs, needs_root, needs_thp

from pagewalk.placing import mappings, pages

pytestmark = needs_thp

KINDS = (
    "advised", "plain:9", "unaligned", "late", "sparse", "against", "shared", "file", "read", "bss",
    "brk", "moved", "arena", "between",
)  # fmt: skip
"""Memory of as many kinds, all in one program: see mapped.c."""
ENGINE = range(0x0FF0_0000_0000, 0x1400_0000_0000)
"""Where the engine has its own memory, which is in no snapshot, and the program has `between`."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("pages"))


@contextmanager
def recorded(program: Path, words: tuple[str, ...], trace: Path) -> Iterator[dict[str, int]]:
    """Records the program until the block ends; its number, and the address of each kind."""
    command = [sys.executable, "-m", "pagewalk", "record", "-q", "--engine", "native", "--pages"]
    with subprocess.Popen(
        [*command, "-o", trace, "--", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=trace.parent,
    ) as recorder:
        assert recorder.stdin is not None and recorder.stdout is not None
        found = {}
        for _ in words:
            kind, _, place = recorder.stdout.readline().strip().partition(" ")
            found[kind] = int(place, 16)
        children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text()
        (pid,) = map(int, children.split())
        # The program waits for the end of its input.
        deadline = time.monotonic() + 20
        while "S" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield found | {"pid": pid}
        recorder.stdin.close()
        assert recorder.wait(60) == 0


def info(trace: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run_command(["info", trace, "--json"]).stdout)
    return document


def sizes(pid: int, one: mappings.Mapping, *, small: bool) -> dict[str, int]:
    """What smaps, pagemap and kpageflags say of a mapping: bytes by page size."""
    ranges = pages.present(pid, one.start, one.end)
    found = {"2M": one.huge} if one.huge else {}
    folios = pages.folios(pid, ranges) if small else None
    if folios is None:
        rest = sum(part.end - part.start for part in ranges if not part.huge)
        folios = {4096: rest} if rest else {}
    # A folio of 2M that is mapped by base pages counts as base pages.
    for size, bytes_ in folios.items():
        name = f"{size >> 10}K" if size < 1 << 20 else "4K" if size >= 2 << 20 else f"{size >> 20}M"
        found[name] = found.get(name, 0) + bytes_
    return found


@pytest.mark.parametrize("mode", ["as it is", *(pytest.param(m, marks=needs_root) for m in (
    "always", "madvise", "never", "64K"
))])  # fmt: skip
def test_page_sizes_are_those_that_the_kernel_gave(
    program: Path, mode: str, tmp_path: Path
) -> None:
    changed: Any = nullcontext()
    if mode == "64K":
        changed = knobs({"enabled": "never", "hugepages-64kB/enabled": "always"})
    elif mode != "as it is":
        changed = knobs({"enabled": mode})
    trace = tmp_path / "mapped.pwt"
    with changed, recorded(program, KINDS, trace) as places:
        pid = places.pop("pid")
        mapped = [one for one in mappings.read(pid) if one.path != "[vsyscall]"]
        known = pages.folios(pid, pages.present(pid, mapped[0].start, mapped[0].end)) is not None
        seen = {one.start: sizes(pid, one, small=known) for one in mapped}
    document = info(trace)
    assert {one["when"] for one in document["snapshots"]} >= {"growth", "end"}
    assert {one["sizes"] for one in document["snapshots"]} == {"all" if known else "large"}
    for kind, place in places.items():
        (one,) = [one for one in mapped if one.start <= place < one.end]
        region = [
            region for region in document["regions"]
            if region["start"] <= place < region["start"] + region["bytes"]
        ][-1]  # fmt: skip
        if kind not in ("brk", "bss"):
            assert region["resident_bytes"] == seen[one.start], (mode, kind)
        else:
            assert region["resident_bytes"].get("2M") == seen[one.start].get("2M"), (mode, kind)
    last = document["snapshots"][-1]
    assert last["when"] == "end"
    own = {
        one.start for one in mapped
        if (one.start in ENGINE or "pagewalk-code" in one.path) and one.start != places["between"]
    }  # fmt: skip
    large = sum(one.get("2M", 0) for start, one in seen.items() if start not in own)
    assert last["resident_bytes"].get("2M", 0) == large
    if mode == "always":
        assert large >= 40 << 20
    if mode == "never":
        # Separate settings apply to files and shared memory.
        assert not any("2M" in seen[one.start] for one in mapped if one.kind in mappings.OWN)
    if mode == "64K":
        plain = next(one for one in mapped if one.start == places["plain"])
        assert seen[plain.start] == {"64K": 9 << 20}
    text = run_command(["info", trace]).stdout
    assert "Pages of the real run" in text and "in pages of 4K" in text


def test_sizes_that_were_recorded_are_replayed(program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "mapped.pwt"
    with recorded(program, ("advised:16", "sparse:4"), trace) as places:
        advised = next(
            one for one in mappings.read(places["pid"]) if one.start == places["advised"]
        )
    settings = ["--set", "os.manager=recorded", "--json"]
    results = json.loads(run_command(["run", trace, *settings]).stdout)
    assert results["memory"]["pages_by_size"].get("2M", 0) == advised.huge >> 21
    # A page has its final size from its first touch on, so there is about one fault per page.
    mapped = sum(results["memory"]["pages_by_size"].values())
    assert mapped <= results["faults"]["first_touch"] <= mapped + 300
    # The model of the kernel is run for comparison, with its default settings.
    beside = run_command(["run", trace, "--set", "os.manager=linux", "--json"])
    assert beside.returncode == 0, beside.stderr


def test_where_it_is_not_possible_one_line_says_so(program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "mapped.pwt"
    options = ["--engine", "qemu", "--pages"]
    outcome = run_command(["record", *options, "-o", trace, "--", program, "exit:0"])
    assert outcome.returncode != 0
    assert "--engine native" in outcome.stderr and outcome.stderr.count("\n") == 1
    assert not trace.exists()


def test_a_program_that_executes_another_one_has_a_last_snapshot(tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    script = "cd /nowhere 2>&- ; PATH=/nowhere:$PATH; exec true"
    done = run_command(["record", "-q", "--pages", "-o", trace, "--", "/bin/sh", "-c", script])
    assert done.returncode == 0, done.stderr
    ends = [one for one in info(trace)["snapshots"] if one["when"] == "end"]
    # That of the shell, which did not find `true` in the first folder, and that of `true`.
    assert len(ends) == 2
    assert all(sum(one["resident_bytes"].values()) > 0 for one in ends)
