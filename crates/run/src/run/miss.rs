//! The rare case: a lookup that missed the first-level TLB.
//!
//! ```text
//!   second level -- hit ------------------------------> first level filled
//!        | miss
//!        v
//!   on_miss --> walk --> levels filled --> counted --> on_fill
//!      |        (walk)      (fill)        (counts)
//!      '-- something else translates it
//! ```
//!
//! Features that are called at a miss are in `hooks`; if no feature needs a call, `hooks` is not
//! entered.

use addr::{PageSize, PhysAddr, VirtAddr};
use description::Error;
use hardware::{
    behind::Behind,
    processor::Processor,
    tlbs::{NONE, Unit},
};
use mmu::{Miss, TlbEntry};
use pagetable::{Fault, Translation};

use super::{Run, access::Lookup, counts::MissCounts};

/// A lookup that missed every level.
#[derive(Clone, Copy)]
pub(super) struct AllMissed {
    pub(super) why: Miss,
    /// The label of the region of the access.
    pub(super) region: u32,
    /// The result of the walk, if one was already made.
    pub(super) walked: Option<Result<Translation, Fault>>,
}

impl AllMissed {
    /// The record of a lookup that has just missed, before any walk.
    fn here(why: Miss, region: u32) -> AllMissed {
        AllMissed { why, region, walked: None }
    }
}

impl Run {
    /// Handles a lookup that missed the first level. Returns the physical address and the size of
    /// the page.
    #[inline(never)]
    pub(super) fn miss(
        &mut self,
        place: Lookup<'_>,
        why: Miss,
        behind: &mut impl Behind,
    ) -> Result<(PhysAddr, PageSize), Error> {
        let Lookup { addr, kind, .. } = place;
        let region = self.layout.label_of(self.who.number, addr);
        self.seen.census.region(region).l1_misses[kind as usize] += 1;
        if why != Miss::Absent {
            self.no_hit(place.unit, addr, why);
        }
        let linear = addr.wrapping_add(self.view.base);
        let Processor { hardware, asid, .. } = &mut self.processors.here;
        let second = hardware.second[kind as usize];
        if second == NONE {
            return self.miss_all(place, AllMissed::here(why, region), behind);
        }
        match hardware.units[second].tlb.lookup_apart(linear, *asid, kind) {
            Ok(hit) => {
                let entry = hit.entry(linear, *asid);
                let incoming = self.as_held(second, linear, entry);
                self.unit(place.unit).counts.missed(kind, hit.size, false);
                self.fill(place.unit, kind, &incoming, hit.label);
                let when = self.seen.when(place);
                self.seen.history.l1_miss(when);
                Ok((hit.phys, hit.size))
            }
            Err(Miss::Absent) => self.miss_all(place, AllMissed::here(why, region), behind),
            Err(said) => {
                self.no_hit(second, addr, said);
                // The reason for the walk is the result of the second lookup, since an entry that
                // forbids the access is a more specific reason than a missing entry.
                self.miss_all(place, AllMissed::here(said, region), behind)
            }
        }
    }

    /// Handles a lookup that missed every level.
    #[inline(never)]
    pub(super) fn miss_all(
        &mut self,
        place: Lookup<'_>,
        missed: AllMissed,
        behind: &mut impl Behind,
    ) -> Result<(PhysAddr, PageSize), Error> {
        let Lookup { addr, kind, access, .. } = place;
        let region = missed.region;
        let is_heard = self.hooks.is_any();
        if is_heard && let Some(found) = self.on_miss(place, behind)? {
            return Ok(found);
        }
        let (translation, cold) = self.walk(place, missed, behind)?;
        let label = self.label(translation, region);
        let Translation { page, frame, global, .. } = translation;
        let rights = self.rights_to_hold(addr, kind, translation.rights);
        let Processor { hardware, asid, .. } = &self.processors.here;
        let second = hardware.second[kind as usize];
        let global = global || self.view.is_global;
        let incoming = self.as_walked(TlbEntry::single(page, frame, *asid, global, rights));
        if second != NONE {
            self.unit(second).counts.missed(kind, page.size(), cold);
            self.fill(second, kind, &incoming, label);
        }
        self.unit(place.unit).counts.missed(kind, page.size(), cold);
        self.fill(place.unit, kind, &incoming, label);
        let when = self.seen.when(place);
        let index = (access - self.seen.position) as usize;
        let Run { seen, hooks, layout, who, .. } = self;
        let (census, history) = (&mut seen.census, &mut seen.history);
        let counts = MissCounts { census, history, hooks, layout, who: *who };
        counts.count(place.batch, index, when, addr, (region, page.size(), cold));
        self.seen.census.region(region).pages += u64::from(cold);
        if is_heard {
            self.on_fill(place, (translation, cold, region), behind)?;
        }
        let linear = addr.wrapping_add(self.view.base);
        Ok((translation.apply(linear), translation.page.size()))
    }

    /// Counts why a TLB did not hit. An entry that does not allow the access is dropped.
    #[cold]
    fn no_hit(&mut self, unit: usize, addr: VirtAddr, why: Miss) {
        let addr = addr.wrapping_add(self.view.base);
        let Processor { hardware, asid, .. } = &mut self.processors.here;
        let Unit { level, tlb, counts, .. } = &mut hardware.units[unit];
        match why {
            Miss::Absent => {}
            Miss::Invalid => counts.invalid += 1,
            Miss::Denied => {
                counts.denied += 1;
                let census = &mut self.seen.census;
                let dropped = tlb.flush_page(addr, *asid, &mut |gone| {
                    census.collect(counts, *level == 1, &gone);
                });
                counts.dropped += dropped;
            }
        }
    }

    /// A TLB of the running processor.
    pub(super) fn unit(&mut self, index: usize) -> &mut Unit {
        &mut self.processors.here.hardware.units[index]
    }
}
