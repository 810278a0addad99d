"""`advise`: which region gets which pages, its place file run again, what it refuses."""

import json
import platform
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pagewalk import Error, Machine, Trace, advise, here, machines, page_size_groups, summary
from pagewalk.cli import main
from pagewalk.names import DEFAULT
from pagewalk.page_sizes import Advised, place_file
from pagewalk.recording import Recording
from pagewalk.report import data, page, placed
from pagewalk.text import bytes_of

THREE = r"""
#include <stdlib.h>
#include <sys/mman.h>

static volatile char *make_table(void) { return malloc(64ul << 20); }
static volatile char *make_array(void) { return malloc(8ul << 20); }
static volatile char *make_sparse(void) {
    return mmap(0, 256ul << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
int main(void) {
    volatile char *table = make_table(), *array = make_array(), *sparse = make_sparse();
    unsigned long random = 1;
    for (unsigned long at = 0; at < 256ul << 20; at += 1ul << 20) sparse[at] = 1;
    for (unsigned long at = 0; at < 64ul << 20; at += 4096) table[at] = 1;
    for (unsigned long round = 0; round < 200000; round++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        table[random >> 38]++;
        array[round * 64 % (8ul << 20)]++;
    }
    return 0;
}
"""
SPEC = "generate:uniform,accesses=20k,size=16M"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a random table, an array that is read in order and a mapping with holes."""
    compiler = shutil.which("gcc") or pytest.fail("gcc is missing: see `make tools`")
    program = tmp_path_factory.mktemp("advise") / "three"
    source = program.with_suffix(".c")
    source.write_text(THREE)
    subprocess.run([compiler, "-g", "-O1", "-o", program, source], check=True)
    trace = program.with_suffix(".pwt")
    assert (
        Recording([str(program)], allocations=True).record(trace, native=True)["exit_status"] == 0
    )
    return trace


@pytest.fixture(scope="module")
def advised(three: Path) -> Advised:
    return advise(three, "origin-2000", exact=True)


def test_three_mappings_are_told_apart(advised: Advised) -> None:
    found = {region.name.split()[0]: region for region in advised.regions}
    table, array, sparse = (found[f"make_{name}"] for name in ("table", "array", "sparse"))
    assert table.size in ("4M", "16M") and table.misses > 50 * array.misses > 0
    assert array.size is not None and sparse.size is None
    assert sparse.misses == 0 and sparse.cold_misses == 256
    # In each 1M block one page of 16K is used, so 256 pages of 1M replace 256 pages of 16K.
    assert sparse.alone["1M"].memory_added_bytes > 240 << 20
    assert sparse.reason.startswith("every size that saves something adds") or "no size" in (
        sparse.reason
    )
    line = table.write or ""
    assert (
        f"three.c:5: p = aligned_alloc({bytes_of(table.size)}, 67108864)" in line
        and "madvise(p, " in line
    )


def test_the_advice_fits_and_is_as_good_as_any_single_size(advised: Advised, three: Path) -> None:
    best = advised.best
    assert best is not None and best.memory_added_bytes <= 0.05 * advised.base.memory_bytes
    program = Machine("origin-2000").run(three).time
    assert program is not None
    for single in advised.uniform.values():
        assert best.translation_cycles and single.translation_cycles
        for end in ("lo", "hi"):
            rest = program.program_cycles.data[end]
            ours = rest + best.translation_cycles.data[end]
            assert ours <= 1.01 * (rest + single.translation_cycles.data[end])


def test_the_place_file_gives_what_was_said(advised: Advised, three: Path, tmp_path: Path) -> None:
    file = tmp_path / "three.place"
    file.write_text(place_file(advised))
    out = tmp_path / "placed.json"
    arguments = ["-m", "origin-2000", "--place", str(file), "--json", str(out)]
    assert main(["run", str(three), "-q", *arguments]) == 0
    found, best = json.loads(out.read_text()), advised.data["best"]
    assert found["walks"]["cold"] == best["cold_misses"]
    assert found["walks"]["walks"] == best["misses"] + best["cold_misses"]
    assert found["memory"]["frames_peak_bytes"] == best["memory_bytes"]
    assert found["time"]["translation_cycles"] == best["translation_cycles"]


def test_sets_gain_more_with_more_memory(advised: Advised) -> None:
    sets = advised.sets
    assert sets and sets == sorted(sets, key=lambda run: run.memory_added_bytes)
    costs = [run.data["translation_cycles"]["hi"] for run in sets]
    assert costs == sorted(costs, reverse=True)
    assert sum(run.data == advised.data["best"] for run in sets) <= 1


def test_milliseconds_are_the_native_runs_share(advised: Advised, three: Path) -> None:
    native = Machine("origin-2000").run(three).native
    best = advised.best
    assert native is not None and native.translation_ms is not None
    assert best is not None and best.gain_ms is not None and best.gain_cycles is not None
    for end in ("lo", "hi"):
        cycles = best.gain_cycles.data[end] / advised.base.data["translation_cycles"][end]
        assert best.gain_ms.data[end] == pytest.approx(native.translation_ms.data[end] * cycles)


def _cost(run: dict[str, Any]) -> float:
    cycles = run["translation_cycles"]
    return float(cycles["lo"] + cycles["hi"]) / 2


def _is_as_good(quick: Advised, exact: Advised) -> None:
    """The quick answer fits and saves what the exact one does, to 5 % of the translation."""
    base, limit = quick.data["base"], quick.memory_added_max * quick.base.memory_bytes
    assert base == exact.data["base"] and quick.runs <= 6
    ours, best = (one.data["best"] or base for one in (quick, exact))
    assert ours["memory_added_bytes"] <= limit
    assert _cost(ours) <= _cost(best) + 0.05 * _cost(base), (ours["rules"], best["rules"])


def test_the_quick_answer_is_as_good_as_the_exact_one(advised: Advised, three: Path) -> None:
    quick = advise(three, "origin-2000")
    _is_as_good(quick, advised)
    found = {region.name.split()[0]: region for region in quick.regions}
    # Which of these sizes saves most depends on where the kernel has placed the table.
    assert found["make_table"].size in ("1M", "4M", "16M") and found["make_sparse"].size is None
    assert found["make_sparse"].together["1M"].memory_added_bytes > 200 << 20
    assert "adds" in found["make_sparse"].reason or "no size" in found["make_sparse"].reason
    assert not any(region.alone for region in quick.regions)


@pytest.mark.parametrize("machine", ["epyc-9005", "origin-2000"])
def test_quick_and_exact_agree_on_random_mixes(machine: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(3):
        programs = [
            f"[generate:{chance.choice(['uniform', 'zipf', 'strided'])},"
            f"accesses={chance.choice([5, 20, 60])}k,size={chance.choice([1, 4, 16, 48])}M,"
            f"seed={chance.randrange(100)}]"
            for _ in range(chance.randrange(1, 5))
        ]
        spec = f"mix:cpus=1,{','.join(programs)}"
        print(spec)
        more = chance.choice([0.0, 0.05, 0.5])
        both = [
            advise(spec, machine, memory_added_max=more, exact=exact) for exact in (False, True)
        ]
        _is_as_good(*both)


MANY = r"""
#define _GNU_SOURCE
#include <sys/mman.h>

enum { BYTES = 2 << 20, COUNT = 48 };
static volatile char *buffers[COUNT];

int main(void) {
    unsigned random = 1;
    for (int at = 0; at < COUNT; at++) {
        buffers[at] = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (unsigned page = 0; page < BYTES; page += 4096) buffers[at][page] = 1;
    }
    for (int round = 0; round < 60000; round++) {
        random = random * 1664525 + 1013904223;
        buffers[(random >> 8) % COUNT][(random >> 6) % BYTES]++;
    }
    return 0;
}
"""


def test_mappings_that_are_alike_are_one_group(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or pytest.fail("gcc is missing: see `make tools`")
    (tmp_path / "many.c").write_text(MANY)
    subprocess.run([compiler, "-O1", "-o", tmp_path / "many", tmp_path / "many.c"], check=True)
    path = tmp_path / "many.pwt"
    Recording([str(tmp_path / "many")]).record(path)
    lines: list[str] = []
    quick = advise(Trace(path, spread=2 << 20), "epyc-9005", early=lines.append)
    buffers = [region for region in quick.regions if region.group == 0]
    assert len(buffers) == 48 and {region.size for region in buffers} == {"2M"}
    assert quick.best is not None and len(quick.best.rules) == 48 and quick.runs <= 3
    assert quick.misses_left_out < 0.01 * (quick.base.misses + quick.base.cold_misses)
    assert "48 regions" in lines[0] and "2M for all of them saves" in lines[1]
    shown = placed.summary(quick.data)
    assert "and 47 alike: 2M" in shown and "regions with" in shown
    assert max(map(len, shown.splitlines())) <= 80
    exact = advise(Trace(path, spread=2 << 20, max_accesses=60000), "epyc-9005", exact=True)
    _is_as_good(advise(Trace(path, spread=2 << 20, max_accesses=60000), "epyc-9005"), exact)


def test_that_no_large_page_fits_is_said() -> None:
    """A region with room for a page whose address has none at a multiple of its size."""
    regions = [{"name": "a", "start": 0x1000, "bytes": 2 << 20, "misses": 10, "cold_misses": 1}]
    common = {"rights": "rw-", "backing": "anonymous", "walk_cycles": 5}
    row = {**regions[0], **common, "place": "a", "touched_bytes": 4096}
    found = page_size_groups.groups([row], 1, alike=True)
    results = {
        "regions": [{**regions[0], **common}],
        "origins": {"misses": [[None, 0, None, None, 4096, 10, 1]]},
        "machine": {"description": {"os": {}}},
    }
    assert page_size_groups.parts(results, found) == [page_size_groups.Part(10, 1, 4096, 0, 5)]


def test_text_and_page_have_all_runs(advised: Advised) -> None:
    shown = placed.summary(advised.data)
    assert max(map(len, shown.splitlines())) <= 80
    assert "What to write" in shown
    page = placed.render(advised.data)
    for region in advised.regions:
        assert region.name in page and region.reason in page


def test_the_command_writes_place_file_json_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / f"uniform.{name}" for name in ("place", "json", "html")}
    outputs = [
        "-o",
        str(files["place"]),
        "--json",
        str(files["json"]),
        "--html",
        str(files["html"]),
    ]
    command = ["advise", SPEC, "-m", "origin-2000"]
    assert main([*command, *outputs]) == 0
    assert files["place"].read_text().splitlines()[-1].endswith("= 16M  # uniform")
    document = json.loads(files["json"].read_text())
    assert document["schema"] == 1 and document["regions"][0]["size"] == "16M"
    assert "16M for uniform" in capsys.readouterr().out
    assert main([*command, *outputs]) == 2
    assert "uniform.place exists" in capsys.readouterr().err


def test_on_x86_the_2m_of_madvise_are_advised(three: Path, tmp_path: Path) -> None:
    advised = advise(three, "epyc-9005", exact=True)
    found = {region.name.split()[0]: region for region in advised.regions}
    table, sparse = found["make_table"], found["make_sparse"]
    assert table.size == "2M" and sparse.size is None
    assert {size for region in advised.regions for size in region.alone} == {"2M"}
    assert sparse.alone["2M"].memory_added_bytes > 240 << 20
    assert "p = aligned_alloc(2097152, 67108864)" in (table.write or "")
    array = found.get("make_array")
    assert array is None or array.misses < 0.05 * table.misses
    file, out = tmp_path / "three.place", tmp_path / "placed.json"
    file.write_text(place_file(advised))
    arguments = ["-m", "epyc-9005", "--place", str(file), "--json", str(out)]
    assert main(["run", str(three), "-q", *arguments]) == 0
    run, best = json.loads(out.read_text()), advised.data["best"]
    assert run["walks"]["walks"] == best["misses"] + best["cold_misses"]
    assert run["memory"]["frames_peak_bytes"] == best["memory_bytes"]
    assert run["time"]["translation_cycles"] == best["translation_cycles"]
    # All of a walk may be hidden behind other work, so that the least of the gain is nothing.
    assert advised.data["base"]["translation_cycles"]["lo"] == 0
    assert best["gain_ms"]["lo"] == 0
    # Where time is counted in ticks, all of a run this short may count as the kernel's.
    native = json.loads(three.with_suffix(".native.json").read_text())
    assert (best["gain_ms"]["hi"] > 0) == (native["user_seconds"] > 0)


KINDS = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

enum { BYTES = 32 << 20 };
static volatile char *map(int flags, int file) {
    return mmap(0, BYTES, PROT_READ | PROT_WRITE, flags, file, 0);
}
static unsigned random_ = 1;
static void use(volatile char *p) {
    for (unsigned at = 0; at < BYTES; at += 4096) p[at] = 1;
    for (int round = 0; round < 40000; round++) {
        random_ = random_ * 1664525 + 1013904223;
        p[(random_ >> 4) % BYTES]++;
    }
}
int main(int count, char **arguments) {
    FILE *file = fopen(arguments[count - 1], "r+");
    if (!file) return 1;
    use(map(MAP_SHARED | MAP_ANONYMOUS, -1));
    use(map(MAP_PRIVATE | MAP_ANONYMOUS, -1));
    use(map(MAP_SHARED, fileno(file)));
    return 0;
}
"""


def test_advice_follows_what_a_mapping_is(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or pytest.fail("gcc is missing: see `make tools`")
    (tmp_path / "kinds.c").write_text(KINDS)
    subprocess.run([compiler, "-O1", "-o", tmp_path / "kinds", tmp_path / "kinds.c"], check=True)
    with (tmp_path / "file").open("wb") as file:
        file.truncate(32 << 20)
    trace = tmp_path / "kinds.pwt"
    program = [str(tmp_path / "kinds"), str(tmp_path / "file")]
    assert Recording(program).record(trace)["exit_status"] == 0
    advised = advise(trace, "epyc-9005")
    found = {region.backing: region for region in advised.regions}
    shared, private, file = (found[kind] for kind in ("shared-memory", "anonymous", "shared-file"))
    assert shared.size == private.size == "2M" and file.size is None
    assert "MADV_COLLAPSE" in (shared.write or "") and "shmem_enabled" in (shared.write or "")
    assert "before it is touched: madvise(p, 33554432, MADV_HUGEPAGE)" in (private.write or "")
    assert file.write is None and file.reason.startswith("Linux gives large pages to no ")
    assert advised.best is not None and len(advised.best.rules) == 2
    shown = placed.summary(advised.data)
    assert max(map(len, shown.splitlines())) <= 80 and "shmem_enabled" in shown
    assert "shmem_enabled" in placed.render(advised.data)


GROWN = r"""
#include <vector>

struct Table {
    std::vector<unsigned long> rows;
    __attribute__((noinline)) void grow(unsigned long count) {
        for (unsigned long at = 0; at < count; at++)
            rows.push_back(at);
    }
};
int main() {
    Table table;
    table.grow(1 << 22);
    unsigned long random = 1, sum = 0;
    for (int round = 0; round < 200000; round++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        sum += table.rows[random >> 42];
    }
    return sum == 1;
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="tables are followed on x86-64")
def test_the_users_line_is_found_in_optimised_cpp(tmp_path: Path) -> None:
    """What grows a vector is no function of the user's, and has no frame pointer."""
    compiler = shutil.which("g++") or pytest.fail("g++ is missing: see `make tools`")
    source = tmp_path / "grown.cpp"
    source.write_text(GROWN)
    subprocess.run([compiler, "-g", "-O2", "-o", tmp_path / "grown", source], check=True)
    trace = tmp_path / "grown.pwt"
    Recording([str(tmp_path / "grown")], allocations=True).record(trace)
    advised = advise(trace, "epyc-9005")
    region = max(advised.regions, key=lambda region: region.misses)
    assert region.name.startswith("Table::grow (grown.cpp:8)"), region.name
    assert (region.write or "").startswith(f"{source}:8 (by new_allocator.h:"), region.write
    assert (region.write or "").endswith("a std::pmr::vector on LargePages")
    assert "class LargePages" in (region.code or "")
    shown = placed.summary(advised.data)
    assert "class LargePages" in shown and max(map(len, shown.splitlines())) <= 80
    assert "class LargePages" in placed.render(advised.data)


def test_on_linux_the_2m_of_madvise_are_advised(three: Path) -> None:
    changes = {"os.manager": "linux", "os.linux.enabled": "madvise"}
    found = advise(three, "epyc-9005", set=changes).regions
    sizes = {region.name.split()[0]: region.size for region in found}
    assert sizes["make_table"] == "2M" and sizes["make_sparse"] is None


def test_nodes_are_in_results_text_and_report() -> None:
    numa = {"memory.numa": "{nodes=2}", "os.numa": "{migrate_after=4}"}
    uniform, strided = (
        f"[generate:{name},accesses=40k,size=8M]" for name in ("uniform", "strided")
    )
    spec = f"mix:cpus=2,{uniform},{strided}"
    results = Machine("origin-200qc", numa).run(spec)
    found = results.data["numa"]
    assert found["local_misses"] == results.data["walks"]["walks"] and not found["remote_misses"]
    assert results.numa is not None and results.numa.nodes[1].processors == [1]
    placed = {**numa, "os.place": "region uniform=16K node 1"}
    moved = Machine("origin-200qc", placed).run(spec).data
    assert moved["numa"]["migration"]["pages"] > 0
    shown = " ".join(summary.summary(moved).split())
    assert (
        "of the misses were of another node's pages" in shown and "moved to another node" in shown
    )
    assert "Nodes of memory" in page.render(data.report([moved]))
    assert "numa" not in Machine("origin-200qc").run("generate:uniform,accesses=9").data


@pytest.mark.parametrize(("machine", "size"), [("origin-2000", "1M"), ("epyc-9005", "2M")])
def test_a_rule_may_name_the_line_that_allocates(three: Path, machine: str, size: str) -> None:
    def large(place: str) -> tuple[int, int]:
        """Large pages that were made, and all walks."""
        data = Machine(machine, {"os.place": place}).run(three).data
        if machine == "epyc-9005":
            return data["memory"]["pages_by_size"][size], data["walks"]["walks"]
        made = [one["pages"] for one in data["manager"]["sizes"] if one["got"] == size]
        return sum(made), data["walks"]["walks"]

    base = Machine(machine).run(three).data["walks"]["walks"]
    pages, walks = large(f"site three.c:5={size}")
    # 64 MiB, but for the ends, and 8 MiB more.
    assert (62 << 20) <= pages * bytes_of(size) <= 64 << 20
    assert walks < 0.5 * base
    assert large(f"site three.c:5={size},site three.c:6={size}")[0] > pages
    with pytest.raises(Error, match=r"allocated at three\.c:1 \(recorded only with --allocations"):
        Machine(machine, {"os.place": f"site three.c:1={size}"}).run(three)


def test_on_line_promotion_is_in_results_text_and_report() -> None:
    asked = {"os.promotion": "{page_cycles=20,miss_cycles=40}"}
    results = Machine("origin-2000", asked).run("generate:uniform,accesses=30k,size=8M")
    found = results.data["promotion"]
    assert found["counting_cycles"] == 30 * found["misses"] > 0
    assert results.data["time"]["kernel"]["by_work"]["counting"] == found["counting_cycles"]
    made = {of["size"]: of["promoted"] for of in found["sizes"] if of["promoted"]}
    assert made and "made after" in " ".join(summary.summary(results.data).split())
    document = results.data
    assert "On-line promotion: " in page.render(data.report([document]))
    assert "promotion" not in Machine("origin-2000").run("generate:uniform,accesses=9").data


def test_without_a_machine_it_takes_that_of_this_computer(pagewalk, tmp_path, monkeypatch) -> None:
    processor = here.processor()
    assert here.at_hand(tmp_path) == next(
        iter(here.fitting(here.BUILT_IN, processor, tmp_path)), DEFAULT
    )
    if processor is None:
        pytest.skip("this system does not say which processor it has")
    [machine] = [one for one in machines() if one.name == DEFAULT]
    (tmp_path / "mine.toml").write_text(f"{processor.comment()}\n{machine.text}")
    monkeypatch.chdir(tmp_path)
    assert here.at_hand() == "mine.toml", "a calibrated file comes before a built-in machine"
    done = pagewalk("advise", "generate:uniform,accesses=20k,size=16M")
    assert done.returncode == 0, done.stderr
    assert "no machine is given: mine.toml, which has this computer's processor" in done.stderr
    assert "on mine: 2M for" in done.stdout.splitlines()[0]
    assert done.stdout.index("What to write") < done.stdout.index("Sets (*: advised)")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "freebsd-2009"], "choose a machine whose os.manager is irix, first-touch or"),
        (["-m", "epyc-9005", "--set", "os.manager=linux"], "os.linux.enabled must be madvise"),
        (["-m", "epyc-9005", "--set", "os.page_size=2M"], "has pages of 2M for all memory"),
        (["-m", "r4700"], "hold pages of one size: nothing to advise"),
        (["-m", "origin-2000", "--set", "os.place=data=64K"], "leave os.place and --place out"),
        (["-m", "origin-2000", "--max-memory", "5"], "write a percentage, as in +5%"),
        (["-m", "origin-2000", "--max-memory", "-5%"], "expected one argument"),
    ],
)
def test_what_cannot_be_advised_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", SPEC, *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("heap = 64K\nstack = 64K sideways\n", ": line 2: `stack = 64K sideways`: the word"),
        ("heap = 2M\n", ": line 1: this machine has no pages of 2M: write one of 16K, 64K"),
        ("data=64K\nrange 0..9=64K, range 5..7=1M\n", ": line 2: `range 5..7=1M` overlaps with"),
        (
            "region nowhere = 64K\n",
            ": line 1: no mapping is the region nowhere: `pagewalk info",
        ),
        ("mmap = 64K node 1\n", ": line 1: the machine has only one memory node: write [memory"),
    ],
)
def test_a_wrong_place_file_is_named_with_its_line(
    rules: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.place"
    file.write_text(rules)
    assert main(["run", SPEC, "-q", "-m", "origin-2000", "--place", str(file)]) in (1, 2)
    complaint = " ".join(capsys.readouterr().err.split())
    assert f"error: {file}{words}" in complaint


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("data=8K", "--place data=8K: this machine has no pages of 8K: write one of 16K, 64K"),
        ("region nowhere=64K", "--place region nowhere=64K: no mapping is the region"),
        ("data=64K\nheap=1M,data=16K", "--place data=64K; heap=1M,data=16K: line 2: `data=16K` ov"),
    ],
)
def test_a_wrong_rule_is_named_as_it_was_given(
    rules: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", SPEC, "-q", "-m", "origin-2000", "--place", rules]) in (1, 2)
    assert f"error: {words}" in " ".join(capsys.readouterr().err.split())


def test_a_share_below_nothing_is_refused() -> None:
    with pytest.raises(Error, match="share of 0 or more"):
        advise(SPEC, "origin-2000", memory_added_max=-1)


def test_a_preloaded_library_places_natively(tmp_path: Path) -> None:
    """What `placed.py` compares: an advised heap, and one that is laid out alike."""
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no transparent huge pages")
    library = tmp_path / "place.so"
    source = Path(__file__).with_name("place.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)

    def heap(place: str) -> tuple[int, bool]:
        """Bytes of the heap, and whether one of its parts is advised."""
        environment = {"PAGEWALK_PLACE": place, "LD_PRELOAD": str(library)}
        command = ["cat", "/proc/self/smaps"]
        shown = subprocess.check_output(command, text=True, env=environment)
        parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", shown, flags=re.MULTILINE)
        heaps = [part for part in parts if "[heap]" in part.partition("\n")[0]]
        ends = [[int(end, 16) for end in part.split()[0].split("-")] for part in heaps]
        flags = [part.partition("VmFlags:")[2].split() for part in heaps]
        return sum(end - start for start, end in ends), any("hg" in each for each in flags)

    assert heap("heap=64M")[0] >= 64 << 20
    assert heap("heap=64M")[1]
    size, is_advised = heap("heap=64M,plain=1")
    assert size >= 64 << 20
    assert not is_advised
    assert heap("")[0] < 4 << 20
