//! A daemon that moves pages side by side: its knobs, and what it has done.

/// What the daemon moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranger {
    /// Regions of fewer base pages are left alone.
    pub pages_min: u64,
    /// Base pages that a pass moves at most.
    pub moves: u64,
}

/// What the daemon has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ranged {
    /// Times that it has run.
    pub passes: u64,
    /// Base pages that were moved to free frames ...
    pub moved: u64,
    /// ... and that changed places with others.
    pub exchanged: u64,
    /// Anchors that were set.
    pub anchors: u64,
    /// Blocks that became large pages where they were.
    pub promoted: u64,
}
