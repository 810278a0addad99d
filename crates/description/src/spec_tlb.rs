//! Predictors of the physical addresses of base pages.

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Serialize};

use super::{
    is_false, lru, one,
    units::{PageSize, Ways},
};

/// The SpecTLB (B10 section 6.2): looked up on a TLB miss; the walk verifies its prediction.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpecTlb {
    /// The number of entries, each for one large page.
    pub entries: u32,
    /// The number of ways of a set.
    pub ways: Ways,
    /// The replacement policy.
    pub replacement: String,
    /// The size of the large pages.
    pub page_size: PageSize,
    /// How the predictor knows that a base page is in a reservation: `heuristic` or `marks`. With `offsets`, an entry
    /// is for an instruction and has the offset between virtual and physical addresses of the pages on which the
    /// instruction misses (SpOT).
    pub fill: String,
    /// With `offsets`: the least number of base pages in a contiguous run whose pages make an
    /// entry.
    #[serde(skip_serializing_if = "is_32")]
    pub pages_min: u32,
    /// Whether an entry stays after it has predicted a page whose walk faulted.
    #[serde(skip_serializing_if = "is_false")]
    pub keeps_absent: bool,
    /// Whether the entries stay when a processor switches to another space.
    #[serde(skip_serializing_if = "is_false")]
    pub keeps_on_switch: bool,
    /// Whether the predictor's memory requests are marked as speculative, so that none reaches a device.
    #[serde(skip_serializing_if = "is_false")]
    pub tagged: bool,
    /// The seed of the random sequence, for policies that use one.
    pub seed: u64,
    /// Where the numbers of this table come from.
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

/// Whether the value is the default, which is not written, so that machines from before the choice
/// existed keep their digest.
const fn is_32(pages: &u32) -> bool {
    *pages == 32
}
