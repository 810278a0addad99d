//! What the operating system asks of a run: memory, and that hardware forgets.
//!
//! ```text
//!   System --shoot--> Flush --> the context of its space --> TLBs, MMU cache --> its frames are free
//!                                  | none: nothing of it is left in the hardware
//! ```

use addr::VirtRange;
use pagetable::Flush;

use super::{PROCESSOR, Run};
use crate::{
    Error,
    count::census::Census,
    hardware::{
        behind::{Behind, Forget},
        contexts::Contexts,
        tlbs::Hardware,
    },
    os::{Failure, Layout, Platform, System},
    ram::Ram,
};

/// A run as the operating system sees it.
struct Hosted<'a, B> {
    ram: &'a mut Ram,
    layout: &'a Layout,
    hardware: &'a mut Hardware,
    contexts: &'a Contexts,
    census: &'a mut Census,
    back: &'a mut B,
}

impl<B: Behind> Platform for Hosted<'_, B> {
    fn ram(&mut self) -> &mut Ram {
        self.ram
    }

    fn layout(&self) -> &Layout {
        self.layout
    }

    fn shoot(&mut self, flush: Flush) {
        // A space that has lost its context has nothing left in the hardware.
        let number = self.ram.number_of(flush.space());
        if let Some(asid) = number.and_then(|space| self.contexts.of(PROCESSOR, space)) {
            self.hardware.flush(&flush, asid, self.census);
            if let Some(range) = flush.tables() {
                if self.ram.is_linear() {
                    self.hardware.flush_tables(range, asid, self.census);
                }
                self.back.forget(match range {
                    VirtRange::ALL => Forget::Space(asid),
                    part => Forget::Range(part, asid),
                });
            }
        }
        self.ram.done(flush);
    }
}

impl Run {
    /// Has the operating system do something at `access`.
    pub(super) fn ask<T>(
        &mut self,
        access: u64,
        back: &mut impl Behind,
        ask: impl FnOnce(&mut dyn System, &mut dyn Platform) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let Run { system, ram, layout, hardware, contexts, census, .. } = self;
        let mut platform = Hosted { ram, layout, hardware, contexts, census, back };
        ask(system.as_mut(), &mut platform).map_err(|failure| self.failed(failure, access))
    }

    pub(super) fn failed(&self, failure: Failure, access: u64) -> Error {
        match failure {
            Failure::OutOfFrames => {
                Error::OutOfFrames { access, frames_bytes: self.ram.frame_bytes().0 }
            }
            Failure::OutOfHostFrames => Error::OutOfHostFrames { access },
            Failure::Table(what) => Error::Access { access, what },
        }
    }
}
