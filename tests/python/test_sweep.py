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
from typing import Any

import distributed
import pyarrow.parquet as pq
import pytest

import pagewalk
from pagewalk import Error, Machine
from pagewalk.report import scales
from pagewalk.report.sweeps import (
    Drawn,
    View,
    document,
    finding,
    pictures,
    render,
    sheet,
    summary,
)
from pagewalk.sweeps import combinations, passes, sweep, values

SPEC = "generate:join,table=16M,accesses=40k,seed=2"
ABOUT = {"name": "it", "notes": [], "producer": "p", "command": [], "arch": "unknown",
         "fetches": False, "filter": "none", "digest": None}  # fmt: skip
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
        ("1..5:0", "the step is 0"),
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
    assert "33 entries do not divide into sets" in second["error"]
    assert second["walks.walks"] is None and second["machine_digest"] is None
    with pytest.raises(pagewalk.Error, match="there is no key `sets`"):
        sweep(SPEC, "opteron-2008", vary={"tlb.l2d.sets": "1,2"})


def test_designs_that_are_the_same_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    whole = passes.Task.outcomes
    monkeypatch.setattr(
        passes.Task, "outcomes",
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
    outcomes = passes.Task.outcomes

    def killed(task, settings, progress=None):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(len(settings))
        return outcomes(task, settings, progress)

    monkeypatch.setattr(passes.Task, "outcomes", killed)
    with pytest.raises(KeyboardInterrupt):
        sweep(SPEC, "opteron-2008", vary=VARY, output=output, designs_per_pass=2)
    part = tmp_path / "s.parquet.part"
    assert len(part.read_text().splitlines()) == 4 and not output.exists()
    # If the process is killed while it writes a line, only this line is lost.
    part.write_text(part.read_text()[:-20])
    ran.clear()
    table = sweep(SPEC, "opteron-2008", vary=VARY, output=output, designs_per_pass=2)
    assert ran == [2, 1]
    assert table.equals(whole) and pq.read_table(output).equals(whole.table)
    assert not part.exists()
    # A sweep of another trace or of another machine reuses no row.
    ran.clear()
    monkeypatch.setattr(passes.Task, "outcomes", outcomes)
    other = sweep(SPEC.replace("seed=2", "seed=3"), "opteron-2008", vary=VARY)
    assert not other.equals(whole)


@pytest.mark.parametrize(("size", "designs"), [("1M", 512), ("64M", 85), ("1G", 5)])
def test_a_pass_has_as_many_designs_as_fit(size: str, designs: int) -> None:
    machine = pagewalk.Machine("opteron-2008", {"cache.l2.size": size})
    assert passes._fitting(512, [passes.Design("", {}, machine)]) == designs


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
    # A broken pool cannot be used again, so the remaining work is done without it.
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
        # One worker is killed while it works.
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
        (["--vary", "a=1", "--vary", "a=2"], "--vary a: the key is given twice"),
        (["--vary", "a=4..1"], "--vary a: 4..1: the range is empty"),
        (["--vary", "os.page_size=4K", "-m", "nothing"], "nothing"),
        (["--vary", "os.page_size=5K"], "5K"),
        (["--vary", "os.page_size=4K", "-o", "-"], "--output cannot write to standard output"),
        (["--vary", "os.page_size=4K,2M", "--normalize-to", "os.page_size"], "write KEY=VALUE"),
        ([], "--vary"),
    ],
)
def test_what_cannot_be_swept_is_refused(pagewalk, arguments: list[str], complaint: str) -> None:
    done = pagewalk("sweep", SPEC, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr and "Traceback" not in done.stderr


def test_designs_without_counts_are_told_and_all_of_them_are_a_failure(
    pagewalk, tmp_path: Path
) -> None:
    table = tmp_path / "table.json"
    some = ["--vary", "mmu_cache.design=none,foo"]
    done = pagewalk("sweep", SPEC, *some, "-q", "--json", table)
    assert done.returncode == 0
    assert "1 of 2 designs have no counts: --set mmu_cache.design=foo" in done.stderr
    none = ["--vary", "memory.size=8M,12M", "-m", "opteron-2008"]
    spec = "generate:uniform,size=64M,accesses=30k"
    done = pagewalk("sweep", spec, *none, "-q", "--json", table, "--force")
    assert done.returncode == 1
    assert "no design has counts: out of memory" in done.stderr
    assert all(design["error"] for design in json.loads(table.read_text())["designs"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_says_what_it_keeps(number: signal.Signals, tmp_path: Path) -> None:
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
    run.send_signal(number)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 128 + number
    assert "designs are done and kept in s.parquet.part" in said and "pagewalk: error: " in said
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "8 designs" in again.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["s.parquet"]


def test_the_page_shows_the_measures_that_differ() -> None:
    table = sweep(SPEC, "opteron-2008", vary=VARY)
    made = table.document
    page = sheet(made)
    assert [figure.title for figure in page.figures] == [
        "misses per 1000 accesses", "references to memory per walk",
        "share of all cycles in translation, at most",
    ]  # fmt: skip
    figure = page.figures[0]
    row = table.to_pylist()[0]
    accesses = row["accesses.load"] + row["accesses.store"] + row["accesses.fetch"]
    assert figure.rows[0] == {
        "at": 16, "series": "64K", "value": 1000 * row["walks.walks"] / accesses,
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


def swept(vary: dict[str, list[object]]) -> dict[str, object]:
    """A sweep's document, of designs that nobody has run."""
    designs = [
        {**dict(zip(vary, values, strict=True)), "accesses.load": 1000, "walks.walks": 10 + index,
         "walks.cold": 1, "walks.references": 30, "walks.cold_references": 3}
        for index, values in enumerate(itertools.product(*vary.values()))
    ]  # fmt: skip
    return document([ABOUT], {"name": "m", "title": "t", "settings": []}, vary, designs, {})


@pytest.mark.parametrize(
    ("vary", "axis", "scale"),
    [
        ({"page_table.format": ["x86-64", "guarded", "hashed"]}, "page_table.format", "ordinal"),
        ({"os.page_size": ["4K", "2M"], "machine": ["a", "b", "c"]}, "machine", "ordinal"),
        ({"tlb.l1d.entries": [64], "os.page_size": ["4K", "2M"]}, "os.page_size", "ordinal"),
        ({"tlb.l1d.entries": [16, 48, 64], "os.page_size": ["4K"]}, "tlb.l1d.entries", "linear"),
        ({"tlb.l1d.entries": [16, 32, 64, 128, 256]}, "tlb.l1d.entries", "logarithmic"),
        ({"cache.l2.size": ["64K", "256K", "1M"]}, "cache.l2.size", "logarithmic"),
        (
            {"tlb.l1d.entries": [32, 64], "machine": ["a", "b", "c"]},
            "tlb.l1d.entries",
            "logarithmic",
        ),
    ],
)
def test_what_varies_makes_the_axis(vary: dict[str, list[object]], axis: str, scale: str) -> None:
    made = swept(vary)
    page = render(made)
    charts = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["charts"]
    across = charts["figure-0"].get("layer", [charts["figure-0"]])[0]["encoding"]["x"]
    assert across["title"] == axis
    expected = {"ordinal": ("ordinal", None), "linear": ("quantitative", None)}
    assert (across["type"], across.get("scale", {}).get("type")) == expected.get(
        scale, ("quantitative", "log")
    )
    if scale == "ordinal":
        assert across["sort"] == vary[axis]
    table = sheet(made).table
    assert table is not None and len(table.rows) == len(list(itertools.product(*vary.values())))
    assert page.count("<caption>") == 1


@pytest.mark.parametrize(
    ("values", "kind", "marks"),
    [
        ([16, 32, 64], "logarithmic", {16: "16", 32: "32", 64: "64"}),
        ([1, 2, 3, 60], "logarithmic", {1: "1", 2: "2", 4: "4", 8: "8", 16: "16", 32: "32"}),
        ([10, 20, 30], "linear", {}),
        (["64K", "1M", "4M"], "logarithmic",
         {1 << 10 + bit: scales.size(1 << 10 + bit) for bit in range(6, 13)}),
        (["96K", "128K", "160K"], "linear",
         {96 << 10: "96K", 128 << 10: "128K", 160 << 10: "160K"}),
        ([2**bit for bit in range(20)], "logarithmic",
         {2**bit: str(2**bit) for bit in range(0, 20, 2)}),
        (["4K", "2M"], "ordinal", None),
        (["lru", "fifo", "random"], "ordinal", None),
    ],
)  # fmt: skip
def test_an_axis_has_the_scale_that_its_values_ask_for(
    values: list[object], kind: str, marks: dict[int, str] | None
) -> None:
    axis = scales.of("key", values)
    assert axis.kind == kind
    if marks is not None:
        assert axis.marks == marks
    assert scales.size(3 << 19) == "1536K" and scales.number("1536K") == 3 << 19


TRACES = [SPEC, "generate:uniform,size=16M,accesses=40k"]


def test_several_traces_are_each_as_alone_and_have_geometric_means(tmp_path: Path) -> None:
    output = tmp_path / "both.parquet"
    both = sweep(TRACES, "opteron-2008", vary=VARY, output=output)
    assert both.column("trace").to_pylist() == [name for name in TRACES for _ in range(6)]
    rows = both.to_pylist()
    for at, name in enumerate(TRACES):
        for row, alone in zip(
            rows[6 * at : 6 * at + 6],
            sweep(name, "opteron-2008", vary=VARY).to_pylist(),
            strict=True,
        ):
            assert {key: row[key] for key in alone} == alone
    made = both.document
    assert made["vary"]["trace"] == TRACES and [t["name"] for t in made["traces"]] == TRACES
    designs, means = made["comparison"]["designs"], made["comparison"]["means"]
    for at, mean in enumerate(means):
        pair = designs[at], designs[at + 6]
        assert all(one[key] == mean[key] for one in pair for key in VARY)
        product = pair[0]["misses"] * pair[1]["misses"]
        assert mean["misses"] == pytest.approx(product**0.5)
    figure = sheet(made).figures[0]
    assert figure.facets == [*TRACES, "geometric mean"]
    assert len(pictures(made)["misses"].to_dict()["concat"]) == 3
    text = summary(made)
    assert text.count("  geometric mean") % 6 == 0 and "12 designs" not in text
    # The finished parts of both traces are stored in one file, and none of them is run again.
    with pytest.raises(pagewalk.Error, match="given twice"):
        sweep([SPEC, SPEC], vary=VARY)
    assert sweep(TRACES, "opteron-2008").num_rows == 2


def test_normalized_designs_are_factors_of_the_one_that_is_otherwise_the_same() -> None:
    base = {"tlb.l2d.entries": 16}
    plain = sweep(TRACES, "opteron-2008", vary=VARY).document["comparison"]
    made = sweep(TRACES, "opteron-2008", vary=VARY, normalize=base).document
    assert made["comparison"]["normalize"] == {"tlb.l2d.entries": "16"}
    for row, factor in zip(plain["designs"], made["comparison"]["designs"], strict=True):
        [one] = [
            other for other in plain["designs"]
            if other["tlb.l2d.entries"] == 16
            and all(other[key] == row[key] for key in ("trace", "cache.l2.size"))
        ]  # fmt: skip
        for key in ("misses", "references", "from_memory", "time"):
            assert factor[key] == pytest.approx(row[key] / one[key])
    # The mean of factors is the factor of the means.
    for mean, factor in zip(plain["means"], made["comparison"]["means"], strict=True):
        [one] = [
            other for other in plain["means"]
            if other["tlb.l2d.entries"] == 16 and other["cache.l2.size"] == mean["cache.l2.size"]
        ]  # fmt: skip
        assert factor["misses"] == pytest.approx(mean["misses"] / one["misses"])
    assert "misses, factor" in [figure.title for figure in sheet(made).figures]
    assert "factors of the design with tlb.l2d.entries=16" in " ".join(summary(made).split())
    for wrong, complaint in [
        ({"os.page_size": "4K"}, "does not vary"),
        ({"tlb.l2d.entries": 5}, "choose a value of --vary: 16"),
    ]:  # fmt: skip
        with pytest.raises(pagewalk.Error, match=complaint):
            sweep(SPEC, "opteron-2008", vary=VARY, normalize=wrong)


def test_designs_are_sorted_and_cut_for_people_alone(pagewalk, tmp_path: Path) -> None:
    vary = ["--vary", "tlb.l2d.entries=2^4..2^6", "--vary", "cache.l2.size=64K,1M"]
    command = ["sweep", *TRACES, "-m", "opteron-2008", *vary]
    done = pagewalk(
        *command, "--sort", "misses", "--top", "2", "--json", tmp_path / "a.json",
        "-o", tmp_path / "a.parquet", "--html", tmp_path / "a.html", "--svg", tmp_path / "a.svg",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  geometric mean") == 2 * done.stdout.count("trace   ")
    assert "2 designs of each trace; all are in the page" in (tmp_path / "a.html").read_text()
    made = json.loads((tmp_path / "a.json").read_text())
    assert len(made["designs"]) == pq.read_table(tmp_path / "a.parquet").num_rows == 12
    table = sheet(made, View("misses", 2)).table
    assert table is not None
    for group in range(3):
        exact = [row[3].exact for row in table.rows[2 * group : 2 * group + 2]]
        assert exact == sorted(exact)
    best = min(one["misses"] for one in made["comparison"]["designs"][:6])
    assert table.rows[0][3].exact == best
    keyed = sheet(made, View("tlb.l2d.entries")).table
    assert keyed is not None and [row[1] for row in keyed.rows[:3]] == ["16", "16", "32"]
    # Sizes are sorted by value and not as text.
    sized = sheet(made, View("cache.l2.size")).table
    assert sized is not None and [row[2] for row in sized.rows[:6]] == ["64K"] * 3 + ["1M"] * 3
    wrong = pagewalk(*command, "--sort", "miss")
    assert wrong.returncode == 2 and "--sort miss: choose one of misses" in wrong.stderr
    assert pagewalk(*command, "--top", "0").returncode == 2


@pytest.mark.parametrize("mean", ["geometric", "arithmetic", "none"])
def test_means_over_traces_are_of_the_kind_that_was_asked_for(mean: str) -> None:
    made = sweep(TRACES, "opteron-2008", vary=VARY, mean=mean).document["comparison"]
    assert made["mean"] == mean
    designs, half = made["designs"], len(made["designs"]) // 2
    pairs = [
        (one["misses"], other["misses"])
        for one, other in zip(designs, designs[half:], strict=False)
    ]
    expected = {
        "geometric": [(one * other) ** 0.5 for one, other in pairs],
        "arithmetic": [(one + other) / 2 for one, other in pairs],
        "none": [],
    }[mean]
    assert [row["misses"] for row in made["means"]] == pytest.approx(expected)
    with pytest.raises(pagewalk.Error, match="choose one of geometric, arithmetic, none"):
        sweep(SPEC, vary={"tlb.l2d.entries": [16, 32]}, mean="harmonic")


def drawn_at(drawn: Drawn) -> tuple[str, list[str], list[str]]:
    return drawn.keys({"vary": {"trace": ["a", "b"], "x": [1, 2, 4], "y": [1, 2], "z": ["u", "v"]}})


def test_no_two_designs_are_drawn_in_one_place() -> None:
    assert drawn_at(Drawn()) == ("x", ["y", "z"], ["trace"])
    assert drawn_at(Drawn(x="y")) == ("y", ["x", "z"], ["trace"])
    assert drawn_at(Drawn(color="y")) == ("x", ["y"], ["trace", "z"])
    assert drawn_at(Drawn(color="trace", facet="z")) == ("x", ["trace", "y"], ["z"])
    assert drawn_at(Drawn(x="trace", facet="x")) == ("trace", ["y", "z"], ["x"])
    vary = {"tlb.l2d.entries": [16, 32], "cache.l2.size": ["64K", "1M"]}
    made = sweep(TRACES, "opteron-2008", vary=vary).document
    for drawn in (Drawn(), Drawn(color="trace"), Drawn(x="trace", facet="cache.l2.size")):
        for figure in sheet(made, drawn=drawn).figures:
            places = [(row["at"], row["series"], row.get("facet")) for row in figure.rows]
            assert len({*places}) == len(places) == 12


def test_a_figure_shows_what_was_asked_for_under_its_names(pagewalk, tmp_path: Path) -> None:
    command = ["sweep", SPEC, "-m", "opteron-2008", "--vary", "tlb.l2d.entries=2^4..2^6",
               "--vary", "os.page_size=4K,2M", "-q"]  # fmt: skip
    figure = ["--y", "misses", "--x", "tlb.l2d.entries", "--color", "os.page_size",
              "--label", "tlb.l2d.entries=Entries of the L2 TLB", "--label", "misses=MPKA",
              "--label", "os.page_size:2M=large", "--width", "60"]  # fmt: skip
    done = pagewalk(*command, *figure, "-o", tmp_path / "f.svg", "--png", tmp_path / "f.png")
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["f.png", "f.svg"]
    text = (tmp_path / "f.svg").read_text()
    assert all(f">{word}<" in text for word in ("Entries of the L2 TLB", "MPKA", "large", "4K"))
    assert 'width="170"' in text
    for wrong, complaint in (
        (["--color", "os.manager"], "--color os.manager: this key does not vary"),
        (["--x", "os.page_size", "--facet", "os.page_size"], "--x uses this key already"),
        (["--y", "speed"], "--y speed: choose one of misses"),
        (["--label", "speed=fast"], "--label speed: name one of"),
        (["--label", "misses"], "--label misses: write KEY=TEXT"),
        (["--mean", "harmonic"], "--mean"),
    ):
        done = pagewalk(*command, *wrong)
        assert done.returncode == 2 and complaint in done.stderr, done.stderr


def test_the_best_design_is_named_first() -> None:
    def made(values: list[float | None]) -> dict[str, Any]:
        rows = [
            {"tlb.l2d.entries": 1 << at, **({} if value is None else {"misses": value})}
            for at, value in enumerate(values)
        ]
        compared = {"normalize": {}, "mean": "geometric", "measures": ["misses"], "means": []}
        vary = {"tlb.l2d.entries": [row["tlb.l2d.entries"] for row in rows]}
        return {"vary": vary, "comparison": {**compared, "designs": rows}}

    assert finding(made([8.0, 4.0, 2.0, 2.01])) == (
        "Best of 4 designs by misses per 1000 accesses: tlb.l2d.entries=4 with 2.00; worst: "
        "tlb.l2d.entries=1 with 8.00. As good within 1 %: tlb.l2d.entries=8."
    )
    assert "4 designs more are as good within 1 %." in finding(made([8.0, *[2.0] * 5]))
    # There is no best design if all designs are equal, or if only one was counted.
    assert finding(made([2.0, 2.0])) == finding(made([2.0, None])) == ""


def test_the_text_of_a_large_sweep_is_short(pagewalk) -> None:
    done = pagewalk(
        "sweep", *TRACES, "-m", "opteron-2008", "--vary", "tlb.l2d.entries=2^4..2^7",
        "--vary", "cache.l2.size=64K,128K,256K,512K,1M", "--vary", "tlb.l2d.latency_cycles=5,7",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) < 100 and lines[2].startswith("  Best of 40 designs by misses per 1000")
    assert "rows more" in lines[-2] + lines[-1]


def test_every_series_differs_by_more_than_its_colour() -> None:
    vary = {"tlb.l2d.entries": [16, 32, 64, 128], "tlb.l2d.ways": list(range(1, 31))}
    made = swept(vary)
    encoding = pictures(made)["misses"].to_dict()["layer"][0]["encoding"]
    dashes, shapes = (encoding[name]["scale"]["range"] for name in ("strokeDash", "shape"))
    pairs = {(tuple(dash), shape) for dash, shape in zip(dashes, shapes, strict=True)}
    assert len(pairs) == len(encoding["color"]["scale"]["domain"])


NESTED = ["nested.page_size=4K", "memory.size=16G", "nested.tlb.ways=full"]
"""A virtual machine whose nested TLB has no entries yet."""


def test_settings_and_what_varies_are_judged_together(pagewalk, tmp_path: Path) -> None:
    vary = {"nested.tlb.entries": [1, 4]}
    with pytest.raises(Error, match=r"nested\.tlb\.entries"):
        Machine("opteron-2008", NESTED)
    swept = sweep(SPEC, "opteron-2008", vary=vary, set=NESTED)
    for row, entries in zip(swept.to_pylist(), vary["nested.tlb.entries"], strict=True):
        alone = Machine("opteron-2008", [*NESTED, f"nested.tlb.entries={entries}"]).run(SPEC)
        assert row["error"] is None and row["machine_digest"] == alone.data["machine"]["digest"]
        assert row["walks.references"] == alone.data["walks"]["references"]
    # A machine is swept if at least one of its designs can be built. The rows of the other designs
    # say why they cannot be built.
    swept = sweep(SPEC, "opteron-2008", vary={"nested.tlb.entries": [0, 4]}, set=NESTED)
    assert [row["error"] is None for row in swept.to_pylist()] == [False, True]
    with pytest.raises(Error, match=r"--set nested\.tlb\.entries=0: "):
        sweep(SPEC, "opteron-2008", vary={"nested.tlb.entries": [0]}, set=NESTED)
    # So is a share of memory, for which the first of them counts.
    share = ["swap.size=64M", "os.manager=base", *NESTED[1:], NESTED[0]]
    assert sweep(SPEC, "opteron-2008", vary=vary, set=share, memory="80%").num_rows == 2
    words = [word for one in NESTED for word in ("--set", one)]
    done = pagewalk("sweep", SPEC, "-m", "opteron-2008", *words, "--vary", "nested.tlb.entries=1,4")
    assert done.returncode == 0, done.stderr
    assert "the settings add `nested`" in done.stderr


def test_page_tables_without_upper_levels_stand_beside_the_others(pagewalk, tmp_path: Path) -> None:
    file = tmp_path / "designs.json"
    done = pagewalk(
        "sweep", "generate:join,table=4M,accesses=20k", "-m", "epyc-9005",
        "--vary", "page_table.format=x86-64,hashed", "--vary", "mmu_cache.entries=16,24",
        "--json", file,
    )  # fmt: skip
    assert done.returncode == 0 and "no counts" not in done.stderr, done.stderr
    designs = json.loads(file.read_text())["designs"]
    searches = {
        (one["page_table.format"], one["mmu_cache.entries"]): one.get("mmu_cache.searches")
        for one in designs
    }
    assert len(searches) == 4 and not any("error" in one for one in designs)
    for (table, _), count in searches.items():
        assert (count is None) == (table == "hashed")
    again = pagewalk(
        "sweep", "generate:join,table=4M,accesses=20k", "-m", "epyc-9005",
        "--vary", "page_table.format=x86-64,hashed",
    )  # fmt: skip
    assert "1 design without an MMU cache" in again.stdout
    assert "page_table.format=hashed" in again.stdout
    wrong = pagewalk(
        "sweep", "generate:join,table=4M,accesses=20k", "-m", "epyc-9005",
        "--vary", "mmu_cache.entries=0",
    )  # fmt: skip
    assert wrong.returncode != 0 and "mmu_cache.entries" in wrong.stderr
