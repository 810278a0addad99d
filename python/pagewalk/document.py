"""The results document with types: `make reference` writes it from the Rust structures.

A record reads from the plain data of the document, which stays as it is.
"""

from typing import Any, Generic, TypeVar

from pagewalk.records import Named, Record

T = TypeVar("T")


class Program(Record):
    """A program that a process runs."""

    arch: str
    """The instruction set of the program."""

    command: list[str]
    """The program and its arguments."""

    from_: int
    """The number of accesses of the process before it ran this program."""


class Process(Record):
    """A process of a recording.

    A process is the first process of the recording, or was created by a `fork`. It stays the same
    process when it executes another program.
    """

    number: int
    """The number of the process in the recording; the first one is 0."""

    pid: int
    """The process id, which an earlier process may have had as well."""

    parent: int | None
    """The number of the process that forked this process."""

    parent_accesses: int | None
    """The number of accesses of the parent before the fork; unknown if the recording is truncated.
    """

    shares_space: bool
    """Whether the process runs in its parent's space until it executes a program, as children of
    `vfork` and `posix_spawn` do.
    """

    began_ns: int
    """The time when the process began, in nanoseconds of the recording's clock."""

    programs: list[Program]
    """The programs that the process ran, one after the other; a child begins with its parent's
    program.
    """

    accesses: int
    """The number of accesses of the process, as far as it is known."""

    instructions: int
    """The number of instructions of the process: the sum of the instruction counts of its accesses
    (see `Meta`).
    """


class LiveSummary(Record):
    """How the recorder of a live program reported its accesses to the machine."""

    counted_accesses: int
    """Accesses that the recorder counted as guaranteed TLB hits; all others were reported one by
    one. Counting does not change the results.
    """

    because: str | None
    """The reason why no access was counted as a guaranteed hit; `None` if some accesses were."""

    lost: list[str]
    """The parts of the program that are missing from all counts, and why."""


class TraceSummary(Record):
    """The trace that was run."""

    digest: str | None
    """SHA-256 of the trace's contents; `None` if it is not known, as for a live program."""

    producer: str
    """Program that made the trace."""

    command: list[str]
    """The recorded command, or the generator's parameters."""

    arch: str
    """The instruction set."""

    fetches: bool
    """Whether the trace has fetches."""

    filter: str
    """The accesses that were left out of the trace when it was recorded."""

    notes: list[str]
    """Notes of the program that made the trace."""

    processes: list[Process]
    """The processes of a recording; the processes with most accesses come first."""

    live: LiveSummary | None
    """For a live program: how its accesses were reported to the machine."""

    name: str
    """Name of the trace as given on the command line."""


class MachineSummary(Record):
    """The machine that ran the trace."""

    name: str
    """Name of the machine."""

    title: str
    """Title of the machine."""

    source: str
    """The source of the machine's description."""

    digest: str
    """SHA-256 of the description."""

    settings: list[str]
    """Settings that changed the machine, as `--set` takes them."""

    description: dict[str, Any]
    """The machine's description with these settings."""


class ByKind(Record, Generic[T]):
    """One value for each kind of access."""

    fetch: T
    """For fetches."""

    load: T
    """For loads."""

    store: T
    """For stores."""


class Switches(Record):
    """Counts of a processor's switches from one program to another."""

    order: str
    """The rule that determined the order in which programs ran."""

    quantum_instructions: int | None
    """The number of instructions after which another program gets its turn; `None` if only the
    recording determines the order.
    """

    cpus: int
    """The number of processors."""

    by_cause: dict[str, int]
    """Switches of a processor from one program to another, by their cause."""

    unexplained: int
    """Waits that were ended because no program could run: the recording lacks the events for which
    the programs waited.
    """


class BlockCounts(Record):
    """TLB entries for several adjacent pages of the smallest size."""

    kind: str
    """The contents of an entry: `complete-subblock`, `partial-subblock`, `coalesced`, `whole` or
    `mosaic`.
    """

    pages: int
    """Pages per block."""

    fills: int
    """Entries filled."""

    pages_filled: int
    """Pages that the filled entries translated at the time of their fill.

    `pages_filled` divided by `fills` is the average number of pages that an entry covers.
    """

    tag_hits: int
    """Misses that found an entry for the page's block, but without a translation of the page."""


class HitsAndMisses(Record):
    """Lookups and their results."""

    lookups: int
    """Lookups."""

    hits: int
    """Lookups that found a translation."""

    misses: int
    """Lookups that found no translation."""


class SizeCounts(Record):
    """Hits and misses of one page size."""

    hits: int
    """Hits on entries of this page size."""

    misses: int
    """Misses after which an entry of this page size was filled."""


class TlbCounts(Record):
    """Counts of one TLB."""

    name: str
    """Name of the TLB in the machine file."""

    level: int
    """Level of the TLB, from 1."""

    serves: list[str]
    """The kinds of access that look up this TLB."""

    entries: int
    """Entries of all arrays together."""

    ways: list[int]
    """Ways of each array."""

    replacement: list[str]
    """Replacement policy of each array."""

    lookups: int
    """Lookups."""

    hits: int
    """Lookups that found a translation."""

    misses: int
    """Lookups that found no translation."""

    cold_misses: int
    """Misses that ended in a first-touch fault."""

    denied: int
    """Misses that found an entry which forbids the access; the entry was then removed."""

    invalid: int
    """Misses for which the TLB had an entry of the page's pair, but the page's half of this entry
    had no frame.
    """

    evictions: int
    """Entries evicted to make room for other entries."""

    flushed: int
    """Entries that the operating system flushed."""

    table_hits: int
    """Hits of the walker's own lookups for pages of a linear page table; no other field counts
    these.
    """

    blocks: BlockCounts | None
    """Counts of entries for blocks of pages, if the TLB has such entries."""

    by_kind: ByKind[HitsAndMisses]
    """Hits and misses by kind of access."""

    by_page_size: dict[str, SizeCounts]
    """Hits by the page size of the entry that hit; misses by the page size of the entry that was
    then filled.
    """


class SpaceSwitches(Record):
    """Switches of address space, summed over all processors.

    The first space that a processor enters does not count as a switch.
    """

    switches: int
    """Switches."""

    root_loads: int
    """Loads of the page-table base register (CR3): at switches, and when small spaces became large.
    """

    emptying: int
    """Switches that flushed all TLB entries except global ones, or all entries of a reassigned
    context.
    """

    segment_loads: int
    """Switches that loaded the segment registers."""

    cycles: int | None
    """Cycles of the switches, if the machine has prices for them."""


class SwitchCycles(Record):
    """Cycles per switch."""

    mean: float
    """Mean over all switches."""

    worst: int
    """Cycles of the most expensive switch."""


class SmallSpaceCounts(Record):
    """Operations on small address spaces (U02 sections 2.2 and 5)."""

    slots: int
    """Number of slots."""

    slot_bytes: int
    """Bytes per slot."""

    spaces: int
    """Spaces that ran."""

    small: int
    """Spaces that had a slot at some time."""

    switches: int
    """Switches of address space."""

    root_loads: int
    """Loads of the page-table base register: at switches, and when small spaces became large."""

    segment_loads: int
    """Switches that loaded segment registers."""

    copies: int
    """Root entries copied from a small space's own root, one per fault."""

    promoted: int
    """Spaces that became large because they accessed an address beyond their slot."""

    revoked: int
    """Slots taken from one space and given to another."""

    no_slot: int
    """Switches to spaces that should have been small but had no slot."""

    roots_purged: int
    """Roots searched for copied entries."""

    entries_purged: int
    """Copied entries removed."""

    versions_compared: int
    """Slots whose version was compared when a root was loaded."""

    switch_cycles: SwitchCycles | None
    """Cycles per switch, including all work that had to be done before the switch, if the machine
    has prices for this work.
    """


class TraceCacheCounts(Record):
    """The trace cache and its counts."""

    uops: int
    """Capacity in micro-ops."""

    ways: int
    """Ways."""

    fetches: int
    """Fetches that looked up the trace cache.

    The fetches that missed the trace cache and looked up a TLB are counted in `accesses.fetch`.
    """

    delivered: int
    """Fetches that the trace cache served entirely, without a lookup of TLBs or caches."""

    lines_delivered: int
    """Lines of the trace cache that hit."""

    lines_built: int
    """Lines built after a miss."""

    emptied: int
    """Times that the trace cache was emptied."""

    lines_emptied: int
    """Lines removed when the trace cache was emptied."""

    build_cycles: int
    """Cycles for building lines, besides the fetches of their bytes."""


class LevelCounts(Record):
    """Walk references to one level of the page table."""

    level: int
    """The level; 1 is the level that maps base pages."""

    references: int
    """References to this level."""

    served: dict[str, int]
    """References by the cache, or memory, that served them."""


class Walks(Record):
    """Counts of the walker."""

    walks: int
    """Walks, one for each lookup that missed every TLB.

    On a machine without a page table they make no references.
    """

    cold: int
    """Walks that ended in a first-touch fault and were repeated after it."""

    references: int
    """References of all walks."""

    dirty_assists: int
    """Stores to a clean page in the TLB for which hardware set the dirty bit, on machines that
    track dirty pages.
    """

    modify_traps: int
    """Stores to a clean page in the TLB that trapped to a software handler."""

    cold_references: int
    """References of cold misses: of the walk that faulted and of the walk that was repeated after
    the fault.
    """

    references_per_walk: list[list[int]]
    """Number of walks by their number of references, without cold walks."""

    by_level: list[LevelCounts]
    """References by level of the page table (in a virtual machine the guest's), root first, and by
    what served them.
    """

    handler_instructions: int | None
    """Instructions of the software refill handler; 0 if hardware walks."""

    nested_misses: list[list[int]]
    """TLB misses on pages of a linear page table itself, by level."""


class MmuCacheArray(Record):
    """One array of an MMU cache."""

    level: int | None
    """Level whose entries the array holds; `None` if it holds entries of all levels."""

    entries: int
    """Entries of the array."""

    ways: int
    """Ways."""

    tag_bits: int | None
    """Bits per tag; `None` if tags differ in length."""

    data_bits: int | None
    """Bits of data per entry; `None` if entries differ in length."""


class MmuCacheLevel(Record):
    """Page-table entries of one level that point to further tables."""

    level: int
    """The level; 0 for pages, if the cache holds pages too (`nested.shared`)."""

    needed: int
    """Entries that walks needed at this level.

    Walks that are repeated after a fault are not counted, as they find the entries that the first
    walk inserted.
    """

    held: int
    """Needed entries that were in the cache, or that the walk could skip because the cache had an
    entry of a lower level.
    """


class MmuCacheCounts(Record):
    """The MMU cache and its counts.

    The references that the MMU cache saved do not appear in `Walks`.
    """

    design: str
    """Name of the design."""

    replacement: str
    """Replacement policy."""

    arrays: list[MmuCacheArray]
    """The arrays, lowest level first."""

    latency_cycles: int
    """Cycles per search."""

    searches: int
    """Searches of the MMU cache.

    If the cache is searched for several levels one after the other, each search counts.
    """

    by_level: list[MmuCacheLevel]
    """Counts by level, highest level first."""


class SpecOutcome(Record):
    """Walks with one outcome of their prediction."""

    outcome: str
    """The outcome.

    For walks that found their page: `right`, `broken`, `chance` or `none`. For walks that faulted:
    `absent`, `denied` or `none-faulted`.
    """

    walks: int
    """Walks with this outcome."""

    references: dict[str, int]
    """References of the walks with this outcome, by the cache or memory that served them."""

    ptes: dict[str, int]
    """The last page-table entry read by each walk with this outcome, counted by the cache or memory
    that served the read. If the walk found its page, this entry is the page's entry.
    """

    accesses: ByKind[dict[str, int]]
    """The accesses that caused the walks with this outcome, by kind and by the cache or memory that
    served the access; empty without data caches.
    """


class SpecTlbCounts(Record):
    """The SpecTLB and its counts.

    The SpecTLB is looked up for each walk; if a walk faults, the repeated walk is a second lookup.
    """

    entries: int
    """Entries, one per large page or instruction."""

    ways: int
    """Ways."""

    replacement: str
    """Replacement policy."""

    page_size: str
    """Size of the large pages; `any` with `fill = "offsets"`."""

    fill: str
    """The kind of pages for which entries are made: `heuristic`, `marks` or `offsets`."""

    attempts: int
    """Predictions made."""

    right: int
    """Predictions of the frame that the walk found."""

    denied: int
    """Predictions of the right frame for an access that the page's rights forbid, so that the walk
    faulted.
    """

    wrong: dict[str, int]
    """Wrong predictions by cause: `absent` (the walk faulted), `broken` (the page was placed after
    its reservation had been broken), `chance` (the entry was made for a page in no reservation,
    whose virtual and physical address agreed by chance; with `offsets`: the page has another
    offset).
    """

    none: int
    """Walks that found their page without a prediction.

    The sum of `none`, `right`, `broken` and `chance` is the number of all walks that found their
    page.
    """

    none_faulted: int
    """Walks that faulted without a prediction.

    The sum of `none_faulted`, `absent` and `denied` is the number of all walks that faulted.
    """

    overlapped: dict[str, int]
    """References of correctly predicted walks, by the cache or memory that served them.

    The access that caused the walk need not wait for them.
    """

    overlapped_cycles: int | None
    """Cycles of the references in `overlapped`; `None` if the machine file does not state a latency
    that is needed.
    """

    devices: int
    """Predictions of a frame that was lent to a device (`os.devices`)."""

    devices_reached: int
    """Predictions in `devices` whose access reached the device; 0 if requests are marked as
    speculative (`spec_tlb.tagged`).
    """

    outcomes: list[SpecOutcome]
    """Walks by the outcome of their prediction."""


class RangeTlbCounts(Record):
    """The range TLB and its counts.

    The range TLB is looked up for each miss of the last-level TLB; a hit needs no walk.
    """

    entries: int
    """Number of entries, one per range."""

    replacement: str
    """Replacement policy."""

    from_: str
    """Source of the entries: the operating system's range `table`, or the `line` of page-table
    entries that a walk reads.
    """

    lookups: int
    """Lookups of the range TLB."""

    hits: int
    """Lookups that found a range which allows the access.

    If the machine tracks dirty pages, first stores to clean pages are not hits.
    """

    misses: int
    """Lookups that did not hit; each causes a walk."""

    fills: int
    """Ranges inserted."""

    evictions: int
    """Ranges evicted to make room for other ranges."""

    flushed: int
    """Ranges that the operating system flushed."""

    ranges: int
    """Ranges (adjacent pages in adjacent frames with equal rights) in the operating system's table
    at the end; 0 without such a table.
    """

    range_bytes: int
    """Bytes of the ranges that `ranges` counts."""


class RestSegCounts(Record):
    """Lookups of pages in restrictive segments.

    There is one lookup before each walk; the references of lookups are those of level 0 in `Walks`.
    A page that is found needs no walk.
    """

    filter_lines: int
    """Lines of the set filter that are cached."""

    tag_lines: int
    """Lines of the tag array that are cached."""

    ways: int
    """Ways of the cache of the filter, and of the cache of the tags: both caches have this number.
    """

    lookups: int
    """Number of lookups: one before each walk, and one after each fault."""

    hits: int
    """Lookups that found the page."""

    misses: int
    """Lookups that did not find the page; each causes a walk."""

    filtered: int
    """Lookups in sets without any page.

    The filter showed that the set was empty, so the tags were not read.
    """

    filter_reads: int
    """References to the filter."""

    tag_reads: int
    """References to the tags."""


class ReservationsOfSize(Record):
    """Reservations of one size."""

    size: str
    """Size of these reservations."""

    made: int
    """Reservations made."""

    filled: int
    """Number of times that a reservation became full."""

    emptied: int
    """Reservations freed as a whole, because their last page was freed."""

    broken: dict[str, int]
    """Reservations broken, by the request that broke them: `frame` (a base frame), `block` (several
    adjacent frames), `wanted` (frames of this reservation).
    """

    broken_bytes: int
    """Bytes freed by breaking reservations."""

    placed: int
    """Base pages placed in a reservation."""

    unplaced: dict[str, int]
    """Base pages not placed in a reservation, by reason: `start` and `end` (the reservation would
    begin before or end after the page's object), `neighbor` (the reservation would overlap
    another page or reservation of the object), `taken` (the frame at the page's position in the
    reservation is in use), `no-block` (no block of this size is free).
    """


class ReservationCounts(Record):
    """Reservations of large pages."""

    sizes: list[ReservationsOfSize]
    """Counts by size, largest first."""

    marks_cleared: int
    """Marked frames whose marks were cleared when their reservation was broken
    (`os.reservations.marks`).
    """


class NestedCounts(Record):
    """The host of a virtual machine.

    The levels in `Walks` are those of the guest's page table; the host's references by level are
    here, and both are in the sums of `Walks`.
    """

    page_size: str
    """The host's page size."""

    walks: int
    """Walks of the host's page table."""

    references: int
    """References of the walks of the host's page table."""

    by_level: list[LevelCounts]
    """References of the walks of the host's page table by its level, root first."""

    tlb: HitsAndMisses | None
    """Lookups of the nested TLB, if there is one."""

    mmu_cache: MmuCacheCounts | None
    """MMU cache of the host's walks, if there is one.

    If guest and host share one cache (`nested.shared`), `arrays` repeats the arrays of the guest's
    cache, and searches are counted only in the guest's counts.
    """

    spec_tlb: SpecTlbCounts | None
    """SpecTLB for the host's walks, if there is one.

    Predictions are counted per walk of the host.
    """

    critical_references: int | None
    """References to tables of the guest and of the host for which the access has to wait, because
    no right prediction overlaps them; `None` without a SpecTLB.
    """

    reservations: ReservationCounts | None
    """Reservations of the host, if it makes any."""

    reserved_bytes: int
    """Bytes of the host's memory that are reserved and not in use."""

    former_bytes: int
    """Bytes that former guests still use (`nested.former`)."""

    first_touches: int
    """Pages that the host mapped at their first use."""

    splintered: int
    """Walks whose guest page is larger than the host's page, so that the TLB was filled with only a
    part of the guest page.
    """

    used_bytes: int
    """Bytes of the host's frames in use."""

    table_bytes: int
    """Bytes of frames that hold the host's page table."""


class CacheTraffic(Record):
    """Reads and writes of a cache by the program or by the walker."""

    reads: int
    """Lines read."""

    read_misses: int
    """Lines read that were not in the cache."""

    writes: int
    """Lines written."""

    write_misses: int
    """Lines written that were not in the cache."""


class CacheFlushes(Record):
    """Flushes of a cache that holds lines by virtual addresses."""

    times: int
    """Number of flushes, of the whole cache or of the lines of some pages."""

    looked: int
    """Lines checked in flushes."""

    lines: int
    """Lines removed."""

    written: int
    """Removed lines that were dirty and were written to memory."""


class CacheCounts(Record):
    """Counts of one data cache."""

    name: str
    """Name of the cache in the machine file."""

    size_bytes: int
    """Bytes of data that the cache holds."""

    line_bytes: int
    """Bytes per line."""

    ways: int
    """Ways."""

    replacement: str
    """Replacement policy."""

    program: CacheTraffic
    """Accesses by the program, counted per line."""

    walker: CacheTraffic
    """Accesses by the walker, counted per line."""

    writebacks: int
    """Dirty lines written to the next level."""

    flushes: CacheFlushes | None
    """Flushes, if the cache holds lines by virtual addresses."""


class Faults(Record):
    """Page faults that the operating system handled."""

    first_touch: int
    """First touches of a page."""

    returned: int
    """Faults on pages that had been in memory before: the page was read from swap, or only its
    translation was missing.
    """

    protection: int
    """Accesses that the rights in the page table forbade, and that the operating system then
    allowed.
    """


class SizeReasons(Record):
    """Pages loaded at faults in one region, by the reason for their size."""

    region: str
    """Name of the region in `regions`."""

    pages: dict[str, int]
    """Pages by the reason for their size."""


class SizeDecision(Record):
    """Pages for which a size was requested."""

    region: str
    """Name, as in `regions`, of the region in which the fault occurred or, for an upgrade, in which
    the large page begins.
    """

    wanted: str
    """The requested size."""

    got: str
    """The obtained size."""

    why: str
    """Why the requested size was not obtained, or `obtained`."""

    pages: int
    """Number of pages, in units of the obtained size."""


class LevelPasses(Record):
    """Passes of one level."""

    passes: int
    """Passes."""

    made: int
    """Large free pages made by passes of this level."""


class DaemonSample(Record):
    """Work of the coalescing daemon between two samples."""

    access: int
    """Index of the access at which the last pass of this sample ended."""

    passes: int
    """Passes."""

    made: int
    """Large free pages made."""

    moved: int
    """Base pages moved."""

    flushes: int
    """Shootdowns for moving pages."""


class DaemonCounts(Record):
    """Work of the coalescing daemon."""

    levels: dict[str, LevelPasses]
    """Passes by level: `weak`, `mild`, `strong`."""

    over_time: list[DaemonSample]
    """Work over time, a few hundred samples at most."""


class DeviceCounts(Record):
    """Frames lent to devices (`os.devices`)."""

    pages: int
    """Frames lent at the end."""

    lent: int
    """Frames lent in total."""

    returned: int
    """Frames returned."""

    refused: int
    """Requests for which no frame was free (with `apart`: no block of 2M)."""

    blocks: int
    """Blocks of 2M that only devices use."""

    marks_cleared: int
    """Marked frames whose marks were cleared because a device got a frame in their block."""


class KhugepagedCounts(Record):
    """Work of `khugepaged`."""

    passes: int
    """Number of passes."""

    results: dict[str, int]
    """Blocks of 2M scanned, by the result of the scan, under the kernel's names for the results."""


class CompactionCounts(Record):
    """Runs of memory compaction."""

    results: dict[str, int]
    """Number of runs by result, under the kernel's names for the results."""

    woken: int
    """Runs by the daemon after it was woken; included in `results`."""

    proactive: int
    """Runs that the daemon started without being woken; included in `results`."""

    blocks: int
    """Page blocks scanned for pages to move."""

    moved: int
    """Base pages moved."""


class PageBlockCounts(Record):
    """Page blocks, which separate movable from unmovable frames."""

    by_type: dict[str, int]
    """Page blocks at the end, by the type of their frames."""

    claimed: int
    """Page blocks that changed their type."""

    stolen: int
    """Base frames that were allocated from page blocks of another type, while the blocks kept their
    type.
    """


class ChosenBlocks(Record):
    """Work of the daemons of `ingens` and `hawkeye`."""

    filled: int
    """Blocks that reached `util_threshold` (`ingens`)."""

    samples: int
    """Times that accessed bits were read (`hawkeye`, and `ingens` with `deferred_mode` 2)."""

    sampled: int
    """Base pages whose accessed bits were read (`ingens`)."""

    hot: int
    """Base pages that were hot at the last sample (`ingens`).

    A hot page was used in six of eight scans.
    """

    bins: list[int]
    """Blocks at the last sample, by log2 of the number of base pages used in the block."""

    prezeroed: int
    """Free blocks zeroed in advance."""

    recovered: int
    """Base pages that held only zeros and were freed."""


class RangerCounts(Record):
    """Work of the daemon that moves pages into adjacent frames (`os.ranger`)."""

    passes: int
    """Number of passes."""

    moved: int
    """Base pages moved to free frames."""

    exchanged: int
    """Base pages that exchanged their frames with other pages."""

    anchors: int
    """Anchors that were set.

    An anchor is the offset between virtual and physical addresses that the daemon aims at for a
    part of a region.
    """

    promoted: int
    """Blocks that became large pages in place."""


class GroupCounts(Record):
    """A group of processes at the end of the run.

    If the kernel has a counter for a field, the field has the kernel's name.
    """

    name: str
    """Name of the group."""

    current: int
    """Bytes in memory that are charged to the group (`memory.current`)."""

    peak: int
    """Largest number of bytes in memory that were charged to the group (`memory.peak`)."""

    swap_current: int
    """Bytes in swap (`memory.swap.current`)."""

    high: int
    """Times that the group exceeded `memory_high`."""

    max: int
    """Times that the group would have exceeded `memory_max` without an eviction."""

    oom: int
    """Times that no page of the group could be evicted to stay within `memory_max`.

    The kernel ends a process of the group; here the page is still loaded, since the trace continues
    to use it.
    """

    pgsteal: int
    """Base pages evicted because of the group's limits."""

    pswpin: int
    """Base pages read from swap."""

    pswpout: int
    """Base pages written to swap."""


class PoolCounts(Record):
    """A pool of reserved large pages at the end of the run.

    If the kernel has a counter for a field, the field has the kernel's name.
    """

    size: str
    """Page size."""

    asked: int
    """Pages requested for the pool at the beginning of the run."""

    nr_hugepages: int
    """Pages of the pool, in use or free."""

    free_hugepages: int
    """Free pages of the pool."""

    resv_hugepages: int
    """Free pages of the pool that are reserved for mappings."""

    surplus_hugepages: int
    """Pages that came from free memory when the pool was empty, and return to free memory when they
    are freed.
    """

    mapped: int
    """Mappings for which the pool reserved all pages."""

    refused: int
    """Mappings for which the pool had too few pages.

    In the kernel the call fails with `ENOMEM`; here such mappings have ordinary pages, since the
    trace continues to use them.
    """

    taken: int
    """Pages of the pool that faults mapped."""

    bus_errors: int
    """Faults for which the pool had no page.

    The kernel ends the process with `SIGBUS`; here a base page is mapped, since the trace continues
    to use it.
    """


class LinuxCounts(Record):
    """Counts of transparent huge pages."""

    held_bytes: int
    """Bytes of frames, at the end, that no space maps but that are not free, because the large page
    that contains them has not been split. `bytes.anonymous` includes them.
    """

    folios_split: int
    """Large pages with unmapped parts that were split."""

    khugepaged: KhugepagedCounts
    """The daemon that collapses base pages into large pages."""

    zero_bytes: int
    """Bytes of frames that hold the shared zero page."""

    compaction: CompactionCounts
    """Runs of memory compaction."""

    page_blocks: PageBlockCounts
    """Page blocks by type, and base frames taken from them."""

    chosen: ChosenBlocks | None
    """How `ingens` and `hawkeye` chose blocks."""

    ranger: RangerCounts | None
    """The daemon of `translation-ranger`, which moves pages into adjacent frames."""

    stats: dict[str, dict[str, int]] | None
    """Counters by page size, under the kernel's names, if `os.linux.version` names a kernel."""

    groups: list[GroupCounts] | None
    """Groups of processes with limits, if the machine has any.

    The first group has all processes that are in no other group.
    """

    hugetlb: list[PoolCounts] | None
    """Pools of reserved large pages, if the machine has any."""


class RunsOfLength(Record):
    """Runs of adjacent pages in adjacent frames."""

    bytes_min: int
    """Minimum length of the runs in bytes.

    Each run is at least this long and less than twice as long.
    """

    runs: int
    """Number of runs of this length."""

    bytes: int
    """Total bytes of the runs of this length."""


class RegionSizes(Record):
    """A region at the end of a program."""

    space: int
    """Number of the region's address space."""

    name: str
    """Name of the region."""

    start: int
    """Address of the first byte."""

    bytes: int
    """Length in bytes."""

    mapped_by_size: dict[str, int]
    """Mapped bytes by page size."""


class EndOfProgram(Record):
    """Memory at the end of the program at which the amount of mapped memory was largest."""

    access: int
    """Index of the access at which the program ended; 0 if the trace does not record ends of
    programs.
    """

    anonymous: int
    """Private pages that programs have stored to, in bytes."""

    file: int
    """Pages of files, in bytes."""

    shared: int
    """Pages of shared memory, in bytes."""

    tables: int
    """Page tables, in bytes."""

    free: int
    """Free memory in bytes."""

    reserved: int
    """Reserved and not yet used frames in bytes; they are freed when memory runs out."""

    swapped: int
    """Pages that are in swap and not in memory, in bytes."""

    mapped_by_size: dict[str, int]
    """Mapped bytes by page size; a frame to which several pages are mapped counts once for each
    page.
    """

    runs: list[RunsOfLength]
    """Runs of adjacent pages in adjacent frames, by length."""

    regions: list[RegionSizes]
    """Regions with mapped pages, by address.

    The shared zero page counts as not mapped, here and in the other fields of this structure.
    """


class KindBytes(Record):
    """Bytes of memory by use."""

    anonymous: int
    """Private pages that programs have stored to, in bytes."""

    file: int
    """Pages of files, in bytes."""

    shared: int
    """Pages of shared memory, in bytes."""

    tables: int
    """Page tables, in bytes."""

    free: int
    """Free memory in bytes."""

    reserved: int
    """Reserved and not yet used frames in bytes; they are freed when memory runs out."""

    swapped: int
    """Pages that are in swap and not in memory, in bytes."""


class ReservationSample(Record):
    """Counts of reservations of all sizes, from the beginning of the run up to one point."""

    made: int
    """Reservations made."""

    filled: int
    """Number of times that a reservation became full."""

    emptied: int
    """Reservations freed as a whole."""

    broken: dict[str, int]
    """Reservations broken, by reason."""


class MemorySample(Record):
    """Memory at one point of the run."""

    access: int
    """Index of the access, from 0."""

    anonymous: int
    """Private pages that programs have stored to, in bytes."""

    file: int
    """Pages of files, in bytes."""

    shared: int
    """Pages of shared memory, in bytes."""

    tables: int
    """Page tables, in bytes."""

    free: int
    """Free memory in bytes."""

    reserved: int
    """Reserved and not yet used frames in bytes; they are freed when memory runs out."""

    swapped: int
    """Pages that are in swap and not in memory, in bytes."""

    pages_by_size: dict[str, int]
    """Mapped pages by size."""

    reservations: ReservationSample | None
    """Reservations up to this point, if the manager makes any."""


class ManagerCounts(Record):
    """Counts of a memory manager that also models shared frames, copies and eviction."""

    replacement: str
    """The replacement policy."""

    faults: dict[str, int]
    """Faults by how they were resolved."""

    unexplained: int
    """Accesses that are outside all regions of the trace, or that the rights of their region
    forbid.
    """

    work: dict[str, int]
    """The kernel's work by kind."""

    io_requests: int
    """Disk requests; pages that are adjacent in memory and on the disk are one request."""

    io_cycles: int
    """Cycles of all disk requests, if no two of them overlap."""

    cycles: dict[str, int]
    """Cycles of the kernel's work by kind, at the prices in `[os.costs.work]`; empty if the machine
    file has no prices.
    """

    page_sizes: list[SizeReasons]
    """Pages loaded at faults, by region and by the reason for their size."""

    sizes: list[SizeDecision]
    """Pages for which a size was requested, by region, requested size, obtained size and reason."""

    upgrades: list[SizeDecision]
    """Large pages requested by upgrades, in the form of `sizes`."""

    daemon: DaemonCounts | None
    """The daemon that coalesces free memory, if there is one."""

    reservations: ReservationCounts | None
    """Reservations, if the manager makes any."""

    devices: DeviceCounts | None
    """Frames lent to devices, if there are devices."""

    linux: LinuxCounts | None
    """Transparent huge pages, if the manager has them."""

    end: EndOfProgram
    """Memory at one point in time: the end of the program, or of the trace, at which the amount of
    mapped memory was largest.
    """

    bytes: KindBytes
    """Bytes of memory by use, at the end."""

    over_time: list[MemorySample]
    """Bytes of memory by use, over time: samples when the values change, a few hundred at most."""


class PromotionsOfSize(Record):
    """Pages that were promoted to one size."""

    size: str
    """Page size."""

    threshold_misses: int
    """Misses that must be charged to a candidate before it is promoted."""

    promoted: int
    """Pages promoted to this size."""

    refused: int
    """Failed promotions; `manager.upgrades` has the reasons, if the manager records them."""


class PromotionCounts(Record):
    """Online promotion: misses charged, and pages promoted."""

    misses: int
    """Lookups that missed every TLB on pages that could be promoted to a larger size, except first
    touches. The kernel counts each of these misses.
    """

    charged: int
    """Misses in `misses` that were charged to a larger page that pages could be promoted to (a
    candidate), because this larger page would have been in a TLB.
    """

    counting_cycles: int
    """Cycles for counting `misses`; they are part of the kernel's time."""

    sizes: list[PromotionsOfSize]
    """Counts by page size, smallest first."""


class NodeCounts(Record):
    """Memory of one node, and accesses of its processors."""

    processors: list[int]
    """Numbers of the node's processors."""

    distances: list[int]
    """Distance to each node, in tenths of the latency of local memory."""

    total_bytes: int
    """Bytes of all frames of the node."""

    used_bytes: int | None
    """Bytes of frames in use or reserved at the end; `None` if the frames are those of the trace.
    """

    misses: list[int]
    """Lookups by the node's processors that missed every TLB, by the node of the page."""

    accesses: list[int]
    """Program accesses by the node's processors that memory served, by the node of that memory."""

    walk_references: list[int]
    """Walk references of the node's processors that memory served, by the node of that memory."""


class MigrationCounts(Record):
    """Migration of pages to the node that refers to them most."""

    references: int
    """Lookups that missed every TLB, for pages that can migrate; each counts as a reference to its
    page.
    """

    counting_cycles: int
    """Cycles for counting references; they are part of the kernel's time."""

    pages: int
    """Pages that moved, of any size."""

    base_pages: int
    """Base pages contained in the pages that moved."""

    refused: dict[str, int]
    """Pages that should have moved but could not, by reason."""


class NumaCounts(Record):
    """Memory nodes: references by node, and pages that moved."""

    nodes: list[NodeCounts]
    """The nodes by number."""

    local_misses: int
    """Lookups that missed every TLB, for pages on the processor's own node."""

    remote_misses: int
    """Lookups that missed every TLB, for pages on another node."""

    migration: MigrationCounts | None
    """Migration of pages to the node that refers to them most; `None` if references are not
    counted.
    """


class ChangedSetting(Record):
    """A setting that changed during the run."""

    access: int
    """Index of the access before which the setting changed, from 0."""

    time: int
    """Time set for the change, in cycles of the operating system's clock."""

    key: str
    """Key of the setting."""

    value: str
    """New value, as in a machine file."""


class ShootdownCounts(Record):
    """Counts of shootdowns.

    A shootdown is a change of a page table after which TLBs and MMU caches must be flushed. If the
    machine defers flushes (`os.flush.deferred`), the processor that makes the shootdown interrupts
    no other processor. Each other processor makes the flushes that were left to it in its next
    sweep: after `os.flush.sweep_cycles`, or when it enters another space.
    """

    made: int
    """Shootdowns made.

    A change of a space causes a shootdown if some processor may hold translations of this space.
    """

    asked: int
    """Interrupts that were sent to other processors for shootdowns."""

    received: int
    """Interrupts received."""

    entries: int
    """TLB entries flushed, at all levels."""

    broadcast: int | None
    """Shootdowns made that were broadcast to all processors, which interrupts none; `None` if the
    machine has no broadcast flushes.
    """

    widened: int | None
    """Shootdowns made that flushed a whole space because too many pages had changed; `None` if the
    machine has no such limit.
    """

    deferred: int | None
    """Shootdowns made that left the flushes of at least one other processor to that processor's
    next sweep (`os.flush.deferred`); `None` if the machine defers no flushes.
    """

    swept: int | None
    """Flushes that processors made in their sweeps; `None` if the machine defers no flushes."""

    swept_early: int | None
    """Times that all processors swept early, because a page was to be mapped at an address for
    which a flush was still left to some processor; `None` if the machine defers no flushes.
    """

    sender_cycles: int | None
    """Cycles of the processors that made shootdowns: their own flush, sending, and the wait for the
    slowest answer; `None` if the machine has no `[os.costs]`.
    """

    receiver_cycles: int | None
    """Cycles of the interrupted processors; `None` if the machine has no `[os.costs]`."""


class ProcessorCounts(Record):
    """Counts of one of several processors."""

    number: int
    """Number of the processor, from 0."""

    accesses: ByKind[int]
    """Accesses that ran on the processor, by kind."""

    instructions: int
    """Instructions that ran on the processor."""

    switches: int
    """Switches of address space on the processor."""

    tlbs: Named[TlbCounts]
    """Counts of the processor's TLBs."""

    walks: Walks
    """Counts of the processor's walks."""

    mmu_cache: MmuCacheCounts | None
    """MMU cache of the processor's walker."""

    spec_tlb: SpecTlbCounts | None
    """Counts of the processor's SpecTLB."""

    range_tlb: RangeTlbCounts | None
    """Counts of the processor's range TLB."""

    restseg: RestSegCounts | None
    """Counts of the processor's lookups in restrictive segments."""

    caches: Named[CacheCounts]
    """Counts of the processor's data caches, without the shared `l3`."""

    shootdowns: ShootdownCounts
    """Shootdowns that the processor made, interrupts that it received, and entries flushed from its
    TLBs.
    """


class MemoryCounts(Record):
    """Physical memory at the end of the run; `frames_peak_bytes` is the maximum during the run."""

    frames_total_bytes: int
    """Bytes of all frames."""

    frames_used_bytes: int
    """Bytes of frames in use."""

    frames_peak_bytes: int
    """Maximum of the bytes of frames in use."""

    mapped_bytes: int
    """Bytes of frames that are mapped."""

    aged_bytes: int
    """Bytes of frames that were in use before the run began (`memory.aged`)."""

    device_bytes: int
    """Bytes of frames lent to devices; if devices have separate blocks (`os.devices.apart`), bytes
    of these blocks.
    """

    table_bytes: int
    """Bytes of frames that hold page tables."""

    table_used_bytes: int
    """Bytes of page-table nodes, buckets and arrays in use, within `table_bytes`."""

    pages_by_size: dict[str, int]
    """Mapped pages by size."""

    free_by_size: dict[str, int]
    """Free blocks by size, as the allocator lists them.

    Memory is the more fragmented, the more of the free memory is in small blocks.
    """


class RegionCounts(Record):
    """Counts of one region of the address space."""

    name: str
    """Name of the region."""

    start: int
    """Address of the first byte."""

    bytes: int
    """The largest length of the region in bytes during the run."""

    rights: str
    """Access rights, such as `rw-`."""

    inferred: bool
    """Whether the region was inferred from accesses, because the trace has no mapping for it."""

    backing: str | None
    """The backing of the region, if the trace records it: `anonymous` (private memory),
    `shared-memory`, `private-of-shared` (a private mapping of shared memory), `shared-file`,
    `private-file`, `hugetlb`, `stack`, `thread-stack`, `heap`, `bss`.
    """

    populated: str | None
    """When all pages of the region were loaded without being touched: `when-mapped` (`MAP_LOCKED`,
    `MAP_POPULATE`, an earlier `mlockall`) or `when-locked` (`mlock` afterwards); `None` if they
    were not loaded in this way.
    """

    mapped_by_site: bool | None
    """Whether the region's allocation site called `mmap` itself; `None` without a site."""

    site: int | None
    """Index in `origins.sites` of the allocation site that the region was mapped for.

    The region has the site's name.
    """

    pages: int
    """Pages first touched in the region."""

    lookups: int
    """Lookups of first-level TLBs."""

    by_kind: ByKind[int]
    """Lookups of first-level TLBs by kind of access."""

    l1_misses: int
    """Lookups that missed the first-level TLB."""

    misses: int
    """Lookups that missed every TLB."""

    cold_misses: int
    """Lookups that missed every TLB and were the first touch of their page."""

    walk_references: int
    """References of walks for this region."""

    walk_cycles: int | None
    """Upper bound of the translation cycles for this region: the cycles if no translation overlaps
    with other work.
    """


class CodePlace(Record):
    """A place in code."""

    object: str | None
    """Path of the program or library; `None` for code that belongs to no file."""

    identity: str | None
    """Build of the file `object`, such as `build-id 5fa3` or `crc32 1a2b3c4d`."""

    offset: int
    """Offset in the file `object` at which the block begins or to which a call returns; without a
    file, the address. If several places were merged, the lowest of their offsets.
    """

    instruction: int
    """Number of instructions in the basic block before this place."""

    function: str | None
    """Function, by the symbol table."""

    inlined: list[str]
    """Functions that are inlined into `function` at this place, outermost first."""

    file: str | None
    """Source file."""

    line: int | None
    """Line in the source file, from 1."""


class SiteCounts(Record):
    """Counts of one allocation site."""

    name: str
    """Name: function, file and line of the innermost call in the program's own sources, such as
    `grow (table.c:12)`.
    """

    stack: list[CodePlace]
    """Calls that led to the allocation, innermost first, as far as they are known.

    Inlined functions count as calls.
    """

    own: int | None
    """Index in `stack` of the innermost call in the program's own sources; `None` if no line of
    them is known.
    """

    allocations: int
    """Blocks allocated."""

    bytes: int
    """Bytes allocated in total."""

    peak_bytes: int
    """Maximum of bytes allocated at one time."""

    misses: int
    """Lookups of the site's blocks that missed every TLB."""

    cold_misses: int
    """Misses in `misses` that were first touches."""


class MissOrigins(Record):
    """Lookups that missed every TLB, by their origin.

    A row combines the code and thread that missed, the data that it accessed, and the page size.
    """

    code: list[CodePlace]
    """Code that missed: an element for each source line or, if lines are not known, for each
    function or file.
    """

    sites: list[SiteCounts]
    """Allocation sites of a recording with `--allocations`, most misses first.

    A site is listed if it has misses, had 64 KiB allocated at one time, or has a mapping of its
    own.
    """

    misses: list[list[int | None]]
    """`(index in code, index in regions, index in sites, thread, bytes of the page, misses, cold
    misses)`, most misses first; `None` for an index that is not known or does not apply.
    """

    notes: list[str]
    """The reasons why the code of some files has no names: one sentence for each file."""


class Timeline(Record):
    """Misses over time, in equal bins of accesses."""

    bin_accesses: int
    """Accesses per bin."""

    l1_misses: list[int]
    """Misses of the first-level TLBs, by bin."""

    misses: list[int]
    """Lookups that missed every TLB, by bin."""

    cold_misses: list[int]
    """First touches, by bin."""


class MissMap(Record):
    """Lookups that missed every TLB, over address and time."""

    bin_accesses: int
    """Accesses per time bin."""

    granule_bytes: int
    """Bytes per address bin."""

    cells: list[list[int]]
    """`(time bin, address / granule_bytes, misses)`, in order."""

    owners: list[list[int]]
    """`(address / granule_bytes, index in regions, misses)`, in order.

    An address bin has several rows if it contains the end of one region and the beginning of the
    next.
    """


class Range(Record, Generic[T]):
    """Lower and upper bound of a value that the counts do not determine exactly."""

    lo: T
    """Lower bound."""

    hi: T
    """Upper bound."""


class KernelTime(Record):
    """The operating system's time."""

    cycles: int
    """Cycles of the kernel's work, as far as `[os.costs]` has prices for it."""

    by_work: dict[str, int]
    """Cycles of the kernel's work by kind of work: `faults` (or the kinds of work of a manager that
    counts them), `switches` between address spaces, and `shootdowns`.
    """

    io_cycles: int
    """Cycles of waiting for disks, if no two transfers overlap."""

    share: Range[float]
    """Share of `cycles` and `io_cycles` in all cycles.

    The lower bound uses the upper bound of the time of program and translation, and the upper bound
    uses the lower bound of this time.
    """


class Time(Record):
    """Time: counts multiplied by latencies.

    Each value is a range whose bounds are valid however much work overlaps.
    """

    program_cycles: Range[int]
    """Cycles without translation: instructions at their rate, and data-cache misses.

    In the lower bound, misses overlap as far as the machine allows. In the upper bound, they do not
    overlap.
    """

    translation_cycles: Range[int]
    """Cycles of translation: every TLB lookup and every walk.

    In the lower bound, all translation by hardware overlaps with other work; a software refill
    handler cannot overlap.
    """

    cycles_per_access: Range[float]
    """Cycles of translation per access."""

    kernel: KernelTime | None
    """The operating system's time, which is part of no other field; `None` if the machine has no
    `[os.costs]`.
    """

    share: Range[float]
    """Translation's share of the cycles of program and translation.

    The lower bound combines the lower bound of translation with the upper bound of the program. The
    upper bound combines the upper bound of translation with the lower bound of the program.
    """


class Peak(Record):
    """Memory of a native run at its peak."""

    resident_bytes: int
    """Resident bytes."""

    by_page_size: dict[str, int]
    """Resident bytes by page size."""


class Native(Record):
    """The native run of the recorded program (`--native`)."""

    schema: int
    """Version of this document structure."""

    command: list[str]
    """The command that was run."""

    wall_seconds: float
    """Wall time in seconds."""

    user_seconds: float
    """Time in user mode in seconds."""

    system_seconds: float
    """Time in the kernel in seconds."""

    minor_faults: int | None
    """Page faults that waited for no disk; `None` in recordings of versions that did not count
    them.
    """

    exit_status: int
    """Exit status."""

    resident_bytes_max: int
    """Peak of the program's resident bytes."""

    recorded_status: int
    """Exit status of the recorded run."""

    stdin: bool
    """Whether the native run got the same standard input as the recorded run."""

    peak: Peak | None
    """Memory by page size at the peak, if it was sampled."""

    translation_ms: Range[float] | None
    """Milliseconds of the program's user time that translation takes; `None` if they cannot be
    computed.
    """

    no_ms: str | None
    """The reason why `translation_ms` cannot be computed."""


class Advice(Record):
    """Advice on how to reduce the misses, from LRU curves of the whole run."""

    sentence: str
    """The advice in a sentence."""

    misses_share: float
    """The share of lookups that may miss, not counting first touches, with the number of entries
    that `entries` gives.
    """

    lookups: int
    """Loads and stores of the whole run."""

    entries: dict[str, int | None]
    """Entries that a fully associative LRU TLB needs to reach `misses_share`, by page size; `None`:
    more than 65536. An estimate if `one_in` is not 1.
    """

    one_in: dict[str, int]
    """Sampling rate by page size: with N, the curve was computed from one page in N; 1: from all
    pages.
    """


class Estimate(Record):
    """Best estimate of translation's time, within `time.share`."""

    share: float
    """Share of the time in user mode."""

    ms: float | None
    """Milliseconds of the native run; `None` without a usable native run."""

    how: str
    """What the estimate is based on."""

    here: bool | None
    """Whether the machine file is for this computer's processor; `None` if it is not known."""


class Document(Record):
    """The results of a run."""

    schema: int
    """Version of this document structure."""

    pagewalk: str
    """Version of Pagewalk that made the results."""

    trace: TraceSummary
    """The trace that was run."""

    machine: MachineSummary
    """The machine that ran the trace."""

    accesses: ByKind[int]
    """Counted accesses by kind (without warm-up)."""

    instructions: int
    """Counted instructions."""

    threads: int
    """Threads of the trace."""

    switches: Switches | None
    """How a processor switched between programs, if the trace has several programs."""

    page_crossings: int
    """Accesses that touched two pages; each such access looks up both pages."""

    tlbs: Named[TlbCounts]
    """Counts of each TLB, first level first."""

    space_switches: SpaceSwitches
    """Switches between address spaces, with their flushes and costs."""

    small_spaces: SmallSpaceCounts | None
    """Counts for small address spaces (`os.small`), if the machine has them."""

    trace_cache: TraceCacheCounts | None
    """Counts of the trace cache, if the machine has one."""

    walks: Walks
    """Counts of page-table walks."""

    mmu_cache: MmuCacheCounts | None
    """Counts of the walker's MMU cache, if the walker has one."""

    spec_tlb: SpecTlbCounts | None
    """Counts of the SpecTLB, which predicts frames on TLB misses, if there is one."""

    range_tlb: RangeTlbCounts | None
    """Counts of the range TLB, which translates ranges of any length, if there is one."""

    restseg: RestSegCounts | None
    """Counts of lookups in restrictive segments (`[restseg]`), if there are any."""

    nested: NestedCounts | None
    """Counts of the host in a virtual machine."""

    caches: Named[CacheCounts]
    """Counts of each data cache, nearest first."""

    faults: Faults
    """Page faults that the operating system handled."""

    manager: ManagerCounts | None
    """Further counts of the memory manager, if it has any."""

    promotion: PromotionCounts | None
    """Counts of online promotion (`os.promotion`), if it is on."""

    numa: NumaCounts | None
    """Counts of memory nodes (`[memory.numa]`), if there are several."""

    changed_settings: list[ChangedSetting]
    """Settings that changed during the run (`[[os.at]]`), in order.

    Changes whose time the run did not reach are left out.
    """

    shootdowns: ShootdownCounts
    """Shootdowns, summed over all processors."""

    processors: list[ProcessorCounts]
    """Counts of each processor, if there are several.

    The other counts of the document are sums over all processors.
    """

    memory: MemoryCounts
    """Physical memory at the end of the run."""

    regions: list[RegionCounts]
    """Counts of each region of the address space, in order of address."""

    origins: MissOrigins | None
    """Misses by the code, thread and data that caused them; absent in the results of sweeps."""

    timeline: Timeline
    """Misses over time."""

    map: MissMap
    """Misses over address and time."""

    time: Time | None
    """The time of the run, if the machine file has all latencies from which it is computed."""

    not_modelled: list[str]
    """Effects that this run does not model."""

    checked: bool
    """Whether each translation was compared with the page table."""

    native: Native | None
    """The native run of the recorded program, if there was one."""

    advice: Advice | None
    """Advice on how to reduce the misses, if it was requested."""

    estimate: Estimate | None
    """Best estimate of translation's time; `None` if the machine file has no latencies."""


class StatEvent(Record):
    """An event, how often it occurred, and its cycles."""

    part: str
    """Part that the event's cycles belong to: `program`, `translation` or `kernel`."""

    name: str
    """Name of the event."""

    count: int | None
    """How often the event occurred; `None` if only its cycles are known."""

    cycles: Range[float] | None
    """Cycles of the event; `None` if they belong to other events, or are not known."""

    share: Range[float] | None
    """The event's share of all cycles: the lower bound combines the event's lower bound with the
    upper bounds of the others, and the upper bound the reverse.
    """


class Stat(Record):
    """Counts of a run and the cycles of each, as `pagewalk stat` shows them."""

    schema: int
    """Version of this document structure."""

    pagewalk: str
    """Version of Pagewalk that made the document."""

    trace: TraceSummary
    """The trace that was run."""

    machine: MachineSummary
    """The machine that ran the trace."""

    events: list[StatEvent]
    """Events of the program, of translation and of the kernel."""

    cycles: Range[float] | None
    """Cycles of all events together; `None` if the machine file leaves out latencies."""

    translation_ms: Range[float] | None
    """Milliseconds of the native run's user time that translation takes, if there was a native run
    and they can be computed.
    """

    not_modelled: list[str]
    """What the run does not model."""


class GainOfCpu(Record):
    """The predicted gain of CPU time, in user mode and in the kernel, as a share."""

    lo: float
    """The lower end of the range in which the gain is likely to be measured."""

    hi: float
    """The upper end of the range in which the gain is likely to be measured."""

    best: float
    """The best estimate: the middle of the range from `lo` to `hi`."""

    translation_ms: float
    """Milliseconds of the native run that translation contributes to `best`."""

    faults_ms: float
    """Milliseconds of the native run that page faults contribute to `best`."""


class PlacedRun(Record):
    """A run with a set of place rules."""

    rules: list[str]
    """The place rules of the run."""

    misses: int
    """Lookups that missed every TLB, not counting first touches."""

    cold_misses: int
    """First touches of a page, which miss every TLB."""

    memory_bytes: int
    """Peak of memory in use, including page tables."""

    memory_added_bytes: int
    """`memory_bytes` minus that of the run with base pages."""

    translation_cycles: Range[float] | None
    """Cycles of translation; `None` if the machine file has no latencies."""

    gain_cycles: Range[float] | None
    """Translation cycles saved, compared with base pages."""

    gain_ms: Range[float] | None
    """Translation cycles saved, in milliseconds of the native run; `None` without a native run."""

    gain_share: Range[float] | None
    """Share of the user time with base pages that is saved."""

    gain_likely: Range[float] | None
    """The range of shares in which the gain is likely to be measured, computed from the time of the
    native run; `None` without a native run, or if the machine file is not calibrated.
    """

    gain_best: float | None
    """The best estimate in the range `gain_share`, from an estimate of how many misses overlap."""

    gain_best_ms: float | None
    """`gain_best` in milliseconds of the native run; `None` without a native run."""

    gain_of_cpu: GainOfCpu | None
    """The predicted gain of CPU time, with page faults; `None` without a native run, if the machine
    file is not calibrated, or with pages that are larger than the base pages and are not of 2M.
    """

    kernel_gain_cycles: float | None
    """Kernel cycles saved in faults, switches and shootdowns."""

    why: dict[str, int]
    """Pages for which a size was requested, by the reason for their actual size."""


class RegionsAtSize(Record):
    """Counts of a group of regions in the run in which all groups had one page size."""

    misses: int
    """Lookups that missed every TLB, not counting first touches."""

    cold_misses: int
    """First touches of a page."""

    large_pages: int
    """Pages larger than base pages that were first touched in the group."""

    memory_added_bytes: int
    """Memory added compared with base pages, estimated from the touched pages."""

    saved_share: float
    """The cost that the group saves at this size, as a share of the whole cost with base pages.

    The cost is that of translation or, if `gain_of_cpu` is known, that of translation and page
    faults.
    """


class AdvisedRegion(Record):
    """A region, and the page size that is advised for it."""

    name: str
    """Name of the region in results."""

    start: int
    """Address of the first byte."""

    bytes: int
    """Length in bytes."""

    place: str
    """How a place rule names the region."""

    backing: str | None
    """What backs the region, as in `RegionCounts`."""

    misses: int
    """Lookups in the region that missed every TLB with base pages, not counting first touches."""

    cold_misses: int
    """First touches of base pages in the region."""

    group: int | None
    """Number of the region's group.

    Regions of a group have equal length, allocation site and backing, and get one page size. `None`
    if the region cannot have large pages on Linux.
    """

    together: dict[str, RegionsAtSize]
    """Counts of the group in runs in which all groups had one page size, by this size; empty with
    `exact`.
    """

    alone: dict[str, PlacedRun]
    """Runs in which only this region had a larger size, by that size; empty without `exact`, and if
    the region cannot have large pages on Linux.
    """

    size: str | None
    """The advised size; `None`: base pages."""

    reason: str
    """The reason, in words."""

    write: str | None
    """What to write in the program to get the advised size, and where; `None` if no size is
    advised.
    """

    code: str | None
    """A C function or C++ class that `write` uses, if it needs more than a call."""


class Advised(Record):
    """Page sizes that a program should have, from runs by `pagewalk advise`."""

    schema: int
    """Version of this document structure."""

    pagewalk: str
    """Version of Pagewalk that made the document."""

    trace: TraceSummary
    """The trace that was run."""

    machine: MachineSummary
    """The machine, without requested page sizes."""

    memory_added_max: float
    """How much memory the advice may add at most, as a share of `base.memory_bytes`."""

    exact: bool
    """Whether each region was run alone at each size (`--exact`)."""

    runs: int
    """Number of runs of the trace, including the one with base pages."""

    here: bool | None
    """Whether the machine file is for this computer's processor; `None` if it is not known."""

    how: str | None
    """What the best estimates are based on; `None` if the machine file has no latencies."""

    base: PlacedRun
    """The run with base pages alone."""

    regions: list[AdvisedRegion]
    """Regions that were tried, and regions that cannot have large pages on Linux; most misses
    first.
    """

    regions_left_out: int
    """Number of regions that were not tried.

    A region is not tried if its group has fewer than 0.1 % of the misses, if it lies in a region
    that was tried, or if it has no room for a page of the smallest size above the base page.
    """

    misses_left_out: int
    """Misses of the regions that were not tried, including first touches."""

    uniform: dict[str, PlacedRun]
    """Runs in which all tried regions have one page size, by that size.

    If there are more than two larger sizes and `exact` is false, only a middle one and the largest
    are run.
    """

    sets: list[PlacedRun]
    """Sets of regions with page sizes that were run, in order of the memory that they add.

    Each set gains more than every other set that adds at most as much memory.
    """

    best: PlacedRun | None
    """The advised set; `None`: base pages."""

    notes: list[str]
    """Notes on the lines in `write`."""


class ManagerKind(Record):
    """A memory manager."""

    name: str
    """The manager's name in the tables."""

    what: str
    """What the manager does, in a sentence."""

    settings: list[str]
    """Settings that select the manager."""

    keys: list[str]
    """Keys of a machine file that belong to the manager."""


class ManagedRow(Record):
    """A run of a trace under one memory manager."""

    manager: str
    """The manager's name, as in `ManagerKind.name`."""

    settings: list[str]
    """Settings that select the manager."""

    mapped_by_size: dict[str, int]
    """Mapped bytes by page size, at one point in time: the end of the program, or of the trace, at
    which the amount of mapped memory was largest.
    """

    large_share: float
    """Share of the mapped bytes in pages larger than 4K."""

    why: dict[str, int]
    """Pages loaded at faults, by the reason for their size."""

    memory_bytes: int
    """Bytes of memory in pages, at the same point as `mapped_by_size`."""

    bloat_bytes: int | None
    """`memory_bytes` minus that of the run with base pages; `None` if base pages did not run."""

    swapped_bytes: int
    """Bytes in swap, at the same point as `mapped_by_size`."""

    tlb_misses: int
    """Lookups that missed every TLB, in the whole run."""

    references: int
    """References of all walks."""

    translation_cycles: Range[float] | None
    """Cycles of translation; `None` if the machine file has no latencies."""

    translation_best_cycles: float | None
    """The best estimate in the range `translation_cycles`, from an estimate of how many misses
    overlap.
    """

    kernel_cycles: int | None
    """Cycles of the kernel's work; `None` if the machine has no prices for it."""

    io_cycles: int
    """Cycles of waiting for disks."""

    faults: int
    """Page faults."""

    work: dict[str, int]
    """The kernel's work by kind."""

    runs: list[RunsOfLength]
    """Runs of adjacent pages in adjacent frames, at the same point as `mapped_by_size`."""


class ManagedTrace(Record):
    """A trace under every memory manager."""

    trace: TraceSummary
    """The trace that was run."""

    settings: list[str]
    """Settings that changed the machine, including memory."""

    base_peak_bytes: int
    """Peak of memory in use with base pages and the machine's own memory."""

    here: bool | None
    """Whether the machine file is for this computer's processor; `None` if it is not known."""

    how: str | None
    """What the best estimates are based on; `None` if the machine file has no latencies."""

    rows: list[ManagedRow]
    """A row per manager that ran."""

    refused: dict[str, str]
    """Managers that could not run, with the reason."""


class Managed(Record):
    """Programs under every memory manager."""

    schema: int
    """Version of this document structure."""

    pagewalk: str
    """Version of Pagewalk that made the document."""

    machine: str
    """Name of the machine."""

    title: str
    """Title of the machine."""

    settings: list[str]
    """Settings that changed the machine."""

    aged: list[float] | None
    """Shares of memory that are free and that are wired before the runs (`--aged`); `None`: all
    memory is free.
    """

    memory: str | None
    """Requested amount of memory (`--memory`); `None`: the machine's own."""

    kinds: list[ManagerKind]
    """The memory managers."""

    traces: list[ManagedTrace]
    """A table per trace."""

    notes: list[str]
    """Notes on the tables."""


class TimeUse(Record):
    """How the cycles of all processors were used.

    The sum of all fields is the number of processors times the cycles until the last processor
    ended its work.
    """

    work_cycles: int
    """Work: of the load itself, the memory manager and the HAT layer."""

    lock_cycles: int
    """Taking and releasing locks, including the transfer of their cache lines from other
    processors.
    """

    wait_cycles: int
    """Waiting for locks and busy descriptors, without the time of interrupts that arrive during the
    wait.
    """

    shootdown_cycles: int
    """Sending shootdowns, waiting for answers, flushing caches."""

    interrupt_cycles: int
    """Answering shootdowns of other processors."""

    ended_cycles: int
    """Idle cycles from the end of the processor's own work to the end of the last processor's work.
    """


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
    """The number of times a lock of the class was taken."""

    contended: int
    """The number of times a lock of the class was found held by another thread."""

    transfers: int
    """The number of acquisitions of a lock that another processor had held last, so that the lock's
    cache line had to be fetched.
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
    """Deferred flushes: a processor flushed a space when it entered the space again."""

    wait_cycles: int
    """Cycles that senders waited for answers."""

    cache_pages: int
    """Pages flushed from caches that are indexed by virtual addresses.

    A page is counted once for each processor that may hold lines of it.
    """

    cache_spaces: int
    """Whole spaces flushed from caches that are indexed by virtual addresses.

    A space is counted once for each processor that may hold lines of it.
    """


class ContextUse(Record):
    """The number of times that a processor entered a space, by how the space got its context.

    Each such time is called an entry.
    """

    unlisted: int
    """Times that a processor entered a space that had a context, without acquiring a lock."""

    listed: int
    """Times that a processor entered a space that had a context and acquired the lock of the list
    of contexts, which is ordered by use.
    """

    taken: int
    """Times that a processor entered a space that had no context and was given one."""

    stolen: int
    """Times, included in `taken`, that the space was given a context of another space, which lost
    it.
    """


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
    """Whether the load called only the HAT layer."""

    operations: int
    """The number of operations of all processors."""

    cycles: int
    """Cycles until the last operation had ended."""

    throughput: float
    """Operations per million cycles."""

    time: TimeUse
    """How the cycles of all processors were spent."""

    locks: dict[str, LockShare]
    """The costs of the locks, by the name of the class of locks."""

    acquisitions_per_operation: float
    """Acquisitions of all locks, per operation."""

    wait_cycles_per_operation: float
    """Cycles that processors waited for locks, per operation."""

    shootdowns: ShootCounts
    """The counts of shootdowns."""

    contexts: ContextUse | None
    """Counts of how spaces got their contexts; `None` if the number of contexts is not limited."""

    steals: int
    """The number of spaces that lost their page tables to other spaces."""

    table_bytes_peak: int
    """The largest size of all page tables together at any time, in bytes."""


class Hat(Record):
    """Loads on processors in virtual time, under several locking schemes."""

    schema: int
    """Version of this document structure."""

    pagewalk: str
    """Version of Pagewalk that made the document."""

    on: str
    """Always `model`."""

    settings: dict[str, Any]
    """Settings of the command."""

    runs: list[HatOutcome]
    """The runs, one per combination of settings."""

    not_modelled: list[str]
    """What is not modelled."""


class HostPrices(Record):
    """Durations on the host, in nanoseconds."""

    lock_ns: float
    """Taking an uncontended lock, or releasing it."""

    transfer_ns: float
    """Fetching a cache line that another thread wrote last."""

    release_ns: float
    """Releasing a lock while another thread spins for it and has its cache line."""

    handover_ns: float
    """The time from a release until a spinning thread that tries at that moment has the lock."""

    pause_ns: float
    """The time from one attempt of a spinning thread to its next attempt; each attempt takes the
    cache line from the lock's holder.
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
    """Whether the load called only the HAT layer."""

    nanoseconds: float
    """Nanoseconds per operation of one thread on the shared layer.

    This value and the next two are from one round: from the judged round with the median scaling
    or, if no round is judged, from the round with the median scaling of the control.
    """

    control_nanoseconds: float
    """Nanoseconds per operation of one thread of the control."""

    control_scaling: float
    """The throughput of the control on all threads, divided by that on one thread."""

    acquisitions: dict[str, int]
    """By class of locks: the number of acquisitions by one thread.

    The thread does the number of operations that a processor does in virtual time, so the
    acquisitions must equal those in virtual time.
    """

    judged_rounds: int
    """The number of rounds that are judged, because they are valid.

    In a valid round, the control scales, the two times of the same work agree, and the transfer of
    a cache line between threads takes the same time at the end as at the beginning.
    """

    scaling: float | None
    """The throughput of the shared layer on all threads, divided by that on one thread: the median
    of the judged rounds; `None` if there are none.
    """

    predicted: float | None
    """The value of `scaling` that virtual time predicts at this host's prices.

    `None` if no round is judged. Also `None` for loads that do other work between their operations,
    because threads on the host do not do this work.
    """

    cycle_ns: float | None
    """Nanoseconds of a counted instruction in the prediction: the time of an operation on one
    thread without its locks, divided by the instructions of an operation. `None` if `predicted`
    is `None`.
    """

    lines_ns: float | None
    """Nanoseconds per operation for cache lines that another thread has written, except the lines
    of locks. This is the additional time of an operation if threads take turns with single
    operations, without the time of transferring the lines of locks. `None` if `predicted` is
    `None`.
    """

    prices: HostPrices | None
    """The prices of locks and cache lines on this host; `None` if they were not measured for a
    prediction.
    """


class HatOnHost(Record):
    """Loads on threads of this host, under several locking schemes."""

    schema: int
    """Version of this document structure."""

    pagewalk: str
    """Version of Pagewalk that made the document."""

    on: str
    """Always `host`."""

    settings: dict[str, Any]
    """Settings of the command."""

    runs: list[HostOutcome]
    """The runs, one per combination of settings."""

    not_modelled: list[str]
    """What is not modelled."""


class SkeletonProcess(Record):
    """A process of a skeleton."""

    name: str
    """Program that the process ran last."""

    steps: int
    """Calls, first touches, forks and intervals of work."""


class SkeletonMade(Record):
    """A skeleton that was written: the memory-management requests of recorded processes."""

    schema: int
    """Version of this document structure."""

    path: str
    """Path of the file."""

    bytes: int
    """Bytes of the file."""

    processes: list[SkeletonProcess]
    """The processes, in order of their numbers."""

    files: int
    """Files that the processes map."""

    steps: int
    """Calls, first touches, forks and intervals of work of all processes."""

    instructions: int
    """Instructions of all processes."""

    warnings: list[str]
    """Warnings about the trace."""
