from pathlib import Path

import pytest

from pagewalk import Error, Recording, Trace, WorkError, sweep
from pagewalk.output import refuse_existing, replacing, write_text


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("whole")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_text() == "whole"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), replacing(tmp_path / "a") as temporary:
        temporary.write_text("half")
        raise failure
    assert names(tmp_path) == []


def test_a_full_disk_is_an_error_with_the_name(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkError, match=r"a cannot be written: No space"),
        replacing(tmp_path / "a"),
    ):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == []


def test_an_existing_file_is_refused_and_kept(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    with pytest.raises(Error, match="exists: choose another name, or give --force"):
        write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
    write_text(tmp_path / "a", "new", force=True)
    assert (tmp_path / "a").read_text() == "new"


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Error, match="is a directory"):
        refuse_existing(tmp_path, force=True)
    with pytest.raises(Error, match="no directory"):
        refuse_existing(tmp_path / "none" / "a", force=True)


def test_a_device_is_written_to_and_a_link_stays(tmp_path: Path) -> None:
    write_text("/dev/null", "gone")
    assert Path("/dev/null").is_char_device()

    write_text(tmp_path / "a", "old")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write_text(tmp_path / "link", "new", force=True)
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["t", "t.xls", "t.csv.gz", "t.parquet2"])
def test_a_table_is_not_written_under_the_name_of_another_format(tmp_path: Path, name: str) -> None:
    vary = {"tlb.l2d.entries": [256, 512]}
    trace = "generate:uniform,size=1M,accesses=1k"
    with pytest.raises(Error, match=r"name it .*/t(\.csv)?\.parquet$"):
        sweep(trace, vary=vary, output=tmp_path / name)
    assert names(tmp_path) == []
    for right in ("t.parquet", "t.PQ"):
        sweep(trace, vary=vary, output=tmp_path / right)
        assert (tmp_path / right).read_bytes()[:4] == b"PAR1"


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.parquet", "t.Html"])
def test_a_trace_is_not_written_under_the_name_of_another_format(tmp_path: Path, name: str) -> None:
    with pytest.raises(Error, match=r"t\.pwt; `pagewalk export`"):
        Trace("generate:uniform,size=1M,accesses=1k").store(tmp_path / name)
    with pytest.raises(Error, match=r"t\.pwt; `pagewalk export`"):
        Recording(["touch", str(tmp_path / "ran")]).record(tmp_path / name)
    assert names(tmp_path) == []
