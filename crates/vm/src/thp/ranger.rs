//! The daemon that moves pages to adjacent frames: its settings and counts.

/// Settings of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranger {
    /// Regions of fewer base pages than this are skipped.
    pub pages_min: u64,
    /// The largest number of base pages that a pass moves.
    pub moves: u64,
}

/// Counts of what the daemon has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ranged {
    /// The number of passes.
    pub passes: u64,
    /// Base pages moved to free frames.
    pub moved: u64,
    /// Base pages exchanged with other pages.
    pub exchanged: u64,
    /// Anchors that were set.
    pub anchors: u64,
    /// Blocks that became large pages without being moved.
    pub promoted: u64,
}
