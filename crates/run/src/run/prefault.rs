//! Pages that are there before they are accessed: each is mapped before its first walk, so that no walk faults.

use description::Error;
use hardware::behind::Behind;
use pagetable::Fault;

use super::{Run, access::Lookup, constants::Constants, hooks::Hook};

/// Whether the page of the miss under way was mapped for it.
pub(super) struct Prefault {
    came: bool,
}

impl Prefault {
    /// As the machine asks for, if it does.
    pub(super) fn of(constants: &Constants) -> Option<Prefault> {
        constants.populated.then_some(Prefault { came: false })
    }

    /// Whether the page of the miss under way was mapped for it; not any more.
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
    /// Has the page of a miss mapped, if it is not.
    #[cold]
    pub(super) fn prefault(
        &mut self,
        place: Lookup<'_>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        if self.stack.guest.mapping(self.who.space, place.addr).is_some() {
            return Ok(());
        }
        // An address that no table can hold is told by the walk.
        self.fault(place, Fault::NotMapped { level: 1 }, behind)?;
        if let Some(prefault) = &mut self.hooks.prefault {
            prefault.came = true;
        }
        Ok(())
    }
}
