//! The platform of the HAT layer during an operation of memory management: shootdowns are passed to
//! the memory manager's platform, and frames of page tables come from physical memory.

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};
use hat::{HatSpace, locking::Site};
use pagetable::Flush;

use crate::{
    host::Host,
    physical::Physical,
    platform::{Platform, Step},
    work::Work,
};

/// Memory and platform, behind the interface that the HAT layer needs.
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

/// Allocation of frames for page tables.
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
