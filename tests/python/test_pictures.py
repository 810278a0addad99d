"""Charts as files, for papers."""

import re
from pathlib import Path
from typing import Literal

import pytest

import sample
from pagewalk.cli import main
from pagewalk.report import charts, missmap, pictures
from pagewalk.report.model import Figure

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


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_what_is_drawn_stands_out_from_the_page(shade: Literal["light", "dark"]) -> None:
    ground = pictures.GROUNDS[shade]
    for color in charts.theme(shade)["range"]["category"]:
        assert contrast(color, ground) >= 3, color
    rows = [{"scheme": "a", "part": f"p{part}", "order": part, "share": 0.1} for part in range(6)]
    drawn = pictures.picture(charts.time_use(Figure("", "", rows)).to_dict(), "svg", shade).decode()
    bars = re.findall(r"mark-rect.*?</g>", drawn, re.DOTALL)
    colors = {color for bar in bars for color in re.findall(r'fill="(#\w{6}|rgb\([^)]*\))"', bar)}
    assert len(colors - {"transparent"}) >= 6
    for color in colors:
        assert contrast(color, ground) >= 2, color


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, by WCAG 2.2."""

    def luminance(color: str) -> float:
        parts = re.findall(r"\d+", color) if color.startswith("rgb") else []
        found = [int(part) for part in parts] or [int(color[at : at + 2], 16) for at in (1, 3, 5)]
        linear = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
            for c in (channel / 255 for channel in found)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)
