"""The results document with types: `make reference` writes it from the Rust structures.

A record reads from the plain data of the document, which stays as it is.
"""

from typing import Any, Generic, TypeVar

from pagewalk.records import Named, Record

T = TypeVar("T")


class Program(Record):
    """A program that a process runs."""

    arch: str
    """Its instruction set."""

    command: list[str]
    """The program and its arguments."""

    from_: int
    """The number of accesses of the process before this program."""


class Process(Record):
    """A process of a recording.

    It is the first one or begins by a `fork`, and continues to be the same process when it executes
    another program.
    """

    number: int
    """The number of the process in the recording; the first one is 0."""

    pid: int
    """The process id, which an earlier process may have had as well."""

    parent: int | None
    """The number of the process that forked it."""

    parent_accesses: int | None
    """The number of accesses of the parent before the fork; unknown if the recording was cut."""

    shares_space: bool
    """Whether it runs in its parent's space until it executes a program, as children of `vfork` and
    `posix_spawn` do.
    """

    began_ns: int
    """The time when it began, in nanoseconds of the recording's clock."""

    programs: list[Program]
    """The programs that it ran, one after the other; a child begins with its parent's program."""

    accesses: int
    """The number of its accesses, as far as it is known."""

    instructions: int
    """The number of instructions that these accesses count."""


class LiveSummary(Record):
    """How the accesses of a program came to the machine that ran beside."""

    counted_accesses: int
    """Accesses that were counted where the program runs, since they surely hit; all others were
    told. The results are the same.
    """

    because: str | None
    """Why none was counted."""

    lost: list[str]
    """What of the program is missing from all counts, and why."""


class TraceSummary(Record):
    """The trace that ran."""

    digest: str | None
    """SHA-256 of its contents, where it has one."""

    producer: str
    """Who made it."""

    command: list[str]
    """The command or the generator's parameters."""

    arch: str
    """The instruction set."""

    fetches: bool
    """Whether it has fetches."""

    filter: str
    """What was dropped before it was stored."""

    notes: list[str]
    """What its maker wants known."""

    processes: list[Process]
    """The processes of a recording, those with most accesses first."""

    live: LiveSummary | None
    """How the accesses of a program came that ran beside."""

    name: str
    """The name by which the trace was given."""


class MachineSummary(Record):
    """The machine that ran it."""

    name: str
    """Its name."""

    title: str
    """Its title."""

    source: str
    """Where it is described."""

    digest: str
    """SHA-256 of the description."""

    settings: list[str]
    """The settings that changed it."""

    description: dict[str, Any]
    """The description after the settings."""


class ByKind(Record, Generic[T]):
    """One value for each kind of access."""

    fetch: T
    """Of fetches."""

    load: T
    """Of loads."""

    store: T
    """Of stores."""


class Switches(Record):
    """Counts of a processor's switches from one program to another, for results."""

    order: str
    """What determined the order in which programs ran."""

    quantum_instructions: int | None
    """The number of instructions after which another program gets its turn; none if the recording
    alone determines the order.
    """

    cpus: int
    """The number of processors."""

    by_cause: dict[str, int]
    """Switches of a processor from one program to another, by their cause."""

    unexplained: int
    """Waits that were ended because no program was runnable: the recording lacks what they waited
    for.
    """


class BlockCounts(Record):
    """Entries for several adjacent pages of the smallest size."""

    kind: str
    """What an entry can hold: `complete-subblock`, `partial-subblock`, `coalesced` or `whole`."""

    pages: int
    """Pages of a block."""

    fills: int
    """Entries that were filled in."""

    pages_filled: int
    """Pages that these translated when they were filled in.

    Per fill this is what an entry covers.
    """

    tag_hits: int
    """Misses that found an entry of the block which did not translate the page."""


class HitsAndMisses(Record):
    """Lookups and what became of them."""

    lookups: int
    """Lookups."""

    hits: int
    """Those that found a translation."""

    misses: int
    """Those that did not."""


class SizeCounts(Record):
    """Hits and misses of one page size."""

    hits: int
    """Hits on entries of the size."""

    misses: int
    """Misses after which an entry of the size was filled in."""


class TlbCounts(Record):
    """What one TLB counted."""

    name: str
    """Its name in the machine file."""

    level: int
    """Its level, from 1."""

    serves: list[str]
    """The kinds of access that look it up."""

    entries: int
    """Entries of all its arrays."""

    ways: list[int]
    """Ways of each of its arrays."""

    replacement: list[str]
    """Replacement policy of each of its arrays."""

    lookups: int
    """Lookups."""

    hits: int
    """Those that found a translation."""

    misses: int
    """Those that did not."""

    cold_misses: int
    """Misses that ended in a first-touch fault."""

    denied: int
    """Misses that found an entry which does not allow the access. The entry goes."""

    invalid: int
    """Misses on a page that is the invalid half of a pair in the TLB."""

    evictions: int
    """Entries that made room for others."""

    flushed: int
    """Entries that the operating system flushed."""

    table_hits: int
    """Lookups of the walker for the page table itself that hit, apart from all others."""

    blocks: BlockCounts | None
    """Its entries of blocks of pages, if it has such."""

    by_kind: ByKind[HitsAndMisses]
    """Hits and misses by kind of access."""

    by_page_size: dict[str, SizeCounts]
    """Hits by the size of the translation found, misses by that of the one then filled in."""


class SpaceSwitches(Record):
    """Changes of the space that runs, on all processors. What each ran first is none."""

    switches: int
    """Switches."""

    root_loads: int
    """Loads of the base register, of CR3: at switches, and for small spaces that became large."""

    emptying: int
    """Switches after which TLBs held nothing of before but global entries, or nothing of a context
    that was taken over.
    """

    segment_loads: int
    """Loads of the segment registers."""

    cycles: int | None
    """Cycles of all that, where the machine has prices."""


class SwitchCycles(Record):
    """Cycles of a switch."""

    mean: float
    """Of all of them."""

    worst: int
    """Of the dearest."""


class SmallSpaceCounts(Record):
    """Small address spaces: what was done for them (U02 sections 2.2 and 5)."""

    slots: int
    """Slots."""

    slot_bytes: int
    """Bytes of each."""

    spaces: int
    """Spaces that ran."""

    small: int
    """Those that had a slot at some time."""

    switches: int
    """Switches."""

    root_loads: int
    """Loads of the base register: at switches, and for spaces that became large."""

    segment_loads: int
    """Switches that loaded segment registers."""

    copies: int
    """Entries of roots that were copied, at a fault each."""

    promoted: int
    """Spaces that reached beyond their slot and became large."""

    revoked: int
    """Slots that were taken from a space for another."""

    no_slot: int
    """Switches to spaces that would be small and got no slot."""

    roots_purged: int
    """Roots that were looked through for copies."""

    entries_purged: int
    """Copies that were emptied."""

    versions_compared: int
    """Slots whose version was compared when a root was loaded."""

    switch_cycles: SwitchCycles | None
    """Cycles of a switch with all that it had to do first, where the machine has prices."""


class TraceCacheCounts(Record):
    """What the trace cache is and did."""

    uops: int
    """Micro-ops that it has room for."""

    ways: int
    """Ways."""

    fetches: int
    """Fetches; those that went on to a TLB are `accesses.fetch`."""

    delivered: int
    """Those that it delivered whole, so that neither TLB nor caches were asked."""

    lines_delivered: int
    """Lines that were there."""

    lines_built: int
    """Lines that were built."""

    emptied: int
    """How often it was emptied."""

    lines_emptied: int
    """Lines that went with that."""

    build_cycles: int
    """Cycles of building lines, beyond what fetching their bytes takes."""


class LevelCounts(Record):
    """The walk references to one level of the page table."""

    level: int
    """The level; 1 is the leaf that maps base pages."""

    references: int
    """References."""

    served: dict[str, int]
    """How many each cache, or memory, served."""


class Walks(Record):
    """What the walker counted."""

    walks: int
    """Walks, one for each lookup that missed every TLB; without a page table each has no
    references.
    """

    cold: int
    """Of these, the ones that ended in a first-touch fault and were walked again."""

    references: int
    """References of all walks."""

    dirty_assists: int
    """Stores to a clean page that a TLB had, for which hardware set the dirty bit; the machine
    tracks dirty pages.
    """

    modify_traps: int
    """Stores to a clean page for which a handler in software was trapped to."""

    cold_references: int
    """References of the cold ones, of both their walks."""

    references_per_walk: list[list[int]]
    """How many of the walks that were not cold took how many references."""

    by_level: list[LevelCounts]
    """References by level of the table (in a virtual machine the guest's), root first, and by what
    served them.
    """

    handler_instructions: int | None
    """Instructions of the refill handler; none if hardware walks."""

    nested_misses: list[list[int]]
    """Misses of the TLB on the page table itself, by level of the table, where that is linear."""


class MmuCacheArray(Record):
    """One array of an MMU cache."""

    level: int | None
    """The level whose entries it holds; `None` if those of all."""

    entries: int
    """Entries."""

    ways: int
    """Ways."""

    tag_bits: int | None
    """Bits of a tag, where tags have one length."""

    data_bits: int | None
    """Bits of data of an entry, likewise."""


class MmuCacheLevel(Record):
    """The entries of one level that lead to further tables."""

    level: int
    """The level; 0 for pages, where the cache holds those too (`nested.shared`)."""

    needed: int
    """How many were on the way of a walk.

    One that is repeated after a fault counts once, as it finds what it left there.
    """

    held: int
    """Of these, how many were held, or skipped because a lower one was."""


class MmuCacheCounts(Record):
    """What the MMU cache is and did. What it saved is in `Walks`: references that were not made."""

    design: str
    """Its design's name."""

    replacement: str
    """Replacement policy."""

    arrays: list[MmuCacheArray]
    """Its arrays, the lowest level first."""

    latency_cycles: int
    """Cycles of a search."""

    searches: int
    """Searches; each level that is looked for counts."""

    by_level: list[MmuCacheLevel]
    """By level, the highest first."""


class SpecOutcome(Record):
    """Walks of one outcome of their prediction."""

    outcome: str
    """`right`, `broken`, `chance` or `none` of walks that found their page; `absent`, `denied` or
    `none-faulted` of those that faulted.
    """

    walks: int
    """How many."""

    references: dict[str, int]
    """Their references by what served them."""

    ptes: dict[str, int]
    """The last page-table entry that each of these walks read, by what served it.

    Of a walk that found its page, this is the page's entry.
    """

    accesses: ByKind[dict[str, int]]
    """The accesses that they were for, by kind and by what served them; empty without data caches.
    """


class SpecTlbCounts(Record):
    """What a SpecTLB is and said.

    It is asked for each walk: a miss whose walk faults has another one.
    """

    entries: int
    """Large pages, or instructions, that it remembers."""

    ways: int
    """Ways."""

    replacement: str
    """Replacement policy."""

    page_size: str
    """The size of the large pages; `any` with `offsets`."""

    fill: str
    """What makes an entry: `heuristic`, `marks` or `offsets`."""

    attempts: int
    """Predictions."""

    right: int
    """Those that named the place that the walk has found."""

    denied: int
    """Those that named the place of a page whose rights do not allow the access: the walk faulted.
    """

    wrong: dict[str, int]
    """Those that named another place, by cause: `absent`, the walk faulted; `broken`, the page was
    placed when its reservation was broken; `chance`, addresses of a page that was in none had
    agreed by chance, or with `offsets` the page has another offset.
    """

    none: int
    """Walks that found their page, for which there was no prediction.

    With those that were right, broken and by chance these are all walks.
    """

    none_faulted: int
    """Walks that faulted, for which there was no prediction.

    With those that were absent or denied these are all faults.
    """

    overlapped: dict[str, int]
    """References of walks that were rightly predicted, which need not be waited for, by what served
    them: caches and memory.
    """

    overlapped_cycles: int | None
    """Cycles of these references; `None` if the machine leaves a latency out."""

    devices: int
    """Predictions that named a place which a device had (`os.devices`)."""

    devices_reached: int
    """Of these, how many were followed: none where requests say that they are guesses
    (`spec_tlb.tagged`).
    """

    outcomes: list[SpecOutcome]
    """Walks by what became of the prediction."""


class RangeTlbCounts(Record):
    """What a range TLB is and counted.

    It is asked for each miss of the last level, and its hits are no walks.
    """

    entries: int
    """Ranges that it holds."""

    replacement: str
    """Replacement policy."""

    from_: str
    """What its entries are made of: the operating system's `table`, or the `line` of entries that a
    walk reads.
    """

    lookups: int
    """Lookups."""

    hits: int
    """Lookups that found a range which allows the access.

    Where the machine tracks dirty pages, first stores to clean pages are not among them.
    """

    misses: int
    """Lookups that did not. Each is a walk."""

    fills: int
    """Ranges put in."""

    evictions: int
    """Ranges that made room for others."""

    flushed: int
    """Ranges that the operating system flushed."""

    ranges: int
    """Ranges in the operating system's table at the end: adjacent pages in adjacent frames with
    equal rights. None without such a table.
    """

    range_bytes: int
    """Their bytes."""


class RestSegCounts(Record):
    """What looks for pages in restrictive segments, and what it counted.

    It looks for each page that is walked for; its references are those of level 0 in `Walks`, and a
    page that is found takes no others.
    """

    filter_lines: int
    """Lines of the set filter that it keeps."""

    tag_lines: int
    """Lines of the tag array that it keeps."""

    ways: int
    """Ways of both."""

    lookups: int
    """Lookups: one before each walk, and one more after each fault."""

    hits: int
    """Lookups that found the page."""

    misses: int
    """Lookups that did not. Each is a walk."""

    filtered: int
    """Sets whose tags were not looked at, as the filter knows of no page there."""

    filter_reads: int
    """References to the filter."""

    tag_reads: int
    """References to the tags."""


class ReservationsOfSize(Record):
    """Reservations of one size."""

    size: str
    """Their size."""

    made: int
    """How many were made."""

    filled: int
    """How often one became full."""

    emptied: int
    """How many were given back whole, since their last page was freed."""

    broken: dict[str, int]
    """How many were broken, by reason: `frame`, a base frame was wanted; `block`, several in a row;
    `wanted`, just these.
    """

    broken_bytes: int
    """Bytes that this made free."""

    placed: int
    """Base pages that were placed in one."""

    unplaced: dict[str, int]
    """Base pages that were not, by reason: `start`, `end`, it would begin before its object or
    reach beyond its end; `neighbor`, another page or reservation of the object is there;
    `taken`, its own frame is; `no-block`, there was no free block of the size.
    """


class ReservationCounts(Record):
    """What has become of reservations."""

    sizes: list[ReservationsOfSize]
    """By size, the largest first."""

    marks_cleared: int
    """Marked frames whose marks were cleared when their reservation was broken
    (`os.reservations.marks`).
    """


class NestedCounts(Record):
    """The host of a virtual machine.

    References of `Walks` by level are the guest's; those of the host are here, and in the sums
    there.
    """

    page_size: str
    """The host's page size."""

    walks: int
    """Walks of the host's page table."""

    references: int
    """Their references."""

    by_level: list[LevelCounts]
    """References of these walks by level of the host's table, root first."""

    tlb: HitsAndMisses | None
    """The nested TLB, if there is one."""

    mmu_cache: MmuCacheCounts | None
    """The MMU cache of the host's walks, if there is one.

    One that is shared with the guest has the guest's shape here again, and its searches are counted
    there.
    """

    spec_tlb: SpecTlbCounts | None
    """What predicts where walks of the host end, if there is such.

    Predictions are per walk of the host.
    """

    critical_references: int | None
    """References of walks in both dimensions that are waited for, as no right prediction of guest
    or host overlaps them; `None` where nothing predicts.
    """

    reservations: ReservationCounts | None
    """Room that the host keeps for large pages, if it does."""

    reserved_bytes: int
    """Bytes that are reserved and not in use."""

    former_bytes: int
    """Bytes that guests of before still have (`nested.former`)."""

    first_touches: int
    """Pages of the host that were first needed."""

    splintered: int
    """Walks whose page is larger than the host's, so that the TLB was given a part of it."""

    used_bytes: int
    """Frames of the host in use, in bytes."""

    table_bytes: int
    """Frames that hold its page table, in bytes."""


class CacheTraffic(Record):
    """Reads and writes of a cache by one requester."""

    reads: int
    """Lines read."""

    read_misses: int
    """Of these, not there."""

    writes: int
    """Lines written."""

    write_misses: int
    """Of these, not there."""


class CacheFlushes(Record):
    """What was flushed from a cache that holds lines by virtual addresses."""

    times: int
    """How often something was flushed: all of it, or what it held of some pages."""

    looked: int
    """Lines that were looked at for that."""

    lines: int
    """Lines that went."""

    written: int
    """Those of them that had been stored to, and were written to memory."""


class CacheCounts(Record):
    """What one data cache counted."""

    name: str
    """Its name in the machine file."""

    size_bytes: int
    """Bytes of data it holds."""

    line_bytes: int
    """Bytes of a line."""

    ways: int
    """Ways."""

    replacement: str
    """Replacement policy."""

    program: CacheTraffic
    """What the program asked of it, a line at a time."""

    walker: CacheTraffic
    """What the walker asked of it."""

    writebacks: int
    """Dirty lines that it wrote to the next level."""

    flushes: CacheFlushes | None
    """What was flushed, if it holds lines by virtual addresses."""


class Faults(Record):
    """What the operating system was called for."""

    first_touch: int
    """First touches of a page."""

    returned: int
    """Pages that were there before and came back: from swap, or only their translations."""

    protection: int
    """Accesses that a page's rights did not allow, found on a walk and then granted."""


class SizeReasons(Record):
    """Pages loaded at faults in one region, by why they have their size."""

    region: str
    """The region's name in `regions`."""

    pages: dict[str, int]
    """Pages by reason."""


class SizeDecision(Record):
    """Pages of which a size was wished."""

    region: str
    """Their region's name in `regions`: that in which the fault was, or in which a large page that
    was asked for begins.
    """

    wanted: str
    """The size that was wished."""

    got: str
    """The size that they have."""

    why: str
    """Why it is not the one that was wished, or `obtained`."""

    pages: int
    """How many pages, each of the size that they have."""


class LevelPasses(Record):
    """Passes of one level."""

    passes: int
    """Passes."""

    made: int
    """Large free pages that they made."""


class DaemonSample(Record):
    """What the daemon did between two samples."""

    access: int
    """The access of the trace at which the last of them was over."""

    passes: int
    """Passes."""

    made: int
    """Large free pages that were made."""

    moved: int
    """Base pages that were moved for them."""

    flushes: int
    """Shootdowns for that."""


class DaemonCounts(Record):
    """What the coalescing daemon has done."""

    levels: dict[str, LevelPasses]
    """Passes by level: `weak`, `mild`, `strong`."""

    over_time: list[DaemonSample]
    """What the daemon has done over time, at most a few hundred samples."""


class DeviceCounts(Record):
    """Frames that devices had (`os.devices`)."""

    pages: int
    """How many they have at the end."""

    lent: int
    """How many they were lent."""

    returned: int
    """How many came back."""

    refused: int
    """How often no frame was free, or no block of 2M where they have blocks of their own."""

    blocks: int
    """Blocks of 2M that are theirs alone."""

    marks_cleared: int
    """Marked frames beside those that they were lent, whose marks were cleared for that."""


class KhugepagedCounts(Record):
    """What `khugepaged` has done."""

    passes: int
    """Times that it ran."""

    results: dict[str, int]
    """Blocks of 2M that it looked at, by what it found, under the kernel's names."""


class CompactionCounts(Record):
    """What compaction has done."""

    results: dict[str, int]
    """Runs by what they came to, under the kernel's names."""

    woken: int
    """Of these, runs by the daemon when it was woken ..."""

    proactive: int
    """... and of its own accord."""

    blocks: int
    """Page blocks that were looked at for pages to move."""

    moved: int
    """Base pages moved."""


class PageBlockCounts(Record):
    """What has become of page blocks."""

    by_type: dict[str, int]
    """Page blocks at the end, by what their frames are for."""

    claimed: int
    """Page blocks that went over to another type."""

    stolen: int
    """Base frames that were taken out of page blocks of another type, which stayed what they were.
    """


class ChosenBlocks(Record):
    """What the daemons of Ingens and HawkEye have done."""

    filled: int
    """Blocks that filled (`ingens`)."""

    samples: int
    """Times that bits of use were read (`hawkeye`, and `ingens` with `deferred_mode` 2)."""

    sampled: int
    """Base pages whose bits were read (`ingens`)."""

    hot: int
    """Base pages that were hot before the last of these times: used at six of eight (`ingens`)."""

    bins: list[int]
    """Blocks by log2 of how many of their base pages were used, at the last of them."""

    prezeroed: int
    """Free blocks that were filled with zeros ahead."""

    recovered: int
    """Base pages of zeros that were given back."""


class RangerCounts(Record):
    """What the daemon has done that moves pages side by side."""

    passes: int
    """Times that it ran."""

    moved: int
    """Base pages that were moved to free frames ..."""

    exchanged: int
    """... and that changed places with others."""

    anchors: int
    """Anchors that were set."""

    promoted: int
    """Blocks that became large pages where they were."""


class LinuxCounts(Record):
    """Transparent huge pages."""

    held_bytes: int
    """Bytes of frames that nobody maps any more and that are not free, as the large page is not
    split that they were part of, at the end. `bytes.anonymous` has them.
    """

    folios_split: int
    """Such pages that were split."""

    khugepaged: KhugepagedCounts
    """The daemon that makes large pages of what is there."""

    zero_bytes: int
    """Bytes of frames that hold the page of zeros."""

    compaction: CompactionCounts
    """Compaction."""

    page_blocks: PageBlockCounts
    """Page blocks."""

    chosen: ChosenBlocks | None
    """How blocks were chosen, with `ingens` and `hawkeye`."""

    ranger: RangerCounts | None
    """The daemon that moves pages side by side."""


class RunsOfLength(Record):
    """Runs of adjacent pages in adjacent frames."""

    bytes_min: int
    """They have at least so many bytes, and less than twice as many."""

    runs: int
    """How many there are."""

    bytes: int
    """All of their bytes."""


class RegionSizes(Record):
    """A region at the end of a program."""

    space: int
    """The number of its space."""

    name: str
    """What it is called."""

    start: int
    """Its first byte."""

    bytes: int
    """Its length."""

    mapped_by_size: dict[str, int]
    """Mapped bytes by page size."""


class EndOfProgram(Record):
    """What memory was like at the fullest end of a program."""

    access: int
    """The access of the trace at which it ended; where the trace does not tell of ends, 0."""

    anonymous: int
    """Pages that a space has stored to and that are its own, in bytes."""

    file: int
    """Pages of files, in bytes."""

    shared: int
    """Pages of memory that spaces share, in bytes."""

    tables: int
    """Page tables, in bytes."""

    free: int
    """Nothing: bytes that are free."""

    reserved: int
    """Nothing yet: bytes that are held back in reservations, and free where memory runs out."""

    swapped: int
    """Not in memory but in swap, in bytes."""

    mapped_by_size: dict[str, int]
    """Mapped bytes by page size, a frame that several pages have counted for each."""

    runs: list[RunsOfLength]
    """Runs of adjacent pages in adjacent frames, by length."""

    regions: list[RegionSizes]
    """Regions of which something is mapped, by address.

    The page of zeros that all share counts as not mapped, here and above.
    """


class KindBytes(Record):
    """Memory by what it is used for, in bytes."""

    anonymous: int
    """Pages that a space has stored to and that are its own, in bytes."""

    file: int
    """Pages of files, in bytes."""

    shared: int
    """Pages of memory that spaces share, in bytes."""

    tables: int
    """Page tables, in bytes."""

    free: int
    """Nothing: bytes that are free."""

    reserved: int
    """Nothing yet: bytes that are held back in reservations, and free where memory runs out."""

    swapped: int
    """Not in memory but in swap, in bytes."""


class ReservationSample(Record):
    """Reservations of all sizes, from the beginning to one time."""

    made: int
    """How many were made."""

    filled: int
    """How often one became full."""

    emptied: int
    """How many were given back whole."""

    broken: dict[str, int]
    """How many were broken, by reason."""


class MemorySample(Record):
    """Memory at one time."""

    access: int
    """The access of the trace, from 0."""

    anonymous: int
    """Pages that a space has stored to and that are its own, in bytes."""

    file: int
    """Pages of files, in bytes."""

    shared: int
    """Pages of memory that spaces share, in bytes."""

    tables: int
    """Page tables, in bytes."""

    free: int
    """Nothing: bytes that are free."""

    reserved: int
    """Nothing yet: bytes that are held back in reservations, and free where memory runs out."""

    swapped: int
    """Not in memory but in swap, in bytes."""

    pages_by_size: dict[str, int]
    """Mapped pages by size."""

    reservations: ReservationSample | None
    """What has become of reservations till then, if there are such."""


class ManagerCounts(Record):
    """What a memory manager counted that keeps the whole life of memory."""

    replacement: str
    """Which page left memory."""

    faults: dict[str, int]
    """Faults by how they were answered."""

    unexplained: int
    """Accesses that no region of the trace explains, or that their region forbids."""

    work: dict[str, int]
    """The kernel's work by kind."""

    io_requests: int
    """Requests to disks: pages that are side by side in memory and on the disk are one."""

    io_cycles: int
    """Cycles that requests took from and to disks, one after the other."""

    cycles: dict[str, int]
    """Cycles of the work by kind, at the prices of `[os.costs.work]`; empty without them."""

    page_sizes: list[SizeReasons]
    """Why pages have the sizes that they have."""

    sizes: list[SizeDecision]
    """Pages for which a size was wished, by region, size and what came of it."""

    upgrades: list[SizeDecision]
    """Large pages that were asked for by upgrades, in the same way."""

    daemon: DaemonCounts | None
    """The daemon that coalesces free memory, if there is one."""

    reservations: ReservationCounts | None
    """Reservations, if the manager has such."""

    devices: DeviceCounts | None
    """Frames of devices, if they get some."""

    linux: LinuxCounts | None
    """Transparent huge pages, if the manager has such."""

    end: EndOfProgram
    """What memory was like at the fullest end of a program, or of the trace."""

    bytes: KindBytes
    """What memory is used for at the end."""

    over_time: list[MemorySample]
    """What memory is used for over time: a sample where it changed, at most a few hundred."""


class PromotionsOfSize(Record):
    """Pages that were promoted to one size."""

    size: str
    """The size."""

    threshold_misses: int
    """Misses that a candidate is charged until it is promoted."""

    promoted: int
    """Pages of it that were made."""

    refused: int
    """How often none could be; `manager.upgrades` has the reasons, where the manager tells them."""


class PromotionCounts(Record):
    """On-line promotion: what was charged, and which pages it paid for."""

    misses: int
    """Misses of every level of pages that could be larger, first touches apart: each is counted."""

    charged: int
    """Of these, charged to a candidate: a larger page would have been in a TLB."""

    counting_cycles: int
    """Cycles that counting them took. They are part of the kernel's time."""

    sizes: list[PromotionsOfSize]
    """By size, the smallest first."""


class NodeCounts(Record):
    """What one node of memory has, and what its processors did."""

    processors: list[int]
    """Its processors by number."""

    distances: list[int]
    """How far each node is from it, in tenths of the latency of its own memory."""

    total_bytes: int
    """All of its frames, in bytes."""

    used_bytes: int | None
    """Frames in use or held back at the end, in bytes; `None` where frames are a trace's choice."""

    misses: list[int]
    """Misses of every level of its processors, by the node of the page."""

    accesses: list[int]
    """Accesses of the program on its processors that memory served, by node."""

    walk_references: list[int]
    """References of their walks that memory served, likewise."""


class MigrationCounts(Record):
    """Pages that moved to the node that referred to them most."""

    references: int
    """References that were counted: misses of every level of pages that may move."""

    counting_cycles: int
    """Cycles that counting them took. They are part of the kernel's time."""

    pages: int
    """Pages that moved, of any size ..."""

    base_pages: int
    """... and the base pages in them."""

    refused: dict[str, int]
    """Pages that were due and stayed, by reason."""


class NumaCounts(Record):
    """Nodes of memory: who referred to which, and pages that moved."""

    nodes: list[NodeCounts]
    """The nodes by number."""

    local_misses: int
    """Misses of every level whose page was on the node of the processor ..."""

    remote_misses: int
    """... or on another."""

    migration: MigrationCounts | None
    """Pages that moved to the node that referred to them; none if no reference was counted for
    that.
    """


class ChangedSetting(Record):
    """A setting that changed while the machine ran."""

    access: int
    """The access of the trace before which it did, from 0."""

    time: int
    """When it was to, in cycles of the operating system's clock."""

    key: str
    """Its key."""

    value: str
    """Its new value, as in a machine file."""


class ShootdownCounts(Record):
    """Shootdowns: changes of a page table after which hardware had to forget translations."""

    made: int
    """Those that were made: the change was in a space of which some processor may have had
    translations.
    """

    asked: int
    """Other processors that were asked for it, by an interrupt each."""

    received: int
    """Interrupts that were received."""

    entries: int
    """TLB entries that went, at all levels."""

    sender_cycles: int | None
    """Cycles of the processors that made them: their own flush, sending, and the wait for the
    slowest answer; `None` if the machine has no `[os.costs]`.
    """

    receiver_cycles: int | None
    """Cycles of the processors that were asked; likewise."""


class ProcessorCounts(Record):
    """What one of several processors counted."""

    number: int
    """Its number, from 0."""

    accesses: ByKind[int]
    """Accesses that ran on it, by kind."""

    instructions: int
    """Instructions that ran on it."""

    switches: int
    """How often it went from one address space to another."""

    tlbs: Named[TlbCounts]
    """Its TLBs."""

    walks: Walks
    """Its walks."""

    mmu_cache: MmuCacheCounts | None
    """The MMU cache of its walker."""

    spec_tlb: SpecTlbCounts | None
    """Its SpecTLB."""

    range_tlb: RangeTlbCounts | None
    """Its range TLB."""

    restseg: RestSegCounts | None
    """Its lookups in restrictive segments."""

    caches: Named[CacheCounts]
    """Its data caches; not `l3`, which all share."""

    shootdowns: ShootdownCounts
    """The shootdowns that it made, those that it was asked for, and the entries of its TLBs that
    went.
    """


class MemoryCounts(Record):
    """Physical memory at the end of the run, but for its peak."""

    frames_total_bytes: int
    """All frames, in bytes."""

    frames_used_bytes: int
    """Frames in use, in bytes."""

    frames_peak_bytes: int
    """Frames in use, in bytes, when most were in use."""

    mapped_bytes: int
    """Frames behind pages, in bytes."""

    aged_bytes: int
    """Frames that were in use before the run began, in bytes."""

    device_bytes: int
    """Frames that devices have, in bytes; where they have blocks of their own, all of those."""

    table_bytes: int
    """Frames that hold page tables, in bytes."""

    table_used_bytes: int
    """Of these, bytes of nodes, buckets and arrays in use."""

    pages_by_size: dict[str, int]
    """Mapped pages by size."""

    free_by_size: dict[str, int]
    """Free blocks by size, as the allocator lists them: the more of the free memory lies in small
    ones, the more fragmented it is.
    """


class RegionCounts(Record):
    """What one region of the address space saw."""

    name: str
    """Its name."""

    start: int
    """Its first byte."""

    bytes: int
    """Its length in bytes, at its largest."""

    rights: str
    """Its rights, as in `rw-`."""

    inferred: bool
    """Whether it was guessed from the accesses, for want of events."""

    backing: str | None
    """What stands behind it, where the trace says so: `anonymous` (private memory),
    `shared-memory`, `private-of-shared` (a private mapping of that), `shared-file`,
    `private-file`, `hugetlb`, `stack`, `thread-stack`, `heap`, `bss`.
    """

    populated: str | None
    """What had all of its pages come in without being touched: `when-mapped` (`MAP_LOCKED`,
    `MAP_POPULATE`, `mlockall` before) or `when-locked` (`mlock` afterwards).
    """

    mapped_by_site: bool | None
    """Whether its allocation site called `mmap` itself; `None` without a site."""

    site: int | None
    """The allocation site that it was made for, by its index in `origins.sites`; its name is the
    site's.
    """

    pages: int
    """Pages first touched in it."""

    lookups: int
    """Lookups of a first-level TLB."""

    by_kind: ByKind[int]
    """Lookups of a first-level TLB by kind of access."""

    l1_misses: int
    """Lookups that missed the first level."""

    misses: int
    """Lookups that missed every level."""

    cold_misses: int
    """Of these, first touches."""

    walk_references: int
    """References of its walks."""

    walk_cycles: int | None
    """What translation cost it in cycles if nothing was hidden."""


class CodePlace(Record):
    """A place in code."""

    object: str | None
    """The path of the program or library; `None` for code that is of no file."""

    identity: str | None
    """Which build of it ran, as in `build-id 5fa3` or `crc32 1a2b3c4d`."""

    offset: int
    """Where in that file its block begins, or a call returns to; the address, where there is no
    file. The lowest, where several were joined.
    """

    instruction: int
    """Instructions of the block before it."""

    function: str | None
    """The function, by the table of symbols."""

    inlined: list[str]
    """The functions that the compiler has put into that one there, outermost first."""

    file: str | None
    """The file of its source."""

    line: int | None
    """The line there, from 1."""


class SiteCounts(Record):
    """What one allocation site saw."""

    name: str
    """What it is called: function, file and line of the innermost call that is in the program's own
    sources, as in `grow (table.c:12)`.
    """

    stack: list[CodePlace]
    """The calls that led to it, innermost first, as far as they are known; what a compiler has
    inlined is a call too.
    """

    own: int | None
    """The index in `stack` of the innermost call that is in the program's own sources; `None` where
    no line of these is known.
    """

    allocations: int
    """Blocks that it allocated."""

    bytes: int
    """Bytes that it allocated, in all."""

    peak_bytes: int
    """Bytes of it that were allocated at one time, at most."""

    misses: int
    """Misses of every level on its blocks."""

    cold_misses: int
    """Of these, first touches."""


class MissOrigins(Record):
    """Misses of every level by where they come from.

    Which code, of which thread, missed on which data, and how large the page was, is counted
    together.
    """

    code: list[CodePlace]
    """The code that missed: an element per line of source or, where that is not known, per function
    or file.
    """

    sites: list[SiteCounts]
    """The allocation sites of a recording with `--allocations` that missed, had 64 KiB at one time
    or have a mapping of their own; most misses first.
    """

    misses: list[list[int | None]]
    """`(index in code, index in regions, index in sites, thread, bytes of the page, misses, cold
    misses)`, most misses first; `None` where it is not known or does not apply.
    """

    notes: list[str]
    """Why code of some files has no names, a sentence each."""


class Timeline(Record):
    """Misses over time, in equal bins of accesses."""

    bin_accesses: int
    """Accesses a bin."""

    l1_misses: list[int]
    """Misses of the first level."""

    misses: list[int]
    """Misses of every level."""

    cold_misses: list[int]
    """First touches."""


class MissMap(Record):
    """Misses of every level over address and time."""

    bin_accesses: int
    """Accesses a time bin."""

    granule_bytes: int
    """Bytes an address bin."""

    cells: list[list[int]]
    """`(time bin, address / granule_bytes, misses)`, in order."""

    owners: list[list[int]]
    """`(address / granule_bytes, index in regions, misses)`, in order: a granule may hold the end
    of one region and the beginning of the next.
    """


class Range(Record, Generic[T]):
    """From the lowest to the highest that the counts allow."""

    lo: T
    """The lowest."""

    hi: T
    """The highest."""


class KernelTime(Record):
    """What the operating system takes."""

    cycles: int
    """Cycles of its work, as far as `[os.costs]` has prices."""

    by_work: dict[str, int]
    """These cycles by kind of work: `faults` (or, of a manager that counts its kinds of work, those
    kinds), `switches` to other address spaces, and `shootdowns`.
    """

    io_cycles: int
    """Cycles of waiting for disks, one transfer after the other."""

    share: Range[float]
    """The share of both in all cycles: the least beside the most of program and translation, to the
    most beside the least.
    """


class Time(Record):
    """Time: counts times latencies, as ranges that no overlap of work can leave."""

    program_cycles: Range[int]
    """Cycles without translation: instructions at their rate, and what misses of the data caches
    add; least where they overlap as far as the machine lets them, most where none does.
    """

    translation_cycles: Range[int]
    """Cycles of translation: every TLB lookup, every walk.

    Least where hardware hides all of it behind other work; what a refill handler takes cannot be
    hidden.
    """

    cycles_per_access: Range[float]
    """Cycles of translation per access."""

    kernel: KernelTime | None
    """The operating system's time, which is in none of the others; `None` if the machine has no
    `[os.costs]`.
    """

    share: Range[float]
    """Translation's share of the program's cycles and its own: the least of it beside the most of
    the program, to the most of it beside the least of the program.
    """


class Peak(Record):
    """Memory of a native run when most of it was resident."""

    resident_bytes: int
    """Resident bytes."""

    by_page_size: dict[str, int]
    """These resident bytes by page size."""


class Native(Record):
    """The native run of the program beside the recorded one: `--native`."""

    schema: int
    """Version of this structure."""

    command: list[str]
    """What was run."""

    wall_seconds: float
    """Wall time in seconds."""

    user_seconds: float
    """Time in user mode in seconds."""

    system_seconds: float
    """Time in the kernel in seconds."""

    exit_status: int
    """Its exit status."""

    resident_bytes_max: int
    """Most bytes of it that were resident."""

    recorded_status: int
    """Exit status of the recorded run."""

    stdin: bool
    """Whether it had the standard input of the recorded run."""

    peak: Peak | None
    """Memory by page size when most was resident, if it was seen."""

    translation_ms: Range[float] | None
    """Milliseconds of the time in user mode that translation takes; `None` if they cannot be said.
    """

    no_ms: str | None
    """Why they cannot."""


class Advice(Record):
    """What should be done about the misses, by curves of the whole run."""

    sentence: str
    """In a sentence."""

    misses_share: float
    """Misses per lookup that a large enough TLB has, first touches apart."""

    lookups: int
    """Loads and stores of the whole run."""

    entries: dict[str, int | None]
    """Entries that a fully associative LRU TLB needs for that, by page size; `None`: more than
    65536. An estimate, where `one_in` is not 1.
    """

    one_in: dict[str, int]
    """By page size: one in so many pages was in the sample from which that is known; 1: all."""


class Estimate(Record):
    """The best estimate of what translation takes, within `time.share`."""

    share: float
    """Share of the time in user mode."""

    ms: float | None
    """Milliseconds of the native run; `None` if there was none that counts."""

    how: str
    """What it rests on."""

    here: bool | None
    """Whether the machine is of this computer's processor; `None` if nothing says so."""


class Document(Record):
    """Everything a run counted."""

    schema: int
    """Version of this structure."""

    pagewalk: str
    """Version of Pagewalk."""

    trace: TraceSummary
    """The trace that ran."""

    machine: MachineSummary
    """The machine it ran on."""

    accesses: ByKind[int]
    """Accesses that ran, by kind."""

    instructions: int
    """Instructions that ran."""

    threads: int
    """Threads seen."""

    switches: Switches | None
    """How several programs took turns, if the trace has several."""

    page_crossings: int
    """Accesses that touched two pages; each counts as a lookup of both."""

    tlbs: Named[TlbCounts]
    """The TLBs, first level first."""

    space_switches: SpaceSwitches
    """Changes of the space that runs, and what they did to hardware."""

    small_spaces: SmallSpaceCounts | None
    """Small address spaces, if there are some (`os.small`)."""

    trace_cache: TraceCacheCounts | None
    """The trace cache, if there is one."""

    walks: Walks
    """The walks."""

    mmu_cache: MmuCacheCounts | None
    """The walker's MMU cache, if it has one."""

    spec_tlb: SpecTlbCounts | None
    """What predicts where walks end, if something does."""

    range_tlb: RangeTlbCounts | None
    """What translates ranges of any length, if something does."""

    restseg: RestSegCounts | None
    """What finds pages in restrictive segments, if something does."""

    nested: NestedCounts | None
    """The host's dimension of the walks, in a virtual machine."""

    caches: Named[CacheCounts]
    """The data caches, nearest first."""

    faults: Faults
    """What the operating system was called for."""

    manager: ManagerCounts | None
    """What its memory manager counted, if it has more to count."""

    promotion: PromotionCounts | None
    """On-line promotion, if misses are counted for it (`os.promotion`)."""

    numa: NumaCounts | None
    """Nodes of memory, if it has several (`[memory.numa]`)."""

    changed_settings: list[ChangedSetting]
    """Settings that changed while it ran (`[[os.at]]`), in their order; one whose time did not come
    is not there.
    """

    shootdowns: ShootdownCounts
    """Translations that hardware was told to forget, on all processors."""

    processors: list[ProcessorCounts]
    """The processors, if there are several. What is above counts for all of them."""

    memory: MemoryCounts
    """Physical memory at the end of the run."""

    regions: list[RegionCounts]
    """The regions of the address space, by address."""

    origins: MissOrigins | None
    """Where misses come from; not in the results of sweeps."""

    timeline: Timeline
    """Misses over time."""

    map: MissMap
    """Misses over address and time."""

    time: Time | None
    """Time, where the machine has all the latencies that it takes."""

    not_modelled: list[str]
    """What this run left out."""

    checked: bool
    """Whether each translation was compared with the page table."""

    native: Native | None
    """The native run of the same program, if there was one."""

    advice: Advice | None
    """What should be done, if it was asked for."""

    estimate: Estimate | None
    """One number for what translation takes; `None` if the machine's file has no latencies."""


class StatEvent(Record):
    """An event, how often it came, and what it costs."""

    part: str
    """What the cycles are a part of: `program`, `translation` or `kernel`."""

    name: str
    """Its name."""

    count: int | None
    """How often it came; `None` if only its cycles are known."""

    cycles: Range[float] | None
    """Cycles that it takes; `None` if they are those of other events, or not known."""

    share: Range[float] | None
    """Its share of all cycles: its least beside the most of the others, to its most beside their
    least.
    """


class Stat(Record):
    """The counts of a run with what each costs, as `pagewalk stat` shows them."""

    schema: int
    """Version of this structure."""

    pagewalk: str
    """Version of Pagewalk."""

    trace: TraceSummary
    """The trace."""

    machine: MachineSummary
    """The machine."""

    events: list[StatEvent]
    """The events: those of the program, of translation, of the kernel."""

    cycles: Range[float] | None
    """Cycles of all events together; `None` if the machine's file has no latencies for them."""

    translation_ms: Range[float] | None
    """Milliseconds of the native run's time in user mode that translation takes, where there was
    one and they can be said.
    """

    not_modelled: list[str]
    """What the run left out."""


class PlacedRun(Record):
    """A run with some page sizes."""

    rules: list[str]
    """The place rules that it ran with."""

    misses: int
    """Misses of every TLB but first touches of a page."""

    cold_misses: int
    """First touches of a page, which miss in every TLB."""

    memory_bytes: int
    """Most memory in use at once, page tables included."""

    memory_added_bytes: int
    """`memory_bytes` less that of base pages."""

    translation_cycles: Range[float] | None
    """Cycles of translation; `None` if the machine's file has no latencies."""

    gain_cycles: Range[float] | None
    """Translation cycles that it takes less than base pages."""

    gain_ms: Range[float] | None
    """Translation cycles saved, in milliseconds of the native run; `None` if there was none."""

    gain_share: Range[float] | None
    """The share of the time in user mode with base pages that it saves."""

    gain_best: float | None
    """The best estimate within `gain_share`, by how far misses are taken to overlap."""

    gain_best_ms: float | None
    """`gain_best` in milliseconds of the native run; `None` if there was none."""

    kernel_gain_cycles: float | None
    """Cycles of the kernel for faults, switches and shootdowns that it takes less."""

    why: dict[str, int]
    """Pages by why they have the size that they have, where a size was wished for."""


class RegionsAtSize(Record):
    """What a group of regions counted in the run in which all groups had one page size."""

    misses: int
    """Their misses of every TLB, first touches apart."""

    cold_misses: int
    """Their first touches of a page."""

    large_pages: int
    """Pages larger than base pages that were first touched in them."""

    memory_added_bytes: int
    """Memory that they took more than with base pages, estimated from the pages touched."""

    saved_share: float
    """Share of the translation of base pages that they took less."""


class AdvisedRegion(Record):
    """A region, and the page size that is advised for it."""

    name: str
    """As results call it."""

    start: int
    """The address of its first byte."""

    bytes: int
    """Its size."""

    place: str
    """What a place rule calls it."""

    backing: str | None
    """What stands behind it, as in `RegionCounts`."""

    misses: int
    """Its misses of every TLB with base pages, first touches apart."""

    cold_misses: int
    """Its first touches of base pages."""

    group: int | None
    """Number of its group: regions of one group are alike (length, allocation site, backing) and
    have one size. `None` where nothing on Linux makes it large.
    """

    together: dict[str, RegionsAtSize]
    """What its group counted in the run in which all groups had a size, by that size; none with
    `exact`.
    """

    alone: dict[str, PlacedRun]
    """Runs with this region alone at a size, by that size; none without `exact`, and where nothing
    on Linux makes it large.
    """

    size: str | None
    """The size that is advised; `None`: base pages."""

    reason: str
    """Why, in words."""

    write: str | None
    """What a user would write for that size, and where, if one is advised."""

    code: str | None
    """A function in C or a class in C++ that this uses, where it is more than a call."""


class Advised(Record):
    """Which page sizes a program should have: `pagewalk advise` runs each that it names."""

    schema: int
    """Version of this structure."""

    pagewalk: str
    """Version of Pagewalk."""

    trace: TraceSummary
    """The trace."""

    machine: MachineSummary
    """The machine, without page sizes that are wished for."""

    memory_added_max: float
    """Most memory that the advice may add, as a share of `base.memory_bytes`."""

    exact: bool
    """Whether each region was run alone at each size (`--exact`)."""

    runs: int
    """Runs of the trace, that with base pages included."""

    here: bool | None
    """Whether the machine is of this computer's processor; `None` if nothing says so."""

    how: str | None
    """What best estimates rest on; `None` if the machine's file has no latencies."""

    base: PlacedRun
    """The run with base pages only."""

    regions: list[AdvisedRegion]
    """The regions that were tried, and those that nothing makes large on Linux; most misses first.
    """

    regions_left_out: int
    """Regions that were not tried: each has, with those that are like it, fewer than 0.1 % of the
    misses, lies in one that was tried, or has no room for a page of the second size.
    """

    misses_left_out: int
    """Misses of the regions that were not tried, first touches too."""

    uniform: dict[str, PlacedRun]
    """Runs with all regions that were tried at one size, by that size.

    Without `exact`, of more than two sizes these are one in the middle and the largest.
    """

    sets: list[PlacedRun]
    """Sets of regions with their sizes that were run, by memory; each gains more than all that need
    no more memory.
    """

    best: PlacedRun | None
    """What is advised; `None`: base pages."""

    notes: list[str]
    """What must be known of the lines that are given to write."""


class ManagerKind(Record):
    """A memory manager."""

    name: str
    """Its name in tables."""

    what: str
    """What it does."""

    settings: list[str]
    """The settings that choose it."""

    keys: list[str]
    """The keys of a machine file that it has."""


class ManagedRow(Record):
    """A trace under one memory manager."""

    manager: str
    """Its name."""

    settings: list[str]
    """The settings that choose it."""

    mapped_by_size: dict[str, int]
    """Mapped bytes by page size, at the fullest end of a program."""

    large_share: float
    """The share of them in pages larger than 4K."""

    why: dict[str, int]
    """Pages loaded at faults, by the reason for their size."""

    memory_bytes: int
    """Memory in pages at that end."""

    bloat_bytes: int | None
    """Memory in pages less that of the run with base pages; `None` if base pages did not run."""

    swapped_bytes: int
    """What was in swap at that end."""

    tlb_misses: int
    """Misses of every TLB in the whole run."""

    references: int
    """References of their walks."""

    translation_cycles: Range[float] | None
    """Cycles of translation; `None` if the machine's file has no latencies."""

    translation_best_cycles: float | None
    """The best estimate within `translation_cycles`, by how far misses are taken to overlap."""

    kernel_cycles: int | None
    """Cycles of the kernel's work; `None` if it has no prices."""

    io_cycles: int
    """Cycles of waiting for disks."""

    faults: int
    """Faults."""

    work: dict[str, int]
    """The kernel's work by kind."""

    runs: list[RunsOfLength]
    """Runs of adjacent pages in adjacent frames, at that end."""


class ManagedTrace(Record):
    """A trace under every memory manager."""

    trace: TraceSummary
    """The trace."""

    settings: list[str]
    """What was changed in the machine, memory too."""

    base_peak_bytes: int
    """Most memory in use at once with base pages and the machine's own memory."""

    here: bool | None
    """Whether the machine is of this computer's processor; `None` if nothing says so."""

    how: str | None
    """What best estimates rest on; `None` if the machine's file has no latencies."""

    rows: list[ManagedRow]
    """The managers that ran it."""

    refused: dict[str, str]
    """The others, and why."""


class Managed(Record):
    """Programs under every memory manager."""

    schema: int
    """Version of this structure."""

    pagewalk: str
    """Version of Pagewalk."""

    machine: str
    """The machine."""

    title: str
    """What it is."""

    settings: list[str]
    """What was changed in it."""

    aged: list[float] | None
    """Shares of memory that are free and wired before the runs; `None`: all is free."""

    memory: str | None
    """How much memory was asked for; `None`: the machine's own."""

    kinds: list[ManagerKind]
    """The managers."""

    traces: list[ManagedTrace]
    """A table for each trace."""

    notes: list[str]
    """What must be known of the tables."""


class TimeUse(Record):
    """How the cycles of all processors were used.

    The sum is the number of processors times the cycles until the last one ended.
    """

    work_cycles: int
    """Work: of the load itself, the memory manager and the HAT layer."""

    lock_cycles: int
    """Taking and releasing locks, including the transfer of their cache lines from other
    processors.
    """

    wait_cycles: int
    """Waiting for locks and busy descriptors, except for interrupts meanwhile."""

    shootdown_cycles: int
    """Sending shootdowns, waiting for answers, flushing caches."""

    interrupt_cycles: int
    """Answering shootdowns of other processors."""

    ended_cycles: int
    """From the processor's own end to the end of the last one."""


class Histogram(Record):
    """A histogram of durations in cycles.

    Bucket n has the number of durations from 2^(n-1) to 2^n - 1; the first bucket has the zeros.
    """

    count: int
    """The number of durations."""

    cycles: int
    """The sum of all durations."""

    buckets: list[int]
    """The number of durations for each power of two; empty buckets at the end are omitted."""


class LockShare(Record):
    """The costs of the locks of one class."""

    contended_share: float
    """The share of acquisitions that found the lock held."""

    acquisitions: int
    """The number of times one was taken."""

    contended: int
    """The number of times one was found held by another thread."""

    transfers: int
    """The number of times another processor had taken it last, so that its cache line had to be
    fetched.
    """

    waits: Histogram
    """Cycles from the request to the acquisition, for locks that were found held."""

    holds: Histogram
    """Cycles from the acquisition to the release."""


class ShootCounts(Record):
    """The counts of shootdowns."""

    sent: int
    """Shootdowns that were sent."""

    interrupts: int
    """Interrupts of processors."""

    deferred: int
    """Spaces flushed by a processor that entered them again."""

    wait_cycles: int
    """Cycles that senders waited for answers."""

    cache_pages: int
    """Pages flushed from caches that are indexed by virtual addresses, counted on each processor
    that may hold lines of them.
    """

    cache_spaces: int
    """Whole spaces flushed from caches that are indexed by virtual addresses, counted on each
    processor that may hold lines of them.
    """


class ContextUse(Record):
    """The number of entries into spaces, by how the space came to a context."""

    unlisted: int
    """Entries into a space that had a context, without taking a lock."""

    listed: int
    """Entries into a space that had a context, with the lock of the list that is ordered by use."""

    taken: int
    """Entries into a space that had no context and was given one."""

    stolen: int
    """Of these, those whose context was taken from another space."""


class HatOutcome(Record):
    """The outcome of a run in virtual time."""

    cpus: int
    """The number of processors."""

    scheme: str
    """The name of the locking scheme."""

    load: str
    """The name of the load."""

    table: str
    """The name of the page table."""

    hat_only: bool
    """Whether the HAT layer was driven alone."""

    operations: int
    """The number of operations of all processors."""

    cycles: int
    """Cycles until the last operation had ended."""

    throughput: float
    """Operations per million cycles."""

    time: TimeUse
    """How the cycles of all processors were spent."""

    locks: dict[str, LockShare]
    """The costs of the locks, by the name of their class."""

    acquisitions_per_operation: float
    """Acquisitions of all locks, per operation."""

    wait_cycles_per_operation: float
    """Cycles that processors waited for locks, per operation."""

    shootdowns: ShootCounts
    """The counts of shootdowns."""

    contexts: ContextUse | None
    """The costs of contexts; `None` if they are not limited."""

    steals: int
    """The number of spaces that lost their page tables to other spaces."""

    table_bytes_peak: int
    """The most bytes of page tables at any time."""


class Hat(Record):
    """Loads on processors of virtual time, under schemes of locks."""

    schema: int
    """Version of this structure."""

    pagewalk: str
    """Version of Pagewalk."""

    on: str
    """`model`."""

    settings: dict[str, Any]
    """What was asked for."""

    runs: list[HatOutcome]
    """The runs."""

    not_modelled: list[str]
    """What was left out."""


class HostPrices(Record):
    """Durations on the host, in nanoseconds."""

    lock_ns: float
    """An uncontended lock taken, or released."""

    transfer_ns: float
    """A cache line fetched that another thread wrote last."""

    release_ns: float
    """A lock released while another thread spins for it and has its cache line."""

    handover_ns: float
    """From the release until the spinning thread, whose next attempt is just then, has the lock."""

    pause_ns: float
    """From one attempt of a spinning thread to the next, which takes the line from the lock's
    holder.
    """


class HostOutcome(Record):
    """The outcome of a load on threads of this host, and of its control.

    Times differ from run to run.
    """

    threads: int
    """The number of threads."""

    scheme: str
    """The name of the locking scheme."""

    load: str
    """The name of the load."""

    table: str
    """The name of the page table."""

    hat_only: bool
    """Whether the HAT layer was driven alone."""

    nanoseconds: float
    """Nanoseconds per operation of one thread on the shared layer.

    This value and the next two are of one round: the judged round with the median scaling or, if no
    round is judged, the round with the median scaling of the control.
    """

    control_nanoseconds: float
    """Nanoseconds per operation of one thread of the control."""

    control_scaling: float
    """The throughput of the control on all threads, over that on one thread."""

    acquisitions: dict[str, int]
    """By class of locks: the number of acquisitions by one thread, in as many operations as a
    processor does in virtual time. It must equal the number in virtual time.
    """

    judged_rounds: int
    """The number of rounds that are judged, that is, valid: the control scales, the two times of
    the same work agree, and the transfer of a cache line between threads takes as long at the
    end as at the beginning.
    """

    scaling: float | None
    """The throughput of the shared layer on all threads over that on one thread: the median of the
    judged rounds; `None` if there are none.
    """

    predicted: float | None
    """That scaling as virtual time predicts it at this host's prices.

    `None` if no round is judged, and for loads that do other work between their operations, as
    threads on the host do not do such work.
    """

    cycle_ns: float | None
    """Nanoseconds of a counted instruction in the prediction: the time of an operation on one
    thread without its locks, over the instructions of an operation. `None` as for `predicted`.
    """

    lines_ns: float | None
    """Nanoseconds per operation that go to cache lines written by another thread, except those of
    locks: the additional time of an operation if threads take turns with single operations,
    without the transfers of locks' lines. `None` as for `predicted`.
    """

    prices: HostPrices | None
    """What locks and cache lines cost on this host; `None` if it was not measured for a prediction.
    """


class HatOnHost(Record):
    """Loads on threads of this host, under schemes of locks."""

    schema: int
    """Version of this structure."""

    pagewalk: str
    """Version of Pagewalk."""

    on: str
    """`host`."""

    settings: dict[str, Any]
    """What was asked for."""

    runs: list[HostOutcome]
    """The runs."""

    not_modelled: list[str]
    """What was left out."""


class SkeletonProcess(Record):
    """A process of a skeleton."""

    name: str
    """The program that it ran last."""

    steps: int
    """Its calls, first touches, forks and stretches of work."""


class SkeletonMade(Record):
    """A skeleton that was written: what recorded processes ask memory management for."""

    schema: int
    """Version of this structure."""

    path: str
    """The file."""

    bytes: int
    """Bytes of the file."""

    processes: list[SkeletonProcess]
    """The processes, by their numbers."""

    files: int
    """Files that they map."""

    steps: int
    """Calls, first touches, forks and stretches of work of all processes."""

    instructions: int
    """Instructions of all processes."""

    warnings: list[str]
    """What was found out about the trace."""
