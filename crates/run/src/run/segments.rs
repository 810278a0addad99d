//! What hardware finds in restrictive segments, and which pages lie where their addresses allow it.

use addr::{PhysAddr, VirtAddr};
use hardware::{behind::Behind, processor::Processor};
use pagetable::{Fault, Translation};
use vm::Hashed;

use super::Run;

impl Run {
    /// Whether the page of `addr`, for which a walk would end so, is found in a restrictive segment. The
    /// references that the lookup takes are made.
    pub(super) fn in_segment(
        &mut self,
        addr: VirtAddr,
        walked: Result<Translation, Fault>,
        behind: &mut impl Behind,
    ) -> bool {
        let Run { processors, stack, .. } = self;
        let Processor { hardware, .. } = &mut processors.here;
        let Some(restseg) = &mut hardware.restseg else { return false };
        let mut references = Vec::new();
        let is_taken = |segment, set| stack.guest.is_taken(segment, set);
        let found = restseg.lookup(addr, walked.ok(), is_taken, &mut references);
        behind.beside(&references);
        found
    }

    /// Whether the page of the smallest size at `addr` has a frame that Mosaic's hashes allow.
    pub(super) fn is_hashed(&self, addr: VirtAddr, frame: PhysAddr) -> bool {
        let Some(hashed @ Hashed::Mosaic(_)) = &self.hashed else { return false };
        let Some(space) = self.stack.guest.hat_space(self.who.number) else { return false };
        let page = addr.get() >> self.granules.0.shift();
        hashed.may_have(space, page, 0, self.stack.guest.frame_at(frame))
    }
}
