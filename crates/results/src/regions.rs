//! Misses by region, over time and by address.

use serde::Serialize;

use super::ByKind;

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
    /// What stands behind it, where the trace says so: `anonymous` (private memory), `shared-memory`,
    /// `private-of-shared` (a private mapping of that), `shared-file`, `private-file`, `hugetlb`, `stack`,
    /// `thread-stack`, `heap`, `bss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing: Option<String>,
    /// What had all of its pages come in without being touched: `when-mapped` (`MAP_LOCKED`,
    /// `MAP_POPULATE`, `mlockall` before) or `when-locked` (`mlock` afterwards).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub populated: Option<String>,
    /// Whether its allocation site called `mmap` itself; `None` without a site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_by_site: Option<bool>,
    /// The allocation site that it was made for, by its index in `origins.sites`; its name is the
    /// site's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<u32>,
    /// Pages first touched in it.
    pub pages: u64,
    /// Lookups of a first-level TLB.
    pub lookups: u64,
    /// Lookups of a first-level TLB by kind of access.
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
