//! Walks, repeated until there is a translation: the operating system is called after each fault.
//!
//! ```text
//!   begin --> the page table is read --> on_read --> caches and memory count it ---> found
//!                    ^                                    |                            |
//!                    |                                    v fault                      v
//!                    +------ System::fault <-- on_fault --+                         on_walk
//! ```
//!
//! A walk reads the present page table or, after a flush was left out on purpose, starts from a
//! stale entry that hardware still holds.

use addr::{Kind, PageSize, VirtRange};
use description::Error;
use hardware::behind::{Behind, Refill};
use mmu::Miss;
use os::{Answer, Ask};
use pagetable::{Fault, Reference, Translation};
use ram::walk::Walk;

use super::{Run, access::Lookup, miss::AllMissed};

/// The walk in progress.
pub(super) struct Walking {
    /// The references of the walk.
    pub(super) references: Vec<Reference>,
    /// Whether the walk is for a store to a clean page.
    pub(super) dirtied: bool,
    /// Whether the miss was already reported to the predictors of walks behind the TLBs.
    pub(super) missed: bool,
}

impl Default for Walking {
    fn default() -> Walking {
        Walking { references: Vec::with_capacity(64), dirtied: false, missed: false }
    }
}

/// The result of reading the page table for a walk.
pub(super) enum Read {
    /// The result of a walk by hardware.
    Walked(Result<Translation, Fault>),
    /// A result that hardware has found without a walk.
    Beside(Result<Translation, Fault>),
}

impl Run {
    /// Walks until there is a translation. Returns the translation, and whether the page was
    /// touched for the first time.
    pub(super) fn walk(
        &mut self,
        place: Lookup<'_>,
        AllMissed { why, region, mut walked }: AllMissed,
        behind: &mut impl Behind,
    ) -> Result<(Translation, bool), Error> {
        let mut cold = false;
        self.walking.dirtied = self.takes_assist(place, why);
        let translation = loop {
            let found = match walked.take() {
                Some(found) => found,
                None => self.walk_once(place, behind)?,
            };
            match found {
                Ok(translation) => break translation,
                Err(_) if self.on_fault(place, behind) => {}
                Err(fault) => cold |= self.fault(place, fault, behind)? == Answer::FirstTouch,
            }
        };
        if self.hooks.is_any() {
            self.on_walk(place, translation, behind);
        }
        let instead = self.constants.by_software && why != Miss::Absent;
        let (sized, data) = (self.sets_size(), place.kind != Kind::Fetch);
        let dirtied = self.walking.dirtied;
        behind.refilled(Refill { region, cold, data, instead, dirtied, sized });
        Ok((translation, cold))
    }

    /// Whether a software handler sets the size of each page.
    pub(super) fn sets_size(&self) -> bool {
        self.constants.by_software
            && (self.constants.always_sized || self.system.has_many_sizes(self.who.number))
    }

    /// Calls the operating system for a fault.
    pub(super) fn fault(
        &mut self,
        place: Lookup<'_>,
        fault: Fault,
        behind: &mut impl Behind,
    ) -> Result<Answer, Error> {
        let Lookup { addr, kind, access, .. } = place;
        let ask = Ask { who: self.who, addr, kind, fault };
        if self.defers() {
            self.sweep_early(VirtRange::of_page(addr.page(PageSize::SIZE_4K)), behind);
        }
        let answer = self.ask(access, behind, |system, platform| system.fault(&ask, platform))?;
        let counts = &mut self.processors.here.counts;
        counts.faults += 1;
        if !self.system.prices_its_work() {
            let costs = self.timing.prices.costs();
            counts.work_cycles += costs.map_or(0, |costs| u64::from(costs.fault_cycles));
        }
        self.timing.has_new_deadline = self.system.deadline().is_some();
        match answer {
            Answer::FirstTouch => self.seen.first_touches += 1,
            Answer::Returned => self.seen.returns += 1,
            Answer::Granted => self.seen.protection_faults += 1,
        }
        Ok(answer)
    }

    /// Makes one walk.
    fn walk_once(
        &mut self,
        place: Lookup<'_>,
        behind: &mut impl Behind,
    ) -> Result<Result<Translation, Fault>, Error> {
        let mut references = std::mem::take(&mut self.walking.references);
        references.clear();
        let found = self.read(place, &mut references, behind);
        self.walking.references = references;
        found
    }

    /// Reads the page table for a walk, adds the walk's references to `references`, and reports them to
    /// `behind`.
    fn read(
        &mut self,
        place: Lookup<'_>,
        references: &mut Vec<Reference>,
        behind: &mut impl Behind,
    ) -> Result<Result<Translation, Fault>, Error> {
        let Lookup { addr, kind, access, .. } = place;
        let is_heard = self.hooks.is_any();
        if is_heard && let Some(found) = self.read_otherwise(place, references, behind)? {
            return Ok(found);
        }
        // Hardware has only the relocated address and the loaded root.
        let (linear, root) = (addr.wrapping_add(self.view.base), self.view.root);
        let mut found = self.stack.guest.walk(root, linear, kind, references);
        if is_heard {
            match self.on_read(place, found, references, behind)? {
                Read::Walked(placed) => found = placed,
                Read::Beside(placed) => return Ok(placed),
            }
        }
        let (asid, root) = (self.processors.here.asid, self.stack.guest.root(root));
        let size = found.map_or(PageSize::SIZE_4K, |page| page.page.size());
        let walk = Walk { va: linear, asid, root, found: found.is_ok(), size, nested_misses: 0 };
        let Err(stale) = behind.walk(&walk, self.stack.way(references)) else { return Ok(found) };
        if self.constants.check {
            return Err(Error::Check(format!(
                "access {access}: the MMU cache leads the walk of {addr} to a table of level {} \
                 at {}, but the page table has no table there: a flush is missing",
                stale.level, stale.table
            )));
        }
        references.clear();
        let found = self.stack.guest.walk_from(stale, linear, kind, references);
        let placed = self.stack.place(addr, kind, references, found);
        let placed = placed.map_err(|failure| self.failed(failure, access))?;
        behind.walk_from_stale(&Walk { found: found.is_ok(), ..walk }, self.stack.way(references));
        Ok(placed)
    }
}
