//! Physical memory under its lock: the free lists, and the descriptors that contain them.

use addr::{PageSize, PhysAddr};
use hat::locking::{Class, Locks, Mutex, Single, Site};
use physmem::{Allocator, FrameId, Physmem};

/// Physical memory from which several processors allocate frames. Its lock is the lock of the
/// free lists: a thread that holds it takes no other lock.
pub struct Physical<A: Send, L: Locks = Single> {
    lock: L::Mutex<Physmem<A>>,
    /// The size of a base frame.
    frame: PageSize,
}

impl<A: Allocator + Send> Physical<A> {
    /// Memory for one thread.
    pub fn new(memory: Physmem<A>) -> Physical<A> {
        Physical::with_locks(memory)
    }
}

impl<A: Allocator + Send, L: Locks> Physical<A, L> {
    /// Puts `memory` under a lock of the platform `L`.
    pub fn with_locks(memory: Physmem<A>) -> Physical<A, L> {
        let frame = memory.table().base();
        Physical { frame, lock: L::Mutex::new(Class::VmFrames, memory) }
    }

    /// Runs `f` on memory while it is locked.
    #[inline]
    pub fn with<R>(&self, site: Site, f: impl FnOnce(&mut Physmem<A>) -> R) -> R {
        self.lock.with(site, f)
    }

    /// The memory, for a caller that has exclusive access.
    #[inline]
    pub fn get_mut(&mut self) -> &mut Physmem<A> {
        self.lock.get_mut()
    }

    /// The address of a frame's first byte.
    #[inline]
    pub(crate) fn address(&self, frame: FrameId) -> PhysAddr {
        PhysAddr::new(u64::from(frame.0) << self.frame.shift())
    }

    /// The frame that contains `at`, which is in this memory.
    #[inline]
    pub(crate) fn frame_at(&self, at: PhysAddr) -> FrameId {
        FrameId((at.get() >> self.frame.shift()) as u32)
    }

    /// log2 of the number of base frames of a page of `size`.
    #[inline]
    pub(crate) fn order(&self, size: PageSize) -> u32 {
        size.shift().saturating_sub(self.frame.shift())
    }
}
