"""The results document as it is, dictionaries and lists: `make reference` writes it.

It is for type checkers: reports take documents as these types, so that a field that was
renamed in Rust is an error in each of them. `pagewalk.document` says what fields mean.
"""

from typing import Any, Generic, TypedDict, TypeVar

T = TypeVar("T")

Program = TypedDict(
    "Program",
    {
        "arch": str,
        "command": list[str],
        "from": int,
    },
)

class Process(TypedDict):
    number: int
    pid: int
    parent: int | None
    parent_accesses: int | None
    shares_space: bool
    began_ns: int
    programs: list[Program]
    accesses: int
    instructions: int

class LiveSummary(TypedDict):
    counted_accesses: int
    because: str | None
    lost: list[str]

class TraceSummary(TypedDict):
    digest: str | None
    producer: str
    command: list[str]
    arch: str
    fetches: bool
    filter: str
    notes: list[str]
    processes: list[Process]
    live: LiveSummary | None
    name: str

class MachineSummary(TypedDict):
    name: str
    title: str
    source: str
    digest: str
    settings: list[str]
    description: dict[str, Any]

class ByKind(TypedDict, Generic[T]):
    fetch: T
    load: T
    store: T

class Switches(TypedDict):
    order: str
    quantum_instructions: int | None
    cpus: int
    by_cause: dict[str, int]
    unexplained: int

class BlockCounts(TypedDict):
    kind: str
    pages: int
    fills: int
    pages_filled: int
    tag_hits: int

class HitsAndMisses(TypedDict):
    lookups: int
    hits: int
    misses: int

class SizeCounts(TypedDict):
    hits: int
    misses: int

class TlbCounts(TypedDict):
    name: str
    level: int
    serves: list[str]
    entries: int
    ways: list[int]
    replacement: list[str]
    lookups: int
    hits: int
    misses: int
    cold_misses: int
    denied: int
    invalid: int
    evictions: int
    flushed: int
    table_hits: int
    blocks: BlockCounts | None
    by_kind: ByKind[HitsAndMisses]
    by_page_size: dict[str, SizeCounts]

class SpaceSwitches(TypedDict):
    switches: int
    root_loads: int
    emptying: int
    segment_loads: int
    cycles: int | None

class SwitchCycles(TypedDict):
    mean: float
    worst: int

class SmallSpaceCounts(TypedDict):
    slots: int
    slot_bytes: int
    spaces: int
    small: int
    switches: int
    root_loads: int
    segment_loads: int
    copies: int
    promoted: int
    revoked: int
    no_slot: int
    roots_purged: int
    entries_purged: int
    versions_compared: int
    switch_cycles: SwitchCycles | None

class TraceCacheCounts(TypedDict):
    uops: int
    ways: int
    fetches: int
    delivered: int
    lines_delivered: int
    lines_built: int
    emptied: int
    lines_emptied: int
    build_cycles: int

class LevelCounts(TypedDict):
    level: int
    references: int
    served: dict[str, int]

class Walks(TypedDict):
    walks: int
    cold: int
    references: int
    dirty_assists: int
    modify_traps: int
    cold_references: int
    references_per_walk: list[list[int]]
    by_level: list[LevelCounts]
    handler_instructions: int | None
    nested_misses: list[list[int]]

class MmuCacheArray(TypedDict):
    level: int | None
    entries: int
    ways: int
    tag_bits: int | None
    data_bits: int | None

class MmuCacheLevel(TypedDict):
    level: int
    needed: int
    held: int

class MmuCacheCounts(TypedDict):
    design: str
    replacement: str
    arrays: list[MmuCacheArray]
    latency_cycles: int
    searches: int
    by_level: list[MmuCacheLevel]

class SpecOutcome(TypedDict):
    outcome: str
    walks: int
    references: dict[str, int]
    ptes: dict[str, int]
    accesses: ByKind[dict[str, int]]

class SpecTlbCounts(TypedDict):
    entries: int
    ways: int
    replacement: str
    page_size: str
    fill: str
    attempts: int
    right: int
    denied: int
    wrong: dict[str, int]
    none: int
    none_faulted: int
    overlapped: dict[str, int]
    overlapped_cycles: int | None
    devices: int
    devices_reached: int
    outcomes: list[SpecOutcome]

RangeTlbCounts = TypedDict(
    "RangeTlbCounts",
    {
        "entries": int,
        "replacement": str,
        "from": str,
        "lookups": int,
        "hits": int,
        "misses": int,
        "fills": int,
        "evictions": int,
        "flushed": int,
        "ranges": int,
        "range_bytes": int,
    },
)

class RestSegCounts(TypedDict):
    filter_lines: int
    tag_lines: int
    ways: int
    lookups: int
    hits: int
    misses: int
    filtered: int
    filter_reads: int
    tag_reads: int

class ReservationsOfSize(TypedDict):
    size: str
    made: int
    filled: int
    emptied: int
    broken: dict[str, int]
    broken_bytes: int
    placed: int
    unplaced: dict[str, int]

class ReservationCounts(TypedDict):
    sizes: list[ReservationsOfSize]
    marks_cleared: int

class NestedCounts(TypedDict):
    page_size: str
    walks: int
    references: int
    by_level: list[LevelCounts]
    tlb: HitsAndMisses | None
    mmu_cache: MmuCacheCounts | None
    spec_tlb: SpecTlbCounts | None
    critical_references: int | None
    reservations: ReservationCounts | None
    reserved_bytes: int
    former_bytes: int
    first_touches: int
    splintered: int
    used_bytes: int
    table_bytes: int

class CacheTraffic(TypedDict):
    reads: int
    read_misses: int
    writes: int
    write_misses: int

class CacheFlushes(TypedDict):
    times: int
    looked: int
    lines: int
    written: int

class CacheCounts(TypedDict):
    name: str
    size_bytes: int
    line_bytes: int
    ways: int
    replacement: str
    program: CacheTraffic
    walker: CacheTraffic
    writebacks: int
    flushes: CacheFlushes | None

class Faults(TypedDict):
    first_touch: int
    returned: int
    protection: int

class SizeReasons(TypedDict):
    region: str
    pages: dict[str, int]

class SizeDecision(TypedDict):
    region: str
    wanted: str
    got: str
    why: str
    pages: int

class LevelPasses(TypedDict):
    passes: int
    made: int

class DaemonSample(TypedDict):
    access: int
    passes: int
    made: int
    moved: int
    flushes: int

class DaemonCounts(TypedDict):
    levels: dict[str, LevelPasses]
    over_time: list[DaemonSample]

class DeviceCounts(TypedDict):
    pages: int
    lent: int
    returned: int
    refused: int
    blocks: int
    marks_cleared: int

class KhugepagedCounts(TypedDict):
    passes: int
    results: dict[str, int]

class CompactionCounts(TypedDict):
    results: dict[str, int]
    woken: int
    proactive: int
    blocks: int
    moved: int

class PageBlockCounts(TypedDict):
    by_type: dict[str, int]
    claimed: int
    stolen: int

class ChosenBlocks(TypedDict):
    filled: int
    samples: int
    sampled: int
    hot: int
    bins: list[int]
    prezeroed: int
    recovered: int

class RangerCounts(TypedDict):
    passes: int
    moved: int
    exchanged: int
    anchors: int
    promoted: int

class GroupCounts(TypedDict):
    name: str
    current: int
    peak: int
    swap_current: int
    high: int
    max: int
    oom: int
    pgsteal: int
    pswpin: int
    pswpout: int

class PoolCounts(TypedDict):
    size: str
    asked: int
    nr_hugepages: int
    free_hugepages: int
    resv_hugepages: int
    surplus_hugepages: int
    mapped: int
    refused: int
    taken: int
    bus_errors: int

class LinuxCounts(TypedDict):
    held_bytes: int
    folios_split: int
    khugepaged: KhugepagedCounts
    zero_bytes: int
    compaction: CompactionCounts
    page_blocks: PageBlockCounts
    chosen: ChosenBlocks | None
    ranger: RangerCounts | None
    stats: dict[str, dict[str, int]] | None
    groups: list[GroupCounts] | None
    hugetlb: list[PoolCounts] | None

class RunsOfLength(TypedDict):
    bytes_min: int
    runs: int
    bytes: int

class RegionSizes(TypedDict):
    space: int
    name: str
    start: int
    bytes: int
    mapped_by_size: dict[str, int]

class EndOfProgram(TypedDict):
    access: int
    anonymous: int
    file: int
    shared: int
    tables: int
    free: int
    reserved: int
    swapped: int
    mapped_by_size: dict[str, int]
    runs: list[RunsOfLength]
    regions: list[RegionSizes]

class KindBytes(TypedDict):
    anonymous: int
    file: int
    shared: int
    tables: int
    free: int
    reserved: int
    swapped: int

class ReservationSample(TypedDict):
    made: int
    filled: int
    emptied: int
    broken: dict[str, int]

class MemorySample(TypedDict):
    access: int
    anonymous: int
    file: int
    shared: int
    tables: int
    free: int
    reserved: int
    swapped: int
    pages_by_size: dict[str, int]
    reservations: ReservationSample | None

class ManagerCounts(TypedDict):
    replacement: str
    faults: dict[str, int]
    unexplained: int
    work: dict[str, int]
    io_requests: int
    io_cycles: int
    cycles: dict[str, int]
    page_sizes: list[SizeReasons]
    sizes: list[SizeDecision]
    upgrades: list[SizeDecision]
    daemon: DaemonCounts | None
    reservations: ReservationCounts | None
    devices: DeviceCounts | None
    linux: LinuxCounts | None
    end: EndOfProgram
    bytes: KindBytes
    over_time: list[MemorySample]

class PromotionsOfSize(TypedDict):
    size: str
    threshold_misses: int
    promoted: int
    refused: int

class PromotionCounts(TypedDict):
    misses: int
    charged: int
    counting_cycles: int
    sizes: list[PromotionsOfSize]

class NodeCounts(TypedDict):
    processors: list[int]
    distances: list[int]
    total_bytes: int
    used_bytes: int | None
    misses: list[int]
    accesses: list[int]
    walk_references: list[int]

class MigrationCounts(TypedDict):
    references: int
    counting_cycles: int
    pages: int
    base_pages: int
    refused: dict[str, int]

class NumaCounts(TypedDict):
    nodes: list[NodeCounts]
    local_misses: int
    remote_misses: int
    migration: MigrationCounts | None

class ChangedSetting(TypedDict):
    access: int
    time: int
    key: str
    value: str

class ShootdownCounts(TypedDict):
    made: int
    asked: int
    received: int
    entries: int
    broadcast: int | None
    widened: int | None
    deferred: int | None
    swept: int | None
    swept_early: int | None
    sender_cycles: int | None
    receiver_cycles: int | None

class ProcessorCounts(TypedDict):
    number: int
    accesses: ByKind[int]
    instructions: int
    switches: int
    tlbs: list[TlbCounts]
    walks: Walks
    mmu_cache: MmuCacheCounts | None
    spec_tlb: SpecTlbCounts | None
    range_tlb: RangeTlbCounts | None
    restseg: RestSegCounts | None
    caches: list[CacheCounts]
    shootdowns: ShootdownCounts

class MemoryCounts(TypedDict):
    frames_total_bytes: int
    frames_used_bytes: int
    frames_peak_bytes: int
    mapped_bytes: int
    aged_bytes: int
    device_bytes: int
    table_bytes: int
    table_used_bytes: int
    pages_by_size: dict[str, int]
    free_by_size: dict[str, int]

class RegionCounts(TypedDict):
    name: str
    start: int
    bytes: int
    rights: str
    inferred: bool
    backing: str | None
    populated: str | None
    mapped_by_site: bool | None
    site: int | None
    pages: int
    lookups: int
    by_kind: ByKind[int]
    l1_misses: int
    misses: int
    cold_misses: int
    walk_references: int
    walk_cycles: int | None

class CodePlace(TypedDict):
    object: str | None
    identity: str | None
    offset: int
    instruction: int
    function: str | None
    inlined: list[str]
    file: str | None
    line: int | None

class SiteCounts(TypedDict):
    name: str
    stack: list[CodePlace]
    own: int | None
    allocations: int
    bytes: int
    peak_bytes: int
    misses: int
    cold_misses: int

class MissOrigins(TypedDict):
    code: list[CodePlace]
    sites: list[SiteCounts]
    misses: list[list[int | None]]
    notes: list[str]

class Timeline(TypedDict):
    bin_accesses: int
    l1_misses: list[int]
    misses: list[int]
    cold_misses: list[int]

class MissMap(TypedDict):
    bin_accesses: int
    granule_bytes: int
    cells: list[list[int]]
    owners: list[list[int]]

class Range(TypedDict, Generic[T]):
    lo: T
    hi: T

class KernelTime(TypedDict):
    cycles: int
    by_work: dict[str, int]
    io_cycles: int
    share: Range[float]

class Time(TypedDict):
    program_cycles: Range[int]
    translation_cycles: Range[int]
    cycles_per_access: Range[float]
    kernel: KernelTime | None
    share: Range[float]

class Peak(TypedDict):
    resident_bytes: int
    by_page_size: dict[str, int]

class Native(TypedDict):
    schema: int
    command: list[str]
    wall_seconds: float
    user_seconds: float
    system_seconds: float
    minor_faults: int | None
    exit_status: int
    resident_bytes_max: int
    recorded_status: int
    stdin: bool
    peak: Peak | None
    translation_ms: Range[float] | None
    no_ms: str | None

class Advice(TypedDict):
    sentence: str
    misses_share: float
    lookups: int
    entries: dict[str, int | None]
    one_in: dict[str, int]

class Estimate(TypedDict):
    share: float
    ms: float | None
    how: str
    here: bool | None

class Document(TypedDict):
    schema: int
    pagewalk: str
    trace: TraceSummary
    machine: MachineSummary
    accesses: ByKind[int]
    instructions: int
    threads: int
    switches: Switches | None
    page_crossings: int
    tlbs: list[TlbCounts]
    space_switches: SpaceSwitches
    small_spaces: SmallSpaceCounts | None
    trace_cache: TraceCacheCounts | None
    walks: Walks
    mmu_cache: MmuCacheCounts | None
    spec_tlb: SpecTlbCounts | None
    range_tlb: RangeTlbCounts | None
    restseg: RestSegCounts | None
    nested: NestedCounts | None
    caches: list[CacheCounts]
    faults: Faults
    manager: ManagerCounts | None
    promotion: PromotionCounts | None
    numa: NumaCounts | None
    changed_settings: list[ChangedSetting]
    shootdowns: ShootdownCounts
    processors: list[ProcessorCounts]
    memory: MemoryCounts
    regions: list[RegionCounts]
    origins: MissOrigins | None
    timeline: Timeline
    map: MissMap
    time: Time | None
    not_modelled: list[str]
    checked: bool
    native: Native | None
    advice: Advice | None
    estimate: Estimate | None

class StatEvent(TypedDict):
    part: str
    name: str
    count: int | None
    cycles: Range[float] | None
    share: Range[float] | None

class Stat(TypedDict):
    schema: int
    pagewalk: str
    trace: TraceSummary
    machine: MachineSummary
    events: list[StatEvent]
    cycles: Range[float] | None
    translation_ms: Range[float] | None
    not_modelled: list[str]

class GainOfCpu(TypedDict):
    lo: float
    hi: float
    best: float
    translation_ms: float
    faults_ms: float

class PlacedRun(TypedDict):
    rules: list[str]
    misses: int
    cold_misses: int
    memory_bytes: int
    memory_added_bytes: int
    translation_cycles: Range[float] | None
    gain_cycles: Range[float] | None
    gain_ms: Range[float] | None
    gain_share: Range[float] | None
    gain_likely: Range[float] | None
    gain_best: float | None
    gain_best_ms: float | None
    gain_of_cpu: GainOfCpu | None
    kernel_gain_cycles: float | None
    why: dict[str, int]

class RegionsAtSize(TypedDict):
    misses: int
    cold_misses: int
    large_pages: int
    memory_added_bytes: int
    saved_share: float

class AdvisedRegion(TypedDict):
    name: str
    start: int
    bytes: int
    place: str
    backing: str | None
    misses: int
    cold_misses: int
    group: int | None
    together: dict[str, RegionsAtSize]
    alone: dict[str, PlacedRun]
    size: str | None
    reason: str
    write: str | None
    code: str | None

class Advised(TypedDict):
    schema: int
    pagewalk: str
    trace: TraceSummary
    machine: MachineSummary
    memory_added_max: float
    exact: bool
    runs: int
    here: bool | None
    how: str | None
    base: PlacedRun
    regions: list[AdvisedRegion]
    regions_left_out: int
    misses_left_out: int
    uniform: dict[str, PlacedRun]
    sets: list[PlacedRun]
    best: PlacedRun | None
    notes: list[str]

class ManagerKind(TypedDict):
    name: str
    what: str
    settings: list[str]
    keys: list[str]

class ManagedRow(TypedDict):
    manager: str
    settings: list[str]
    mapped_by_size: dict[str, int]
    large_share: float
    why: dict[str, int]
    memory_bytes: int
    bloat_bytes: int | None
    swapped_bytes: int
    tlb_misses: int
    references: int
    translation_cycles: Range[float] | None
    translation_best_cycles: float | None
    kernel_cycles: int | None
    io_cycles: int
    faults: int
    work: dict[str, int]
    runs: list[RunsOfLength]

class ManagedTrace(TypedDict):
    trace: TraceSummary
    settings: list[str]
    base_peak_bytes: int
    here: bool | None
    how: str | None
    rows: list[ManagedRow]
    refused: dict[str, str]

class Managed(TypedDict):
    schema: int
    pagewalk: str
    machine: str
    title: str
    settings: list[str]
    aged: list[float] | None
    memory: str | None
    kinds: list[ManagerKind]
    traces: list[ManagedTrace]
    notes: list[str]

class TimeUse(TypedDict):
    work_cycles: int
    lock_cycles: int
    wait_cycles: int
    shootdown_cycles: int
    interrupt_cycles: int
    ended_cycles: int

class Histogram(TypedDict):
    count: int
    cycles: int
    buckets: list[int]

class LockShare(TypedDict):
    contended_share: float
    acquisitions: int
    contended: int
    transfers: int
    waits: Histogram
    holds: Histogram

class ShootCounts(TypedDict):
    sent: int
    interrupts: int
    deferred: int
    wait_cycles: int
    cache_pages: int
    cache_spaces: int

class ContextUse(TypedDict):
    unlisted: int
    listed: int
    taken: int
    stolen: int

class HatOutcome(TypedDict):
    cpus: int
    scheme: str
    load: str
    table: str
    hat_only: bool
    operations: int
    cycles: int
    throughput: float
    time: TimeUse
    locks: dict[str, LockShare]
    acquisitions_per_operation: float
    wait_cycles_per_operation: float
    shootdowns: ShootCounts
    contexts: ContextUse | None
    steals: int
    table_bytes_peak: int

class Hat(TypedDict):
    schema: int
    pagewalk: str
    on: str
    settings: dict[str, Any]
    runs: list[HatOutcome]
    not_modelled: list[str]

class HostPrices(TypedDict):
    lock_ns: float
    transfer_ns: float
    release_ns: float
    handover_ns: float
    pause_ns: float

class HostOutcome(TypedDict):
    threads: int
    scheme: str
    load: str
    table: str
    hat_only: bool
    nanoseconds: float
    control_nanoseconds: float
    control_scaling: float
    acquisitions: dict[str, int]
    judged_rounds: int
    scaling: float | None
    predicted: float | None
    cycle_ns: float | None
    lines_ns: float | None
    prices: HostPrices | None

class HatOnHost(TypedDict):
    schema: int
    pagewalk: str
    on: str
    settings: dict[str, Any]
    runs: list[HostOutcome]
    not_modelled: list[str]

class SkeletonProcess(TypedDict):
    name: str
    steps: int

class SkeletonMade(TypedDict):
    schema: int
    path: str
    bytes: int
    processes: list[SkeletonProcess]
    files: int
    steps: int
    instructions: int
    warnings: list[str]
