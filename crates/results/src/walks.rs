//! Walks, what shortens them, and the data caches that their references and the program's enter.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{HitsAndMisses, ReservationCounts, SpecTlbCounts};

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
    /// References of these walks by level of the host's table, root first.
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
