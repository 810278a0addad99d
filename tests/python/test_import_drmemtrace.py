"""DynamoRIO's traces through the command, from files that are written byte by byte."""

import gzip
import itertools
import json
from pathlib import Path

import polars
import pytest
from drmemtrace import (
    MMAP,
    MUNMAP,
    call,
    end,
    instruction,
    load,
    lz4,
    marker,
    record,
    schedule,
    snappy,
    start,
    store,
    time,
    zipped,
)  # fmt: skip

import pagewalk as library

HEAP = 0x7F00_0000_0000
FETCH, LOAD, STORE = "fetch", "load", "store"

BEFORE = start(5, 5) + time(100) + call(MMAP, [0, 1 << 20, 3, 0x22, 0, 0], HEAP)
FIRST = instruction(0x1000) + load(HEAP) + instruction(0x1004, 3) + store(HEAP + 4096, 16)
# A repeated string instruction is not fetched again, and a prefetch is not an access.
REPEATED = record(29, 3, 0x1004) + load(HEAP + 8) + record(2, 1, HEAP) + instruction(0x2000, 2)
AFTER = call(MUNMAP, [HEAP, 1 << 20], 0) + end(5)
WHOLE = BEFORE + FIRST + time(110) + REPEATED + AFTER
# The second chunk of a zip begins with a repetition of the last state of the first chunk.
CHUNKS = zipped(
    BEFORE + FIRST + marker(21, 0), marker(22, 2) + time(100) + time(110) + REPEATED + AFTER
)
ROWS = [
    (0x1000, 7, FETCH), (HEAP, 8, LOAD), (HEAP + 4096, 16, STORE), (HEAP + 8, 8, LOAD),
    (0x2000, 2, FETCH),
]  # fmt: skip


def rows(trace: Path) -> list[tuple[int, int, str]]:
    frame = polars.DataFrame(library.Trace(trace).to_arrow().read_all())
    return frame.select("addr", "size", polars.col("kind").cast(polars.String)).rows()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.trace", WHOLE),
        ("a.trace.zip", CHUNKS),
        ("a.trace.gz", gzip.compress(WHOLE)),
        ("a.trace.sz", snappy(WHOLE)),
        ("a.trace.lz4", lz4(WHOLE)),
        *[(f"v{v}.trace", start(5, 5, v) + WHOLE[len(start(5, 5)) :]) for v in range(2, 7)],
    ],
)
def test_a_trace_is_read_from_any_container(pagewalk, tmp_path: Path, name, data) -> None:
    source, out = tmp_path / name, tmp_path / "t.pwt"
    source.write_bytes(data)
    done = pagewalk("import", "drmemtrace", source, "-o", out)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == (
        "pagewalk: warning: 1 prefetch is not an access of the program: left out"
    )
    assert rows(out) == rows(source) == ROWS
    info = json.loads(pagewalk("info", source, "--json").stdout)
    assert (info["instructions"], info["threads"]) == (3, 1)
    events = {name: count for name, count in info["events"].items() if count}
    assert events == {"mmap": 1, "munmap": 1, "thread-start": 1, "thread-end": 1}
    heap = info["regions"][0]
    assert (heap["start"], heap["bytes"], heap["inferred"]) == (HEAP, 1 << 20, False)
    ran = [
        json.loads(pagewalk("run", trace, "-m", "tlb-only", "--json").stdout)
        for trace in (source, out)
    ]
    for document in ran:
        del document["trace"]
    assert ran[0] == ran[1]


def thread(tid: int, pid: int, times: list[int]) -> bytes:
    """A thread that loads its number and the time, once each time."""
    pieces = [time(at) + instruction(tid << 16) + load(tid << 32 | at) for at in times]
    return start(tid, pid) + b"".join(pieces) + end(tid)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three threads, each in another container."""
    trace = tmp_path / "drmemtrace.app.1.dir" / "trace"
    trace.mkdir(parents=True)
    (trace / "app.5.trace.zip").write_bytes(zipped(thread(5, 5, [100, 130, 160])))
    (trace / "app.6.trace.gz").write_bytes(gzip.compress(thread(6, 5, [110, 130])))
    (trace / "app.9.trace.sz").write_bytes(snappy(thread(9, 9, [120, 130])))
    return trace.parent


BY_TIME = [(5, 100), (6, 110), (9, 120), (5, 130), (6, 130), (9, 130), (5, 160)]
# For three segments with equal times, the schedule gives the order.
BY_SCHEDULE = [(5, 100), (6, 110), (9, 120), (9, 130), (5, 130), (6, 130), (5, 160)]


@pytest.mark.parametrize(
    ("file", "options", "order"),
    [
        (None, [], BY_TIME),
        (("serial_schedule.bin.gz", gzip.compress(schedule(*BY_SCHEDULE))), [], BY_TIME),
        (
            ("serial_schedule.bin.gz", gzip.compress(schedule(*BY_SCHEDULE))),
            ["--interleave", "schedule"],
            BY_SCHEDULE,
        ),
        (
            # There is one member per processor. Entries are sorted by time, and by thread if times
            # are equal.
            ("cpu_schedule.bin.zip", zipped(schedule(*BY_TIME[::2]), schedule(*BY_TIME[1::2]))),
            ["--interleave", "schedule"],
            BY_TIME,
        ),
    ],
)
def test_threads_are_interleaved(pagewalk, folder: Path, file, options, order) -> None:
    if file is not None:
        (folder / "trace" / file[0]).write_bytes(file[1])
    out = folder / "t.pwt"
    done = pagewalk("import", "drmemtrace", folder, *options, "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert [addr for addr, _, kind in rows(out) if kind == LOAD] == [
        t << 32 | at for t, at in order
    ]
    info = library.Trace(out).info()
    # There is a switch whenever the order changes from one process to the other.
    sides = [tid == 9 for tid, _ in order]
    switches = sum(a != b for a, b in itertools.pairwise(sides))
    assert (info["threads"], info["events"]["run"]) == (3, switches)


def test_a_folder_of_processors_changes_threads_on_the_way(pagewalk, tmp_path: Path) -> None:
    cores = tmp_path / "cores"
    cores.mkdir()

    def turn(tid: int, pid: int, at: int) -> bytes:
        begin = record(25, 0, 7) + record(22, 4, tid) + record(24, 4, pid)
        return begin + time(at) + instruction(tid << 16) + load(tid << 32 | at)

    idle, end_of_thread = marker(32, 0), record(26, 0, 0)
    first = [start(5, 5), turn(5, 5, 100), turn(9, 9, 120), idle, turn(6, 5, 140), end_of_thread]
    second = [start(6, 5), turn(6, 5, 110), end_of_thread, turn(5, 5, 130), end_of_thread]
    (cores / "core.0.trace.zip").write_bytes(zipped(b"".join(first)))
    (cores / "core.1.trace.zip").write_bytes(zipped(b"".join(second)))
    frame = polars.DataFrame(library.Trace(cores).to_arrow().read_all())
    loads = frame.filter(polars.col("kind").cast(polars.String) == LOAD)
    order = [(5, 100), (6, 110), (9, 120), (5, 130), (6, 140)]
    assert loads["addr"].to_list() == [tid << 32 | at for tid, at in order]
    # A thread that runs on two processors is one thread.
    assert loads["thread"].to_list() == [0, 1, 2, 0, 1]


def test_physical_addresses_come_from_markers_and_lists(pagewalk, tmp_path: Path) -> None:
    pages = marker(15, 0x9_0000) + marker(17, HEAP)
    trace = tmp_path / "a.trace"
    trace.write_bytes(
        start(5, 5) + time(1) + pages + instruction(0x1000) + load(HEAP + 8) + load(0x5010) + end(5)
    )
    listed = tmp_path / "list"
    listed.write_text(
        "page_size: 4096\n"
        "address_mapping {\n  virtual_address: 0x5000\n  physical_address: 0x77000\n}\n"
        "address_mapping { virtual_address: 4096 physical_address: 8192 }\npage_count: 2\n"
    )
    for options, expected in [
        ([], [None, 0x9_0008, None]),
        (["--v2p", listed], [0x2000, 0x9_0008, 0x7_7010]),
    ]:
        out = tmp_path / f"{len(options)}.pwt"
        done = pagewalk("import", "drmemtrace", trace, *options, "-o", out)
        assert (done.returncode, done.stderr) == (0, "")
        frame = polars.DataFrame(library.Trace(out).to_arrow().read_all())
        assert frame["paddr"].to_list() == expected


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (WHOLE[:-12], 1, "has no end: it is truncated (at byte "),
        (WHOLE[:-17], 1, "it is truncated (at byte "),
        (gzip.compress(WHOLE)[:-30], 1, "the gzip data is truncated"),
        (CHUNKS[:200], 1, "is truncated"),
        (start(5, 5, 8), 2, "version 8 of DynamoRIO's format; versions 1 to 7 are read"),
        (bytes([0, 25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]), 2, "big-endian"),
        (BEFORE + FIRST + bytes(1200), 1, "a record of zeros"),
        (BEFORE + record(17, 65535, 0), 1, "a bundle of 65535 instructions"),
        (BEFORE + marker(18, 1 << 63), 1, "the page size is 9223372036854775808 bytes"),
        (b"", 2, "the file is empty"),
    ],
)
def test_damage_is_one_line(pagewalk, tmp_path: Path, data: bytes, status: int, words: str) -> None:
    trace, out = tmp_path / "a.trace", tmp_path / "t.pwt"
    trace.write_bytes(data)
    done = pagewalk("import", "drmemtrace", trace, "-o", out)
    assert done.returncode == status, done.stderr
    assert done.stderr.count("\n") == 1 and str(trace) in done.stderr and words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.trace"]
    kept = pagewalk("import", "drmemtrace", trace, "-o", out, "--keep-going")
    if status == 1:
        assert kept.returncode == 0 and words in kept.stderr, kept.stderr
        whole = rows(out)
        assert whole == ROWS[: len(whole)]
    else:
        assert kept.returncode == 2 and not out.exists()
