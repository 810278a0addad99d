//! How Ingens chooses blocks, and what its scans have found.

use alloc::{collections::BTreeMap, vec::Vec};

use super::khugepaged::Khugepaged;

/// How Ingens chooses blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ingens {
    /// Base pages of a block that must be there.
    pub util_threshold: u64,
    /// In each how many scans a hot page is looked at; `None`: use is not sampled.
    pub hot_every: Option<u64>,
    /// Below how many thousandths of free memory in less than a block any block becomes large; 0: never.
    pub aggressive_below: u64,
}

impl Ingens {
    /// Ingens without samples, for blocks of which so many base pages must be there.
    pub const fn new(util_threshold: u64) -> Ingens {
        Ingens { util_threshold, hot_every: None, aggressive_below: 0 }
    }
}

/// What scans have found.
#[derive(Default)]
pub(crate) struct Use {
    /// Scans so far.
    pub(crate) scans: u64,
    /// By space and first page of a block: of each base page the last eight scans, the newest in the
    /// highest bit.
    pub(crate) histories: BTreeMap<(u32, u64), Vec<u8>>,
}

impl Use {
    /// Bits of all base pages of a block.
    pub(crate) fn heat(&self, block: &(u32, u64)) -> u32 {
        let bits = self.histories.get(block).into_iter().flatten();
        bits.map(|history| history.count_ones()).sum()
    }
}

impl Khugepaged {
    /// The limits of a daemon that makes large pages of blocks of which so many base pages are there.
    pub const fn filled(self, pages: u64, util_threshold: u64) -> Khugepaged {
        Khugepaged { max_ptes_none: pages.saturating_sub(util_threshold), ..self }
    }
}
