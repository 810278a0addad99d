use addr::Frames;
use pagetable::{Flush, Mapping};

use crate::HatSpace;

/// The functions that the layer needs from its environment: a kernel's processors or a simulated
/// machine.
pub trait Platform {
    /// Makes every processor flush the entries that `flushes` name: the TLB entries of their pages
    /// in their spaces, and MMU-cache entries that lead to tables that moved or were removed.
    ///
    /// When this returns, no processor uses any of these translations, so that the frames can have
    /// a new owner.
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]);

    /// The allocator of frames for page tables.
    fn frames(&mut self) -> &mut dyn Frames;

    /// Called when a page of `space` was unmapped because another space needs the memory of the
    /// page tables of `space`. The page is restored by a minor fault.
    fn stolen(&mut self, _space: HatSpace, _page: &Mapping) {}

    /// Called after work of this layer, so that the work can be counted and priced. A kernel need
    /// not implement this function.
    fn work(&mut self, _step: Step, _count: u64) {}

    /// Called when the mapping list of the base frame with this number is read or changed, for
    /// platforms that simulate the memory references of this layer.
    fn touch(&mut self, _frame: u64, _is_changed: bool) {}
}

/// Units of this layer's work, each of which can have a price.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// An operation that changes translations: its fixed cost, independent of the number of pages.
    Operation,
    /// A page-table entry inserted, changed or removed.
    TableWrite,
    /// A page-table entry read.
    TableRead,
    /// A node of a frame's mapping list inserted, removed or read.
    Mapping,
    /// A shootdown, independent of its contents.
    Shootdown,
}
