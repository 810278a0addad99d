//! What predicts where base pages lie in reservations.

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Serialize};

use super::{
    is_false, lru, one,
    units::{PageSize, Ways},
};

/// The SpecTLB (B10 section 6.2): consulted on a TLB miss, checked by the walk.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpecTlb {
    /// How many large pages it remembers.
    pub entries: u32,
    /// How many of them are in a set.
    pub ways: Ways,
    /// Replacement policy.
    pub replacement: String,
    /// The size of the large pages.
    pub page_size: PageSize,
    /// By what it tells that a base page lies in a reservation: `heuristic` or `marks`; with `offsets` an entry is
    /// for an instruction, and has the offset of the pages that it misses (SpOT).
    pub fill: String,
    /// With `offsets`: a page in a run of fewer base pages makes no entry.
    #[serde(skip_serializing_if = "is_32")]
    pub pages_min: u32,
    /// Whether an entry stays where it has predicted a page and the walk faulted.
    #[serde(skip_serializing_if = "is_false")]
    pub keeps_absent: bool,
    /// Whether it stays as it is where a processor goes on in another space.
    #[serde(skip_serializing_if = "is_false")]
    pub keeps_on_switch: bool,
    /// Whether its requests to memory say that they are guesses, so that none reaches a device.
    #[serde(skip_serializing_if = "is_false")]
    pub tagged: bool,
    /// Start of the random sequence, for the policies that use one.
    pub seed: u64,
    /// Where the numbers come from.
    pub source: String,
}

impl Default for SpecTlb {
    fn default() -> SpecTlb {
        SpecTlb {
            entries: 24,
            ways: Ways::Full,
            replacement: lru(),
            page_size: PageSize(AddrPageSize::SIZE_2M),
            fill: "heuristic".to_owned(),
            pages_min: 32,
            keeps_absent: false,
            keeps_on_switch: false,
            tagged: false,
            seed: one(),
            source: String::new(),
        }
    }
}

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
const fn is_32(pages: &u32) -> bool {
    *pages == 32
}
