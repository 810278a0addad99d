//! Physical memory behind its lock: the free lists, and the descriptors that they lie in.

use addr::{PageSize, PhysAddr};
use hat::locking::{Class, Locks, Mutex, Single, Site};
use physmem::{Allocator, FrameId, Physmem};

/// Physical memory that several processors take frames from. It is the lock of the free lists: who
/// has it takes no other one.
pub struct Physical<A: Send, L: Locks = Single> {
    lock: L::Mutex<Physmem<A>>,
    /// The size of a base frame.
    frame: PageSize,
}

impl<A: Allocator + Send> Physical<A> {
    /// For one thread.
    pub fn new(memory: Physmem<A>) -> Physical<A> {
        Physical::with_locks(memory)
    }
}

impl<A: Allocator + Send, L: Locks> Physical<A, L> {
    /// `memory`, under a lock of the platform `L`.
    pub fn with_locks(memory: Physmem<A>) -> Physical<A, L> {
        let frame = memory.table().base();
        Physical { frame, lock: L::Mutex::new(Class::VmFrames, memory) }
    }

    /// Does something with memory while nobody else has it.
    #[inline]
    pub fn with<R>(&self, site: Site, f: impl FnOnce(&mut Physmem<A>) -> R) -> R {
        self.lock.with(site, f)
    }

    /// Memory for who has it alone.
    #[inline]
    pub fn get_mut(&mut self) -> &mut Physmem<A> {
        self.lock.get_mut()
    }

    /// The first byte of a frame.
    #[inline]
    pub(crate) fn address(&self, frame: FrameId) -> PhysAddr {
        PhysAddr::new(u64::from(frame.0) << self.frame.shift())
    }

    /// The frame that has `at`, which is in this memory.
    #[inline]
    pub(crate) fn frame_at(&self, at: PhysAddr) -> FrameId {
        FrameId((at.get() >> self.frame.shift()) as u32)
    }

    /// How many base frames a page of `size` takes, as a power of two.
    #[inline]
    pub(crate) fn order(&self, size: PageSize) -> u32 {
        size.shift().saturating_sub(self.frame.shift())
    }
}
