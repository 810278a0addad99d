//! What TLBs count, and what stands beside them: blocks, ranges, predictions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{ByKind, HitsAndMisses};

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
    /// Hits and misses by kind of access.
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
    /// The last page-table entry that each of these walks read, by what served it. Of a walk that found its
    /// page, this is the page's entry.
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
    /// Lookups that found a range which allows the access. Where the machine tracks dirty pages, first stores to clean
    /// pages are not among them.
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
