//! Pages that are mapped in advance (`populated`): each page is mapped before its first walk, so
//! that no walk faults.

use description::Error;
use hardware::behind::Behind;
use pagetable::Fault;

use super::{Run, access::Lookup, constants::Constants, hooks::Hook};

/// Whether the page of the current miss was mapped because of this miss.
pub(super) struct Prefault {
    came: bool,
}

impl Prefault {
    /// `Some` if the machine requests `populated`.
    pub(super) fn of(constants: &Constants) -> Option<Prefault> {
        constants.populated.then_some(Prefault { came: false })
    }

    /// Returns whether the page of the current miss was mapped because of this miss, and resets
    /// this flag.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.came)
    }
}

impl Hook for Prefault {
    fn leaves_prices(&self) -> bool {
        true
    }

    fn forget_counts(&mut self) {
        let Prefault { came: _ } = self;
    }
}

impl Run {
    /// Maps the page of a miss if it is not mapped.
    #[cold]
    pub(super) fn prefault(
        &mut self,
        place: Lookup<'_>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        if self.stack.guest.mapping(self.who.space, place.addr).is_some() {
            return Ok(());
        }
        // If the page table cannot hold the address, the walk reports this later.
        self.fault(place, Fault::NotMapped { level: 1 }, behind)?;
        if let Some(prefault) = &mut self.hooks.prefault {
            prefault.came = true;
        }
        Ok(())
    }
}
