//! Physical addresses for the hardware that predicts the results of walks (SpecTLBs and similar).
//!
//! ```text
//!   walk faults --> faulted: the page that forbids the access, if there is one
//!   walk ends   --> found: where it ended, and how many pages around lie side by side
//! ```

use addr::VirtAddr;
use hardware::behind::Behind;
use mmu::Spot;
use pagetable::Translation;
use trace::Block;

use super::{Run, access::Lookup, hooks::Hook};

/// The feature of machines whose hardware behind the TLBs predicts the results of walks.
pub(super) struct Spots;

impl Hook for Spots {
    fn leaves_prices(&self) -> bool {
        true
    }

    fn forget_counts(&mut self) {}
}

impl Run {
    /// Reports a walk that has faulted to the predictors.
    #[cold]
    pub(super) fn spot_fault(&mut self, place: Lookup<'_>, behind: &mut impl Behind) {
        let wants_runs = behind.wants_runs();
        let there = self.stack.query(self.who.space, place.addr);
        let there = there.map(|page| self.spot(place.addr, page, wants_runs));
        behind.faulted(self.instruction(place, wants_runs), there);
    }

    /// Reports a walk that has found `translation` to the predictors.
    #[cold]
    pub(super) fn spot_walk(
        &mut self,
        place: Lookup<'_>,
        translation: Translation,
        behind: &mut impl Behind,
    ) {
        self.walking.missed = true;
        let wants_runs = behind.wants_runs();
        let spot = self.spot(place.addr, translation, wants_runs);
        behind.found(self.instruction(place, wants_runs), spot);
    }

    /// The physical address to which `translation` maps `addr`, with the other data that predictors
    /// use.
    fn spot(&self, addr: VirtAddr, translation: Translation, wants_runs: bool) -> Spot {
        let mapping = self.stack.guest.mapping(self.who.space, addr);
        let guest = mapping.map(|mapping| mapping.translation.apply(addr));
        let marked = mapping.is_some_and(|mapping| mapping.usage.marked);
        Spot {
            phys: translation.apply(addr),
            size: translation.page.size(),
            // A page that was placed in a reservation keeps its position even after the reservation
            // is broken.
            reserved: marked || guest.is_some_and(|frame| self.stack.guest.is_reserved(frame)),
            marked,
            run: if wants_runs { self.run_around(addr, translation) } else { 0 },
        }
    }

    /// The number of base pages around `addr` that are contiguous in virtual and in physical
    /// memory, at most [`Spot::RUN_MAX`].
    fn run_around(&self, addr: VirtAddr, translation: Translation) -> u32 {
        let (size, phys) = (self.constants.granules.0, translation.apply(addr).get());
        let is_beside = |bytes: u64| {
            let at = VirtAddr::new(addr.get().wrapping_add(bytes));
            let found = self.stack.query(self.who.space, at);
            found.is_some_and(|found| found.apply(at).get() == phys.wrapping_add(bytes))
        };
        let mut run = 1;
        for ahead in [true, false] {
            let mut step = 1;
            while run < Spot::RUN_MAX {
                let bytes = step * size.bytes();
                if !is_beside(if ahead { bytes } else { bytes.wrapping_neg() }) {
                    break;
                }
                (run, step) = (run + 1, step + 1);
            }
        }
        run
    }

    /// The address of the instruction that makes an access, or rather of its basic block, as
    /// fetches are recorded by block. `None` if it is not wanted, or if the batch does not have the
    /// fetch.
    fn instruction(&self, place: Lookup<'_>, is_wanted: bool) -> Option<u64> {
        if !is_wanted {
            return None;
        }
        match place.batch.block_of((place.access - self.seen.position) as usize) {
            Block::At { address, instruction } => Some(address.wrapping_add(instruction.into())),
            Block::Before { .. } | Block::Unknown => None,
        }
    }
}
