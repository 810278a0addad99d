//! The interface that memory management needs from processors, memory and disks.

use core::fmt;

use addr::{PhysAddr, VirtAddr};
use hat::HatSpace;
use pagetable::Flush;

use crate::{object::FileKey, swap::Slot, work::Decision};

/// A kernel's processors, memory and disks, or a simulated machine, as used by one processor.
pub trait Platform {
    /// Makes every processor flush the entries that `flushes` name. No processor may use any of
    /// these translations after the operation in progress has returned.
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]);

    /// Fills `bytes` bytes with zeros.
    fn zero(&mut self, frame: PhysAddr, bytes: u64);

    /// Copies `bytes` bytes from one frame to another.
    fn copy(&mut self, from: PhysAddr, to: PhysAddr, bytes: u64);

    /// Moves one page between memory and a disk, and returns when the transfer is complete.
    fn transfer(&mut self, io: Io);

    /// Like [`Platform::transfer`], for a disk that can fail. The manager calls only this function,
    /// whose default calls [`Platform::transfer`].
    ///
    /// After an error, a page that was to be read is not in memory, and the access to it is refused
    /// with [`Error::Io`](crate::Error::Io). A page that was to be written stays in memory and dirty.
    fn try_transfer(&mut self, io: Io) -> Result<(), IoError> {
        self.transfer(io);
        Ok(())
    }

    /// Called when other work is done, so that the work can be priced while its locks are held. A
    /// kernel need not implement it.
    fn work(&mut self, _step: Step, _count: u64) {}

    /// Announces that `place` will be written soon and may not be in the cache: a platform can prefetch its
    /// cache line.
    fn soon<T>(&self, _place: &T) {}

    /// Called for each counted decision about a page size, with the address that it concerns, for
    /// hosts that count by their own regions.
    fn decided(&mut self, _space: HatSpace, _at: VirtAddr, _decision: Decision, _of: Decided) {}
}

/// The pages to which a decision applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// This many adjacent pages, which were loaded.
    Loaded(u64),
    /// A large page that was requested.
    Asked,
}

/// Units of memory-management work, each of which can have a price.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Work of the HAT layer.
    Hat(hat::Step),
    /// A search for the region of an address.
    Region,
    /// A search for a page of an object.
    Object,
    /// A page's frame allocated or freed, or its descriptor changed.
    Frame,
}

/// The transfer of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// Whether the page is written to disk; otherwise it is read.
    pub write: bool,
    /// The page's address in memory.
    pub frame: PhysAddr,
    /// The page's place on a disk.
    pub store: Store,
}

/// The disk could not transfer a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoError;

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the disk has not transferred a page")
    }
}

impl core::error::Error for IoError {}

/// A page's place on a disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Store {
    /// A page of a file.
    File(FileKey, u64),
    /// A place in swap.
    Swap(Slot),
}
