"""Charts as files, for papers."""

from pathlib import Path

import pytest

import sample
from pagewalk.cli import main
from pagewalk.report import charts, missmap, pictures

SPEC = "generate:join,table=64M,accesses=30k"
BEGINS = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["run", SPEC, "-m", "tlb-only"], ["run-0-tlb-only-map", "run-0-tlb-only-timeline"]),
        (["curve", SPEC, "--lookups", "data,all"], ["data", "all"]),
        (["sweep", SPEC, "--vary", "tlb.l2d.entries=2^8..2^9"], ["misses-per-1000-accesses"]),
    ],
)
def test_every_chart_is_a_file(
    command: list[str], names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, begins in BEGINS.items():
        path = tmp_path / f"x.{kind}"
        assert main([*command, f"--{kind}", str(path)]) == 0
        told = capsys.readouterr().err
        files = sorted(tmp_path.glob(f"*.{kind}"))
        assert all(begins in file.read_bytes()[:300] for file in files)
        assert all(str(file) in told for file in files)
        for name in names:
            assert tmp_path / f"x-{name}.{kind}" in files or files == [path]
        assert main([*command, f"--{kind}", str(path)]) == 2


def test_a_map_has_the_names_of_its_regions_whole(tmp_path: Path) -> None:
    # Those of a recording of several processes are long, and differ at their ends.
    name = "ld-linux-x86-64.so.2 (r-x) of readlink (7)"
    document = sample.document()
    document["regions"][0]["name"] = name
    figure = missmap.miss_map(document)
    assert figure is not None and name in [label for _, label in figure.axis]
    written = pictures.write(
        {"map": charts.miss_map(figure).to_dict()}, "svg", str(tmp_path / "x.svg")
    )
    assert f">{name}</text>" in Path(written[0]).read_text()


def test_a_picture_has_the_ending_of_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", SPEC, "--svg", "x.png"]) == 2
    assert "must end in .svg" in capsys.readouterr().err
