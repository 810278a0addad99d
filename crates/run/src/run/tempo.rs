//! What makes a run fast on its host, and changes none of its counts.

use super::{ahead::Ahead, dense::Worth, pace::Pace};

/// Which way of running accesses is the fastest here.
#[derive(Default)]
pub(super) struct Tempo {
    /// How far apart misses are.
    pub(super) pace: Pace,
    /// Whether it pays to run several accesses at once where misses are dense.
    pub(super) worth: Worth,
    /// What the host fetches before it is needed.
    pub(super) ahead: Ahead,
    /// By kind of access: whether the larger shortcuts of the TLBs serve more accesses than the smaller.
    pub(super) large_first: [bool; 4],
}
