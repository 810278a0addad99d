//! Walks, the caches that shorten them, and the data caches that serve the references of walks and
//! of the program.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;

use super::{
    HitsAndMisses, ReservationCounts, SpecTlbCounts,
    sum::{Sum, add_by, sums},
};

/// Counts of the walker.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Walks {
    /// Walks, one for each lookup that missed every TLB. On a machine without a page table they
    /// make no references.
    pub walks: u64,
    /// Walks that ended in a first-touch fault and were repeated after it.
    pub cold: u64,
    /// References of all walks.
    pub references: u64,
    /// Stores to a clean page in the TLB for which hardware set the dirty bit, on machines that
    /// track dirty pages.
    pub dirty_assists: u64,
    /// Stores to a clean page in the TLB that trapped to a software handler.
    pub modify_traps: u64,
    /// References of cold misses: of the walk that faulted and of the walk that was repeated after
    /// the fault.
    pub cold_references: u64,
    /// Number of walks by their number of references, without cold walks.
    pub references_per_walk: Vec<(u64, u64)>,
    /// References by level of the page table (in a virtual machine the guest's), root first, and by
    /// what served them.
    pub by_level: Vec<LevelCounts>,
    /// Instructions of the software refill handler; 0 if hardware walks.
    pub handler_instructions: Option<u64>,
    /// TLB misses on pages of a linear page table itself, by level.
    pub nested_misses: Vec<(u8, u64)>,
}

sums! {
    Walks {
        walks, cold, references, dirty_assists, modify_traps, cold_references, references_per_walk, by_level,
        handler_instructions, nested_misses;
    }
}

/// Walk references to one level of the page table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelCounts {
    /// The level; 1 is the level that maps base pages.
    pub level: u8,
    /// References to this level.
    pub references: u64,
    /// References by the cache, or memory, that served them.
    pub served: BTreeMap<String, u64>,
}

sums! { LevelCounts { references, served; level } }

impl Sum for Vec<LevelCounts> {
    fn add(&mut self, others: &Vec<LevelCounts>) {
        // The root comes first.
        add_by(self, others, |level| Reverse(level.level));
    }
}

/// The MMU cache and its counts. The references that the MMU cache saved do not appear in `Walks`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MmuCacheCounts {
    /// Name of the design.
    pub design: String,
    /// Replacement policy.
    pub replacement: String,
    /// The arrays, lowest level first.
    pub arrays: Vec<MmuCacheArray>,
    /// Cycles per search.
    pub latency_cycles: u64,
    /// Searches of the MMU cache. If the cache is searched for several levels one after the other,
    /// each search counts.
    pub searches: u64,
    /// Counts by level, highest level first.
    pub by_level: Vec<MmuCacheLevel>,
}

sums! { MmuCacheCounts { searches, by_level; design, replacement, arrays, latency_cycles } }

/// One array of an MMU cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MmuCacheArray {
    /// Level whose entries the array holds; `None` if it holds entries of all levels.
    pub level: Option<u8>,
    /// Entries of the array.
    pub entries: u64,
    /// Ways.
    pub ways: u64,
    /// Bits per tag; `None` if tags differ in length.
    pub tag_bits: Option<u64>,
    /// Bits of data per entry; `None` if entries differ in length.
    pub data_bits: Option<u64>,
}

/// Page-table entries of one level that point to further tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MmuCacheLevel {
    /// The level; 0 for pages, if the cache holds pages too (`nested.shared`).
    pub level: u8,
    /// Entries that walks needed at this level. Walks that are repeated after a fault are not counted, as
    /// they find the entries that the first walk inserted.
    pub needed: u64,
    /// Needed entries that were in the cache, or that the walk could skip because the cache had an
    /// entry of a lower level.
    pub held: u64,
}

sums! { MmuCacheLevel { needed, held; level } }

impl Sum for Vec<MmuCacheLevel> {
    fn add(&mut self, others: &Vec<MmuCacheLevel>) {
        add_by(self, others, |level| Reverse(level.level));
    }
}

/// Lookups of pages in restrictive segments. There is one lookup before each walk; the references
/// of lookups are those of level 0 in `Walks`. A page that is found needs no walk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestSegCounts {
    /// Lines of the set filter that are cached.
    pub filter_lines: u64,
    /// Lines of the tag array that are cached.
    pub tag_lines: u64,
    /// Ways of the cache of the filter, and of the cache of the tags: both caches have this number.
    pub ways: u64,
    /// Number of lookups: one before each walk, and one after each fault.
    pub lookups: u64,
    /// Lookups that found the page.
    pub hits: u64,
    /// Lookups that did not find the page; each causes a walk.
    pub misses: u64,
    /// Lookups in sets without any page. The filter showed that the set was empty, so the tags were
    /// not read.
    pub filtered: u64,
    /// References to the filter.
    pub filter_reads: u64,
    /// References to the tags.
    pub tag_reads: u64,
}

sums! {
    RestSegCounts {
        lookups, hits, misses, filtered, filter_reads, tag_reads; filter_lines, tag_lines, ways
    }
}

/// The host of a virtual machine. The levels in `Walks` are those of the guest's page table; the
/// host's references by level are here, and both are in the sums of `Walks`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NestedCounts {
    /// The host's page size.
    pub page_size: String,
    /// Walks of the host's page table.
    pub walks: u64,
    /// References of the walks of the host's page table.
    pub references: u64,
    /// References of the walks of the host's page table by its level, root first.
    pub by_level: Vec<LevelCounts>,
    /// Lookups of the nested TLB, if there is one.
    pub tlb: Option<HitsAndMisses>,
    /// MMU cache of the host's walks, if there is one. If guest and host share one cache
    /// (`nested.shared`), `arrays` repeats the arrays of the guest's cache, and searches are
    /// counted only in the guest's counts.
    pub mmu_cache: Option<MmuCacheCounts>,
    /// SpecTLB for the host's walks, if there is one. Predictions are counted per walk of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlbCounts>,
    /// References to tables of the guest and of the host for which the access has to wait, because
    /// no right prediction overlaps them; `None` without a SpecTLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critical_references: Option<u64>,
    /// Reservations of the host, if it makes any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationCounts>,
    /// Bytes of the host's memory that are reserved and not in use.
    pub reserved_bytes: u64,
    /// Bytes that former guests still use (`nested.former`).
    pub former_bytes: u64,
    /// Pages that the host mapped at their first use.
    pub first_touches: u64,
    /// Walks whose guest page is larger than the host's page, so that the TLB was filled with only
    /// a part of the guest page.
    pub splintered: u64,
    /// Bytes of the host's frames in use.
    pub used_bytes: u64,
    /// Bytes of frames that hold the host's page table.
    pub table_bytes: u64,
}

/// Counts of one data cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheCounts {
    /// Name of the cache in the machine file.
    pub name: String,
    /// Bytes of data that the cache holds.
    pub size_bytes: u64,
    /// Bytes per line.
    pub line_bytes: u64,
    /// Ways.
    pub ways: u64,
    /// Replacement policy.
    pub replacement: String,
    /// Accesses by the program, counted per line.
    pub program: CacheTraffic,
    /// Accesses by the walker, counted per line.
    pub walker: CacheTraffic,
    /// Dirty lines written to the next level.
    pub writebacks: u64,
    /// Flushes, if the cache holds lines by virtual addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flushes: Option<CacheFlushes>,
}

sums! {
    CacheCounts {
        program, walker, writebacks, flushes; name, size_bytes, line_bytes, ways, replacement
    }
}

/// Flushes of a cache that holds lines by virtual addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheFlushes {
    /// Number of flushes, of the whole cache or of the lines of some pages.
    pub times: u64,
    /// Lines checked in flushes.
    pub looked: u64,
    /// Lines removed.
    pub lines: u64,
    /// Removed lines that were dirty and were written to memory.
    pub written: u64,
}

sums! { CacheFlushes { times, looked, lines, written; } }

/// Reads and writes of a cache by the program or by the walker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheTraffic {
    /// Lines read.
    pub reads: u64,
    /// Lines read that were not in the cache.
    pub read_misses: u64,
    /// Lines written.
    pub writes: u64,
    /// Lines written that were not in the cache.
    pub write_misses: u64,
}

sums! { CacheTraffic { reads, read_misses, writes, write_misses; } }
