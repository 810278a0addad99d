//! How daemons choose blocks, and the state of that choice.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ingens::{Ingens, Use};

/// How the blocks that become large pages are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Promoter {
    /// Cyclically through all spaces.
    #[default]
    Khugepaged,
    /// Blocks that have become full enough, in order.
    Ingens(Ingens),
    /// The blocks with the most used base pages.
    HawkEye,
}

/// The number of bins by coverage.
pub(crate) const BINS: usize = 12;

/// The state and counts of the choice of blocks.
#[derive(Default)]
pub(crate) struct Promoting {
    /// The blocks that have become full enough, by space and first page, in that order.
    pub(crate) filled: VecDeque<(u32, u64)>,
    pub(crate) known: BTreeSet<(u32, u64)>,
    /// The number of used base pages of each block, in sixteenths, smoothed over time.
    pub(crate) coverage: BTreeMap<(u32, u64), u32>,
    /// The cost of translation for each space, in per cent of the space's time, if it is supplied.
    pub(crate) overheads: BTreeMap<u32, u64>,
    /// The use of base pages over time, if Ingens samples it.
    pub(crate) in_use: Use,
    pub(crate) promoted: Promoted,
}

/// Counts of what Ingens' and HawkEye's daemons have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promoted {
    /// Blocks that became full enough.
    pub filled: u64,
    /// The number of times that accessed bits were read.
    pub samples: u64,
    /// Base pages whose accessed bits Ingens has read.
    pub sampled: u64,
    /// Base pages that were hot at Ingens' last sample.
    pub hot: u64,
    /// The number of blocks in each bin at the last sample.
    pub bins: [u64; BINS],
    /// Blocks that were filled with zeros in advance.
    pub prezeroed: u64,
    /// Base pages of zeros that were freed.
    pub recovered: u64,
}
