//! Settings of Ingens, and the results of its scans.

use alloc::{collections::BTreeMap, vec::Vec};

use super::khugepaged::Khugepaged;

/// How Ingens chooses blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ingens {
    /// The number of base pages of a block that must be in memory.
    pub util_threshold: u64,
    /// A hot page is examined once in this number of scans; `None` if use is not sampled.
    pub hot_every: Option<u64>,
    /// A share of free memory, in thousandths. While less than this share is in blocks smaller than
    /// a large page, any block becomes large. 0 disables this.
    pub aggressive_below: u64,
}

impl Ingens {
    /// Ingens without sampling. `util_threshold` base pages of a block must be in memory.
    pub const fn new(util_threshold: u64) -> Ingens {
        Ingens { util_threshold, hot_every: None, aggressive_below: 0 }
    }
}

/// The results of scans.
#[derive(Default)]
pub(crate) struct Use {
    /// The number of scans so far.
    pub(crate) scans: u64,
    /// For each block, by space and first page: the results of the last eight scans of each base
    /// page, the newest in the highest bit.
    pub(crate) histories: BTreeMap<(u32, u64), Vec<u8>>,
}

impl Use {
    /// The number of set bits in the histories of all base pages of a block.
    pub(crate) fn heat(&self, block: &(u32, u64)) -> u32 {
        let bits = self.histories.get(block).into_iter().flatten();
        bits.map(|history| history.count_ones()).sum()
    }
}

impl Khugepaged {
    /// The limits of a daemon that makes a large page of a block if `util_threshold` of its base
    /// pages are in memory.
    pub const fn filled(self, pages: u64, util_threshold: u64) -> Khugepaged {
        Khugepaged { max_ptes_none: pages.saturating_sub(util_threshold), ..self }
    }
}
