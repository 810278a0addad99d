"""Where misses come from: regions, allocation sites, functions, lines, threads, page sizes."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pagewalk import Machine, Results, Trace, origins
from pagewalk._native import Error
from pagewalk.cli import main
from pagewalk.recording import PLUGINS, Recording

THREE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

static volatile char *make_table(void) { return malloc(64ul << 20); }
static volatile char *make_array(void) { return calloc(8ul << 20, 1); }
static volatile char *make_sparse(void) {
    return mmap(0, 256ul << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
__attribute__((noinline)) void probe(volatile char *table) {
    unsigned long at = 1;
    for (int i = 0; i < 20000; i++) {
        at = at * 6364136223846793005ul + 1442695040888963407ul;
        table[at >> 38]++; /* the probe */
    }
}
__attribute__((noinline)) void scan(volatile char *array) {
    for (unsigned long i = 0; i < 8ul << 20; i += 512) array[i]++;
}
int main(void) {
    volatile char *table = make_table(), *array = make_array(), *sparse = make_sparse();
    probe(table);
    scan(array);
    for (unsigned long i = 0; i < 256ul << 20; i += 1ul << 20) sparse[i]++;
    return 0;
}
"""
Compile = Callable[..., Path]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles a program in a folder of its own."""

    def made(source: str, *options: str, compiler: str = "gcc", name: str = "own") -> Path:
        found = shutil.which(compiler) or pytest.fail(f"{compiler} is missing: see `make tools`")
        folder = tmp_path_factory.mktemp("origins")
        file = folder / (f"{name}.cc" if compiler.endswith("++") else f"{name}.c")
        file.write_text(source)
        subprocess.run([found, *options, "-o", folder / name, file], check=True)
        return folder / name

    return made


def recorded(
    program: Path,
    machine: str = "epyc-9005",
    *,
    allocations: bool = False,
    engine: str = "auto",
) -> Results:
    """The results of a recording; all of its ways to tell misses apart add up."""
    trace = program.with_suffix(".pwt")
    recording = Recording([str(program)], allocations=allocations, engine=engine)
    outcome = recording.record(trace, force=True)
    assert outcome["exit_status"] == 0 and engine in {"auto", outcome["engine"]}
    results = Machine(machine).run(trace, check=True)
    for key in origins.KEYS:
        found = results.by(key)
        assert sum(one.misses for one in found) == results.data["walks"]["walks"], key
        assert sum(one.cold_misses for one in found) == results.data["walks"]["cold"], key
    return results


def misses(results: Results, key: str) -> dict[str, int]:
    return {origin.name: origin.misses for origin in results.by(key)}


@pytest.fixture(scope="module", params=["native", "qemu"])
def three(compiled: Compile, request: pytest.FixtureRequest) -> Results:
    program = compiled(THREE, "-g", "-O1", name="three")
    return recorded(program, allocations=True, engine=request.param)


def test_both_engines_find_the_same_sites(compiled: Compile) -> None:
    program = compiled(THREE, "-g", "-O1", name="both")
    found = []
    for engine in ("native", "qemu"):
        results = recorded(program, allocations=True, engine=engine)
        sites = results.data["origins"]["sites"]
        found.append(sorted((one["name"], one["allocations"], one["peak_bytes"]) for one in sites))
    assert found[0] == found[1]
    assert len(found[0]) >= 3


def test_regions_are_named_by_what_made_them(three: Results) -> None:
    found = {region["name"]: region for region in three.data["regions"] if "site" in region}
    assert {name: region["bytes"] >> 20 for name, region in found.items()} == {
        "make_table (three.c:6)": 64,
        "make_array (three.c:7)": 8,
        "make_sparse (three.c:9)": 256,
    }
    assert found["make_sparse (three.c:9)"]["pages"] == 256
    by_site = misses(three, "site")
    for name, region in found.items():
        assert by_site[name] == region["misses"]
        site = three.data["origins"]["sites"][region["site"]]
        assert (site["name"], site["allocations"]) == (name, 1)
        assert site["peak_bytes"] >> 20 == region["bytes"] >> 20


def test_info_has_the_names_of_a_run(compiled: Compile) -> None:
    program = compiled(THREE, "-g", "-O1", name="named")
    trace = program.with_suffix(".pwt")
    Recording([str(program)], allocations=True).record(trace)
    run = {region["name"] for region in Machine("tlb-only").run(trace).data["regions"]}
    info = {region["name"] for region in Trace(trace).info()["regions"]}
    assert {"make_table (named.c:6)", "make_array (named.c:7)", "make_sparse (named.c:9)"} <= info
    # A run reports only regions that were accessed; `info` also reports the others.
    assert run <= info


def test_without_marks_mappings_are_named_by_their_order(compiled: Compile) -> None:
    results = recorded(compiled(THREE, "-g", "-O1", name="plain"))
    found = {r["bytes"] >> 20: r["name"] for r in results.data["regions"] if r["bytes"] >= 8 << 20}
    assert {name.partition(" ")[0] for size, name in found.items() if size in (8, 64, 256)} == {
        "anonymous"
    }
    assert results.data["origins"]["sites"] == []
    assert misses(results, "function")["probe"] > 10_000


def test_functions_and_lines_of_what_missed(three: Results) -> None:
    by_function = {origin.name: origin for origin in three.by("function")}
    assert by_function["probe"].misses > 10_000
    assert by_function["probe"].mostly == "make_table (three.c:6)"
    assert by_function["scan"].misses >= 2048
    assert by_function["scan"].mostly == "make_array (three.c:7)"
    assert by_function["main"].misses >= 256
    line = 1 + THREE[: THREE.index("/* the probe")].count("\n")
    assert misses(three, "line")[f"three.c:{line} probe"] > 10_000
    assert misses(three, "thread") == {"thread 0": three.data["walks"]["walks"]}
    assert "pages of 4 KiB" in misses(three, "page-size")


def test_the_library_leaves_nothing_of_itself(three: Results, compiled: Compile) -> None:
    program = compiled(THREE, "-g", "-O1", name="own")
    traces = {}
    for allocations in (True, False):
        traces[allocations] = program.with_name(f"{allocations}.pwt")
        Recording([str(program)], allocations=allocations).record(traces[allocations])
    info = Trace(traces[True]).info()
    own = [r for r in info["regions"] if r["name"].startswith("pagewalk-allocations")]
    text = [region for region in own if region["name"].endswith("(r-x)")]
    assert text, "the library is loaded"
    assert all(sum(region["accesses"].values()) == 0 for region in text)
    assert info["events"]["allocate"] >= 3
    # What is left is the search for the functions that it hides, and its own relocation.
    more = sum(info["accesses"].values()) - sum(Trace(traces[False]).info()["accesses"].values())
    assert 0 < more < 60_000


@pytest.mark.parametrize("options", [("-no-pie",), ("-pie", "-fPIE"), ("-s",)], ids=lambda o: o[0])
def test_programs_of_all_kinds(compiled: Compile, options: tuple[str, ...]) -> None:
    results = recorded(compiled(THREE, "-g", "-O1", *options, name="kind"), allocations=True)
    by_function, sites = misses(results, "function"), misses(results, "site")
    if options == ("-s",):
        assert by_function["kind (no symbols)"] > 12_000
        assert any(name.startswith("kind+0x") and n > 10_000 for name, n in sites.items()), sites
    else:
        assert by_function["probe"] > 10_000
        assert sites["make_table (kind.c:6)"] > 10_000


def test_a_program_that_was_built_anew_has_no_names(compiled: Compile) -> None:
    program = compiled(THREE, "-g", "-O1", name="anew")
    trace = program.with_name("anew.pwt")
    Recording([str(program)]).record(trace)
    subprocess.run(["gcc", "-O2", "-o", program, program.with_suffix(".c")], check=True)
    results = Machine("epyc-9005").run(trace)
    assert misses(results, "function")["anew (no symbols)"] > 12_000
    assert any(
        "has changed since it was recorded" in line for line in results.data["origins"]["notes"]
    )
    program.unlink()
    notes = Machine("epyc-9005").run(trace).data["origins"]["notes"]
    assert any(str(program) in line and "cannot be read" in line for line in notes)


def test_code_has_names_only_where_they_are_asked_for(compiled: Compile) -> None:
    program = compiled(THREE, "-g", "-O1", name="asked")
    trace = program.with_name("asked.pwt")
    Recording([str(program)], allocations=True).record(trace)
    named, plain = (Machine("epyc-9005").run(trace, names=names).data for names in (True, False))
    sites = [[site["name"] for site in data["origins"]["sites"]] for data in (named, plain)]
    assert sites[0] == sites[1]
    assert named["regions"] == plain["regions"]
    assert any(place["function"] == "probe" for place in named["origins"]["code"])
    assert all(place["function"] is None for place in plain["origins"]["code"])


def test_the_summary_of_a_run_reads_no_debug_information(
    compiled: Compile, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = compiled(THREE, "-g", "-O1", name="unread")
    trace = program.with_name("unread.pwt")
    Recording([str(program)]).record(trace)
    # If a file has been removed, names in it cannot be found.
    program.unlink()
    for more, looks in (([], False), (["--by", "function"], True)):
        assert main(["run", str(trace), "-m", "tlb-only", *more]) == 0
        assert ("cannot be read" in capfd.readouterr().err) == looks
    assert main(["run", str(trace), "-m", "tlb-only", "--json", str(tmp_path / "json")]) == 0
    notes = json.loads((tmp_path / "json").read_text())["origins"]["notes"]
    assert any("cannot be read" in note for note in notes)


CPP = r"""
#include <vector>
namespace store {
struct table {
    std::vector<long> rows;
    __attribute__((noinline)) void grow(unsigned long n) { rows.resize(n); rows[0] = 0; }
    __attribute__((noinline)) long sum() const {
        long all = 0;
        for (unsigned long i = 0; i < rows.size(); i += 512) all += rows[i];
        return all;
    }
};
}
int main() {
    store::table one;
    one.grow(4ul << 20);
    long *two = new long[1ul << 20];
    for (unsigned long i = 0; i < 1ul << 20; i += 512) two[i] = 1;
    return one.sum() == 0 ? 0 : 1;
}
"""


@pytest.mark.parametrize("options", [("-O0",), ("-O2", "-fno-omit-frame-pointer")])
def test_cpp_is_demangled_and_new_is_a_site(compiled: Compile, options: tuple[str, ...]) -> None:
    program = compiled(CPP, "-g", *options, compiler="g++", name="store")
    results = recorded(program, "opteron-2008", allocations=True)
    sites = misses(results, "site")
    assert sites["store::table::grow (store.cc:6)"] >= 4096, sites
    assert sites["main (store.cc:17)"] >= 2048, sites
    assert any(name.startswith("store::table::sum") for name in misses(results, "function"))


REUSE = r"""
#include <malloc.h>
#include <stdlib.h>
enum { BYTES = 4 << 20 };
static void touch(volatile char *at) { for (int i = 0; i < BYTES; i += 4096) at[i]++; }
__attribute__((noinline)) char *first(void) { char *p = malloc(BYTES); return p; }
__attribute__((noinline)) char *second(void) { char *p = malloc(BYTES); return p; }
__attribute__((noinline)) char *third(char *p) { p = realloc(p, 8 * BYTES); return p; }
int main(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    char *a = first();
    touch(a);
    free(a);
    char *b = second();
    if (a != b) return 1;
    touch(b); touch(b);
    char *wall = malloc(16);
    char *c = third(b);
    if (c == b || !wall) return 2;
    touch(c); touch(c); touch(c); touch(c);
    return 0;
}
"""


def test_an_address_is_of_the_site_that_has_it(compiled: Compile) -> None:
    program = compiled(REUSE, "-g", "-O1", name="reuse")
    results = recorded(program, "opteron-2008", allocations=True)
    sites = misses(results, "site")
    # These are the blocks that the program frees and those that `realloc` moves.
    assert Trace(program.with_suffix(".pwt")).info()["events"]["free"] >= 2
    pages = (4 << 20) // 4096
    # The TLB has 512 entries: each pass over 1024 pages misses on all, and so does the copy.
    # A block's first page is that of its header, which was just written.
    assert sites["first (reuse.c:6)"] == pytest.approx(pages, abs=20)
    # The C library copies forwards or backwards, as the addresses are. Backwards, a quarter of the
    # pages is still in the TLB for the loads of the copy, and a quarter for the pass that follows.
    assert 2.7 * pages < sites["second (reuse.c:7)"] < 3 * pages + 20
    assert 3.7 * pages < sites["third (reuse.c:8)"] < 5 * pages + 20
    counts = {site.name: site for site in results.origins.sites}
    assert counts["third (reuse.c:8)"].peak_bytes == 32 << 20
    assert counts["first (reuse.c:6)"].bytes == 4 << 20


THREADS = r"""
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
enum { BYTES = 4 << 20 };
__attribute__((noinline)) char *own(void) { char *p = malloc(BYTES); return p; }
static void *work(void *unused) {
    (void)unused;
    volatile char *mine = own();
    for (int pass = 0; pass < 2; pass++) for (int i = 0; i < BYTES; i += 4096) mine[i]++;
    return 0;
}
int main(int argc, char **argv) {
    volatile char *before = own();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    int status = 0;
    if (argc > 1) return 0;
    if (fork() == 0) {
        for (int i = 0; i < BYTES; i += 4096) before[i]++;
        execl(argv[0], argv[0], "once", (char *)0);
        _exit(9);
    }
    wait(&status);
    return status != 0;
}
"""


def test_threads_forks_and_execs(compiled: Compile) -> None:
    program = compiled(THREADS, "-g", "-O1", "-pthread", name="family")
    results = recorded(program, "opteron-2008", allocations=True)
    assert len(results.data["trace"]["processes"]) == 2
    sites, pages = misses(results, "site"), (4 << 20) // 4096
    # Two threads in each of two programs, twice over their block; the child once over its parent's.
    assert sites["own (family.c:7)"] == pytest.approx(9 * pages, abs=40), sites
    assert sum(count > pages for count in misses(results, "thread").values()) >= 2


def test_a_static_program_is_refused_and_can_mark_itself(compiled: Compile) -> None:
    source = r"""
    #include <stdlib.h>
    #include "pagewalk.h"
    static char pool[8 << 20];
    __attribute__((noinline)) void *take(unsigned long bytes) {
        static unsigned long used;
        void *at = pool + used;
        used += bytes;
        pagewalk_allocated(at, bytes);
        return at;
    }
    int main(void) {
        volatile char *a = take(4 << 20);
        volatile char *b = take(2 << 20);
        for (int i = 0; i < 4 << 20; i += 4096) a[i]++;
        for (int i = 0; i < 2 << 20; i += 4096) b[i]++;
        pagewalk_freed((void *)b);
        return 0;
    }
    """
    import pagewalk

    include = f"-I{pagewalk.include()}"
    program = compiled(source, "-g", "-O1", "-static", include, name="static")
    with pytest.raises(Error, match="linked statically"):
        Recording([str(program)], allocations=True).record(program.with_name("none.pwt"))
    assert not program.with_name("none.pwt").exists()
    sites = misses(recorded(program), "site")
    assert sites["main (static.c:13)"] >= 1000 and sites["main (static.c:14)"] >= 500, sites


@pytest.mark.parametrize(
    ("compiler", "processor"),
    [
        ("i686-linux-gnu-gcc", "i386"),
        ("aarch64-linux-gnu-gcc", "aarch64"),
        ("riscv64-linux-gnu-gcc", "riscv64"),
    ],
)
def test_other_processors(compiled: Compile, compiler: str, processor: str) -> None:
    options = ("-g", "-O1", "-fno-omit-frame-pointer")
    program = compiled(REUSE, *options, compiler=compiler, name=processor)
    results = recorded(program, "opteron-2008", allocations=True)
    sites = misses(results, "site")
    assert sites[f"first ({processor}.c:6)"] == pytest.approx(1024, abs=20), sites
    assert sites[f"second ({processor}.c:7)"] == pytest.approx(3 * 1024, abs=20), sites
    (first,) = (one for one in results.origins.sites if one.name.startswith("first"))
    assert [frame.function for frame in first.stack[:2]] == ["first", "main"]
    line = 1 + REUSE[: REUSE.index("static void touch")].count("\n")
    assert any(f"{processor}.c:{line}" in name for name in misses(results, "line"))


def test_a_processor_without_a_library_is_refused(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for file in Path(PLUGINS).glob("pagewalk-recorder-*.so"):
        shutil.copy(file, tmp_path)
    (tmp_path / "pagewalk-allocations-riscv64.so").write_bytes(b"")
    monkeypatch.setattr("pagewalk.recording.PLUGINS", tmp_path)
    program = compiled(THREE, name="none")
    with pytest.raises(Error, match=r"not built for x86-64, only for riscv64"):
        Recording([str(program)], allocations=True).record(program.with_name("none.pwt"))


def test_live_runs_and_traces_without_fetches(
    compiled: Compile, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compiled(THREE, "-g", "-O1", name="live")
    monkeypatch.chdir(program.parent)
    command = ["run", "--allocations", "--by", "site", "--by", "function", "--", str(program)]
    assert main(command) == 0
    shown = capfd.readouterr().err
    assert "Misses by site" in shown and "make_table (live.c:6)" in shown
    assert "Misses by function" in shown and "probe" in shown
    assert main(["record", "--no-fetch", "-o", "data.pwt", "--", str(program)]) == 0
    assert main(["run", "data.pwt", "--by", "function", "--by", "thread"]) == 0
    shown = "".join(capfd.readouterr())
    assert "the trace has no fetches" in shown and "not known" in shown


def test_the_command(three: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "three.json"
    three.save(path)
    assert main(["origins", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "Misses by function" in shown and "mostly on" in shown and "Misses by site" in shown
    assert main(["origins", str(path), "--by", "line", "--by", "region", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    for key in ("line", "region"):
        assert sum(row["misses"] for row in document[key]) == three.data["walks"]["walks"]
    folded = tmp_path / "three.folded"
    assert main(["origins", str(path), "--folded", "line", "-o", str(folded)]) == 0
    stacks = dict(line.rsplit(" ", 1) for line in folded.read_text().splitlines())
    assert sum(map(int, stacks.values())) == three.data["walks"]["walks"]
    line = 1 + THREE[: THREE.index("/* the probe")].count("\n")
    assert int(stacks[f"three;probe;three.c:{line};make_table (three.c:6)"]) > 10_000
    assert main(["origins", str(path), "--folded", "site"]) == 0
    assert "make_table (three.c:6) " in capsys.readouterr().out
    assert main(["diff", str(path), str(path), "--by", "function"]) == 0
    assert "Misses by function" in capsys.readouterr().out
    for wrong, why in (
        (["--folded", "site", "--by", "line"], "in place of tables"),
        (["-o", "x"], "its name does not select a format"),
        (["--merge", "--by", "line"], "--merge needs"),
        (["--top", "0"], "shows no rows"),
    ):
        assert main(["origins", str(path), *wrong]) == 2
        assert why in capsys.readouterr().err


def test_results_without_origins_are_refused(three: Results, tmp_path: Path) -> None:
    data = {key: value for key, value in three.data.items() if key != "origins"}
    with pytest.raises(Error, match="do not record where misses come from"):
        Results(data).by("function")
    with pytest.raises(Error, match="choose one of region"):
        three.by("colour")
    with pytest.raises(Error, match="no folded stacks by thread"):
        three.folded("thread")


def test_the_report_has_functions_and_sites(three: Results) -> None:
    from pagewalk.report import data

    run = data.report([three.data]).runs[0]
    assert run.functions and run.sites
    assert run.functions.rows[0][0] == "probe"
    assert run.sites.rows[0][0] == "make_table (three.c:6)"


def document(regions: list[dict[str, object]], rows: list[list[int | None]]) -> Results:
    places = {"code": [], "sites": [], "misses": rows, "notes": []}
    trace = {"fetches": True, "filter": "none"}
    return Results({"regions": regions, "origins": places, "trace": trace})


def test_mappings_that_adjoin_are_joined_only_if_asked() -> None:
    regions = [
        {"name": f"anonymous {n}", "start": start, "bytes": 4096, "inferred": False}
        for n, start in ((1, 0), (2, 4096), (3, 8192), (4, 1 << 20))
    ]
    regions.append({"name": "stack", "start": (1 << 20) + 4096, "bytes": 4096, "inferred": False})
    rows: list[list[int | None]] = [[None, at, None, 0, 4096, 10 + at, 1] for at in range(5)]
    made = document(regions, rows)
    assert misses(made, "region") == {
        "anonymous 1": 10, "anonymous 2": 11, "anonymous 3": 12, "anonymous 4": 13, "stack": 14,
    }  # fmt: skip
    joined = {one.name: one.misses for one in made.by("region", merge=True)}
    assert joined == {"anonymous 1 to anonymous 3": 33, "anonymous 4": 13, "stack": 14}
