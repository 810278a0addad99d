//! The seam between a walker and an MMU cache: what makes a walk shorter or cheaper.
//!
//! ```text
//!   TLB miss --> start(va, root) --> the node to walk from        translation caches: skip
//!                                                                  the upper levels
//!                walk from there --> reference --> read(..)?  yes: served by the MMU cache
//!                                        |                    no:  goes to the data caches
//!                                       ...
//!                                    finish(va): the walk is over
//! ```
//!
//! A translation cache, tagged by virtual address, answers in `start` and learns nodes in
//! `read`. A page-table cache, tagged by the physical address of an entry, leaves the start at
//! the root and answers in `read`. A path cache learns in `finish`. One walker serves them all,
//! over any tree, and none of them knows the layout of an entry.

use addr::{Asid, VirtAddr, VirtRange};
use pagetable::{Node, Reference};

/// A cache that a page-table walker asks.
///
/// It keeps what it learnt until it is told to forget, right or wrong.
pub trait WalkCache {
    /// Where the walk of `va` in `asid` starts: at `root`, or at a node below it that covers
    /// `va`.
    fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node;

    /// Sees a reference of that walk before it goes to memory, and says whether it need not:
    /// whether the entry is held here. Only references that lead on, with `next`, can be.
    fn read(&mut self, va: VirtAddr, asid: Asid, reference: &Reference) -> bool;

    /// The walk is over, with a translation or a fault.
    fn finish(&mut self, va: VirtAddr, asid: Asid);

    /// Forgets all that a walk of an address in `range` in `asid` could use, and perhaps more.
    fn flush_range(&mut self, range: VirtRange, asid: Asid);

    /// Forgets all that a walk in `asid` could use, and perhaps more.
    fn flush_asid(&mut self, asid: Asid);

    /// Forgets everything.
    fn flush_all(&mut self);
}

/// The MMU cache of a walker, chosen when the program runs.
#[derive(Clone, Debug, Default)]
pub enum AnyWalkCache {
    /// Every walk starts at the root and every reference goes to memory.
    #[default]
    None,
}

impl WalkCache for AnyWalkCache {
    #[inline]
    fn start(&mut self, _va: VirtAddr, _asid: Asid, root: Node) -> Node {
        root
    }

    #[inline]
    fn read(&mut self, _va: VirtAddr, _asid: Asid, _reference: &Reference) -> bool {
        false
    }

    #[inline]
    fn finish(&mut self, _va: VirtAddr, _asid: Asid) {}

    fn flush_range(&mut self, _range: VirtRange, _asid: Asid) {}

    fn flush_asid(&mut self, _asid: Asid) {}

    fn flush_all(&mut self) {}
}
