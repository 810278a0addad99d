//! Allocation of frames for page tables: from the [pool](crate::Pool), and from the platform.

use core::cell::RefCell;

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};

use crate::{locking::Below, platform::Platform, pool::Taken};

/// The pool as an allocator of frames for a page table.
pub(crate) struct PoolFrames<'a, L> {
    pub(crate) below: &'a mut L,
    pub(crate) platform: &'a mut dyn Frames,
}

impl<L: Below> Frames for PoolFrames<'_, L> {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        match self.below.pool(|pool| pool.take(size)) {
            Taken::Free(frame) => Ok(frame),
            Taken::New => self.platform.allocate(size).inspect_err(|_| {
                self.below.pool(|pool| pool.untake(size));
            }),
            Taken::None => Err(OutOfFrames { size, free_bytes: 0 }),
        }
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        if !self.below.pool(|pool| pool.put(frame, size)) {
            self.platform.free(frame, size);
        }
    }
}

/// A platform that an operation uses alternately for frames and for a shootdown.
pub(crate) struct InTurn<'a, 'b, P>(pub(crate) &'a RefCell<&'b mut P>);

impl<P: Platform> Frames for InTurn<'_, '_, P> {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        self.0.borrow_mut().frames().allocate(size)
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.0.borrow_mut().frames().free(frame, size);
    }
}
