from collections import Counter
from pathlib import Path

import polars
import pyarrow.parquet as pq
import pytest

import pagewalk

UNIFORM = "generate:uniform,size=8M,accesses=200k,seed=7"


def test_a_generated_trace_has_its_length_and_header() -> None:
    trace = pagewalk.Trace(UNIFORM)
    assert len(trace) == 200_000
    assert trace.name == UNIFORM
    assert trace.header["filter"] == "none"


def test_batches_are_columns_of_one_schema() -> None:
    trace = pagewalk.Trace(UNIFORM)
    batches = list(trace.batches())
    assert sum(batch.num_rows for batch in batches) == 200_000
    assert {batch.schema for batch in batches} == {trace.schema()}
    assert trace.schema().names == ["addr", "size", "kind", "thread", "instructions"]


def test_arrow_is_read_by_others_without_loss() -> None:
    frame = polars.DataFrame(pagewalk.Trace(UNIFORM).to_arrow().read_all())
    addresses = frame["addr"].to_list()
    rows = [row for batch in pagewalk.Trace(UNIFORM).batches() for row in batch["addr"].to_pylist()]
    assert addresses == rows
    assert max(addresses) - min(addresses) < 8 << 20
    assert set(frame["kind"].cast(polars.String).unique()) <= {"fetch", "load", "store"}


def test_info_counts_what_the_batches_hold(recorded: Path) -> None:
    trace = pagewalk.Trace(recorded)
    info = trace.info()
    frame = polars.DataFrame(trace.to_arrow().read_all())
    kinds = Counter(frame["kind"].cast(polars.String))
    assert info["accesses"] == {kind: kinds[kind] for kind in ("fetch", "load", "store")}
    # Instructions that no row counts are in events.
    assert 0 <= info["instructions"] - frame["instructions"].sum() < 0.01 * info["instructions"]
    assert len(trace) == frame.height
    assert info["threads"] == frame["thread"].n_unique() == 1


def test_a_recorded_store_is_where_the_program_put_it(recorded: Path) -> None:
    """The program stores one byte to each of 1024 pages in order, eight times over."""
    frame = polars.DataFrame(pagewalk.Trace(recorded).to_arrow().read_all())
    stores = frame.filter(
        (polars.col("kind").cast(polars.String) == "store") & (polars.col("size") == 1)
    )
    steps = stores["addr"].cast(polars.Int64).diff().to_list()
    longest, run = 0, 0
    rounds = 0
    for step in steps[1:]:
        run = run + 1 if step == 4096 else 0
        longest = max(longest, run)
        rounds += step == -1023 * 4096
    assert (longest, rounds) == (1023, 7)


def test_parquet_holds_the_same_rows(recorded: Path, tmp_path: Path, pagewalk) -> None:
    done = pagewalk("export", "parquet", recorded, "-o", tmp_path / "t.parquet")
    assert done.returncode == 0, done.stderr
    import pagewalk as library

    expected = polars.DataFrame(library.Trace(recorded).to_arrow().read_all())
    found = polars.read_parquet(tmp_path / "t.parquet")
    strings = polars.col("kind").cast(polars.String)
    assert found.with_columns(strings).equals(expected.with_columns(strings))


def test_parquet_is_written_in_row_groups_of_bounded_size(tmp_path: Path, pagewalk) -> None:
    spec = "generate:uniform,size=8M,accesses=3M"
    done = pagewalk("export", "parquet", spec, "-o", tmp_path / "t.parquet")
    assert done.returncode == 0, done.stderr
    meta = pq.read_metadata(tmp_path / "t.parquet")
    assert meta.num_rows == 3_000_000
    assert max(meta.row_group(i).num_rows for i in range(meta.num_row_groups)) < 1_300_000


def test_progress_is_told_and_can_stop() -> None:
    with pytest.raises(pagewalk.Error, match=r"interrupted|stopped"):
        pagewalk.Trace("generate:uniform,size=8M,accesses=2G").info(lambda _done, _total: False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: None, "No such file"),
        (lambda file: file.write_bytes(b""), "empty|no trace|not a trace|too short"),
        (lambda file: file.write_bytes(b"nonsense" * 100), "not a (pagewalk )?trace"),
        (lambda file: file.mkdir(), "directory"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, make, message: str) -> None:
    make(tmp_path / "t.pwt")
    with pytest.raises(pagewalk.Error, match=f"(?i){message}") as caught:
        pagewalk.Trace(tmp_path / "t.pwt")
    assert "t.pwt" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "spec", ["generate:", "generate:none", "generate:uniform,size=x", "generate:uniform,siz=8M"]
)
def test_a_generator_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(pagewalk.Error):
        pagewalk.Trace(spec)
