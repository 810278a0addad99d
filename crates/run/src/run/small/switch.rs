//! The effects of small spaces on the processors of a run: at switches, promotions and faults.

use addr::{Asid, VirtAddr, VirtRange};
use description::{self, Error, units::Bytes};
use hardware::{
    behind::{Behind, Forget},
    in_turn::InTurn,
    processor::Processor,
};
use hat::{
    HatSpace,
    small::{Directories, NotSmall, SmallFault},
};
use pagetable::{Fault, Lent, Translation};
use ram::Ram;
use results::count::census::Census;

use super::{Done, SpaceState, View, members::Wish};
use crate::run::{Run, access::Lookup};

/// Applies the decisions on small spaces to the page table and the processors of a run.
struct Hands<'a, B> {
    ram: &'a Ram,
    processors: &'a mut InTurn<Processor>,
    census: &'a mut Census,
    behind: &'a mut B,
    /// Whether the processor has not run anything yet.
    is_first: bool,
    /// Whether caches are looked up by virtual address.
    virtual_caches: bool,
}

impl<B: Behind> Directories for Hands<'_, B> {
    fn lend(&mut self, from: HatSpace, addr: VirtAddr, to: HatSpace, at: VirtAddr) -> Lent {
        // An entry that cannot be copied counts as absent; the operating system then handles the
        // fault.
        self.ram.parts().0.lend(from, addr, to, at).unwrap_or(Lent::Absent)
    }

    fn take_back(&mut self, of: HatSpace, range: VirtRange) -> u64 {
        self.ram.parts().0.take_back(of, range)
    }

    fn forget(&mut self, range: VirtRange) {
        for number in 0..self.processors.count() {
            let processor = self.processors.of(number);
            processor.hardware.flush_range(range, self.census);
            if let Some(cache) = &mut processor.trace_cache {
                cache.clear();
            }
            self.behind.forget(number, Forget::Range(range, Asid(0)));
            if self.virtual_caches {
                self.behind.forget(number, Forget::Pages(range, Asid(0)));
            }
        }
    }

    fn load(&mut self, cpu: usize, _: HatSpace) {
        if self.is_first {
            return;
        }
        let processor = self.processors.of(cpu);
        processor.hardware.flush_non_global(self.census);
        if let Some(cache) = &mut processor.trace_cache {
            cache.clear();
        }
        self.behind.forget(cpu, Forget::All);
    }
}

impl Run {
    /// Switches `processor` to the space `number`, small or large.
    pub(in crate::run) fn enter_small(
        &mut self,
        processor: usize,
        number: u32,
        is_first: bool,
        behind: &mut impl Behind,
    ) {
        let Run { hooks, stack, processors, seen, constants, .. } = self;
        let (census, virtual_caches) = (&mut seen.census, constants.virtual_caches);
        let (Some(small), Some(hat)) = (hooks.small.as_mut(), stack.guest.hat_space(number)) else {
            return;
        };
        let before = small.spaces.counts();
        let wish = small.wish(number);
        let known = small.known.entry(number).or_insert_with(|| {
            small.spaces.add(hat);
            if let Some(Wish { group, everywhere, .. }) = wish
                && (everywhere || group.is_some())
            {
                small.spaces.join(hat, group);
            }
            SpaceState {
                hat,
                is_too_large: false,
                was_small: false,
                has_run: false,
                was_entered: false,
            }
        });
        known.was_entered = true;
        let is_wanted = wish.is_some() && !known.is_too_large;
        let mut hands =
            Hands { ram: &stack.guest, processors, census, behind, is_first, virtual_caches };
        if is_wanted {
            match small.spaces.make_small(hat, &mut hands) {
                Ok(_) => known.was_small = true,
                Err(NotSmall::NoSlot | NotSmall::NoGroup | NotSmall::Unknown(_)) => {
                    small.no_slot += 1;
                }
            }
        }
        small.spaces.enter(processor, hat, &mut hands);
        if is_first {
            return;
        }
        let Done { root_loads, segment_loads, cycles } = small.note(before, true);
        let counts = &mut processors.of(processor).counts;
        counts.root_loads += root_loads;
        counts.emptying_switches += u64::from(root_loads > 0);
        counts.segment_loads += segment_loads;
        counts.switch_cycles += cycles;
    }

    /// Whether there are small spaces, and `processor` has not run any space yet.
    pub(in crate::run) fn has_not_begun(&self, processor: usize) -> bool {
        self.hooks.small.as_ref().is_some_and(|small| small.spaces.on(processor).1.is_none())
    }

    /// The relocation of addresses of the space on `processor` to those that TLBs use.
    pub(in crate::run) fn view_of(&self, processor: usize) -> View {
        let flat = View::flat(self.who.space);
        let Some(small) = &self.hooks.small else { return flat };
        let (Some(root), Some(hat)) = small.spaces.on(processor) else { return flat };
        let root =
            small.roots.get(&root).copied().or_else(|| self.stack.guest.parts().0.space(root));
        let Some(slot) = small.spaces.slot_of(hat) else { return flat };
        let is_everywhere = small.described.revoke != description::Revoke::Groups
            || small.wish(self.who.number).is_some_and(|wish| wish.everywhere);
        View {
            base: small.layout.range(slot).start().get(),
            limit: small.layout.slot_bytes(),
            root: root.unwrap_or(self.who.space),
            is_global: is_everywhere && small.relocation.has_global,
            tag: 0,
        }
    }

    /// Makes the running space large, because its access at `addr` is beyond the limit of a small
    /// space.
    #[cold]
    pub(in crate::run) fn outgrows(
        &mut self,
        addr: u64,
        access: u64,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let (processor, number) = (self.processors.on(), self.who.number);
        let Run { hooks, stack, processors, seen, constants, .. } = self;
        let (census, virtual_caches) = (&mut seen.census, constants.virtual_caches);
        let Some(small) = hooks.small.as_mut() else { return Ok(()) };
        let before = small.spaces.counts();
        let is_named = small.wish(number).is_some_and(|wish| wish.key.is_some());
        let slot = Bytes(small.slot_bytes());
        let Some(known) = small.known.get_mut(&number) else { return Ok(()) };
        if is_named && !known.has_run {
            let what = format!(
                "space {number} begins at {}, beyond its slot of {slot}: make os.small.slot larger, \
                 record it with `--small`, or leave it out of os.small.members",
                VirtAddr::new(addr)
            );
            return Err(Error::Access { access, what });
        }
        known.is_too_large = true;
        let hat = known.hat;
        let mut hands = Hands {
            ram: &stack.guest,
            processors,
            census,
            behind,
            is_first: false,
            virtual_caches,
        };
        small.spaces.promote(hat, &mut hands);
        let Done { root_loads, segment_loads, cycles } = small.note(before, false);
        let counts = &mut processors.of(processor).counts;
        counts.root_loads += root_loads;
        counts.segment_loads += segment_loads;
        counts.switch_cycles += cycles;
        self.view = self.view_of(processor);
        Ok(())
    }

    /// If a walk has faulted because the loaded root lacks the copy of an entry, copies the entry.
    /// Returns whether an entry was copied.
    #[cold]
    pub(in crate::run) fn copies(&mut self, place: Lookup<'_>, behind: &mut impl Behind) -> bool {
        let processor = self.processors.on();
        let Run { hooks, stack, processors, seen, timing, constants, .. } = self;
        let (census, virtual_caches) = (&mut seen.census, constants.virtual_caches);
        let Some(small) = hooks.small.as_mut() else { return false };
        let before = small.spaces.counts();
        let mut hands = Hands {
            ram: &stack.guest,
            processors,
            census,
            behind,
            is_first: false,
            virtual_caches,
        };
        let is_copied = small.spaces.fault(processor, place.addr, &mut hands) == SmallFault::Copied;
        small.note(before, false);
        if is_copied {
            let counts = &mut processors.here.counts;
            let costs = timing.prices.costs();
            let cycles = costs.map_or(0, |costs| u64::from(costs.copy_cycles));
            counts.copies += 1;
            counts.work_cycles += cycles;
        }
        is_copied
    }

    /// Fails if a walk through a copied entry has another result than a walk from the space's own root.
    pub(in crate::run) fn is_own(
        &self,
        place: Lookup<'_>,
        found: Result<Translation, Fault>,
    ) -> Result<(), Error> {
        let Ok(found) = found else { return Ok(()) };
        let own = self.stack.query(self.who.space, place.addr).map(|own| own.apply(place.addr));
        let phys = found.apply(place.addr.wrapping_add(self.view.base));
        if own == Some(phys) {
            return Ok(());
        }
        Err(Error::Check(format!(
            "access {}: the loaded root maps {} of space {} to {phys}, but the space's own root \
             maps it to {}",
            place.access,
            place.addr,
            self.who.number,
            own.map_or_else(|| "nothing".to_owned(), |own| own.to_string())
        )))
    }

    /// Records that the running space has made an access, so that the space is known to have begun.
    pub(in crate::run) fn has_run(&mut self) {
        if let Some(small) = &mut self.hooks.small
            && let Some(known) = small.known.get_mut(&self.who.number)
        {
            known.has_run = true;
        }
    }
}
