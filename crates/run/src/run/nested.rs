//! A virtual machine: where the host has what a walk of the guest's page table reads and finds.

use description::Error;
use os::host::Stack;
use pagetable::{Fault, Reference, Translation};

use super::{Run, access::Lookup, hooks::Hook};

/// The guest's memory lies in a host's.
pub(super) struct Nested;

impl Nested {
    /// It, if there is a host.
    pub(super) fn of(stack: &Stack) -> Option<Nested> {
        stack.host().map(|_| Nested)
    }
}

impl Hook for Nested {
    fn leaves_prices(&self) -> bool {
        true
    }

    fn forget_counts(&mut self) {}
}

impl Run {
    /// What hardware gets of what a walk with these `references` has found in the guest.
    pub(super) fn place_in_host(
        &mut self,
        place: Lookup<'_>,
        references: &[Reference],
        found: Result<Translation, Fault>,
    ) -> Result<Result<Translation, Fault>, Error> {
        let Lookup { addr, kind, access, .. } = place;
        let placed = self.stack.place(addr, kind, references, found);
        placed.map_err(|failure| self.failed(failure, access))
    }
}
