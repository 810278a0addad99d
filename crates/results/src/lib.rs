//! What a run gives: counts first, time as a second step over them.
//!
//! The structure is the JSON document, field by field. Its `schema` number changes when a
//! field changes its meaning or goes away; new fields may come. This file has what stands at the top of the
//! document; what it is made of lies beside it, by what counts it.
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

pub use linux::{
    ChosenBlocks, CompactionCounts, KhugepagedCounts, LinuxCounts, PageBlockCounts, RangerCounts,
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
    /// How the accesses of a program came that ran beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveSummary>,
}

/// How the accesses of a program came to the machine that ran beside.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveSummary {
    /// Accesses that were counted where the program runs, since they surely hit; all others were told. The
    /// results are the same.
    pub counted_accesses: u64,
    /// Why none was counted.
    pub because: Option<String>,
    /// What of the program is missing from all counts, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
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

/// From the lowest to the highest that the counts allow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range<T> {
    /// The lowest.
    pub lo: T,
    /// The highest.
    pub hi: T,
}
