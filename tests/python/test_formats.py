"""Tables and charts as files: the format is what the end of the name says, and names are text."""

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import polars
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from pagewalk import Error, Sweep, sweep
from pagewalk.formats import Made, latex, markdown, write
from pagewalk.report.model import Table, Value

SPEC = "generate:uniform,size=4M,accesses=20k"
VARY = {"tlb.l2d.entries": [16, 32], "cache.l2.size": ["64K", "1M"]}

BAD = '=cmd|" /C calc"!A0_%&#\\{~^<b>*[x]'
"""The name of a trace that is a formula, a command of LaTeX, and markup."""


@pytest.fixture(scope="module")
def swept() -> Sweep:
    return sweep(SPEC, "opteron-2008", vary=VARY)


def made() -> Made:
    shown = Table(
        f"All of {BAD}", ["name", "misses, %"], [[BAD, Value("1 %", 0.01)]], [False, True]
    )
    return Made(
        counted=lambda: pa.table(
            {"=name": [BAD, "-1", "plain", None], "n": pa.array([2**64 - 1, 1, 2, 3], pa.uint64())}
        ),
        document=lambda: {"name": BAD},
        shown=lambda: shown,
        charts=dict,
    )


def test_every_format_holds_all_counts(swept: Sweep, tmp_path: Path) -> None:
    read = {
        ".parquet": parquet.read_table,
        ".pq": parquet.read_table,
        ".arrow": feather.read_table,
        ".feather": feather.read_table,
    }
    for end, reader in read.items():
        path = tmp_path / f"s{end}"
        assert swept.save(path) == [str(path)]
        assert swept.equals(reader(path)), end
    swept.save(tmp_path / "s.csv")
    with (tmp_path / "s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, exact in zip(rows, swept.to_arrow().to_pylist(), strict=True):
        for name, value in exact.items():
            assert row[name] == ("" if value is None else str(value)) or float(row[name]) == value
    swept.save(tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text()) == json.loads(json.dumps(swept.document))
    assert swept.to_polars().equals(polars.from_arrow(swept.table))


def test_what_people_see_is_what_papers_have(swept: Sweep, tmp_path: Path) -> None:
    swept.save(tmp_path / "s.tex")
    lines = (tmp_path / "s.tex").read_text().splitlines()
    assert lines[2] == r"\begin{tabular}{llrr}"
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert [line.split(" & ")[:2] for line in body] == [
        ["16", "64K"], ["16", "1M"], ["32", "64K"], ["32", "1M"]
    ]  # fmt: skip
    assert all(line.endswith(r" \\") and line.count(" & ") == 3 for line in body)
    # Long column names are broken into several lines; otherwise the table is wider than the page.
    assert r"\shortstack[r]{misses per\\1000\\accesses}" in lines[4] and lines[4].count(" & ") == 3
    swept.save(tmp_path / "s.md")
    table = (tmp_path / "s.md").read_text().splitlines()[2:]
    assert len(table) == 2 + 4 and {line.count("|") for line in table} == {5}


def test_charts_are_as_wide_as_a_column(swept: Sweep, tmp_path: Path) -> None:
    written = swept.save(tmp_path / "s.svg")
    assert str(tmp_path / "s-misses.svg") in written
    picture = ElementTree.parse(tmp_path / "s-misses.svg").getroot()
    # 85 mm are 241 points.
    assert float(picture.attrib["width"]) == pytest.approx(241, abs=1)
    for end, first in ((".pdf", b"%PDF"), (".png", b"\x89PNG")):
        swept.save(tmp_path / f"s{end}")
        assert (tmp_path / f"s-misses{end}").read_bytes().startswith(first)


def test_names_are_text_to_spreadsheets_latex_and_markdown(tmp_path: Path) -> None:
    write(tmp_path / "n.csv", made())
    with (tmp_path / "n.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=name", "n"]
    assert [row[0] for row in rows[1:]] == [f"'{BAD}", "'-1", "plain", ""]
    assert rows[1][1] == str(2**64 - 1)
    text = latex(made().shown())
    for command in (r"\textbackslash{}", r"\{", r"\_", r"\%", r"\&", r"\#", r"\textasciicircum{}"):
        assert command in text
    # Unescaped characters would end the row or begin a comment.
    row = text.splitlines()[6]
    assert row.endswith(r" & 1 \% \\") and row.replace(r"\&", "").count("&") == 1
    assert r"\<b\>\*\[x\]" in markdown(made().shown())
    assert r"=cmd\|" in markdown(made().shown())


@pytest.mark.parametrize("name", ["s.xlsx", "s", "s.csv.gz", "s.txt"])
def test_an_unknown_format_is_refused_before_the_work(
    pagewalk, swept: Sweep, tmp_path: Path, name: str
) -> None:
    with pytest.raises(Error, match="the end of the name chooses the format"):
        swept.save(tmp_path / name)
    vary = ["--vary", "tlb.l2d.entries=16,32"]
    done = pagewalk("sweep", "nothing.pwt", *vary, "-o", tmp_path / name)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"{name}: the end of the name chooses the format" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_where_nothing_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(Error, match="have no charts"):
        write(tmp_path / "n.svg", made())
    (tmp_path / "n.md").write_text("mine")
    with pytest.raises(Error, match="exists"):
        write(tmp_path / "n.md", made())
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("n.md", "mine")]


def test_a_library_that_is_not_there_is_named(
    swept: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(Error, match="pandas is not installed: pip install pandas"):
        swept.to_pandas()


def test_a_sweep_plots_one_measure(swept: Sweep) -> None:
    chart = swept.plot("references", x="cache.l2.size", labels={"references": "refs"})
    assert isinstance(chart, alt.Chart | alt.LayerChart)
    text = json.dumps(chart.to_dict())
    assert '"refs"' in text and "cache.l2.size" in text
    with pytest.raises(Error, match="this key does not vary"):
        swept.plot(x="os.page_size")
    with pytest.raises(Error, match="choose one of misses"):
        swept.plot("speed")
