"""`managers`: every memory manager on the same trace and memory, and what it refuses."""

import json
import re
from pathlib import Path

import pytest

from pagewalk import Error, Machine, advise, managers, memory_settings, sweep
from pagewalk.cli import main
from pagewalk.document import Managed
from pagewalk.memory_managers import KINDS
from pagewalk.names import WHY
from pagewalk.report import managed

SPEC = "generate:uniform,accesses=20k,size=16M"


@pytest.fixture(scope="module")
def found() -> Managed:
    return managers(SPEC, memory="150%", aged=(0.6, 0.1))


def test_every_manager_runs_or_says_why_not(found: Managed) -> None:
    (table,) = found.traces
    ran = [row.manager for row in table.rows]
    assert sorted([*ran, *table.refused]) == sorted(kind.name for kind in KINDS)
    assert ran[0] == "base"
    # The memory of a generator is not named as a program's data, so the rules for irix do not apply
    # to it.
    assert list(table.refused) == ["irix, data=2M"]
    assert "no mapping is data" in table.refused["irix, data=2M"]


def test_rows_agree_with_each_other(found: Managed) -> None:
    (table,) = found.traces
    rows = {row.manager: row.data for row in table.rows}
    for row in rows.values():
        mapped = sum(row["mapped_by_size"].values())
        assert sum(run["bytes"] for run in row["runs"]) == mapped
        assert 0 <= row["large_share"] <= 1 and row["references"] >= row["tlb_misses"] > 0
        assert row["memory_bytes"] >= mapped
    base = rows["base"]
    assert rows["freebsd"]["bloat_bytes"] >= base["bloat_bytes"] == 0
    # Under `linux`, pages that are only read take no memory if no block is free.
    always, madvise = (rows[f"linux, {name}"]["bloat_bytes"] for name in ("always", "madvise"))
    assert 0 > always >= madvise
    assert base["large_share"] == 0 and base["why"].keys() == {"policy-asks-base"}
    assert rows["linux, madvise"]["large_share"] == 0


def test_memory_is_a_share_of_what_base_uses_or_a_size() -> None:
    (plenty,) = managers(SPEC).traces
    (scarce,) = managers(SPEC, memory="60%").traces
    (sized,) = managers(SPEC, memory="64M").traces
    assert plenty.base_peak_bytes == scarce.base_peak_bytes
    assert "memory.size=64M" in sized.settings and not plenty.settings
    by_name = {row.manager: row for row in plenty.rows}
    assert by_name["linux, always"].large_share > 0.9
    bloat = [by_name[name].data["bloat_bytes"] for name in ("base", "freebsd", "linux, always")]
    assert bloat[0] == 0 and bloat == sorted(bloat)
    assert by_name["linux, always"].tlb_misses < by_name["base"].tlb_misses
    assert all(row.swapped_bytes == 0 for row in plenty.rows)
    assert all(row.swapped_bytes > 0 for row in scarce.rows)


def test_text_and_page_have_all_rows(found: Managed) -> None:
    text, html = managed.summary(found.data), managed.render(found.data)
    for kind in KINDS:
        assert kind.name in text and kind.name in html
    (table,) = found.data["traces"]
    whys = [figure for figure, _ in managed._figures(table) if figure.title == "Why not larger"]
    shares: dict[str, float] = {}
    for row in whys[0].rows:
        shares[row["manager"]] = shares.get(row["manager"], 0) + row["share"]
    assert len(shares) == len(table["rows"])
    assert all(share == pytest.approx(100) for share in shares.values())


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["managers"]) == 0
    listed = capsys.readouterr().out
    assert "os.linux.khugepaged.max_ptes_none" in " ".join(listed.split())
    assert main(["managers", "--json", "-"]) == 0
    kinds = json.loads(capsys.readouterr().out)["kinds"]
    assert [kind["name"] for kind in kinds] == [kind.name for kind in KINDS]
    page, document = tmp_path / "managers.html", tmp_path / "managers.json"
    given = ["--html", str(page), "--json", str(document), "--aged", "0.5,0.1", "--memory", "120%"]
    assert main(["managers", SPEC, "-q", *given]) == 0
    rows = json.loads(document.read_text())["traces"][0]["rows"]
    assert len(rows) >= 6 and "linux, always" in page.read_text()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"set": {"os.manager": "base"}}, "leave the setting os.manager out"),
        (
            {"memory": "much%"},
            "memory is `much%`: write a size such as 64M, or a share such as 80%",
        ),
        ({"memory": "80%", "aged": (0.0, 0.1)}, "the free share is 0"),
        ({"memory": "0"}, "memory.size"),
        ({"memory": "lots"}, "memory is `lots`: write a size such as 64M, or a share such as 80%"),
        ({"memory": "64M", "set": {"memory.size": "1G"}}, "memory.size is given twice"),
        ({"set": {"os.linux.enabled": "perhaps"}}, "there is no `perhaps` here: write always"),
        (
            {"set": {"os.ingens.util_threshold": 101}},
            "os.ingens.util_threshold: 101 is not a percentage",
        ),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, object], expected: str) -> None:
    with pytest.raises(Error) as told:
        managers(SPEC, **given)  # type: ignore[arg-type]
    assert expected in str(told.value)


def test_standard_input_and_a_page_of_no_trace_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["managers", "--html", "x.html"]) != 0
    assert "--html writes the results of runs: give a trace" in capsys.readouterr().err
    with pytest.raises(Error, match="a pipe can be read only once"):
        managers("-")


@pytest.mark.parametrize(
    ("share", "misses", "expected"),
    [
        (0.0, 9, "t: none gives it large pages; none misses less than base."),
        (
            0.5,
            6,
            "t: linux has most of its memory in large pages (50.0 %) and misses least, 33.3 % less "
            "than base.",
        ),
    ],
)
def test_the_headline_names_winners_where_there_are_some(
    share: float, misses: int, expected: str
) -> None:
    rows = [
        {"manager": "base", "large_share": 0.0, "tlb_misses": 9, "settings": []},
        # This manager has equally few misses, but belongs to a system that the reader may not have.
        {"manager": "irix", "large_share": 0.0, "tlb_misses": misses, "settings": []},
        {
            "manager": "linux",
            "large_share": share,
            "tlb_misses": misses,
            "settings": ["os.manager=linux"],
        },
    ]
    assert managed.headline({"trace": {"name": "t"}, "rows": rows}) == expected
    rows[1]["tlb_misses"] = 3
    said = managed.headline({"trace": {"name": "t"}, "rows": rows})
    assert "; irix misses least, 66.7 % less than base." in said
    assert ("Of Linux's settings, linux misses least, 33.3 % less than base." in said) == (
        misses < 9
    )


def test_what_one_manager_has_is_set_for_it_alone() -> None:
    given = {"os.linux.hugepages-2048kB.enabled": "never", "os.reservations.eager": "true"}
    (table,) = managers(SPEC, set=given).traces
    assert list(table.refused) == ["irix, data=2M"]
    assert len(table.rows) == len(KINDS) - 1
    assert all(row.large_share == 0 for row in table.rows if row.manager != "freebsd")


def test_a_share_of_memory_is_of_what_base_uses_alone() -> None:
    linux = {"os.manager": "linux", "os.linux.enabled": "never"}
    (peak,) = {table.base_peak_bytes for table in managers(SPEC).traces}
    for share, free in ((0.8, 1.0), (1.2, 0.5)):
        aged = (free, 0.1) if free < 1 else None
        found = memory_settings(SPEC, "epyc-9005", set=linux, memory=f"{100 * share}%", aged=aged)
        size = int(found[0].removeprefix("memory.size=").removesuffix("K")) << 10
        assert size % (2 << 20) == 0 and 0 <= size - share * peak / free < 2 << 20
        assert found[1].startswith("swap.size=") and len(found) == (3 if aged else 2)
    # A machine that has swap keeps it, and what no trace is needed for reads none.
    kept = memory_settings(SPEC, "origin-2000", memory="80%")
    assert [setting.partition("=")[0] for setting in kept] == ["memory.size"]
    assert memory_settings("-", "epyc-9005", memory="64M") == ["memory.size=64M"]
    assert memory_settings("-", "epyc-9005") == []
    with pytest.raises(Error, match="a pipe can be read only once"):
        memory_settings("-", "epyc-9005", memory="80%")


def test_commands_take_a_share_of_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    linux = {"os.manager": "linux"}
    expected = memory_settings(SPEC, "epyc-9005", set=linux, memory="80%")
    alone = Machine("epyc-9005", ["os.manager=linux", *expected]).run(SPEC).data
    out = str(tmp_path / "out.json")
    assert main(["run", SPEC, "--set", "os.manager=linux", "--memory", "80%", "--json", out]) == 0
    assert json.loads(Path(out).read_text())["memory"] == alone["memory"]

    swept = sweep(SPEC, vary={"os.manager": ["base", "linux"]}, memory="80%")
    row = swept.document["designs"][1]
    assert row["walks.references"] == alone["walks"]["references"]
    assert swept.document["machine"]["memory"] == "80%"
    given = ["--memory", "80%", "--aged", "0.6,0.1", "--vary", "os.manager=base,linux"]
    assert main(["sweep", SPEC, *given, "--html", str(tmp_path / "sweep.html")]) == 0
    assert "80% of what base uses, aged: " in (tmp_path / "sweep.html").read_text()

    madvise = {"os.manager": "linux", "os.linux.enabled": "madvise"}
    scarce = advise(SPEC, "epyc-9005", set=madvise, memory="60%", aged=(0.6, 0.1))
    assert any("memory.aged" in setting for setting in scarce.machine.settings)
    assert main(["advise", SPEC, "-m", "origin-2000", "--memory", "80%", "-q"]) == 0
    capsys.readouterr()
    for given, wrong in (
        (["run", SPEC, "--memory", "much"], "write a size such as 64M, or a share such as 80%"),
        (["run", "--memory", "80%", "--", "true"], "not known for a live program"),
        (
            ["sweep", SPEC, "--memory", "64M", "--vary", "memory.size=1G,2G"],
            "memory.size is given with --vary",
        ),
    ):
        assert main(given) == 2
        assert wrong in capsys.readouterr().err


def test_every_reason_has_words() -> None:
    source = (Path(__file__).parents[2] / "crates/vm/src/work.rs").read_text()
    [reasons] = re.findall(r"^reasons! \{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL)
    names = re.findall(r'^    \w+ "([\w-]+)"', reasons, re.MULTILINE)
    assert names and set(names) == WHY.keys()
    assert len(set(WHY.values())) == len(WHY)
