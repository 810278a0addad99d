import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import distributed
import pyarrow.parquet as pq
import pytest

import pagewalk
from pagewalk.report.sweeps import document, render, sheet, summary
from pagewalk.sweep import combinations, passes, sweep, values

SPEC = "generate:join,table=16M,accesses=40k,seed=2"
VARY = {"tlb.l2d.entries": "2^4..2^6", "cache.l2.size": "64K,1M"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("utc,stc", ["utc", "stc"]),
        ("1..4", ["1", "2", "3", "4"]),
        ("1..64:21", ["1", "22", "43", "64"]),
        ("2^0..2^4", ["1", "2", "4", "8", "16"]),
        ("512,2^9..2^10,7", ["512", "1024", "7"]),
        ("0.5", ["0.5"]),
    ],
)
def test_values_are_lists_and_ranges(text: str, expected: list[str]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "an empty value"),
        ("1,,2", "an empty value"),
        ("4..1", "the range is empty"),
        ("2^4..2^2", "the range is empty"),
        ("1..5:0", "a step of 0"),
        ("0..9999999", "more than 100000 values"),
    ],
)
def test_what_is_no_range_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(pagewalk.Error, match=complaint):
        values(text)


def test_the_last_key_varies_fastest() -> None:
    made = combinations({"a": [1, 2], "b": "x,y", "c": [True]})
    assert made == [
        {"a": "1", "b": "x", "c": "true"}, {"a": "1", "b": "y", "c": "true"},
        {"a": "2", "b": "x", "c": "true"}, {"a": "2", "b": "y", "c": "true"},
    ]  # fmt: skip
    with pytest.raises(pagewalk.Error, match="more than 100000 designs"):
        combinations({key: range(400) for key in "abc"})


def test_a_row_has_the_counts_of_a_run() -> None:
    table = sweep(SPEC, "opteron-2008", vary=VARY, set={"os.page_size": "4K"})
    assert table.num_rows == 6 and table.column_names[:2] == list(VARY)
    assert table.column_names[-1] == "error"
    for row in table.to_pylist():
        settings = {key: row[key] for key in VARY}
        machine = pagewalk.Machine("opteron-2008", settings)
        results = machine.run(SPEC).data
        assert row["machine_digest"] == machine.digest and row["error"] is None
        assert row["walks.references"] == results["walks"]["references"]
        assert row["tlbs.l2d.misses"] == results["tlbs"][1]["misses"]
        assert row["caches.l2.walker.read_misses"] == results["caches"][0]["walker"]["read_misses"]
        assert (
            row["walks.by_level.1.served.memory"]
            == (results["walks"]["by_level"][3]["served"]["memory"])
        )
        assert row["time.share.hi"] == results["time"]["share"]["hi"]


def test_a_design_that_cannot_be_built_is_a_row_with_its_error() -> None:
    table = sweep(SPEC, "opteron-2008", vary={"tlb.l2d.entries": [64, 33], "tlb.l2d.ways": "4"})
    first, second = table.to_pylist()
    assert first["error"] is None and first["walks.walks"] > 0
    assert "33 entries are no whole number of sets" in second["error"]
    assert second["walks.walks"] is None and second["machine_digest"] is None
    with pytest.raises(pagewalk.Error, match="there is no key `sets`"):
        sweep(SPEC, "opteron-2008", vary={"tlb.l2d.sets": "1,2"})


def test_designs_that_are_the_same_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    whole = passes._Task.outcomes
    monkeypatch.setattr(
        passes._Task, "outcomes",
        lambda task, settings, progress=None: ran.append(len(settings))
        or whole(task, settings, progress),
    )  # fmt: skip
    table = sweep(SPEC, "opteron-2008", vary={"cache.l2.size": "1M,1024K,64K"})
    assert ran == [2]
    assert [row["cache.l2.size"] for row in table.to_pylist()] == ["1M", "1024K", "64K"]
    assert table.column("walks.references")[0] == table.column("walks.references")[1]


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sweep(SPEC, "opteron-2008", vary=VARY)
    output = tmp_path / "s.parquet"
    ran: list[int] = []
    outcomes = passes._Task.outcomes

    def killed(task, settings, progress=None):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(len(settings))
        return outcomes(task, settings, progress)

    monkeypatch.setattr(passes._Task, "outcomes", killed)
    with pytest.raises(KeyboardInterrupt):
        sweep(SPEC, "opteron-2008", vary=VARY, output=output, designs_per_pass=2)
    part = tmp_path / "s.parquet.part"
    assert len(part.read_text().splitlines()) == 4 and not output.exists()
    # A kill in the middle of a line costs that line.
    part.write_text(part.read_text()[:-20])
    ran.clear()
    table = sweep(SPEC, "opteron-2008", vary=VARY, output=output, designs_per_pass=2)
    assert ran == [2, 1]
    assert table.equals(whole) and pq.read_table(output).equals(whole.table)
    assert not part.exists()
    # Another trace shares no row, nor does another machine.
    ran.clear()
    monkeypatch.setattr(passes._Task, "outcomes", outcomes)
    other = sweep(SPEC.replace("seed=2", "seed=3"), "opteron-2008", vary=VARY)
    assert not other.equals(whole)


@pytest.mark.parametrize(("size", "designs"), [("1M", 512), ("64M", 85), ("1G", 5)])
def test_a_pass_has_as_many_designs_as_fit(size: str, designs: int) -> None:
    machine = pagewalk.Machine("opteron-2008", {"cache.l2.size": size})
    assert passes._fitting(512, [passes.Design("", "", {}, machine)]) == designs


def test_a_pool_of_processes_gives_the_same_table() -> None:
    whole = sweep(SPEC, "opteron-2008", vary=VARY)
    with ProcessPoolExecutor(2) as pool:
        spread = sweep(SPEC, "opteron-2008", vary=VARY, executor=pool, designs_per_pass=2)
    assert spread.equals(whole)


class Flaky(ProcessPoolExecutor):
    """An executor whose worker dies over the first task."""

    died = 0

    def submit(self, work, *arguments):
        if self.died == 0:
            self.died += 1
            future: Future[object] = Future()
            future.set_exception(BrokenProcessPool("a worker died"))
            return future
        return super().submit(work, *arguments)


def test_a_worker_that_dies_is_retried() -> None:
    whole = sweep(SPEC, "opteron-2008", vary=VARY)
    with Flaky(1) as pool:
        assert sweep(SPEC, "opteron-2008", vary=VARY, executor=pool).equals(whole)
        assert pool.died == 1
    # A pool that is really broken is lost: what is left is done without it.
    with ProcessPoolExecutor(1) as pool:
        pool.submit(os._exit, 1).exception()
        assert sweep(SPEC, "opteron-2008", vary=VARY, executor=pool).equals(whole)


def test_a_cluster_gives_the_same_table() -> None:
    whole = sweep(SPEC, "opteron-2008", vary=VARY)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor()
        spread = sweep(SPEC, "opteron-2008", vary=VARY, executor=executor, designs_per_pass=2)
        # A worker that is killed in the middle of its work.
        worker = min(client.run(os.getpid).values())
        killer = threading.Timer(0.2, os.kill, (worker, signal.SIGKILL))
        killer.start()
        survived = sweep(SPEC, "opteron-2008", vary=VARY, executor=executor, designs_per_pass=1)
        killer.join()
    assert spread.equals(whole)
    assert survived.equals(whole)


def test_the_command_prints_and_writes(pagewalk, tmp_path: Path) -> None:
    done = pagewalk(
        "sweep", SPEC, "-m", "opteron-2008", "--vary", "tlb.l2d.entries=2^4..2^6,33",
        "--vary", "cache.l2.size=64K,1M", "-o", tmp_path / "s.parquet",
        "--json", tmp_path / "s.json", "--html", tmp_path / "s.html",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "8 designs" in done.stdout and "2 designs without counts:" in done.stdout
    made = json.loads((tmp_path / "s.json").read_text())
    table = pq.read_table(tmp_path / "s.parquet")
    assert len(made["designs"]) == table.num_rows == 8
    assert made["vary"]["tlb.l2d.entries"] == [16, 32, 64, 33]
    for row, design in zip(table.to_pylist(), made["designs"], strict=True):
        assert {name: value for name, value in row.items() if value is not None} == design
    assert "8 designs of opteron-2008" in (tmp_path / "s.html").read_text()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s.html", "s.json", "s.parquet"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--vary", "tlb.l2.entries"], "write KEY=VALUES"),
        (["--vary", "a=1", "--vary", "a=2"], "--vary a: given twice"),
        (["--vary", "a=4..1"], "--vary a: 4..1: the range is empty"),
        (["--vary", "os.page_size=4K", "-m", "nothing"], "nothing"),
        (["--vary", "os.page_size=5K"], "5K"),
        (["--vary", "os.page_size=4K", "-o", "-"], "--output needs the name of a file"),
        ([], "--vary"),
    ],
)
def test_what_cannot_be_swept_is_refused(pagewalk, arguments: list[str], complaint: str) -> None:
    done = pagewalk("sweep", SPEC, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr and "Traceback" not in done.stderr


def test_an_interrupted_command_says_what_it_keeps(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "pagewalk", "sweep", SPEC.replace("40k", "400k"),
        "-m", "opteron-2008", "--vary", "cache.l2.size=64K,128K,256K,512K,1M,2M,4M,8M",
        "--designs-per-pass", "1", "-o", "s.parquet",
    ]  # fmt: skip
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    part = tmp_path / "s.parquet.part"
    for _ in range(600):
        if part.exists():
            break
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "designs are done and kept in s.parquet.part" in said and "interrupted" in said
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "8 designs" in again.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["s.parquet"]


def test_the_page_shows_the_measures_that_differ() -> None:
    table = sweep(SPEC, "opteron-2008", vary=VARY)
    made = document(
        {"name": "it", "notes": [], "producer": "p", "command": [], "arch": "unknown",
         "fetches": False, "filter": "none", "digest": None},
        {"name": "opteron-2008", "title": "t", "settings": []},
        {key: list(dict.fromkeys(table.column(key).to_pylist())) for key in VARY},
        table.to_pylist(),
    )  # fmt: skip
    page = sheet(made)
    assert [figure.title for figure in page.figures] == [
        "misses per 1000 accesses", "from memory per walk", "time in translation, at most",
    ]  # fmt: skip
    figure = page.figures[0]
    row = table.to_pylist()[0]
    accesses = row["accesses.load"] + row["accesses.store"] + row["accesses.fetch"]
    assert figure.rows[0] == {
        "at": 16, "series": "64K", "unit": "misses per 1000 accesses",
        "value": 1000 * row["walks.walks"] / accesses,
    }  # fmt: skip
    lines = summary(made).splitlines()
    assert [line.split()[:2] for line in lines[-6:]] == [
        [str(row[key]) for key in VARY] for row in table.to_pylist()
    ]


def test_several_machines_are_compared_each_as_it_is_alone(pagewalk, tmp_path: Path) -> None:
    names = ["opteron-2008", "epyc-9005"]
    table = sweep(SPEC, names, vary={"os.page_size": "4K,2M"})
    assert table.column("machine").to_pylist() == [names[0], names[0], names[1], names[1]]
    alone = [
        row
        for name in names
        for row in sweep(SPEC, name, vary={"os.page_size": "4K,2M"}).to_pylist()
    ]
    for row, one in zip(table.to_pylist(), alone, strict=True):
        assert {key: row[key] for key in one} == one
    assert sweep(SPEC, vary={"machine": names, "os.page_size": "4K,2M"}).equals(table)
    assert sweep(SPEC, names).num_rows == 2
    both = ["-m", names[0], "-m", names[1]]
    done = pagewalk("sweep", SPEC, *both, "--vary", "os.page_size=4K,2M", "--json", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "4 designs of opteron-2008 and epyc-9005" in " ".join(done.stdout.split())
    other = pagewalk(
        "sweep", SPEC, "--vary", f"machine={','.join(names)}", "--vary", "os.page_size=4K,2M",
        "--json", tmp_path / "b",
    )  # fmt: skip
    assert other.returncode == 0, other.stderr
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    twice = pagewalk("sweep", SPEC, *both, "--vary", "machine=r4700")
    assert twice.returncode == 2 and "given twice" in twice.stderr


@pytest.mark.parametrize(
    ("vary", "axis", "scale"),
    [
        ({"page_table.format": ["x86-64", "guarded", "hashed"]}, "page_table.format", "ordinal"),
        ({"os.page_size": ["4K", "2M"], "machine": ["a", "b", "c"]}, "machine", "ordinal"),
        ({"tlb.l1d.entries": [64], "os.page_size": ["4K", "2M"]}, "os.page_size", "ordinal"),
        ({"tlb.l1d.entries": [16, 48, 64], "os.page_size": ["4K"]}, "tlb.l1d.entries", "linear"),
        ({"tlb.l1d.entries": [16, 32, 64, 128, 256]}, "tlb.l1d.entries", "logarithmic"),
    ],
)
def test_what_varies_makes_the_axis(vary: dict[str, list[object]], axis: str, scale: str) -> None:
    designs = [
        {**dict(zip(vary, values, strict=True)), "accesses.load": 1000, "walks.walks": 10 + index,
         "walks.cold": 1, "walks.references": 30, "walks.cold_references": 3}
        for index, values in enumerate(itertools.product(*vary.values()))
    ]  # fmt: skip
    trace = {"name": "it", "notes": [], "producer": "p", "command": [], "arch": "unknown",
             "fetches": False, "filter": "none", "digest": None}  # fmt: skip
    made = document(trace, {"name": "m", "title": "t", "settings": []}, vary, designs)
    page = render(made)
    charts = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["charts"]
    across = charts["figure-0"]["encoding"]["x"]
    assert across["title"] == axis
    expected = {"ordinal": ("ordinal", None), "linear": ("quantitative", None)}
    assert (across["type"], across.get("scale", {}).get("type")) == expected.get(
        scale, ("quantitative", "log")
    )
    if scale == "ordinal":
        assert across["sort"] == vary[axis]
    table = sheet(made).table
    assert table is not None and len(table.rows) == len(designs)
    assert page.count("<caption>") == 1
