import bz2
import gzip
import hashlib
import json
import lzma
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pagewalk as library

FETCH, LOAD, STORE = "fetch", "load", "store"

LACKEY = """\
==9902== Lackey, an example Valgrind tool
I  0401ab70,3
I  0401ab73,5
 S 1fff000748,8
I  0401b770,1
 M 1fff000740,4
 L 0000000000000010,16
==9902== Exit code:       0
"""
LACKEY_ROWS = [
    (0x401_AB70, 8, FETCH),
    (0x1F_FF00_0748, 8, STORE),
    (0x401_B770, 1, FETCH),
    (0x1F_FF00_0740, 4, LOAD),
    (0x1F_FF00_0740, 4, STORE),
    (0x10, 16, LOAD),
]


def champsim(
    ip: int, loads: tuple[int, ...] = (), stores: tuple[int, ...] = (), branch: bool = False
) -> bytes:
    """A record of 64 bytes: ip, branch, taken, 2 + 4 registers, 2 stores, 4 loads."""
    record = struct.pack("<QBB6x", ip, branch, branch)
    record += struct.pack("<2Q", *stores, *[0] * (2 - len(stores)))
    return record + struct.pack("<4Q", *loads, *[0] * (4 - len(loads)))


CHAMPSIM = b"".join(
    [
        champsim(0x40_1000, loads=(0x7FFF_0000_1000,)),
        champsim(0x40_1004, stores=(0x7FFF_0000_2008,)),
        champsim(0x40_1008, branch=True),
        champsim(0x40_2000, loads=(0x7FFF_0000_1040, 0x7FFF_0000_3000)),
    ]
)
CHAMPSIM_DATA = [
    (0x7FFF_0000_1000, 1, LOAD),
    (0x7FFF_0000_2008, 1, STORE),
    (0x7FFF_0000_1040, 1, LOAD),
    (0x7FFF_0000_3000, 1, LOAD),
]


def cloudsuite(ip: int, load: int, asid: int) -> bytes:
    """A record of 96 bytes: 4 + 4 registers and 6 of padding, 4 stores, 4 loads, the asid."""
    return struct.pack("<QBB8x6x4Q4QH6x", ip, 0, 0, 0, 0, 0, 0, load, 0, 0, 0, asid)


def rows(trace: Path) -> list[tuple[int, int, str]]:
    frame = polars.DataFrame(library.Trace(trace).to_arrow().read_all())
    kinds = frame["kind"].cast(polars.String).to_list()
    return list(zip(frame["addr"].to_list(), frame["size"].to_list(), kinds, strict=True))


def data(trace: Path) -> list[tuple[int, int, str]]:
    return [row for row in rows(trace) if row[2] != FETCH]


@pytest.mark.parametrize("stdin", [False, True])
def test_lackey_is_imported_from_a_file_or_a_pipe(pagewalk, tmp_path: Path, stdin: bool) -> None:
    (tmp_path / "log").write_text(LACKEY)
    source = "-" if stdin else tmp_path / "log"
    out = tmp_path / "t.pwt"
    with (tmp_path / "log").open() as file:
        done = pagewalk("import", "lackey", source, "-o", out, stdin=file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 accesses" in done.stdout
    assert rows(out) == LACKEY_ROWS


@pytest.mark.parametrize(("fetches", "count"), [("blocks", 2), ("instructions", 3), ("none", 0)])
def test_fetches_are_given_as_asked(pagewalk, tmp_path: Path, fetches: str, count: int) -> None:
    (tmp_path / "log").write_text(LACKEY)
    out = tmp_path / "t.pwt"
    done = pagewalk("import", "lackey", tmp_path / "log", "--fetches", fetches, "-o", out)
    assert done.returncode == 0, done.stderr
    assert len([row for row in rows(out) if row[2] == FETCH]) == count
    assert library.Trace(out).info()["instructions"] == 3


@pytest.mark.parametrize(
    ("ending", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_champsim_is_imported_from_any_compression(pagewalk, tmp_path: Path, ending, pack) -> None:
    source, out = tmp_path / f"t{ending}", tmp_path / "t.pwt"
    source.write_bytes(pack(CHAMPSIM))
    done = pagewalk("import", "champsim", source, "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert data(out) == CHAMPSIM_DATA
    assert [row[0] for row in rows(out) if row[2] == FETCH] == [0x40_1000, 0x40_2000]


@pytest.mark.parametrize("arguments", [["champsim", "--cloudsuite"], ["cloudsuite"]])
def test_cloudsuite_is_champsim_of_96_bytes(pagewalk, tmp_path: Path, arguments) -> None:
    loads = [0x7FFF_0000_0000 + 0x1000 * i for i in range(8)]
    records = [cloudsuite(0x40_1000 + 4 * i, load, 1) for i, load in enumerate(loads)]
    (tmp_path / "t").write_bytes(b"".join(records))
    out = tmp_path / "t.pwt"
    done = pagewalk("import", *arguments, tmp_path / "t", "-o", out)
    assert done.returncode == 0, done.stderr
    assert [row[0] for row in data(out)] == loads


def test_addresses_cut_to_32_bits_are_warned_of(pagewalk, tmp_path: Path) -> None:
    record = champsim(0x5555_5555_0000, loads=(0xF7F0_1000,))
    (tmp_path / "t").write_bytes(record * 64)
    out = tmp_path / "t.pwt"
    stored = pagewalk("import", "champsim", tmp_path / "t", "-o", out)
    assert stored.returncode == 0 and stored.stderr.startswith("pagewalk: warning: ")
    ran = pagewalk("run", f"champsim:{tmp_path}/t", "-m", "tlb-only", "--json")
    assert ran.stderr == stored.stderr
    warning = ran.stderr.removeprefix("pagewalk: warning: ").strip()
    assert warning in json.loads(ran.stdout)["trace"]["notes"]


CSV = "vaddr;kind;tid;other\n0x1000;load;7;a\n8192;2;9;b\n0x3000;fetch;7;c\n"
CSV_ROWS = [(0x1000, 1, LOAD), (0x2000, 1, STORE), (0x3000, 1, FETCH)]
NAMED = ["--column", "addr=vaddr", "--column", "thread=tid"]


def test_columns_of_a_table_are_named(pagewalk, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    out = tmp_path / "t.pwt"
    done = pagewalk("import", "csv", tmp_path / "t.csv", *NAMED, "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["accesses"], made["warnings"]) == (3, [])
    assert rows(out) == CSV_ROWS
    assert library.Trace(out).info()["threads"] == 2
    with pytest.raises(library.Error, match="--column addr=NAME"):
        library.Trace(tmp_path / "t.csv")
    trace = library.Trace(tmp_path / "t.csv", columns={"addr": "vaddr"})
    assert trace.info()["accesses"] == {"fetch": 1, "load": 1, "store": 1}


def test_a_run_of_a_file_a_pipe_and_the_stored_trace_agree(pagewalk, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    out = tmp_path / "t.pwt"
    assert pagewalk("import", "csv", tmp_path / "t.csv", *NAMED, "-o", out).returncode == 0
    stored = json.loads(pagewalk("run", out, "--json").stdout)
    direct = json.loads(pagewalk("run", tmp_path / "t.csv", *NAMED, "--json").stdout)
    with (tmp_path / "t.csv").open() as file:
        piped = json.loads(pagewalk("run", "-", *NAMED, "--json", stdin=file).stdout)
    digest = subprocess.run(
        ["sha256sum", tmp_path / "t.csv"], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    names = []
    for document in (stored, direct, piped):
        trace = document.pop("trace")
        # A pipe can be read only once, so the advice is computed during this reading.
        assert document.get("advice") is not None
        names.append(trace["name"])
        if document is direct:
            assert trace["digest"] == digest
    assert names == ["t.pwt", "t.csv", "standard input"]
    assert stored == direct == piped


def test_a_named_pipe_is_read_once(pagewalk, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    stored, pipe = tmp_path / "t.pwt", tmp_path / "pipe.pwt"
    assert pagewalk("import", "csv", tmp_path / "t.csv", *NAMED, "-o", stored).returncode == 0
    os.mkfifo(pipe)

    def through(source: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        writer = subprocess.Popen(["sh", "-c", f"exec cat {source} > {pipe}"])
        try:
            return pagewalk(*arguments)
        finally:
            writer.kill()
            writer.wait()

    from_pipe = through(tmp_path / "t.csv", "import", "csv", pipe, *NAMED, "-o", tmp_path / "p")
    assert from_pipe.returncode == 0, from_pipe.stderr
    assert data(tmp_path / "p") == data(stored)
    named = f"csv:{pipe}"
    assert through(tmp_path / "t.csv", "run", named, *NAMED, "--json").returncode == 0
    own = through(stored, "run", pipe)
    assert own.returncode == 2 and "is read from a file, not from a pipe" in own.stderr
    machines = ["-m", "tlb-only", "-m", "epyc-9005"]
    for arguments in (["advise", pipe, "-m", "tlb-only"], ["run", pipe, *machines]):
        refused = pagewalk(*arguments)
        assert refused.returncode != 0 and "a pipe can be read only once" in refused.stderr, (
            refused.stderr
        )


def test_damage_ends_an_import_or_with_keep_going_the_trace(pagewalk, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(CHAMPSIM[:-10])
    out = tmp_path / "t.pwt"
    refused = pagewalk("import", "champsim", tmp_path / "t", "-o", out)
    assert refused.returncode == 1 and "(at byte 192)" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not out.exists()
    for arguments in (["import", "champsim", "-o", out], ["run", "--format", "champsim"]):
        done = pagewalk(*arguments, tmp_path / "t", "--keep-going")
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("pagewalk: warning: ") and "byte 192" in done.stderr
    assert data(out) == CHAMPSIM_DATA[:2]


TEXTS = {
    "pinatrace": ("0x4005d0: R 0x7f1000\n0x4005d4: W 0x7f2000 8 0x2a\n", [1, 8]),
    "dinero": ("0 7f1000\n1 7f2000\n", [4, 4]),
    "ramulator": ("0x7f1000 R\n0x7f2000 W\n", [1, 1]),
    "usimm": ("3 R 0x7f1000 0x4005d0\n0 W 0x7f2000\n", [1, 1]),
    "perf": (
        "app 7 1.5: cpu/mem-loads/P: 7f1000 68100142 |OP LOAD|LVL L1 hit|\n"
        "app 7 1.6: cpu/mem-stores/P: 7f2000 5080144 |OP STORE|LVL L1 hit|\n",
        [1, 1],
    ),
    "csv": ("0x7f1000,R\n0x7f2000,W\n", [1, 1]),
}


@pytest.mark.parametrize("format_", list(TEXTS))
def test_texts_of_other_tools_are_found_out_and_imported(
    pagewalk, tmp_path: Path, format_: str
) -> None:
    text, sizes = TEXTS[format_]
    (tmp_path / "t").write_text(text)
    out = tmp_path / "t.pwt"
    done = pagewalk("import", format_, tmp_path / "t", "-o", out)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    expected = [(0x7F_1000, sizes[0], LOAD), (0x7F_2000, sizes[1], STORE)]
    assert rows(out) == expected
    found = json.loads(pagewalk("info", tmp_path / "t", "--json").stdout)
    assert found["accesses"] == {"fetch": 0, "load": 1, "store": 1}


def test_tags_of_aarch64_leave_tables_of_any_kind(pagewalk, tmp_path: Path) -> None:
    tagged = [tag << 56 | 0x7F_1000 for tag in range(8)]
    lines = [f"{addr:#x}\n" for addr in tagged]
    (tmp_path / "t.csv").write_text("".join(["addr\n", *lines]))
    pq.write_table(pa.table({"addr": pa.array(tagged, pa.uint64())}), tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        out = tmp_path / f"{name}.pwt"
        format_ = name.partition(".")[2]
        done = pagewalk("import", format_, tmp_path / name, "--arch", "aarch64", "-o", out)
        assert done.returncode == 0, done.stderr
        assert rows(out) == [(0x7F_1000, 1, LOAD)] * 8
        assert library.Trace(out).header["arch"] == "aarch64"
        refused = pagewalk("run", tmp_path / name)
        assert refused.returncode == 1 and "--arch aarch64" in refused.stderr, refused.stderr


def test_addresses_of_57_bits_are_refused_with_the_setting_that_holds_them(
    pagewalk, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("addr\n0x00f0000000000000\n0x7f1234567000\n")
    refused = pagewalk("run", tmp_path / "t.csv")
    assert refused.returncode == 1 and "--set page_table.levels=5" in refused.stderr
    done = pagewalk("run", tmp_path / "t.csv", "--set", "page_table.levels=5")
    assert done.returncode == 0, done.stderr
    # No number of levels can hold this address, and the error for a format without levels does not
    # suggest five levels.
    (tmp_path / "u.csv").write_text("addr\n0x0f00000000000000\n")
    for trace, setting in (("u.csv", []), ("t.csv", ["--set", "page_table.format=flattened"])):
        refused = pagewalk("run", tmp_path / trace, *setting)
        assert refused.returncode == 1 and "levels=5" not in refused.stderr, refused.stderr


TABLE = {
    "addr": pa.array([0x7FFF_0000_1000, (1 << 64) - 4096, 3 << 12], pa.uint64()),
    "size": pa.array([8, 4, 16], pa.int32()),
    "kind": pa.array([LOAD, STORE, FETCH]),
    "thread": pa.array([70, 71, 70]),
    "paddr": pa.array([4096, None, 8192], pa.uint64()),
    "instrs": pa.array([3, 1, 2], pa.uint8()),
}
TABLE_ROWS = [(0x7FFF_0000_1000, 8, LOAD), ((1 << 64) - 4096, 4, STORE), (3 << 12, 16, FETCH)]


def test_parquet_is_imported_with_all_columns(pagewalk, tmp_path: Path) -> None:
    pq.write_table(pa.table(TABLE), tmp_path / "t.parquet", row_group_size=2)
    out = tmp_path / "t.pwt"
    done = pagewalk("import", "parquet", tmp_path / "t.parquet", "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(out) == TABLE_ROWS
    frame = polars.DataFrame(library.Trace(out).to_arrow().read_all())
    assert frame["paddr"].to_list() == [4096, None, 8192]
    assert frame["instructions"].to_list() == [3, 1, 2]
    assert frame["thread"].to_list() == [0, 1, 0]


@pytest.mark.parametrize(
    "kind",
    [
        None,
        pa.array([1, 2, 0]),
        pa.array(["load", "store", "fetch"]),
        pa.array(["R", "Write", "i"], pa.large_string()),
    ],
)
def test_parquet_needs_only_addresses(pagewalk, tmp_path: Path, kind) -> None:
    # Tools without unsigned numbers store addresses in the upper half of the address space as
    # negative numbers.
    columns = {"va": pa.array([4096, -4096, 12288], pa.int64())}
    if kind is not None:
        columns["op"] = kind.dictionary_encode()
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    out = tmp_path / "t.pwt"
    named = ["--column", "addr=va", *(["--column", "kind=op"] if kind is not None else [])]
    done = pagewalk("import", "parquet", tmp_path / "t.parquet", *named, "-o", out)
    assert done.returncode == 0, done.stderr
    kinds = [LOAD] * 3 if kind is None else [LOAD, STORE, FETCH]
    addresses = [4096, (1 << 64) - 4096, 12288]
    assert rows(out) == [(addr, 1, kind) for addr, kind in zip(addresses, kinds, strict=True)]


def test_parquet_runs_as_it_is(pagewalk, tmp_path: Path) -> None:
    source, out = tmp_path / "t.parquet", tmp_path / "t.pwt"
    pq.write_table(pa.table(TABLE), source)
    assert pagewalk("import", "parquet", source, "-o", out).returncode == 0
    ran = []
    for trace in (source, f"parquet:{source}", out):
        done = pagewalk("run", trace, "-m", "tlb-only", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        ran.append(json.loads(done.stdout))
    digests = [document.pop("trace")["digest"] for document in ran]
    assert ran[0] == ran[1] == ran[2]
    assert digests[0] == digests[1] == hashlib.sha256(source.read_bytes()).hexdigest()
    trace = library.Trace(source)
    assert (len(trace), trace.digest) == (3, None)
    assert rows(source) == rows(out) == TABLE_ROWS


def test_a_damaged_parquet_file_is_kept_as_far_as_it_goes(pagewalk, tmp_path: Path) -> None:
    count = 200_000
    table = pa.table({"addr": pa.array(range(count), pa.uint64())})
    source, out = tmp_path / "t.parquet", tmp_path / "t.pwt"
    pq.write_table(table, source, row_group_size=count // 2, write_page_checksum=True)
    data = bytearray(source.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    source.write_bytes(data)
    refused = pagewalk("import", "parquet", source, "-o", out)
    assert refused.returncode == 1 and "damaged after row" in refused.stderr and not out.exists()
    kept = pagewalk("import", "parquet", source, "-o", out, "--keep-going")
    assert kept.returncode == 0 and "the part before it is kept" in kept.stderr
    addresses = [addr for addr, _, _ in rows(out)]
    assert addresses == list(range(len(addresses))) and 0 < len(addresses) <= count // 2


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_table_goes_out_and_comes_back(pagewalk, tmp_path: Path, format_) -> None:
    made, table, out = "generate:uniform,size=8M,accesses=200k", tmp_path / "t", tmp_path / "t.pwt"
    done = pagewalk("export", format_, made, "-o", table)
    assert done.returncode == 0, done.stderr
    back = pagewalk("import", format_, table, "-o", out)
    assert back.returncode == 0, back.stderr
    columns = ["addr", "size", "kind", "thread"]
    first, second = (
        polars.DataFrame(library.Trace(trace).to_arrow().read_all()) for trace in (made, out)
    )
    strings = polars.col("kind").cast(polars.String)
    assert (
        first.select(columns)
        .with_columns(strings)
        .equals(second.select(columns).with_columns(strings))
    )


def test_champsim_goes_out_record_by_record(pagewalk, tmp_path: Path) -> None:
    table = "addr,size,kind,instrs\n0x1000,12,fetch,1\n0x7000,8,load,1\n0x8000,8,store,1\n"
    (tmp_path / "t.csv").write_text(table + "0x2000,4,fetch,1\n")
    out = tmp_path / "t.champsim.xz"
    done = pagewalk("export", "champsim", tmp_path / "t.csv", "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{out}: 4 records\n"
    records = lzma.decompress(out.read_bytes())
    found = []
    for at in range(0, len(records), 64):
        ip, branch, taken = struct.unpack_from("<QBB", records, at)
        found.append((ip, branch, taken, *struct.unpack_from("<6Q", records, at + 16)))
    assert found == [
        (0x1000, 0, 0, 0, 0, 0, 0, 0, 0),
        (0x1004, 0, 0, 0, 0, 0x7000, 0, 0, 0),
        (0x1008, 1, 1, 0x8000, 0, 0, 0, 0, 0),
        (0x2000, 0, 0, 0, 0, 0, 0, 0, 0),
    ]


def test_threads_are_exported_one_at_a_time(pagewalk, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("addr,kind,thread\n1,fetch,5\n2,fetch,6\n3,fetch,5\n")
    out = tmp_path / "out"
    refused = pagewalk("export", "champsim", tmp_path / "t.csv", "-o", out)
    assert refused.returncode == 2 and "--thread N" in refused.stderr and not out.exists()
    done = pagewalk("export", "champsim", tmp_path / "t.csv", "--thread", "1", "-o", out)
    assert done.returncode == 0, done.stderr
    assert [struct.unpack_from("<Q", out.read_bytes(), at)[0] for at in (0,)] == [2]
    printed = pagewalk("export", "csv", tmp_path / "t.csv", "--thread", "0", "-o", "-")
    assert [line.split(",")[0] for line in printed.stdout.splitlines()] == ["addr", "0x1", "0x3"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["import", "csv", "none.csv", "-o", "x.pwt"], 2, "none.csv"),
        (["import", "parquet", "none.parquet", "-o", "x.pwt"], 2, "none.parquet"),
        (["import", "parquet", "cut.parquet", "-o", "x.pwt"], 2, "get the file again"),
        (["import", "parquet", "damaged.parquet", "-o", "x.pwt"], 1, "damaged after row 0"),
        (["import", "parquet", "-", "-o", "x.pwt"], 2, "the file is empty"),
        (["import", "parquet", "t.csv", "-o", "x.pwt"], 2, "t.csv"),
        (["import", "parquet", "t.parquet", "--column", "addr=a", "-o", "x.pwt"], 2, "addr=a"),
        (["import", "parquet", "kind.parquet", "-o", "x.pwt"], 1, "kind `jump`"),
        (["import", "parquet", "null.parquet", "-o", "x.pwt"], 1, "a row has no value"),
        (["import", "parquet", "float.parquet", "-o", "x.pwt"], 1, "not an integer type"),
        (["import", "parquet", "size.parquet", "-o", "x.pwt"], 1, "size 0"),
        (["import", "csv", "t.csv", "--column", "address=vaddr", "-o", "x.pwt"], 2, "--column"),
        (["import", "csv", "t.csv", "--column", "addr", "-o", "x.pwt"], 2, "as in addr=vaddr"),
        (["import", "csv", "t.csv", "-o", "t.parquet"], 2, "exists"),
        (["import", "csv", "t.csv", "-o", "-"], 2, "standard output"),
        (["import", "csv", "generate:uniform", "-o", "x.pwt"], 2, "pagewalk generate"),
        (["import", "lackey", "t.csv", "-o", "x.pwt"], 1, "t.csv"),
        (["import", "lackey", "t.parquet", "-o", "x.pwt"], 2, "of format parquet, not lackey"),
        (["import", "drmemtrace", "t.csv", "-o", "x.pwt"], 2, "DynamoRIO"),
        (["import", "champsim", "t.csv"], 2, "--output"),
        (["run", "t.parquet"], 2, "--column addr=NAME"),
        (
            ["run", "t.csv", "--v2p", "t.csv", "--column", "addr=vaddr"],
            2,
            "--v2p is for drmemtrace",
        ),
        (["info", "t.csv", "--fetches", "none", "--column", "addr=vaddr"], 2, "--fetches is for"),
        (["run", "generate:uniform", "--keep-going"], 2, "--keep-going is for"),
        (["run", "t.csv", "--format", "lackey", "--cloudsuite"], 2, "--cloudsuite"),
        (["run", "-", "-m", "tlb-only", "-m", "r4700"], 2, "pagewalk import"),
        (["run", "--keep-going", "--", "ls"], 2, "--keep-going"),
        (["export", "parquet", "t.csv", "--column", "addr=vaddr", "-o", "-"], 2, "standard output"),
        (["export", "csv", "none.pwt", "-o", "x.csv"], 2, "none.pwt"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    pagewalk, tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    tables = {
        "t": {"x": [1]},
        "kind": {"addr": [1], "kind": ["jump"]},
        "null": {"addr": [1, None]},
        "float": {"addr": [1.5]},
        "size": {"addr": [1], "size": [0]},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    whole = {"addr": list(range(1000))}
    pq.write_table(pa.table(whole), tmp_path / "cut.parquet", write_page_checksum=True)
    data = bytearray((tmp_path / "cut.parquet").read_bytes())
    (tmp_path / "cut.parquet").write_bytes(data[:-100])
    data[200] ^= 1
    (tmp_path / "damaged.parquet").write_bytes(data)
    before = sorted(tmp_path.iterdir())
    done = pagewalk(*arguments, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == status, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "error: " in last and words in last
    assert "Traceback" not in done.stderr and "bug" not in last
    assert sorted(tmp_path.iterdir()) == before


def test_an_import_over_a_file_needs_force(pagewalk, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LACKEY)
    out = tmp_path / "t.pwt"
    out.write_text("old")
    command = ["import", "lackey", tmp_path / "log", "-o", out]
    assert pagewalk(*command).returncode == 2 and out.read_text() == "old"
    assert pagewalk(*command, "--force").returncode == 0
    assert rows(out) == LACKEY_ROWS


def test_waiting_for_a_pipe_ends_with_ctrl_c() -> None:
    command = [sys.executable, "-m", "pagewalk", "run", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        while not any("opener" in (task / "comm").read_text() for task in tasks.iterdir()):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"pagewalk: error: interrupted\n"
