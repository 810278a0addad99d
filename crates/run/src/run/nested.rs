//! Virtual machines: the host translates the addresses of the entries that a walk of the guest's
//! page table reads, and the address that the walk finds.

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
    /// Maps the result of a guest walk with these `references` in the host. Returns the combined
    /// result of guest and host, which is the result that hardware gets.
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
