//! Virtual machines: the host translates the addresses that a walk of the guest's page table
//! reads and finds.

use description::Error;
use os::host::Stack;
use pagetable::{Fault, Reference, Translation};

use super::{Run, access::Lookup, hooks::Hook};

/// Nested paging: the guest's memory is mapped by a host page table.
pub(super) struct Nested;

impl Nested {
    /// `Some` if the machine has a host.
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
    /// Translates the addresses that a guest walk with these `references` has read and found, by
    /// the host's page table. Returns the combined translation, as hardware gets it.
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
