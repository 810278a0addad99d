use addr::Frames;
use pagetable::{Flush, Mapping};

use crate::HatSpace;

/// What the layer asks of the world: a kernel's processors, or a simulated machine.
pub trait Platform {
    /// Makes every processor forget what `flushes` name: TLB entries of their pages in their
    /// spaces, and MMU-cache entries that lead to tables that moved or went.
    ///
    /// When this returns no processor uses any of it, so that the frames can have a new owner.
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]);

    /// Where frames for page tables come from and go to.
    fn frames(&mut self) -> &mut dyn Frames;

    /// Hears that a page of `space` was dropped, as another space needs the memory of its tables: it
    /// comes back by a minor fault.
    fn stolen(&mut self, _space: HatSpace, _page: &Mapping) {}

    /// Hears of work that was done, to count and price it. A kernel does it for nothing.
    fn work(&mut self, _step: Step, _count: u64) {}

    /// Hears that the list of the base frame of this number is looked at, or changed: where memory is
    /// counted, it lies somewhere.
    fn touch(&mut self, _frame: u64, _is_changed: bool) {}
}

/// Work of this layer, in units that a price can be put on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// An operation that changes translations: its way to the descriptors and back, whatever its pages.
    Operation,
    /// A page of a page table entered, changed or removed.
    TableWrite,
    /// A page of a page table looked at.
    TableRead,
    /// A node of a frame's mapping list entered, removed or looked at.
    Mapping,
    /// A shootdown, whatever it names.
    Shootdown,
}
