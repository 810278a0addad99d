//! Counts of TLBs, of their entries for blocks, of range TLBs and of SpecTLBs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    ByKind, HitsAndMisses,
    sum::{Sum, sums},
};

/// Counts of one TLB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TlbCounts {
    /// Name of the TLB in the machine file.
    pub name: String,
    /// Level of the TLB, from 1.
    pub level: u8,
    /// The kinds of access that look up this TLB.
    pub serves: Vec<&'static str>,
    /// Entries of all arrays together.
    pub entries: u64,
    /// Ways of each array.
    pub ways: Vec<u64>,
    /// Replacement policy of each array.
    pub replacement: Vec<String>,
    /// Lookups, hits and misses of all kinds.
    #[serde(flatten)]
    pub total: HitsAndMisses,
    /// Misses that ended in a first-touch fault.
    pub cold_misses: u64,
    /// Misses that found an entry which forbids the access; the entry was then removed.
    pub denied: u64,
    /// Misses for which the TLB had an entry of the page's pair, but the page's half of this entry
    /// had no frame.
    pub invalid: u64,
    /// Entries evicted to make room for other entries.
    pub evictions: u64,
    /// Entries that the operating system flushed.
    pub flushed: u64,
    /// Hits of the walker's own lookups for pages of a linear page table; no other field counts
    /// these.
    pub table_hits: u64,
    /// Counts of entries for blocks of pages, if the TLB has such entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockCounts>,
    /// Hits and misses by kind of access.
    pub by_kind: ByKind<HitsAndMisses>,
    /// Hits by the page size of the entry that hit; misses by the page size of the entry that was
    /// then filled.
    pub by_page_size: BTreeMap<String, SizeCounts>,
}

sums! {
    TlbCounts {
        total, cold_misses, denied, invalid, evictions, flushed, table_hits, blocks, by_kind, by_page_size;
        name, level, serves, entries, ways, replacement
    }
}

/// TLB entries for several adjacent pages of the smallest size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockCounts {
    /// The contents of an entry: `complete-subblock`, `partial-subblock`, `coalesced`, `whole` or
    /// `mosaic`.
    pub kind: String,
    /// Pages per block.
    pub pages: u64,
    /// Entries filled.
    pub fills: u64,
    /// Pages that the filled entries translated at the time of their fill. `pages_filled` divided
    /// by `fills` is the average number of pages that an entry covers.
    pub pages_filled: u64,
    /// Misses that found an entry for the page's block, but without a translation of the page.
    pub tag_hits: u64,
}

sums! { BlockCounts { fills, pages_filled, tag_hits; kind, pages } }

/// Hits and misses of one page size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeCounts {
    /// Hits on entries of this page size.
    pub hits: u64,
    /// Misses after which an entry of this page size was filled.
    pub misses: u64,
}

sums! { SizeCounts { hits, misses; } }

/// The SpecTLB and its counts. The SpecTLB is looked up for each walk; if a walk faults, the repeated walk
/// is a second lookup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpecTlbCounts {
    /// Entries, one per large page or instruction.
    pub entries: u64,
    /// Ways.
    pub ways: u64,
    /// Replacement policy.
    pub replacement: String,
    /// Size of the large pages; `any` with `fill = "offsets"`.
    pub page_size: String,
    /// The kind of pages for which entries are made: `heuristic`, `marks` or `offsets`.
    pub fill: String,
    /// Predictions made.
    pub attempts: u64,
    /// Predictions of the frame that the walk found.
    pub right: u64,
    /// Predictions of the right frame for an access that the page's rights forbid, so that the walk
    /// faulted.
    pub denied: u64,
    /// Wrong predictions by cause: `absent` (the walk faulted), `broken` (the page was placed after
    /// its reservation had been broken), `chance` (the entry was made for a page in no reservation,
    /// whose virtual and physical address agreed by chance; with `offsets`: the page has another
    /// offset).
    pub wrong: BTreeMap<String, u64>,
    /// Walks that found their page without a prediction. The sum of `none`, `right`, `broken` and
    /// `chance` is the number of all walks that found their page.
    pub none: u64,
    /// Walks that faulted without a prediction. The sum of `none_faulted`, `absent` and `denied` is
    /// the number of all walks that faulted.
    pub none_faulted: u64,
    /// References of correctly predicted walks, by the cache or memory that served them. The access
    /// that caused the walk need not wait for them.
    pub overlapped: BTreeMap<String, u64>,
    /// Cycles of the references in `overlapped`; `None` if the machine file does not state a
    /// latency that is needed.
    pub overlapped_cycles: Option<u64>,
    /// Predictions of a frame that was lent to a device (`os.devices`).
    pub devices: u64,
    /// Predictions in `devices` whose access reached the device; 0 if requests are marked as
    /// speculative (`spec_tlb.tagged`).
    pub devices_reached: u64,
    /// Walks by the outcome of their prediction.
    pub outcomes: Vec<SpecOutcome>,
}

sums! {
    SpecTlbCounts {
        attempts, right, denied, wrong, none, none_faulted, overlapped, overlapped_cycles, devices,
        devices_reached, outcomes;
        entries, ways, replacement, page_size, fill
    }
}

/// Walks with one outcome of their prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpecOutcome {
    /// The outcome. For walks that found their page: `right`, `broken`, `chance` or `none`. For
    /// walks that faulted: `absent`, `denied` or `none-faulted`.
    pub outcome: String,
    /// Walks with this outcome.
    pub walks: u64,
    /// References of the walks with this outcome, by the cache or memory that served them.
    pub references: BTreeMap<String, u64>,
    /// The last page-table entry read by each walk with this outcome, counted by the cache or
    /// memory that served the read. If the walk found its page, this entry is the page's entry.
    pub ptes: BTreeMap<String, u64>,
    /// The accesses that caused the walks with this outcome, by kind and by the cache or memory
    /// that served the access; empty without data caches.
    pub accesses: ByKind<BTreeMap<String, u64>>,
}

sums! { SpecOutcome { walks, references, ptes, accesses; outcome } }

impl Sum for Vec<SpecOutcome> {
    fn add(&mut self, others: &Vec<SpecOutcome>) {
        // Each processor has all outcomes, in the same order.
        self.iter_mut().zip(others).for_each(|(sum, one)| sum.add(one));
    }
}

/// The range TLB and its counts. The range TLB is looked up for each miss of the last-level TLB; a hit
/// needs no walk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RangeTlbCounts {
    /// Number of entries, one per range.
    pub entries: u64,
    /// Replacement policy.
    pub replacement: String,
    /// Source of the entries: the operating system's range `table`, or the `line` of page-table
    /// entries that a walk reads.
    pub from: String,
    /// Lookups of the range TLB.
    pub lookups: u64,
    /// Lookups that found a range which allows the access. If the machine tracks dirty pages, first
    /// stores to clean pages are not hits.
    pub hits: u64,
    /// Lookups that did not hit; each causes a walk.
    pub misses: u64,
    /// Ranges inserted.
    pub fills: u64,
    /// Ranges evicted to make room for other ranges.
    pub evictions: u64,
    /// Ranges that the operating system flushed.
    pub flushed: u64,
    /// Ranges (adjacent pages in adjacent frames with equal rights) in the operating system's table
    /// at the end; 0 without such a table.
    pub ranges: u64,
    /// Bytes of the ranges that `ranges` counts.
    pub range_bytes: u64,
}

// All processors share one range table.
sums! {
    RangeTlbCounts {
        lookups, hits, misses, fills, evictions, flushed; entries, replacement, from, ranges, range_bytes
    }
}
