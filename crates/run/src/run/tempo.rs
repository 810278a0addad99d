//! What makes a run fast on its host without changing counts.

use super::{ahead::Ahead, dense::Worth, pace::Pace};

/// Which way of running accesses is the fastest now.
#[derive(Default)]
pub(super) struct Tempo {
    /// The recent distances between misses.
    pub(super) pace: Pace,
    /// Whether running several accesses together pays where misses are dense.
    pub(super) worth: Worth,
    /// Prefetches on the host.
    pub(super) ahead: Ahead,
    /// By kind of access: whether the shortcuts for larger pages serve more accesses than those for
    /// smaller pages.
    pub(super) large_first: [bool; 4],
}
