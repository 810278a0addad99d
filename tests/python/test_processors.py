"""Several processors, as a user asks for them."""

import json
from pathlib import Path

from pagewalk import Machine, Trace
from pagewalk.report import data as report_data

MIX = "mix:cpus=2,slice=20k,[generate:zipf,accesses=60k,size=64M],[generate:uniform,accesses=40k]"


def test_each_processor_is_counted(pagewalk, tmp_path: Path) -> None:
    done = pagewalk(
        "run", MIX, "--set", "core.count=2", "--json", "r.json", "--html", "r.html", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "r.json").read_text())
    first, second = document["processors"]
    assert (sum(first["accesses"].values()), sum(second["accesses"].values())) == (60_000, 40_000)
    for index, tlb in enumerate(document["tlbs"]):
        parts = [one["tlbs"][index] for one in (first, second)]
        for name in ("lookups", "hits", "misses", "evictions", "flushed"):
            assert tlb[name] == sum(part[name] for part in parts)
    assert "Processors" in done.stdout and "to other processors" in done.stdout
    page = (tmp_path / "r.html").read_text()
    assert "<h3>Processors</h3>" in page and 'data-at="/processors/1/shootdowns/received"' in page


def test_one_processor_has_no_table() -> None:
    results = Machine("tlb-only").run(Trace("generate:uniform,accesses=1k"))
    assert "processors" not in results.data
    assert results.to_arrow("processors").num_rows == 0
    assert report_data.run(results.data).processors is None


def test_processors_are_a_table_of_arrow() -> None:
    results = Machine("epyc-9005", {"core.count": 2}).run(Trace(MIX))
    table = results.to_arrow("processors")
    assert table["number"].to_pylist() == [0, 1]
    walks = table["walks_walks"].to_pylist()
    assert sum(walks) == results.data["walks"]["walks"]
    assert set(table.column_names) >= {"l1d_misses", "shootdowns_made", "accesses_load"}


def test_a_wrong_count_is_one_line(pagewalk) -> None:
    for arguments, says in [
        (["run", MIX], "write --set core.count=2"),
        (["run", MIX, "--set", "core.count=65"], "1 to 64 processors, not 65"),
    ]:
        done = pagewalk(*arguments)
        assert done.returncode != 0 and says in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
