//! The TLBs of a machine, and their arrays.

use addr::Kind;
use serde::{Deserialize, Serialize};

use super::{
    lru, one,
    units::{PageSize, Ways},
};

/// The page sizes of a TLB whose file does not state them, if there is a page table.
pub const DEFAULT_SIZES: [addr::PageSize; 3] =
    [addr::PageSize::SIZE_4K, addr::PageSize::SIZE_2M, addr::PageSize::SIZE_1G];

/// The TLBs: one unified first level (`l1`); or one for fetches (`l1i`) and one for data (`l1d`),
/// which may be split further into loads (`l1d`) and stores (`l1s`). The second level is organised
/// in the same way.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tlbs {
    /// First-level TLB for all kinds of access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1: Option<Tlb>,
    /// First-level TLB for fetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1i: Option<Tlb>,
    /// First-level TLB for loads, and for stores unless there is `l1s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1d: Option<Tlb>,
    /// First-level TLB for stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1s: Option<Tlb>,
    /// Second-level TLB for all kinds of access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2: Option<Tlb>,
    /// Second-level TLB for fetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2i: Option<Tlb>,
    /// Second-level TLB for loads and stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2d: Option<Tlb>,
}

impl Tlbs {
    /// The TLBs that the machine has: name, level and description, first level first.
    pub fn present(&self) -> impl Iterator<Item = (&'static str, u8, &Tlb)> {
        [
            ("l1", 1, &self.l1),
            ("l1i", 1, &self.l1i),
            ("l1d", 1, &self.l1d),
            ("l1s", 1, &self.l1s),
            ("l2", 2, &self.l2),
            ("l2i", 2, &self.l2i),
            ("l2d", 2, &self.l2d),
        ]
        .into_iter()
        .filter_map(|(name, level, tlb)| Some((name, level, tlb.as_ref()?)))
    }

    /// The name of the TLB of `level` that an access of `kind` looks up: the most specific one.
    pub fn serving(&self, level: u8, kind: Kind) -> Option<&'static str> {
        let names: &[(&'static str, &Option<Tlb>)] = match (level, kind) {
            (1, Kind::Fetch) => &[("l1i", &self.l1i), ("l1", &self.l1)],
            (1, Kind::Load) => &[("l1d", &self.l1d), ("l1", &self.l1)],
            (1, Kind::Store) => &[("l1s", &self.l1s), ("l1d", &self.l1d), ("l1", &self.l1)],
            (_, Kind::Fetch) => &[("l2i", &self.l2i), ("l2", &self.l2)],
            (_, _) => &[("l2d", &self.l2d), ("l2", &self.l2)],
        };
        names.iter().find(|(_, tlb)| tlb.is_some()).map(|(name, _)| *name)
    }
}

/// A TLB: one array, given here, or several arrays under `array`, which are looked up together.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// The number of entries of the only array; a pair counts as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u32>,
    /// The number of ways of a set.
    #[serde(default)]
    pub ways: Ways,
    /// The replacement policy.
    #[serde(default = "lru")]
    pub replacement: String,
    /// The page sizes that the TLB holds; absent: all page sizes of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_sizes: Option<Vec<PageSize>>,
    /// Several arrays instead of one, such as one for each page size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub array: Vec<Array>,
    /// Whether an entry maps two adjacent pages under one tag.
    #[serde(default)]
    pub paired: bool,
    /// Whether and how an entry can map several pages of the smallest size; absent: an entry maps
    /// one page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Blocks>,
    /// Cycles that each lookup in this TLB adds to an access, whether it hits or misses.
    #[serde(default)]
    pub latency_cycles: u32,
    /// The seed of the random sequence, for policies that use one.
    #[serde(default = "one")]
    pub seed: u64,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}

impl Tlb {
    /// The arrays of the TLB, in whichever way they were given.
    pub fn arrays(&self) -> Vec<Array> {
        match self.entries {
            Some(entries) => vec![Array {
                entries,
                ways: self.ways,
                replacement: Some(self.replacement.clone()),
                page_sizes: self.page_sizes.clone(),
            }],
            None => self.array.clone(),
        }
    }
}

/// TLB entries for a block: several adjacent, aligned pages under one tag.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// The contents of an entry: `complete-subblock`, `partial-subblock`, `coalesced`, `whole` or
    /// `mosaic`.
    pub kind: String,
    /// The number of pages in a block.
    pub pages: u32,
    /// Whether a miss also fills the other pages of a sub-block.
    #[serde(default = "yes")]
    pub prefetch: bool,
}

fn yes() -> bool {
    true
}

/// An array of a TLB.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// The number of entries; a pair counts as one.
    pub entries: u32,
    /// The number of ways of a set.
    #[serde(default)]
    pub ways: Ways,
    /// The replacement policy; absent: the TLB's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// The page sizes that the array holds; absent: all page sizes of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_sizes: Option<Vec<PageSize>>,
}
