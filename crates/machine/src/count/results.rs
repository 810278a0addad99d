//! What a run gives: counts first, time as a second step over them.
//!
//! The structure is the JSON document, field by field. Its `schema` number changes when a
//! field changes its meaning or goes away; new fields may come.

use std::collections::BTreeMap;

use addr::Kind;
use serde::Serialize;
use trace::mix::Switches;

pub use super::origins::{
    counts::{CodePlace, MissOrigins, SiteCounts},
    naming::{FrameName, name_regions},
};

/// The schema that this version writes.
pub const SCHEMA: u32 = 2;

/// Everything a run counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// Version of this structure.
    pub schema: u32,
    /// Version of Pagewalk.
    pub pagewalk: String,
    /// The trace that ran.
    pub trace: TraceSummary,
    /// The machine it ran on.
    pub machine: MachineSummary,
    /// Accesses that ran, by kind.
    pub accesses: ByKind<u64>,
    /// Instructions that ran.
    pub instructions: u64,
    /// Threads seen.
    pub threads: u64,
    /// How several programs took turns, if the trace has several.
    pub switches: Option<Switches>,
    /// Accesses that touched two pages; each counts as a lookup of both.
    pub page_crossings: u64,
    /// The TLBs, first level first.
    pub tlbs: Vec<TlbCounts>,
    /// Changes of the space that runs, and what they did to hardware.
    pub space_switches: SpaceSwitches,
    /// Small address spaces, if there are some (`os.small`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_spaces: Option<SmallSpaceCounts>,
    /// The trace cache, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_cache: Option<TraceCacheCounts>,
    /// The walks.
    pub walks: Walks,
    /// The walker's MMU cache, if it has one.
    pub mmu_cache: Option<MmuCacheCounts>,
    /// What predicts where walks end, if something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlbCounts>,
    /// What translates ranges of any length, if something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_tlb: Option<RangeTlbCounts>,
    /// What finds pages in restrictive segments, if something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restseg: Option<RestSegCounts>,
    /// The host's dimension of the walks, in a virtual machine.
    pub nested: Option<NestedCounts>,
    /// The data caches, nearest first.
    pub caches: Vec<CacheCounts>,
    /// What the operating system was called for.
    pub faults: Faults,
    /// What its memory manager counted, if it has more to count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<ManagerCounts>,
    /// On-line promotion, if misses are counted for it (`os.promotion`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionCounts>,
    /// Nodes of memory, if it has several (`[memory.numa]`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaCounts>,
    /// Settings that changed while it ran (`[[os.at]]`), in their order; one whose time did not come
    /// is not there.
    pub changed_settings: Vec<ChangedSetting>,
    /// Translations that hardware was told to forget, on all processors.
    pub shootdowns: ShootdownCounts,
    /// The processors, if there are several. What is above counts for all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorCounts>,
    /// Physical memory at the end of the run.
    pub memory: MemoryCounts,
    /// The regions of the address space, by address.
    pub regions: Vec<RegionCounts>,
    /// Where misses come from; not in the results of sweeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origins: Option<MissOrigins>,
    /// Misses over time.
    pub timeline: Timeline,
    /// Misses over address and time.
    pub map: MissMap,
    /// Time, where the machine has all the latencies that it takes.
    pub time: Option<Time>,
    /// What this run left out.
    pub not_modelled: Vec<String>,
    /// Whether each translation was compared with the page table.
    pub checked: bool,
}

/// The trace that ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceSummary {
    /// SHA-256 of its contents, where it has one.
    pub digest: Option<String>,
    /// Its own account of itself.
    #[serde(flatten)]
    pub header: HeaderSummary,
}

/// The header of the trace, as far as a result repeats it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeaderSummary {
    /// Who made it.
    pub producer: String,
    /// The command or the generator's parameters.
    pub command: Vec<String>,
    /// The instruction set.
    pub arch: trace::Arch,
    /// Whether it has fetches.
    pub fetches: bool,
    /// What was dropped before it was stored.
    pub filter: trace::Filter,
    /// What its maker wants known.
    pub notes: Vec<String>,
    /// The processes of a recording, those with most accesses first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<trace::Process>,
}

/// The machine that ran it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineSummary {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Where it is described.
    pub source: String,
    /// SHA-256 of the description.
    pub digest: String,
    /// The settings that changed it.
    pub settings: Vec<String>,
    /// The description after the settings.
    pub description: serde_json::Value,
}

/// One value for each kind of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByKind<T> {
    /// Of fetches.
    pub fetch: T,
    /// Of loads.
    pub load: T,
    /// Of stores.
    pub store: T,
}

impl<T> From<[T; 3]> for ByKind<T> {
    fn from([fetch, load, store]: [T; 3]) -> ByKind<T> {
        ByKind { fetch, load, store }
    }
}

impl<T: Copy> ByKind<T> {
    /// The value of `kind`.
    pub fn of(&self, kind: Kind) -> T {
        match kind {
            Kind::Fetch => self.fetch,
            Kind::Load => self.load,
            Kind::Store => self.store,
        }
    }
}

/// Lookups and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HitsAndMisses {
    /// Lookups.
    pub lookups: u64,
    /// Those that found a translation.
    pub hits: u64,
    /// Those that did not.
    pub misses: u64,
}

impl HitsAndMisses {
    /// The counts of both.
    pub fn plus(self, other: HitsAndMisses) -> HitsAndMisses {
        HitsAndMisses {
            lookups: self.lookups + other.lookups,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
        }
    }
}

/// What one TLB counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TlbCounts {
    /// Its name in the machine file.
    pub name: String,
    /// Its level, from 1.
    pub level: u8,
    /// The kinds of access that look it up.
    pub serves: Vec<&'static str>,
    /// Entries of all its arrays.
    pub entries: u64,
    /// Ways of each of its arrays.
    pub ways: Vec<u64>,
    /// Replacement policy of each of its arrays.
    pub replacement: Vec<String>,
    /// Lookups, hits and misses of all kinds.
    #[serde(flatten)]
    pub total: HitsAndMisses,
    /// Misses that ended in a first-touch fault.
    pub cold_misses: u64,
    /// Misses that found an entry which does not allow the access. The entry goes.
    pub denied: u64,
    /// Misses on a page that is the invalid half of a pair in the TLB.
    pub invalid: u64,
    /// Entries that made room for others.
    pub evictions: u64,
    /// Entries that the operating system flushed.
    pub flushed: u64,
    /// Lookups of the walker for the page table itself that hit, apart from all others.
    pub table_hits: u64,
    /// Its entries of blocks of pages, if it has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockCounts>,
    /// The same by kind.
    pub by_kind: ByKind<HitsAndMisses>,
    /// Hits by the size of the translation found, misses by that of the one then filled in.
    pub by_page_size: BTreeMap<String, SizeCounts>,
}

/// Entries for several adjacent pages of the smallest size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockCounts {
    /// What an entry can hold: `complete-subblock`, `partial-subblock`, `coalesced` or `whole`.
    pub kind: String,
    /// Pages of a block.
    pub pages: u64,
    /// Entries that were filled in.
    pub fills: u64,
    /// Pages that these translated when they were filled in. Per fill this is what an entry covers.
    pub pages_filled: u64,
    /// Misses that found an entry of the block which did not translate the page.
    pub tag_hits: u64,
}

/// Hits and misses of one page size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeCounts {
    /// Hits on entries of the size.
    pub hits: u64,
    /// Misses after which an entry of the size was filled in.
    pub misses: u64,
}

/// Changes of the space that runs, on all processors. What each ran first is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpaceSwitches {
    /// Switches.
    pub switches: u64,
    /// Loads of the base register, of CR3.
    pub root_loads: u64,
    /// Switches after which TLBs held nothing of before but global entries, or nothing of a context that
    /// was taken over.
    pub emptying: u64,
    /// Loads of the segment registers.
    pub segment_loads: u64,
    /// Cycles of all that, where the machine has prices.
    pub cycles: Option<u64>,
}

/// Small address spaces: what was done for them (U02 sections 2.2 and 5).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SmallSpaceCounts {
    /// Slots.
    pub slots: u64,
    /// Bytes of each.
    pub slot_bytes: u64,
    /// Spaces that ran.
    pub spaces: u64,
    /// Those that had a slot at some time.
    pub small: u64,
    /// Switches.
    pub switches: u64,
    /// Loads of the base register: at switches, and for spaces that became large.
    pub root_loads: u64,
    /// Switches that loaded segment registers.
    pub segment_loads: u64,
    /// Entries of roots that were copied, at a fault each.
    pub copies: u64,
    /// Spaces that reached beyond their slot and became large.
    pub promoted: u64,
    /// Slots that were taken from a space for another.
    pub revoked: u64,
    /// Switches to spaces that would be small and got no slot.
    pub no_slot: u64,
    /// Roots that were looked through for copies.
    pub roots_purged: u64,
    /// Copies that were emptied.
    pub entries_purged: u64,
    /// Slots whose version was compared when a root was loaded.
    pub versions_compared: u64,
    /// Cycles of a switch with all that it had to do first, where the machine has prices.
    pub switch_cycles: Option<SwitchCycles>,
}

/// Cycles of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SwitchCycles {
    /// Of all of them.
    pub mean: f64,
    /// Of the dearest.
    pub worst: u64,
}

/// What the trace cache is and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceCacheCounts {
    /// Micro-ops that it has room for.
    pub uops: u64,
    /// Ways.
    pub ways: u64,
    /// Fetches; those that went on to a TLB are `accesses.fetch`.
    pub fetches: u64,
    /// Those that it delivered whole, so that neither TLB nor caches were asked.
    pub delivered: u64,
    /// Lines that were there.
    pub lines_delivered: u64,
    /// Lines that were built.
    pub lines_built: u64,
    /// How often it was emptied.
    pub emptied: u64,
    /// Lines that went with that.
    pub lines_emptied: u64,
    /// Cycles of building lines, beyond what fetching their bytes takes.
    pub build_cycles: u64,
}

/// What the walker counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Walks {
    /// Walks, one for each lookup that missed every TLB; without a page table each has no
    /// references.
    pub walks: u64,
    /// Of these, the ones that ended in a first-touch fault and were walked again.
    pub cold: u64,
    /// References of all walks.
    pub references: u64,
    /// Stores to a clean page that a TLB had, for which hardware set the dirty bit; the machine
    /// tracks dirty pages.
    pub dirty_assists: u64,
    /// Stores to a clean page for which a handler in software was trapped to.
    pub modify_traps: u64,
    /// References of the cold ones, of both their walks.
    pub cold_references: u64,
    /// How many of the walks that were not cold took how many references.
    pub references_per_walk: Vec<(u64, u64)>,
    /// References by level of the table (in a virtual machine the guest's), root first, and by
    /// what served them.
    pub by_level: Vec<LevelCounts>,
    /// Instructions of the refill handler; none if hardware walks.
    pub handler_instructions: Option<u64>,
    /// Misses of the TLB on the page table itself, by level of the table, where that is linear.
    pub nested_misses: Vec<(u8, u64)>,
}

/// The walk references to one level of the page table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelCounts {
    /// The level; 1 is the leaf that maps base pages.
    pub level: u8,
    /// References.
    pub references: u64,
    /// How many each cache, or memory, served.
    pub served: BTreeMap<String, u64>,
}

/// What the MMU cache is and did. What it saved is in [`Walks`]: references that were not made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MmuCacheCounts {
    /// Its design's name.
    pub design: String,
    /// Replacement policy.
    pub replacement: String,
    /// Its arrays, the lowest level first.
    pub arrays: Vec<MmuCacheArray>,
    /// Cycles of a search.
    pub latency_cycles: u64,
    /// Searches; each level that is looked for counts.
    pub searches: u64,
    /// By level, the highest first.
    pub by_level: Vec<MmuCacheLevel>,
}

/// One array of an MMU cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MmuCacheArray {
    /// The level whose entries it holds; `None` if those of all.
    pub level: Option<u8>,
    /// Entries.
    pub entries: u64,
    /// Ways.
    pub ways: u64,
    /// Bits of a tag, where tags have one length.
    pub tag_bits: Option<u64>,
    /// Bits of data of an entry, likewise.
    pub data_bits: Option<u64>,
}

/// The entries of one level that lead to further tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MmuCacheLevel {
    /// The level; 0 for pages, where the cache holds those too (`nested.shared`).
    pub level: u8,
    /// How many were on the way of a walk. One that is repeated after a fault counts once, as it
    /// finds what it left there.
    pub needed: u64,
    /// Of these, how many were held, or skipped because a lower one was.
    pub held: u64,
}

/// What a SpecTLB is and said. It is asked for each walk: a miss whose walk faults has another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpecTlbCounts {
    /// Large pages, or instructions, that it remembers.
    pub entries: u64,
    /// Ways.
    pub ways: u64,
    /// Replacement policy.
    pub replacement: String,
    /// The size of the large pages; `any` with `offsets`.
    pub page_size: String,
    /// What makes an entry: `heuristic`, `marks` or `offsets`.
    pub fill: String,
    /// Predictions.
    pub attempts: u64,
    /// Those that named the place that the walk has found.
    pub right: u64,
    /// Those that named the place of a page whose rights do not allow the access: the walk faulted.
    pub denied: u64,
    /// Those that named another place, by cause: `absent`, the walk faulted; `broken`, the page was placed when its
    /// reservation was broken; `chance`, addresses of a page that was in none had agreed by chance, or with
    /// `offsets` the page has another offset.
    pub wrong: BTreeMap<String, u64>,
    /// Walks that found their page, for which there was no prediction. With those that were right,
    /// broken and by chance these are all walks.
    pub none: u64,
    /// Walks that faulted, for which there was no prediction. With those that were absent or denied
    /// these are all faults.
    pub none_faulted: u64,
    /// References of walks that were rightly predicted, which need not be waited for, by what served
    /// them: caches and memory.
    pub overlapped: BTreeMap<String, u64>,
    /// Cycles of these references; `None` if the machine leaves a latency out.
    pub overlapped_cycles: Option<u64>,
    /// Predictions that named a place which a device had (`os.devices`).
    pub devices: u64,
    /// Of these, how many were followed: none where requests say that they are guesses
    /// (`spec_tlb.tagged`).
    pub devices_reached: u64,
    /// Walks by what became of the prediction.
    pub outcomes: Vec<SpecOutcome>,
}

/// Walks of one outcome of their prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpecOutcome {
    /// `right`, `broken`, `chance` or `none` of walks that found their page; `absent`, `denied` or
    /// `none-faulted` of those that faulted.
    pub outcome: String,
    /// How many.
    pub walks: u64,
    /// Their references by what served them.
    pub references: BTreeMap<String, u64>,
    /// The same of the last entry that each of them read, which is the page's where it found one.
    pub ptes: BTreeMap<String, u64>,
    /// The accesses that they were for, by kind and by what served them; empty without data caches.
    pub accesses: ByKind<BTreeMap<String, u64>>,
}

/// What a range TLB is and counted. It is asked for each miss of the last level, and its hits are no walks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RangeTlbCounts {
    /// Ranges that it holds.
    pub entries: u64,
    /// Replacement policy.
    pub replacement: String,
    /// What its entries are made of: the operating system's `table`, or the `line` of entries that a walk reads.
    pub from: String,
    /// Lookups.
    pub lookups: u64,
    /// Lookups that found a range which allows the access; not first stores to clean pages.
    pub hits: u64,
    /// Lookups that did not. Each is a walk.
    pub misses: u64,
    /// Ranges put in.
    pub fills: u64,
    /// Ranges that made room for others.
    pub evictions: u64,
    /// Ranges that the operating system flushed.
    pub flushed: u64,
    /// Ranges in the operating system's table at the end: adjacent pages in adjacent frames with equal rights.
    /// None without such a table.
    pub ranges: u64,
    /// Their bytes.
    pub range_bytes: u64,
}

/// What looks for pages in restrictive segments, and what it counted. It looks for each page that is walked
/// for; its references are those of level 0 in [`Walks`], and a page that is found takes no others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestSegCounts {
    /// Lines of the set filter that it keeps.
    pub filter_lines: u64,
    /// Lines of the tag array that it keeps.
    pub tag_lines: u64,
    /// Ways of both.
    pub ways: u64,
    /// Lookups: one before each walk, and one more after each fault.
    pub lookups: u64,
    /// Lookups that found the page.
    pub hits: u64,
    /// Lookups that did not. Each is a walk.
    pub misses: u64,
    /// Sets whose tags were not looked at, as the filter knows of no page there.
    pub filtered: u64,
    /// References to the filter.
    pub filter_reads: u64,
    /// References to the tags.
    pub tag_reads: u64,
}

/// The host of a virtual machine. References of [`Walks`] by level are the guest's; those of the
/// host are here, and in the sums there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NestedCounts {
    /// The host's page size.
    pub page_size: String,
    /// Walks of the host's page table.
    pub walks: u64,
    /// Their references.
    pub references: u64,
    /// The same by level of the host's table, root first.
    pub by_level: Vec<LevelCounts>,
    /// The nested TLB, if there is one.
    pub tlb: Option<HitsAndMisses>,
    /// The MMU cache of the host's walks, if there is one. One that is shared with the guest has the
    /// guest's shape here again, and its searches are counted there.
    pub mmu_cache: Option<MmuCacheCounts>,
    /// What predicts where walks of the host end, if there is such. Predictions are per walk of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlbCounts>,
    /// References of walks in both dimensions that are waited for, as no right prediction of guest or host
    /// overlaps them; `None` where nothing predicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critical_references: Option<u64>,
    /// Room that the host keeps for large pages, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationCounts>,
    /// Bytes that are reserved and not in use.
    pub reserved_bytes: u64,
    /// Bytes that guests of before still have (`nested.former`).
    pub former_bytes: u64,
    /// Pages of the host that were first needed.
    pub first_touches: u64,
    /// Walks whose page is larger than the host's, so that the TLB was given a part of it.
    pub splintered: u64,
    /// Frames of the host in use, in bytes.
    pub used_bytes: u64,
    /// Frames that hold its page table, in bytes.
    pub table_bytes: u64,
}

/// What one data cache counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheCounts {
    /// Its name in the machine file.
    pub name: String,
    /// Bytes of data it holds.
    pub size_bytes: u64,
    /// Bytes of a line.
    pub line_bytes: u64,
    /// Ways.
    pub ways: u64,
    /// Replacement policy.
    pub replacement: String,
    /// What the program asked of it, a line at a time.
    pub program: CacheTraffic,
    /// What the walker asked of it.
    pub walker: CacheTraffic,
    /// Dirty lines that it wrote to the next level.
    pub writebacks: u64,
    /// What was flushed, if it holds lines by virtual addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flushes: Option<CacheFlushes>,
}

/// What was flushed from a cache that holds lines by virtual addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheFlushes {
    /// How often something was flushed: all of it, or what it held of some pages.
    pub times: u64,
    /// Lines that were looked at for that.
    pub looked: u64,
    /// Lines that went.
    pub lines: u64,
    /// Those of them that had been stored to, and were written to memory.
    pub written: u64,
}

/// Reads and writes of a cache by one requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheTraffic {
    /// Lines read.
    pub reads: u64,
    /// Of these, not there.
    pub read_misses: u64,
    /// Lines written.
    pub writes: u64,
    /// Of these, not there.
    pub write_misses: u64,
}

/// What the operating system was called for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// First touches of a page.
    pub first_touch: u64,
    /// Pages that were there before and came back: from swap, or only their translations.
    pub returned: u64,
    /// Accesses that a page's rights did not allow, found on a walk and then granted.
    pub protection: u64,
}

/// What a memory manager counted that keeps the whole life of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ManagerCounts {
    /// Which page left memory.
    pub replacement: String,
    /// Faults by how they were answered.
    pub faults: BTreeMap<String, u64>,
    /// Accesses that no region of the trace explains, or that their region forbids.
    pub unexplained: u64,
    /// The kernel's work by kind.
    pub work: BTreeMap<String, u64>,
    /// Requests to disks: pages that are side by side in memory and on the disk are one.
    pub io_requests: u64,
    /// Cycles that requests took from and to disks, one after the other.
    pub io_cycles: u64,
    /// Cycles of the work by kind, at the prices of `[os.costs.work]`; empty without them.
    pub cycles: BTreeMap<String, u64>,
    /// Why pages have the sizes that they have.
    pub page_sizes: Vec<SizeReasons>,
    /// Pages for which a size was wished, by region, size and what came of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizeDecision>,
    /// Large pages that were asked for by upgrades, in the same way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upgrades: Vec<SizeDecision>,
    /// The daemon that coalesces free memory, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<DaemonCounts>,
    /// Reservations, if the manager has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationCounts>,
    /// Frames of devices, if they get some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceCounts>,
    /// Transparent huge pages, if the manager has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxCounts>,
    /// What memory was like at the fullest end of a program, or of the trace.
    pub end: EndOfProgram,
    /// What memory is used for at the end.
    pub bytes: KindBytes,
    /// The same over time: where it changed, at most a few hundred samples.
    pub over_time: Vec<MemorySample>,
}

/// A setting that changed while the machine ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedSetting {
    /// The access of the trace before which it did, from 0.
    pub access: u64,
    /// When it was to, in cycles of the operating system's clock.
    pub time: u64,
    /// Its key.
    pub key: String,
    /// Its new value, as in a machine file.
    pub value: String,
}

/// Pages loaded at faults in regions of one name, by why they have their size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeReasons {
    /// The name.
    pub region: String,
    /// Pages by reason.
    pub pages: BTreeMap<String, u64>,
}

/// Pages of which a size was wished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeDecision {
    /// The name of their region.
    pub region: String,
    /// The size that was wished.
    pub wanted: String,
    /// The size that they have.
    pub got: String,
    /// Why it is not the one that was wished, or `obtained`.
    pub why: String,
    /// How many pages, each of the size that they have.
    pub pages: u64,
}

/// What the coalescing daemon has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DaemonCounts {
    /// Passes by level: `weak`, `mild`, `strong`.
    pub levels: BTreeMap<String, LevelPasses>,
    /// The same over time, at most a few hundred samples.
    pub over_time: Vec<DaemonSample>,
}

/// Passes of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LevelPasses {
    /// Passes.
    pub passes: u64,
    /// Large free pages that they made.
    pub made: u64,
}

/// What the daemon did between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DaemonSample {
    /// The access of the trace at which the last of them was over.
    pub access: u64,
    /// Passes.
    pub passes: u64,
    /// Large free pages that were made.
    pub made: u64,
    /// Base pages that were moved for them.
    pub moved: u64,
    /// Shootdowns for that.
    pub flushes: u64,
}

impl DaemonSample {
    /// Takes in one that follows.
    pub(crate) fn add(&mut self, next: &DaemonSample) {
        self.access = next.access;
        self.passes += next.passes;
        self.made += next.made;
        self.moved += next.moved;
        self.flushes += next.flushes;
    }
}

/// Memory by what it is used for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindBytes {
    /// Pages that a space has stored to and that are its own, in bytes.
    pub anonymous: u64,
    /// Pages of files, in bytes.
    pub file: u64,
    /// Pages of memory that spaces share, in bytes.
    pub shared: u64,
    /// Page tables, in bytes.
    pub tables: u64,
    /// Nothing: bytes that are free.
    pub free: u64,
    /// Nothing yet: bytes that are held back in reservations, and free where memory runs out.
    pub reserved: u64,
    /// Not in memory but in swap, in bytes.
    pub swapped: u64,
}

/// Memory at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemorySample {
    /// The access of the trace, from 0.
    pub access: u64,
    /// What memory was used for.
    #[serde(flatten)]
    pub bytes: KindBytes,
    /// Mapped pages by size.
    pub pages_by_size: BTreeMap<String, u64>,
    /// What has become of reservations till then, if there are such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationSample>,
}

/// What memory was like at the fullest end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndOfProgram {
    /// The access of the trace at which it ended; where the trace does not tell of ends, 0.
    pub access: u64,
    /// What memory was used for.
    #[serde(flatten)]
    pub bytes: KindBytes,
    /// Mapped bytes by page size, a frame that several pages have counted for each.
    pub mapped_by_size: BTreeMap<String, u64>,
    /// Runs of adjacent pages in adjacent frames, by length.
    pub runs: Vec<RunsOfLength>,
    /// Regions of which something is mapped, by address. The page of zeros that all share counts as not
    /// mapped, here and above.
    pub regions: Vec<RegionSizes>,
}

/// A region at the end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionSizes {
    /// The number of its space.
    pub space: u32,
    /// What it is called.
    pub name: String,
    /// Its first byte.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// Mapped bytes by page size.
    pub mapped_by_size: BTreeMap<String, u64>,
}

/// Runs of adjacent pages in adjacent frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunsOfLength {
    /// They have at least so many bytes, and less than twice as many.
    pub bytes_min: u64,
    /// How many there are.
    pub runs: u64,
    /// All of their bytes.
    pub bytes: u64,
}

/// Transparent huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinuxCounts {
    /// Bytes of frames that nobody maps any more and that are not free, as the large page is not split
    /// that they were part of, at the end. `bytes.anonymous` has them.
    pub held_bytes: u64,
    /// Such pages that were split.
    pub folios_split: u64,
    /// The daemon that makes large pages of what is there.
    pub khugepaged: KhugepagedCounts,
    /// Bytes of frames that hold the page of zeros.
    pub zero_bytes: u64,
    /// Compaction.
    pub compaction: CompactionCounts,
    /// Page blocks.
    pub page_blocks: PageBlockCounts,
    /// How blocks were chosen, with `ingens` and `hawkeye`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ChosenBlocks>,
    /// The daemon that moves pages side by side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranger: Option<RangerCounts>,
}

/// What compaction has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompactionCounts {
    /// Runs by what they came to, under the kernel's names.
    pub results: BTreeMap<String, u64>,
    /// Of these, runs by the daemon when it was woken ...
    pub woken: u64,
    /// ... and of its own accord.
    pub proactive: u64,
    /// Page blocks that were looked at for pages to move.
    pub blocks: u64,
    /// Base pages moved.
    pub moved: u64,
}

/// What has become of page blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageBlockCounts {
    /// Page blocks at the end, by what their frames are for.
    pub by_type: BTreeMap<String, u64>,
    /// Page blocks that went over to another type.
    pub claimed: u64,
    /// Base frames that were taken out of page blocks of another type, which stayed what they were.
    pub stolen: u64,
}

/// What the daemons of Ingens and HawkEye have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChosenBlocks {
    /// Blocks that filled (`ingens`).
    pub filled: u64,
    /// Times that bits of use were read (`hawkeye`).
    pub samples: u64,
    /// Blocks by log2 of how many of their base pages were used, at the last of them.
    pub bins: Vec<u64>,
    /// Free blocks that were filled with zeros ahead.
    pub prezeroed: u64,
    /// Base pages of zeros that were given back.
    pub recovered: u64,
}

/// What the daemon has done that moves pages side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RangerCounts {
    /// Times that it ran.
    pub passes: u64,
    /// Base pages that were moved to free frames ...
    pub moved: u64,
    /// ... and that changed places with others.
    pub exchanged: u64,
    /// Anchors that were set.
    pub anchors: u64,
    /// Blocks that became large pages where they were.
    pub promoted: u64,
}

/// What `khugepaged` has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KhugepagedCounts {
    /// Times that it ran.
    pub passes: u64,
    /// Blocks of 2M that it looked at, by what it found, under the kernel's names.
    pub results: BTreeMap<String, u64>,
}

/// What has become of reservations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationCounts {
    /// By size, the largest first.
    pub sizes: Vec<ReservationsOfSize>,
    /// Marked frames whose marks were cleared when their reservation was broken
    /// (`os.reservations.marks`).
    pub marks_cleared: u64,
}

/// Frames that devices had (`os.devices`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// How many they have at the end.
    pub pages: u64,
    /// How many they were lent.
    pub lent: u64,
    /// How many came back.
    pub returned: u64,
    /// How often no frame was free, or no block of 2M where they have blocks of their own.
    pub refused: u64,
    /// Blocks of 2M that are theirs alone.
    pub blocks: u64,
    /// Marked frames beside those that they were lent, whose marks were cleared for that.
    pub marks_cleared: u64,
}

/// Reservations of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationsOfSize {
    /// Their size.
    pub size: String,
    /// How many were made.
    pub made: u64,
    /// How often one became full.
    pub filled: u64,
    /// How many were given back whole, since their last page was freed.
    pub emptied: u64,
    /// How many were broken, by reason: `frame`, a base frame was wanted; `block`, several in a row;
    /// `wanted`, just these.
    pub broken: BTreeMap<String, u64>,
    /// Bytes that this made free.
    pub broken_bytes: u64,
    /// Base pages that were placed in one.
    pub placed: u64,
    /// Base pages that were not, by reason: `start`, `end`, it would begin before its object or
    /// reach beyond its end; `neighbor`, another page or reservation of the object is there; `taken`,
    /// its own frame is; `no-block`, there was no free block of the size.
    pub unplaced: BTreeMap<String, u64>,
}

/// Reservations of all sizes, from the beginning to one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationSample {
    /// How many were made.
    pub made: u64,
    /// How often one became full.
    pub filled: u64,
    /// How many were given back whole.
    pub emptied: u64,
    /// How many were broken, by reason.
    pub broken: BTreeMap<String, u64>,
}

/// On-line promotion: what was charged, and which pages it paid for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromotionCounts {
    /// Misses of every level of pages that could be larger, first touches apart: each is counted.
    pub misses: u64,
    /// Of these, charged to a candidate: a larger page would have been in a TLB.
    pub charged: u64,
    /// Cycles that counting them took. They are part of the kernel's time.
    pub counting_cycles: u64,
    /// By size, the smallest first.
    pub sizes: Vec<PromotionsOfSize>,
}

/// Pages that were promoted to one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromotionsOfSize {
    /// The size.
    pub size: String,
    /// Misses that a candidate is charged until it is promoted.
    pub threshold_misses: u64,
    /// Pages of it that were made.
    pub promoted: u64,
    /// How often none could be; `manager.upgrades` has the reasons, where the manager tells them.
    pub refused: u64,
}

/// Nodes of memory: who referred to which, and pages that moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NumaCounts {
    /// The nodes by number.
    pub nodes: Vec<NodeCounts>,
    /// Misses of every level whose page was on the node of the processor ...
    pub local_misses: u64,
    /// ... or on another.
    pub remote_misses: u64,
    /// Pages that moved to the node that referred to them; none if no reference was counted for that.
    pub migration: Option<MigrationCounts>,
}

/// What one node of memory has, and what its processors did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeCounts {
    /// Its processors by number.
    pub processors: Vec<u32>,
    /// How far each node is from it, in tenths of the latency of its own memory.
    pub distances: Vec<u32>,
    /// All of its frames, in bytes.
    pub total_bytes: u64,
    /// Frames in use or held back at the end, in bytes; `None` where frames are a trace's choice.
    pub used_bytes: Option<u64>,
    /// Misses of every level of its processors, by the node of the page.
    pub misses: Vec<u64>,
    /// Accesses of the program on its processors that memory served, by node.
    pub accesses: Vec<u64>,
    /// References of their walks that memory served, likewise.
    pub walk_references: Vec<u64>,
}

/// Pages that moved to the node that referred to them most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MigrationCounts {
    /// References that were counted: misses of every level of pages that may move.
    pub references: u64,
    /// Cycles that counting them took. They are part of the kernel's time.
    pub counting_cycles: u64,
    /// Pages that moved, of any size ...
    pub pages: u64,
    /// ... and the base pages in them.
    pub base_pages: u64,
    /// Pages that were due and stayed, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// Shootdowns: changes of a page table after which hardware had to forget translations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShootdownCounts {
    /// Those that were made: the change was in a space of which some processor may have had
    /// translations.
    pub made: u64,
    /// Other processors that were asked for it, by an interrupt each.
    pub asked: u64,
    /// Interrupts that were received.
    pub received: u64,
    /// TLB entries that went, at all levels.
    pub entries: u64,
    /// Cycles of the processors that made them: their own flush, sending, and the wait for the
    /// slowest answer; `None` if the machine has no `[os.costs]`.
    pub sender_cycles: Option<u64>,
    /// Cycles of the processors that were asked; likewise.
    pub receiver_cycles: Option<u64>,
}

/// What one of several processors counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessorCounts {
    /// Its number, from 0.
    pub number: u32,
    /// Accesses that ran on it, by kind.
    pub accesses: ByKind<u64>,
    /// Instructions that ran on it.
    pub instructions: u64,
    /// How often it went from one address space to another.
    pub switches: u64,
    /// Its TLBs.
    pub tlbs: Vec<TlbCounts>,
    /// Its walks.
    pub walks: Walks,
    /// The MMU cache of its walker.
    pub mmu_cache: Option<MmuCacheCounts>,
    /// Its SpecTLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlbCounts>,
    /// Its range TLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_tlb: Option<RangeTlbCounts>,
    /// Its lookups in restrictive segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restseg: Option<RestSegCounts>,
    /// Its data caches; not `l3`, which all share.
    pub caches: Vec<CacheCounts>,
    /// The shootdowns that it made, those that it was asked for, and the entries of its TLBs that
    /// went.
    pub shootdowns: ShootdownCounts,
}

/// Physical memory at the end of the run, but for its peak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryCounts {
    /// All frames, in bytes.
    pub frames_total_bytes: u64,
    /// Frames in use, in bytes.
    pub frames_used_bytes: u64,
    /// The same when most were in use.
    pub frames_peak_bytes: u64,
    /// Frames behind pages, in bytes.
    pub mapped_bytes: u64,
    /// Frames that were in use before the run began, in bytes.
    pub aged_bytes: u64,
    /// Frames that devices have, in bytes; where they have blocks of their own, all of those.
    pub device_bytes: u64,
    /// Frames that hold page tables, in bytes.
    pub table_bytes: u64,
    /// Of these, bytes of nodes, buckets and arrays in use.
    pub table_used_bytes: u64,
    /// Mapped pages by size.
    pub pages_by_size: BTreeMap<String, u64>,
    /// Free blocks by size, as the allocator lists them: the more of the free memory lies in small
    /// ones, the more fragmented it is.
    pub free_by_size: BTreeMap<String, u64>,
}

/// What one region of the address space saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionCounts {
    /// Its name.
    pub name: String,
    /// Its first byte.
    pub start: u64,
    /// Its length in bytes, at its largest.
    pub bytes: u64,
    /// Its rights, as in `rw-`.
    pub rights: String,
    /// Whether it was guessed from the accesses, for want of events.
    pub inferred: bool,
    /// The allocation site that it was made for, by its index in `origins.sites`; its name is the
    /// site's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<u32>,
    /// Pages first touched in it.
    pub pages: u64,
    /// Lookups of a first-level TLB.
    pub lookups: u64,
    /// The same by kind.
    pub by_kind: ByKind<u64>,
    /// Lookups that missed the first level.
    pub l1_misses: u64,
    /// Lookups that missed every level.
    pub misses: u64,
    /// Of these, first touches.
    pub cold_misses: u64,
    /// References of its walks.
    pub walk_references: u64,
    /// What translation cost it in cycles if nothing was hidden.
    pub walk_cycles: Option<u64>,
}

/// Misses over time, in equal bins of accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Accesses a bin.
    pub bin_accesses: u64,
    /// Misses of the first level.
    pub l1_misses: Vec<u64>,
    /// Misses of every level.
    pub misses: Vec<u64>,
    /// First touches.
    pub cold_misses: Vec<u64>,
}

/// Misses of every level over address and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MissMap {
    /// Accesses a time bin.
    pub bin_accesses: u64,
    /// Bytes an address bin.
    pub granule_bytes: u64,
    /// `(time bin, address / granule_bytes, misses)`, in order.
    pub cells: Vec<(u64, u64, u64)>,
    /// `(address / granule_bytes, index in regions, misses)`, in order: a granule may hold the end
    /// of one region and the beginning of the next.
    pub owners: Vec<(u64, u32, u64)>,
}

/// Time: counts times latencies, as ranges that no overlap of work can leave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// Cycles without translation: instructions at their rate, and what misses of the data caches
    /// add; least where they overlap as far as the machine lets them, most where none does.
    pub program_cycles: Range<u64>,
    /// Cycles of translation: every TLB lookup, every walk. Least where hardware hides all of it
    /// behind other work; what a refill handler takes cannot be hidden.
    pub translation_cycles: Range<u64>,
    /// Cycles of translation per access.
    pub cycles_per_access: Range<f64>,
    /// The operating system's time, which is in none of the others; `None` if the machine has no
    /// `[os.costs]`.
    pub kernel: Option<KernelTime>,
    /// Translation's share of the program's cycles and its own: the least of it beside the most of the program, to the
    /// most of it beside the least of the program.
    pub share: Range<f64>,
}

/// What the operating system takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTime {
    /// Cycles of its work, as far as `[os.costs]` has prices.
    pub cycles: u64,
    /// The same by what was done: `faults`, or in their place the kinds of work of a manager that
    /// counts them; `switches` to other address spaces; `shootdowns`.
    pub by_work: BTreeMap<String, u64>,
    /// Cycles of waiting for disks, one transfer after the other.
    pub io_cycles: u64,
    /// The share of both in all cycles: the least beside the most of program and translation, to
    /// the most beside the least.
    pub share: Range<f64>,
}

/// From the lowest to the highest that the counts allow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range<T> {
    /// The lowest.
    pub lo: T,
    /// The highest.
    pub hi: T,
}
