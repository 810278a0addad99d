//! What memory management asks of processors, memory and disks.

use addr::{PhysAddr, VirtAddr};
use hat::HatSpace;
use pagetable::Flush;

use crate::{object::FileKey, swap::Slot, work::Decision};

/// A kernel's processors, memory and disks, or a simulated machine, as one processor uses them.
pub trait Platform {
    /// Makes every processor forget what `flushes` name. No processor uses any of it when the
    /// operation under way returns, at the latest.
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]);

    /// Fills `bytes` bytes with zeros.
    fn zero(&mut self, frame: PhysAddr, bytes: u64);

    /// Copies `bytes` bytes from one frame to another.
    fn copy(&mut self, from: PhysAddr, to: PhysAddr, bytes: u64);

    /// Moves one page between memory and a disk, and returns when that is done.
    fn transfer(&mut self, io: Io);

    /// Hears of other work when it is done, to price it while the locks of it are held. A kernel does
    /// it for nothing.
    fn work(&mut self, _step: Step, _count: u64) {}

    /// Hears that `place` will be written soon, in a line that may be far: a platform that can has it fetched
    /// meanwhile.
    fn soon<T>(&self, _place: &T) {}

    /// Hears of each decision about a size that is counted, with the address that it is about, for hosts
    /// that count by regions of their own.
    fn decided(&mut self, _space: HatSpace, _at: VirtAddr, _decision: Decision, _of: Decided) {}
}

/// Pages that a decision is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// So many, side by side, that were loaded.
    Loaded(u64),
    /// A large page that was asked for.
    Asked,
}

/// Work of memory management, in units that a price can be put on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Work of the HAT layer.
    Hat(hat::Step),
    /// A search for the region of an address.
    Region,
    /// A search for a page of an object.
    Object,
    /// A page's frame taken or given back, or its descriptor changed.
    Frame,
}

/// A page on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// Whether it goes to the disk.
    pub write: bool,
    /// Where it is in memory.
    pub frame: PhysAddr,
    /// Where it is on a disk.
    pub store: Store,
}

/// A page's place on a disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Store {
    /// A page of a file.
    File(FileKey, u64),
    /// A page of swap.
    Swap(Slot),
}
