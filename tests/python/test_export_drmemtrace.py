"""`pagewalk export drmemtrace` and `--physical`, against a decoder of DynamoRIO's records.

The recordings of whole systems need the QEMU that `make qemu-system` builds; without it, their
tests are skipped.
"""

import gzip
import random
from pathlib import Path

import drmemtrace
import polars
import pytest

from pagewalk import Error, Trace
from pagewalk.systems import machine

SEED = 6803
KERNEL = 0xFFFF_8880_0000_0000
SYSTEM = drmemtrace.WHOLE_SYSTEM | 0x10000 | 0x40
UNKNOWN = "recorded translation: the physical address is left empty"

Data = tuple[str, int, int, int | None]
Fetch = tuple[int, int, int | None]


def read(trace: Trace, thread: int) -> tuple[list[Data], list[Fetch]]:
    """The loads and stores of a thread, and its blocks, each with its physical address."""
    data: list[Data] = []
    blocks: list[Fetch] = []
    for batch in trace.batches():
        columns = batch.to_pydict()
        nowhere = [None] * batch.num_rows
        for kind, addr, size, of, paddr in zip(
            columns["kind"], columns["addr"], columns["size"], columns["thread"],
            columns.get("paddr", nowhere), strict=True,
        ):  # fmt: skip
            if of != thread:
                continue
            if kind == "fetch":
                blocks.append((addr, size, paddr))
            else:
                data.append((kind, addr, size, paddr))
    return data, blocks


def compare(decoded: drmemtrace.Decoded, data: list[Data], blocks: list[Fetch]) -> None:
    """Every load and store, and every block as instructions that follow each other."""
    assert decoded.data == data
    instructions = iter(decoded.instructions)
    for start, size, paddr in blocks:
        at = start
        while at < start + size:
            addr, length, there = next(instructions)
            assert addr == at
            if addr >> 12 == start >> 12:
                assert there == (None if paddr is None else paddr + addr - start)
            at += length
        assert at == start + size
    assert next(instructions, None) is None


def joined(blocks: list[Fetch]) -> list[Fetch]:
    """Blocks with what follows directly joined: an importer ends a block where a batch ends."""
    out: list[Fetch] = []
    for addr, size, paddr in blocks:
        if out and out[-1][0] + out[-1][1] == addr:
            out[-1] = (out[-1][0], out[-1][1] + size, out[-1][2])
        else:
            out.append((addr, size, paddr))
    return out


def test_a_program_goes_out_and_comes_back(pagewalk, recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.trace.gz"
    done = pagewalk("export", "drmemtrace", recorded, "-o", out)
    assert done.returncode == 0, done.stderr
    decoded = drmemtrace.decoded(gzip.decompress(out.read_bytes()))
    assert (decoded.filetype, decoded.interrupts) == (0x40, 0)
    data, blocks = read(Trace(recorded), 0)
    compare(decoded, data, blocks)
    back, blocks_back = read(Trace(out), 0)
    assert back == data and joined(blocks_back) == joined(blocks)


def made(random: random.Random, folder: Path) -> tuple[Path, list[tuple[int, int | None]]]:
    """A trace of a whole system with markers, and the accesses with their physical addresses."""
    pages: dict[int, int | None] = {}
    rows: list[tuple[int, int | None]] = []
    content = [drmemtrace.start(101, 1).replace(drmemtrace.marker(9, 0x40),
                                                drmemtrace.marker(9, SYSTEM))]  # fmt: skip
    content.append(drmemtrace.time(1))
    for _ in range(5000):
        pc, addr = (
            random.choice([0x40_0000, KERNEL])
            + random.randrange(64) * 4096
            + random.randrange(4000)
            for _ in range(2)
        )
        for one in (pc, addr):
            page = one & ~0xFFF
            if page not in pages or random.randrange(20) == 0:
                frame = random.randrange(1, 1 << 20) << 12
                if random.randrange(20) == 0:
                    pages[page] = None
                    content.append(drmemtrace.marker(16, page))
                else:
                    pages[page] = frame
                    content.append(drmemtrace.marker(15, frame) + drmemtrace.marker(17, page))
        content.append(drmemtrace.record(48, 3, pc) + drmemtrace.load(addr))
        for one in (pc, addr):
            frame_of = pages[one & ~0xFFF]
            rows.append((one, None if frame_of is None else frame_of + (one & 0xFFF)))
    content.append(drmemtrace.end(101))
    path = folder / "made.trace"
    path.write_bytes(b"".join(content))
    return path, rows


def test_markers_go_in_and_out(pagewalk, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    source, rows = made(random.Random(SEED), tmp_path)
    unknown = sum(paddr is None for _, paddr in rows)
    assert unknown > 10
    # The kernel's half is a space of its own.
    stored = tmp_path / "made.pwt"
    assert pagewalk("import", "drmemtrace", source, "-o", stored).returncode == 0
    assert "kernel" in pagewalk("info", stored).stdout
    for trace in (source, stored):
        out = tmp_path / "out.trace"
        done = pagewalk("export", "drmemtrace", trace, "--physical", "-o", out, "--force")
        assert done.returncode == 0, done.stderr
        assert f"{unknown} accesses have no {UNKNOWN}" in done.stderr
        decoded = drmemtrace.decoded(out.read_bytes())
        assert [(addr, paddr) for addr, _, paddr in decoded.instructions] == rows[::2]
        assert [(addr, paddr) for _, addr, _, paddr in decoded.data] == rows[1::2]
    table = tmp_path / "out.csv"
    done = pagewalk("export", "csv", stored, "--physical", "-o", table)
    assert done.returncode == 0 and UNKNOWN in done.stderr
    lines = [line.split(",") for line in table.read_text().splitlines()[1:]]
    found = [(int(line[0], 16), int(line[5], 16) if line[5] else None) for line in lines]
    assert found == rows
    parquet = tmp_path / "out.parquet"
    done = pagewalk("export", "parquet", stored, "--physical", "-o", parquet)
    assert done.returncode == 0 and UNKNOWN in done.stderr
    assert polars.read_parquet(parquet).select("addr", "paddr").rows() == rows
    # A table comes back, with what is unknown.
    for back in (table, parquet):
        found = [row for batch in Trace(back).batches() for row in paddrs(batch)]
        assert found == rows


def paddrs(batch) -> list[tuple[int, int | None]]:
    columns = batch.to_pydict()
    return list(zip(columns["addr"], columns["paddr"], strict=True))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["champsim", "t.pwt", "--physical"], "its records have one address"),
        (["csv", "t.pwt", "--physical"], "the trace has no page walks"),
        (["parquet", "t.pwt", "--physical"], "the trace has no page walks"),
        (["drmemtrace", "t.pwt", "--physical"], "record with `record --system`"),
        (["drmemtrace", "generate:uniform"], "no instruction fetches"),
        (["drmemtrace", "t.pwt", "--thread", "9"], "no access of this thread"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    pagewalk, recorded: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "t.pwt").symlink_to(recorded)
    done = pagewalk("export", *arguments, "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    [line] = [line for line in done.stderr.splitlines() if "error:" in line]
    assert words in line and line.startswith("pagewalk: error: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_whole_system_goes_out_and_comes_back(pagewalk, tmp_path: Path, cpus: int) -> None:
    try:
        machine.qemu()
    except Error as error:
        pytest.skip(str(error))
    trace, folder = tmp_path / "list.pwt", tmp_path / "exported"
    folder.mkdir()
    command = ["sh", "-c", "ls -l & ls -l; wait"]
    done = pagewalk("record", "--system", "--cpus", cpus, "-o", trace, "--", *command, cwd=folder)
    assert done.returncode == 0, done.stderr
    for thread in range(cpus):
        out = folder / f"{thread}.trace.gz"
        done = pagewalk("export", "drmemtrace", trace, "--physical", "--thread", thread, "-o", out)
        assert (done.returncode, done.stderr) == (0, "")
        decoded = drmemtrace.decoded(gzip.decompress(out.read_bytes()))
        assert decoded.filetype == SYSTEM
        assert decoded.interrupts > 0 and len(decoded.threads) > 2
        data, blocks = read(Trace(trace, physical=True), thread)
        assert all(paddr is not None for *_, paddr in data)
        compare(decoded, data, blocks)
    # Read back, every access is there in its order, and the kernel's are of the kernel.
    there, back = (polars.DataFrame(one.to_arrow().read_all()) for one in (
        Trace(trace, physical=True), Trace(folder)
    ))  # fmt: skip
    is_data = polars.col("kind").cast(polars.String) != "fetch"
    columns = ["kind", "addr", "size", "paddr"]
    strings = polars.col("kind").cast(polars.String)
    assert (
        there.filter(is_data).select(columns).with_columns(strings)
        .equals(back.filter(is_data).select(columns).with_columns(strings))
    )  # fmt: skip
    assert "kernel" in pagewalk("info", folder).stdout
