//! Restrictive segments: hardware finds pages in the frames that the hashes of their addresses
//! allow.

use addr::VirtAddr;
use hardware::{behind::Behind, processor::Processor, tlbs::TlbUnits};
use pagetable::{Fault, Translation};

use super::{Run, hooks::Hook};

/// The feature of machines whose pages may be in restrictive segments.
pub(super) struct Segments;

impl Segments {
    /// `Some` if `hardware` searches for pages in restrictive segments.
    pub(super) fn of(hardware: &TlbUnits) -> Option<Segments> {
        hardware.restseg.as_ref().map(|_| Segments)
    }
}

impl Hook for Segments {
    fn leaves_prices(&self) -> bool {
        true
    }

    fn forget_counts(&mut self) {}
}

impl Run {
    /// Whether the page of `addr` is found in a restrictive segment. `walked` is the result that a
    /// walk for the page would have. The references of the lookup are reported to `behind`.
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
}
