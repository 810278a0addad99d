//! What memory management asks of the world, and how it asks on behalf of the HAT layer.

use addr::{Frames, OutOfFrames, PageSize, PhysAddr, VirtAddr};
use hat::{HatSpace, locking::Site};
use pagetable::Flush;

use crate::{
    host::Host,
    object::FileKey,
    physical::Physical,
    swap::Slot,
    work::{Decision, Work},
};

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

/// What the HAT layer sees of memory and the platform.
pub(crate) struct Below<'a, H: Host> {
    pub(crate) memory: &'a Physical<H::Allocator, H::Locks>,
    pub(crate) platform: &'a mut H::Platform,
    pub(crate) work: &'a mut Work,
    pub(crate) site: Site,
}

impl<H: Host> hat::Platform for Below<'_, H> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        self.platform.shoot(flushes);
    }

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }

    fn work(&mut self, step: hat::Step, count: u64) {
        let counter = match step {
            hat::Step::Operation => return self.platform.work(Step::Hat(step), count),
            hat::Step::TableWrite => &mut self.work.table_writes,
            hat::Step::TableRead => &mut self.work.table_reads,
            hat::Step::Mapping => &mut self.work.mappings,
            hat::Step::Shootdown => &mut self.work.shootdowns,
        };
        *counter += count;
        self.platform.work(Step::Hat(step), count);
    }
}

/// Frames for page tables.
impl<H: Host> Frames for Below<'_, H> {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let frame = self.memory.with(self.site, |memory| Frames::allocate(memory, size))?;
        self.work.frames_taken += 1 << self.memory.order(size);
        Ok(frame)
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.memory.with(self.site, |memory| Frames::free(memory, frame, size));
        self.work.frames_given += 1 << self.memory.order(size);
    }
}
