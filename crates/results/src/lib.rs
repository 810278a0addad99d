//! The results of a run: counts, and times that are computed from them.
//!
//! [`Results`] is the JSON document, field by field. Its `schema` number changes when a field changes
//! its meaning or is removed; fields may be added without that. This file has the top level of the
//! document. Its parts are in the other modules, by the component that counts them.
#![forbid(unsafe_code)]

#[allow(missing_docs, reason = "a field of a count is what its name says")]
pub mod count;
mod linux;
mod manager;
mod memory;
mod naming;
mod origins;
mod processors;
mod regions;
mod reservations;
mod spaces;
pub mod sum;
mod time;
mod tlbs;
mod walks;

use addr::Kind;
use serde::Serialize;
use trace::mix::Switches;

use sum::sums;

pub use linux::{
    ChosenBlocks, CompactionCounts, GroupCounts, KhugepagedCounts, LinuxCounts, PageBlockCounts,
    PoolCounts, RangerCounts,
};
pub use manager::{
    ChangedSetting, DaemonCounts, DaemonSample, EndOfProgram, Faults, KindBytes, LevelPasses,
    ManagerCounts, MemorySample, PromotionCounts, PromotionsOfSize, RegionSizes, RunsOfLength,
    SizeDecision, SizeReasons,
};
pub use memory::{MemoryCounts, MigrationCounts, NodeCounts, NumaCounts};
pub use naming::{FrameName, name_regions};
pub use origins::{CodePlace, MissOrigins, SiteCounts};
pub use processors::{ProcessorCounts, ShootdownCounts};
pub use regions::{MissMap, RegionCounts, Timeline};
pub use reservations::{DeviceCounts, ReservationCounts, ReservationSample, ReservationsOfSize};
pub use spaces::{SmallSpaceCounts, SpaceSwitches, SwitchCycles, TraceCacheCounts};
pub use time::{KernelTime, Time};
pub use tlbs::{BlockCounts, RangeTlbCounts, SizeCounts, SpecOutcome, SpecTlbCounts, TlbCounts};
pub use walks::{
    CacheCounts, CacheFlushes, CacheTraffic, LevelCounts, MmuCacheArray, MmuCacheCounts,
    MmuCacheLevel, NestedCounts, RestSegCounts, Walks,
};

/// The schema that this version writes.
pub const SCHEMA: u32 = 2;

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// Version of this document structure.
    pub schema: u32,
    /// Version of Pagewalk that made the results.
    pub pagewalk: String,
    /// The trace that was run.
    pub trace: TraceSummary,
    /// The machine that ran the trace.
    pub machine: MachineSummary,
    /// Counted accesses by kind (without warm-up).
    pub accesses: ByKind<u64>,
    /// Counted instructions.
    pub instructions: u64,
    /// Threads of the trace.
    pub threads: u64,
    /// How a processor switched between programs, if the trace has several.
    pub switches: Option<Switches>,
    /// Accesses that touched two pages; each makes a lookup of both.
    pub page_crossings: u64,
    /// Counts of each TLB, first level first.
    pub tlbs: Vec<TlbCounts>,
    /// Switches between address spaces, with their flushes and costs.
    pub space_switches: SpaceSwitches,
    /// Counts for small address spaces (`os.small`), if the machine has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_spaces: Option<SmallSpaceCounts>,
    /// Counts of the trace cache, if the machine has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_cache: Option<TraceCacheCounts>,
    /// Counts of page-table walks.
    pub walks: Walks,
    /// Counts of the walker's MMU cache, if the walker has one.
    pub mmu_cache: Option<MmuCacheCounts>,
    /// Counts of the SpecTLB, which predicts frames on TLB misses, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlbCounts>,
    /// Counts of the range TLB, which translates ranges of any length, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_tlb: Option<RangeTlbCounts>,
    /// Counts of lookups in restrictive segments (`[restseg]`), if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restseg: Option<RestSegCounts>,
    /// Counts of the host in a virtual machine.
    pub nested: Option<NestedCounts>,
    /// Counts of each data cache, nearest first.
    pub caches: Vec<CacheCounts>,
    /// Page faults that the operating system handled.
    pub faults: Faults,
    /// Further counts of the memory manager, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<ManagerCounts>,
    /// Counts of online promotion (`os.promotion`), if it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionCounts>,
    /// Counts of memory nodes (`[memory.numa]`), if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaCounts>,
    /// Settings that changed during the run (`[[os.at]]`), in order; settings whose time did not
    /// come are left out.
    pub changed_settings: Vec<ChangedSetting>,
    /// Shootdowns, summed over all processors.
    pub shootdowns: ShootdownCounts,
    /// Counts of each processor, if there are several. The other counts of the document are sums
    /// over all processors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorCounts>,
    /// Physical memory at the end of the run.
    pub memory: MemoryCounts,
    /// Counts of each region of the address space, in order of address.
    pub regions: Vec<RegionCounts>,
    /// Misses by the code, thread and data that caused them; absent in the results of sweeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origins: Option<MissOrigins>,
    /// Misses over time.
    pub timeline: Timeline,
    /// Misses over address and time.
    pub map: MissMap,
    /// The time of the run, if the machine file has all latencies from which it is computed.
    pub time: Option<Time>,
    /// Effects that this run does not model.
    pub not_modelled: Vec<String>,
    /// Whether each translation was compared with the page table.
    pub checked: bool,
}

/// The trace that was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceSummary {
    /// SHA-256 of the trace's contents; `None` if it is not known, as for a live program.
    pub digest: Option<String>,
    /// The trace's header.
    #[serde(flatten)]
    pub header: HeaderSummary,
    /// For a live program: how its accesses were reported to the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveSummary>,
}

/// How the recorder of a live program reported its accesses to the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveSummary {
    /// Accesses that the recorder counted as guaranteed TLB hits; all others were reported one by
    /// one. Counting does not change the results.
    pub counted_accesses: u64,
    /// Why no access was counted as a guaranteed hit; `None` if some were.
    pub because: Option<String>,
    /// The parts of the program that are missing from all counts, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// The header of the trace, as far as a result repeats it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeaderSummary {
    /// Program that made the trace.
    pub producer: String,
    /// The recorded command, or the generator's parameters.
    pub command: Vec<String>,
    /// The instruction set.
    pub arch: trace::Arch,
    /// Whether the trace has fetches.
    pub fetches: bool,
    /// The accesses that were left out of the trace when it was recorded.
    pub filter: trace::Filter,
    /// Notes of the program that made the trace.
    pub notes: Vec<String>,
    /// The processes of a recording, those with most accesses first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<trace::Process>,
}

/// The machine that ran the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineSummary {
    /// Name of the machine.
    pub name: String,
    /// Title of the machine.
    pub title: String,
    /// Where the machine is documented.
    pub source: String,
    /// SHA-256 of the description.
    pub digest: String,
    /// Settings that changed the machine, as `--set` takes them.
    pub settings: Vec<String>,
    /// The machine's description with these settings.
    pub description: serde_json::Value,
}

/// One value for each kind of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByKind<T> {
    /// For fetches.
    pub fetch: T,
    /// For loads.
    pub load: T,
    /// For stores.
    pub store: T,
}

sums! { ByKind<T> { fetch, load, store; } }

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

/// Lookups and their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HitsAndMisses {
    /// Lookups.
    pub lookups: u64,
    /// Lookups that found a translation.
    pub hits: u64,
    /// Lookups that found no translation.
    pub misses: u64,
}

sums! { HitsAndMisses { lookups, hits, misses; } }

impl HitsAndMisses {
    /// The sums of both counts.
    pub fn plus(self, other: HitsAndMisses) -> HitsAndMisses {
        HitsAndMisses {
            lookups: self.lookups + other.lookups,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
        }
    }
}

/// Lower and upper bound of a value that the counts do not determine exactly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range<T> {
    /// Lower bound.
    pub lo: T,
    /// Upper bound.
    pub hi: T,
}
