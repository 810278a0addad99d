import pytest

from pagewalk import Error, Workbench, WorkError

PAGE = 4096
FORMATS = ["x86-64", "mpt", "guarded", "guarded-adaptive", "hashed", "clustered", "elastic-cuckoo"]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_space_gives_back_all_that_it_took(format_: str) -> None:
    bench = Workbench("r4700", {"page_table.format": format_})
    empty = bench.footprint
    space, made = bench.create()
    mapped = bench.map(space, [page * PAGE for page in range(1, 200, 3)])
    assert mapped.reads > 0 and mapped.writes > 0 and mapped.cycles > mapped.misses
    seen = bench.walk(space, [PAGE, 100 * PAGE])
    assert 2 <= seen.reads <= 14 and seen.table_bytes == 0
    gone = bench.unmap(space, [(0, 50 * PAGE)])
    assert gone.table_bytes <= 0
    ended = bench.destroy(space)
    assert made.table_bytes + mapped.table_bytes + gone.table_bytes + ended.table_bytes == 0
    assert bench.footprint == empty


def test_what_a_new_space_initialises_is_what_its_format_needs() -> None:
    made = {}
    for table in ("8K", "128K"):
        bench = Workbench("r4700", {"page_table.format": "hashed", "page_table.table": table})
        made[table] = bench.create()[1]
    assert made["8K"].initialised_bytes + 8 * made["8K"].writes >= 8 << 10 >> 2
    assert made["128K"].cycles > 10 * made["8K"].cycles
    assert made["128K"].table_bytes == 128 << 10


def test_the_same_operations_without_a_meter_take_time_and_no_counts() -> None:
    bench = Workbench("r4700", {"page_table.format": "guarded"}, metered=False)
    space, _ = bench.create()
    work = bench.map(space, [PAGE, 5 * PAGE])
    assert work.nanoseconds > 0 and work.reads == work.cycles == 0


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(Error, match="tlb-only has no page table"):
        Workbench("tlb-only")
    bench = Workbench("r4700")
    with pytest.raises(WorkError, match="no space 3"):
        bench.destroy(3)
    space, _ = bench.create()
    bench.map(space, [PAGE])
    with pytest.raises(WorkError, match=r"0x1000: .*mapped"):
        bench.map(space, [PAGE])
    with pytest.raises(WorkError, match="0x1000"):
        bench.unmap(space, [(PAGE, 100)])
