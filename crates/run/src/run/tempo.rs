//! Choices that make a run fast on its host and do not change counts.

use super::{ahead::Ahead, dense::Worth, pace::Pace};

/// The state that chooses the fastest way of running accesses.
#[derive(Default)]
pub(super) struct Tempo {
    /// The recent distances between misses.
    pub(super) pace: Pace,
    /// Whether running several accesses together saves time if misses are dense.
    pub(super) worth: Worth,
    /// Prefetches on the host.
    pub(super) ahead: Ahead,
    /// By kind of access: whether the shortcuts for larger pages serve more accesses than those for
    /// smaller pages.
    pub(super) large_first: [bool; 4],
}
