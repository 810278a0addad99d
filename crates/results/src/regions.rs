//! Misses by region, over time and by address.

use serde::Serialize;

use super::ByKind;

/// Counts of one region of the address space.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionCounts {
    /// Name of the region.
    pub name: String,
    /// Address of the first byte.
    pub start: u64,
    /// The largest length of the region in bytes during the run.
    pub bytes: u64,
    /// Access rights, such as `rw-`.
    pub rights: String,
    /// Whether the region was inferred from accesses, because the trace has no mapping for it.
    pub inferred: bool,
    /// The backing of the region, if the trace records it: `anonymous` (private memory),
    /// `shared-memory`, `private-of-shared` (a private mapping of shared memory), `shared-file`,
    /// `private-file`, `hugetlb`, `stack`, `thread-stack`, `heap`, `bss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing: Option<String>,
    /// When all pages of the region were loaded without being touched: `when-mapped` (`MAP_LOCKED`,
    /// `MAP_POPULATE`, an earlier `mlockall`) or `when-locked` (`mlock` afterwards); `None` if they
    /// were not loaded in this way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub populated: Option<String>,
    /// Whether the region's allocation site called `mmap` itself; `None` without a site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_by_site: Option<bool>,
    /// Index in `origins.sites` of the allocation site that the region was mapped for. The region
    /// has the site's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<u32>,
    /// Pages first touched in the region.
    pub pages: u64,
    /// Lookups of first-level TLBs.
    pub lookups: u64,
    /// Lookups of first-level TLBs by kind of access.
    pub by_kind: ByKind<u64>,
    /// Lookups that missed the first-level TLB.
    pub l1_misses: u64,
    /// Lookups that missed every TLB.
    pub misses: u64,
    /// Lookups that missed every TLB and were the first touch of their page.
    pub cold_misses: u64,
    /// References of walks for this region.
    pub walk_references: u64,
    /// Upper bound of the translation cycles for this region: the cycles if no translation overlaps
    /// with other work.
    pub walk_cycles: Option<u64>,
}

/// Misses over time, in equal bins of accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Accesses per bin.
    pub bin_accesses: u64,
    /// Misses of the first-level TLBs, by bin.
    pub l1_misses: Vec<u64>,
    /// Lookups that missed every TLB, by bin.
    pub misses: Vec<u64>,
    /// First touches, by bin.
    pub cold_misses: Vec<u64>,
}

/// Lookups that missed every TLB, over address and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MissMap {
    /// Accesses per time bin.
    pub bin_accesses: u64,
    /// Bytes per address bin.
    pub granule_bytes: u64,
    /// `(time bin, address / granule_bytes, misses)`, in order.
    pub cells: Vec<(u64, u64, u64)>,
    /// `(address / granule_bytes, index in regions, misses)`, in order. An address bin has several
    /// rows if it contains the end of one region and the beginning of the next.
    pub owners: Vec<(u64, u32, u64)>,
}
