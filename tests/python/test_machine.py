from pathlib import Path

import pytest

import pagewalk
from pagewalk.summary import summary

UNIFORM = "generate:uniform,size=64M,accesses=300k,seed=3"


def without_names(data: dict) -> dict:
    return {**data, "trace": {**data["trace"], "name": None}}


def test_every_builtin_machine_runs_checked_and_says_where_its_numbers_are_from() -> None:
    machines = pagewalk.machines()
    names = {machine.name for machine in machines}
    assert {"opteron-2008", "r4700", "tlb-only"} <= names and len(names) >= 5
    for machine in machines:
        assert machine.title and machine.source
        results = pagewalk.Machine(machine.name).run(f"{UNIFORM},bits=32", check=True)
        assert sum(results.data["accesses"].values()) == 300_000
        assert results.data["checked"]


def test_two_runs_count_the_same(recorded: Path) -> None:
    for name in ("opteron-2008", "tlb-only"):
        machine = pagewalk.Machine(name)
        assert machine.run(recorded).data == machine.run(recorded).data


def test_a_check_changes_no_count(recorded: Path) -> None:
    machine = pagewalk.Machine("opteron-2008")
    plain, checked = machine.run(recorded).data, machine.run(recorded, check=True).data
    assert {**plain, "checked": True} == checked


def test_the_tlb_counts_are_those_of_a_slow_model(recorded: Path) -> None:
    """A fully associative LRU list, over every data access of a recorded program."""
    settings = {
        "tlb.l1d.entries": 16, "tlb.l1d.ways": "full", "tlb.l1d.replacement": "lru"
    }  # fmt: skip
    results = pagewalk.Machine("tlb-only", set=settings).run(recorded)
    found = next(tlb for tlb in results.data["tlbs"] if tlb["name"] == "l1d")
    lookups = misses = 0
    held: list[int] = []
    for batch in pagewalk.Trace(recorded).batches():
        columns = zip(
            batch["addr"].to_pylist(),
            batch["size"].to_pylist(),
            batch["kind"].to_pylist(),
            strict=True,
        )
        for addr, size, kind in columns:
            if kind == "fetch":
                continue
            for page in range(addr >> 12, (addr + max(size, 1) - 1 >> 12) + 1):
                lookups += 1
                if page in held:
                    held.remove(page)
                else:
                    misses += 1
                    del held[15:]
                held.insert(0, page)
    assert (found["lookups"], found["misses"]) == (lookups, misses)


def test_settings_change_the_machine_and_its_digest() -> None:
    plain = pagewalk.Machine("tlb-only")
    changed = pagewalk.Machine("tlb-only", set={"tlb.l1d.entries": 16, "tlb.l1d.ways": 4})
    assert changed.description["tlb"]["l1d"]["entries"] == 16
    assert plain.digest != changed.digest
    data = changed.run(UNIFORM).data
    assert data["machine"]["settings"] == ["tlb.l1d.entries=16", "tlb.l1d.ways=4"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["title"]),
        ("title = ", ["1"]),
        ("[tlb.l1]\nentries = 64\nwais = 4", ["wais", ":5:"]),
        ('[tlb.l1]\nentries = 64\n[cache.l1d]\nsize = "64 furlongs"', ["64 furlongs"]),
        ("[tlb.l1]\nentries = 63\nways = 2", ["63"]),
        ("[tlb.l1]\nentries = 0", ["entries"]),
        ('[tlb.l1]\nentries = 64\nreplacement = "psychic"', ["psychic"]),
    ],
)
def test_a_wrong_description_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "mine.toml"
    head = 'title = "Mine"\nsource = "me"\n' if text.startswith("[") else ""
    path.write_text(head + text)
    with pytest.raises(pagewalk.Error) as caught:
        pagewalk.Machine(path)
    message = str(caught.value)
    assert "mine.toml" in message and "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "setting", ["tlb.l1d.entrees=4", "tlb.l1d.entries", "tlb.l1d.entries=x", "=", "a=b"]
)
def test_a_wrong_setting_is_named(setting: str) -> None:
    with pytest.raises(pagewalk.Error) as caught:
        pagewalk.Machine("tlb-only", set=[setting])
    assert setting.split("=", maxsplit=1)[0] in str(caught.value)


def test_a_machine_that_is_none_names_those_there_are() -> None:
    with pytest.raises(pagewalk.Error, match="opteron-2008"):
        pagewalk.Machine("pdp-11")


def test_progress_can_stop_a_run() -> None:
    told: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None) -> bool:
        told.append((done, total))
        return len(told) < 3

    machine = pagewalk.Machine("tlb-only")
    with pytest.raises(pagewalk.Error):
        machine.run("generate:uniform,size=64M,accesses=2G", progress=progress)
    assert len(told) == 3 and told[0][0] < told[2][0] < told[0][1] == 2_000_000_000


def test_what_progress_raises_comes_through() -> None:
    def progress(done: int, total: int | None) -> bool:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        pagewalk.Machine("tlb-only").run("generate:uniform,size=64M,accesses=2G", progress=progress)


def test_a_run_holds_no_lock() -> None:
    import threading

    machine = pagewalk.Machine("tlb-only")
    counted = 0
    running = threading.Thread(target=machine.run, args=["generate:uniform,size=1G,accesses=20M"])
    running.start()
    while running.is_alive():
        counted += 1
        running.join(0.002)
    assert counted > 10


def test_mmu_caches_and_hosts_are_shown(tmp_path: Path) -> None:
    set_ = {
        "mmu_cache.design": "stc",
        "mmu_cache.entries": 4,
        "nested.page_size": "4K",
        "nested.tlb.entries": 8,
        "nested.mmu_cache.entries": 8,
        "os.page_size": "2M",
    }
    results = pagewalk.Machine("opteron-2008", set=set_).run(UNIFORM)
    shown = " ".join(summary(results.data).split())
    for line in ("MMU cache: stc, 4 + 4 + 4 entries", "Host: pages of 4K", "nested TLB: "):
        assert line in shown
    assert "MMU cache of the host: utc, 8 entries" in shown and "a part of it" in shown
    results.html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "entries of 27 bits of tag and 40 of data" in page
    assert "Host of the virtual machine" in page
