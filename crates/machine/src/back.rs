//! What lies behind the TLBs of a run, as the run sees it.
//!
//! ```text
//!   trace --> TLBs, OS, page table          the front: the same whatever is behind
//!                  |  data, walk, refilled, forget
//!                  v
//!                Back: MMU cache, data caches, counts of walks
//! ```
//!
//! Nothing that happens behind changes what the front does next, as long as the OS flushes what
//! it must: a front can feed one [`Back`] at once, or write down what it says for many of them.
//! All that it says is plain data.

use addr::{Asid, Kind, PhysAddr, VirtAddr, VirtRange};
use pagetable::{Node, Reference};

/// Who walks, for what, and where the walk starts if nothing is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Walk {
    pub(crate) va: VirtAddr,
    pub(crate) asid: Asid,
    pub(crate) root: Node,
    /// Whether the way from there ends at a page.
    pub(crate) found: bool,
    /// Misses of the TLB on the page table itself, on the way to `root`.
    pub(crate) nested_misses: u8,
}

/// What the OS wants forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forget {
    /// All that leads to an address of the range.
    Range(VirtRange, Asid),
    /// All of one space.
    Space(Asid),
    /// Everything.
    All,
}

/// What lies behind the TLBs.
pub(crate) trait Back {
    /// Whether it has caches that the program's own accesses go to.
    fn has_caches(&self) -> bool;

    /// An access of the program to memory.
    fn data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind);

    /// A walk. `references` are those of the whole way from the root down, and it takes as many
    /// of them as it needs. The error is a node that is not on this way, where a forgotten flush
    /// leads it: the references of the way from there are to be given to [`Back::astray`].
    fn walk(&mut self, walk: &Walk, references: &[Reference]) -> Result<(), Node>;

    /// The references of a walk that started at a node which the page table no longer knows.
    fn astray(&mut self, walk: &Walk, references: &[Reference]);

    /// The TLB is refilled: the walks since the last refill were for one miss in the region
    /// labelled `region`, and it was a `cold` one if a page was touched for the first time.
    fn refilled(&mut self, region: u32, cold: bool);

    /// The OS shoots down.
    fn forget(&mut self, forget: Forget);
}
