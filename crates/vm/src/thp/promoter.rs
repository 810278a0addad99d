//! How daemons choose blocks, and what that remembers.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ingens::{Ingens, Use};

/// How blocks are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Promoter {
    /// Round and round all spaces.
    #[default]
    Khugepaged,
    /// As they fill.
    Ingens(Ingens),
    /// By how much of them is used.
    HawkEye,
}

/// Bins by coverage.
pub(crate) const BINS: usize = 12;

/// What choosing remembers, and has done.
#[derive(Default)]
pub(crate) struct Promoting {
    /// Blocks that have filled, by space and first page, in the order in which they did.
    pub(crate) filled: VecDeque<(u32, u64)>,
    pub(crate) known: BTreeSet<(u32, u64)>,
    /// How many base pages of a block were used, in sixteenths, smoothed.
    pub(crate) coverage: BTreeMap<(u32, u64), u32>,
    /// What translation costs a space, in per cent of its time, where that is told.
    pub(crate) overheads: BTreeMap<u32, u64>,
    /// When base pages were used, where Ingens samples that.
    pub(crate) in_use: Use,
    pub(crate) promoted: Promoted,
}

/// What Ingens' and HawkEye's daemons have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promoted {
    /// Blocks that filled.
    pub filled: u64,
    /// Times that bits of use were read.
    pub samples: u64,
    /// Base pages whose bits Ingens has read.
    pub sampled: u64,
    /// Base pages that were hot at its last sample.
    pub hot: u64,
    /// Blocks by their bin at the last sample.
    pub bins: [u64; BINS],
    /// Blocks that were filled with zeros ahead.
    pub prezeroed: u64,
    /// Base pages of zeros that were given back.
    pub recovered: u64,
}
