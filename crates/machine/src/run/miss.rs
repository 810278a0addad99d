//! The rare case: a lookup that the first level did not answer, down to the fault.

use addr::{PhysAddr, VirtAddr, VirtRange};
use mmu::{Entry, Evicted};
use pagetable::{Fault, Translation};

use super::{Run, access::Place};
use crate::{
    Error,
    count::census::SHARED,
    hardware::behind::{Behind, Walk},
    hardware::tlbs::NONE,
    os::Answer,
};

impl Run {
    /// A lookup that the first level did not answer.
    #[cold]
    #[inline(never)]
    pub(super) fn miss(&mut self, place: Place, back: &mut impl Behind) -> Result<PhysAddr, Error> {
        let Place { addr, kind, access, .. } = place;
        let region = self.os.label_of(addr);
        self.census.region(region).l1_misses[kind as usize] += 1;

        let second = self.hardware.second[kind as usize];
        if second != NONE {
            let unit = &mut self.hardware.units[second];
            if let Some(hit) = unit.tlb.lookup(addr, self.asid, kind) {
                self.census.tlbs[place.unit].missed(kind, hit.size, false);
                let (page, frame) = (addr.page(hit.size), hit.frame());
                let (rights, global) = (hit.rights, hit.global);
                let entry = self.entry(Translation { page, frame, rights, global });
                self.fill(place.unit, &entry, hit.label);
                self.history.l1_miss(access - self.left_out);
                return Ok(hit.phys);
            }
        }

        let populated =
            self.os.populate(addr, kind).map_err(|failure| self.failed(failure, access))?;
        let populated = populated.map(|shootdown| self.shoot_down(shootdown, back)).is_some();
        let (translation, cold) = self.walk(place, region, back)?;
        let label = self.label(translation, region);
        let entry = self.entry(translation);
        if second != NONE {
            self.census.tlbs[second].missed(kind, translation.page.size(), cold);
            self.fill(second, &entry, label);
        }
        self.census.tlbs[place.unit].missed(kind, translation.page.size(), cold);
        self.fill(place.unit, &entry, label);
        self.history.miss(access - self.left_out, addr.get(), cold);
        let census = self.census.region(region);
        census.misses += 1;
        census.cold_misses += u64::from(cold);
        census.pages += u64::from(cold || populated);
        Ok(translation.apply(addr))
    }

    /// Walks until there is a translation, with the operating system's help where it faults.
    /// Says whether the page was touched for the first time.
    fn walk(
        &mut self,
        place: Place,
        region: u32,
        back: &mut impl Behind,
    ) -> Result<(Translation, bool), Error> {
        let Place { addr, kind, access, .. } = place;
        let mut cold = false;
        let translation = loop {
            match self.walk_once(place, back)? {
                Ok(translation) => break translation,
                Err(fault) => {
                    let answer = self.os.fault(addr, kind, fault);
                    match answer.map_err(|failure| self.failed(failure, access))? {
                        Answer::FirstTouch(shootdown) => {
                            cold = true;
                            self.shoot_down(shootdown, back);
                        }
                        Answer::Granted(shootdown) => self.shoot_down(shootdown, back),
                    }
                }
            }
        };
        back.refilled(region, cold);
        Ok((translation, cold))
    }

    /// One walk, as the table is now; or, where a flush was forgotten, as hardware remembers it.
    fn walk_once(
        &mut self,
        place: Place,
        back: &mut impl Behind,
    ) -> Result<Result<Translation, Fault>, Error> {
        if self.os.is_linear() {
            return self.walk_array(place, back);
        }
        let Place { addr, kind, access, .. } = place;
        let mut references = std::mem::take(&mut self.references);
        references.clear();
        let failed = |run: &Run, failure| run.failed(failure, access);
        let found = self.os.walk(addr, kind, &mut references);
        let mut placed = self
            .os
            .place(addr, kind, &references, found)
            .map_err(|failure| failed(self, failure))?;
        let (asid, root) = (self.asid, self.os.root());
        let walk = Walk { va: addr, asid, root, found: found.is_ok(), nested_misses: 0 };
        if let Err(stale) = back.walk(&walk, self.os.way(&references)) {
            if self.check {
                return Err(Error::Check(format!(
                    "access {access}: the MMU cache leads the walk of {addr} to a table of level \
                     {} at {}, which the page table does not have there",
                    stale.level, stale.table
                )));
            }
            references.clear();
            let found = self.os.walk_from(stale, addr, kind, &mut references);
            placed = self
                .os
                .place(addr, kind, &references, found)
                .map_err(|failure| failed(self, failure))?;
            back.astray(&Walk { found: found.is_ok(), ..walk }, self.os.way(&references));
        }
        self.references = references;
        Ok(placed)
    }

    /// The label of the entry for a page: its region, or [`SHARED`].
    fn label(&self, translation: Translation, region: u32) -> u32 {
        let page = VirtRange::of_page(translation.page);
        if self.os.is_single(page) { region } else { SHARED }
    }

    /// What the TLBs are refilled with. Where one holds pairs, it takes the neighbour too, if
    /// that is mapped.
    fn entry(&self, translation: Translation) -> Refill {
        let page = translation.page;
        let neighbour = VirtAddr::new(page.start().get() ^ page.size().bytes());
        let other = self
            .has_pairs()
            .then(|| self.os.query(neighbour))
            .flatten()
            .filter(|other| other.page.size() == page.size())
            .map(|other| other.frame);
        Refill { translation, other }
    }

    /// Whether some TLB holds two pages under one tag.
    pub(super) fn has_pairs(&self) -> bool {
        self.hardware.units.iter().any(|unit| unit.params.paired)
    }

    pub(super) fn fill(&mut self, unit: usize, refill: &Refill, label: u32) {
        let Translation { page, frame, rights, global } = refill.translation;
        let mut entry = Entry::single(page, frame, self.asid, global, rights);
        let (census, unit_index) = (&mut self.census, unit);
        let unit = &mut self.hardware.units[unit];
        if unit.params.paired {
            let odd = (page.number() & 1) as usize;
            entry.frames[odd] = Some(frame);
            entry.frames[1 - odd] = refill.other;
        }
        let first_level = unit.level == 1;
        unit.tlb.fill(&entry, label, &mut |evicted: Evicted| {
            census.tlbs[unit_index].evictions += 1;
            census.collect(unit_index, first_level, &evicted);
        });
    }
}

/// A translation, with the frame of the other page of its pair if that is there.
pub(super) struct Refill {
    pub(super) translation: Translation,
    pub(super) other: Option<PhysAddr>,
}
