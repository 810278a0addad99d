import pytest

from pagewalk import Error, PageTable, WorkError
from pagewalk.page_table import READ, WRITE

PAGE = 4096
FORMATS = [
    "x86-64",
    "mpt",
    "guarded",
    "guarded-adaptive",
    "hashed",
    "clustered",
    "elastic-cuckoo",
    "sparc-reference",
]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_space_gives_back_all_that_it_took(format_: str) -> None:
    bench = PageTable("r4700", {"page_table.format": format_})
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
        bench = PageTable("r4700", {"page_table.format": "hashed", "page_table.table": table})
        made[table] = bench.create()[1]
    assert made["8K"].initialised_bytes + 8 * made["8K"].writes >= 8 << 10 >> 2
    assert made["128K"].cycles > 10 * made["8K"].cycles
    assert made["128K"].table_bytes == 128 << 10


@pytest.mark.parametrize(("format_", "levels"), [("mpt", 6), ("x86-64", 4)])
def test_an_operation_descends_from_the_root_where_no_table_is_remembered(
    format_: str, levels: int
) -> None:
    reads = {}
    for remembers in ("true", "false"):
        settings = {"page_table.format": format_, "page_table.remembers_leaf": remembers}
        bench = PageTable("r4700", settings)
        space, _ = bench.create()
        pages = [page * PAGE for page in range(8)]
        bench.map(space, pages)
        reads[remembers] = bench.protect(space, [(page, PAGE) for page in pages], READ).reads
    assert reads["false"] >= reads["true"] + 7 * (levels - 2)
    with pytest.raises(Error, match="guarded has no remembers_leaf"):
        PageTable("r4700", {"page_table.format": "guarded", "page_table.remembers_leaf": "false"})


def test_a_placement_moves_frames_and_a_seed_is_enough_to_move_them_back() -> None:
    def cycles(seed: int) -> list[int]:
        settings = {"page_table.format": "mpt", "memory.placement": seed}
        bench = PageTable("r4700", settings)
        spaces = [bench.create()[0] for _ in range(8)]
        pages = [0x40_0000, 0x4000_0000, 0x7FFF_F000, 0x2AAA_AAAA_B000]
        for space in spaces:
            bench.map(space, pages)
        return [bench.walk(space, pages).cycles for space in spaces for _ in range(2)]

    assert cycles(1) == cycles(1)
    assert len({tuple(cycles(seed)) for seed in range(1, 10)}) > 1


def test_instructions_are_those_of_what_was_done() -> None:
    """`kernel_path.rs` has the counts: 5 for a read, 2 for a write or for 32 bytes initialised.

    A node of a mapping list takes 6.
    """
    settings = {"page_table.format": "mpt", "page_table.remembers_leaf": "false"}
    bench = PageTable("r4700", settings)
    space, made = bench.create()
    assert made.instructions == 60 + made.initialised_bytes // 32 * 2
    mapped = bench.map(space, [PAGE])
    around = 5 * mapped.reads + 2 * mapped.writes
    assert mapped.instructions == 100 + 6 + around + mapped.initialised_bytes // 32 * 2
    # The 44 instructions of the handler's path through six levels make six references.
    assert bench.walk(space, [PAGE]).instructions == 44 - 6
    less = bench.protect(space, [(PAGE, PAGE)], READ)
    assert less.instructions == 60 + 3 + 7 + 5 * less.reads + 2 * less.writes
    # Adding rights needs no flush.
    more = bench.protect(space, [(PAGE, PAGE)], READ | WRITE)
    assert more.instructions == 60 + 3 + 5 * more.reads + 2 * more.writes


def test_the_same_operations_without_a_meter_take_time_and_no_counts() -> None:
    bench = PageTable("r4700", {"page_table.format": "guarded"}, metered=False)
    space, _ = bench.create()
    work = bench.map(space, [PAGE, 5 * PAGE])
    assert work.nanoseconds > 0 and work.reads == work.cycles == work.instructions == 0


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(Error, match="tlb-only has no page table"):
        PageTable("tlb-only")
    bench = PageTable("r4700")
    with pytest.raises(WorkError, match="no space 3"):
        bench.destroy(3)
    space, _ = bench.create()
    bench.map(space, [PAGE])
    with pytest.raises(WorkError, match=r"0x1000: .*mapped"):
        bench.map(space, [PAGE])
    with pytest.raises(WorkError, match="0x1000"):
        bench.unmap(space, [(PAGE, 100)])


def test_pages_are_handed_on_and_restricted() -> None:
    bench = PageTable("r4700")
    (server, _), (client, _) = bench.create(), bench.create()
    bench.map(server, [PAGE, 2 * PAGE])
    handed = bench.hand(server, client, [PAGE, 2 * PAGE], READ | WRITE)
    assert handed.instructions > 2 * 100, "each by an IPC"
    both = bench.restrict(server, [(PAGE, 2 * PAGE)], READ)
    again = bench.restrict(server, [(PAGE, 2 * PAGE)], READ)
    assert again.writes < both.writes, "nothing is left to take"
    given = bench.hand(server, client, [PAGE], READ | WRITE)
    assert given.writes > again.writes
    with pytest.raises(Error, match="0x1000"):
        bench.map(client, [PAGE])
