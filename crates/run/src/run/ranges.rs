//! Range TLBs: lookups, and how walks fill them.
//!
//! ```text
//!   second level misses --> range TLB --> the first level is filled with the one page
//!                              ^
//!   walk finds a page ---------+--- the range around it of the operating system's table
//!                              '--- or the run in its line of page-table entries
//! ```

use addr::{Kind, PageSize, PhysAddr, VirtAddr, VirtRange};
use hardware::{
    processor::Processor,
    range_unit::RangesFrom,
    tlbs::{NONE, TlbUnits},
};
use mmu::{RangeEntry, TlbEntry};
use os::ranges::RangeTable;
use pagetable::{Flush, Scope, Translation};

use super::{Run, access::Lookup, fill::Incoming, hooks::Hook};

/// The source of the ranges in a range TLB.
pub(super) struct Ranges {
    from: RangesFrom,
    /// The operating system's range table, if the ranges come from a range table.
    pub(super) table: Option<RangeTable>,
}

impl Ranges {
    /// `Some` if `hardware` has a range TLB.
    pub(super) fn of(hardware: &TlbUnits) -> Option<Ranges> {
        let from = hardware.ranges.as_ref()?.from;
        let table = (from == RangesFrom::Table).then(RangeTable::default);
        Some(Ranges { from, table })
    }
}

impl Hook for Ranges {
    fn leaves_prices(&self) -> bool {
        true
    }

    /// The counts are in the range TLB, which resets them itself.
    fn forget_counts(&mut self) {
        let Ranges { from: _, table: _ } = self;
    }

    fn on_flush(&mut self, space: u32, flush: &Flush) {
        let Some(table) = &mut self.table else { return };
        match flush.scope() {
            Scope::Nothing => {}
            Scope::Pages { range, .. } => table.forget(space, range),
            Scope::Space => table.forget_space(space),
        }
    }
}

/// The number of 8-byte page-table entries in a line of 64 bytes.
const LINE_PAGES: u64 = 8;

impl Run {
    /// Looks up a miss of the second level in the range TLB; a hit fills the first level with the
    /// accessed page. If the machine tracks dirty pages (`walker.tracks_dirty`), the first store to
    /// a page walks all the same, to set its dirty bit.
    #[cold]
    pub(super) fn in_range(&mut self, place: Lookup<'_>) -> Option<(PhysAddr, PageSize)> {
        let Lookup { addr, kind, .. } = place;
        let is_clean =
            self.constants.tracks_dirty && self.stack.guest.is_clean(self.who.space, addr);
        let Processor { hardware, asid, .. } = &mut self.processors.here;
        let second = hardware.second[kind as usize];
        let (asid, ranges) = (*asid, hardware.ranges.as_mut()?);
        let found = ranges.lookup(addr, asid, kind, || !is_clean || kind != Kind::Store)?;
        let page = addr.page(self.constants.granules.0);
        let rights = if is_clean { found.rights.without_write() } else { found.rights };
        let entry = TlbEntry::single(page, found.apply(page.start()), asid, false, rights);
        if second != NONE {
            self.unit(second).counts.missed(kind, page.size(), false);
        }
        self.unit(place.unit).counts.missed(kind, page.size(), false);
        let region = self.layout.label_of(self.who.number, addr);
        let translation = Translation::new(page, entry.frames[0]?, found.rights);
        let label = self.label(translation, region);
        self.fill(place.unit, kind, &Incoming::alone(entry), label);
        let when = self.seen.when(place);
        self.seen.history.l1_miss(when);
        Some((found.apply(addr), page.size()))
    }

    /// Fills the range TLB after a walk has found `page`.
    pub(super) fn note_ranges(&mut self, page: Translation) {
        match self.hooks.ranges.as_ref().map(|ranges| ranges.from) {
            Some(RangesFrom::Table) => self.note_range(page),
            Some(RangesFrom::Line) => self.note_line(page),
            None => {}
        }
    }

    /// Adds the page that a walk has found to the range table, and fills the range TLB with the range of the
    /// page.
    #[cold]
    fn note_range(&mut self, page: Translation) {
        let Run { hooks, processors, who, constants, stack, .. } = self;
        let Some(Ranges { table: Some(table), .. }) = &mut hooks.ranges else { return };
        table.note(who.number, page);
        // Mapped pages that are adjacent to the range on either side belong to it too, even if no
        // walk has found them yet.
        while let Some((range, first, rights)) = table.around(who.number, page.page.start()) {
            let beyond = [
                range.start().get().checked_sub(1).map(|at| (at, first.get().wrapping_sub(1))),
                range.last().get().checked_add(1).map(|at| (at, first.get() + range.bytes())),
            ];
            let next = beyond.into_iter().flatten().find_map(|(at, place)| {
                let found = stack.query(who.space, VirtAddr::new(at))?;
                let phys = found.apply(VirtAddr::new(at)).get();
                (phys == place && found.rights == rights).then_some(found)
            });
            let Some(next) = next else { break };
            table.note(who.number, next);
        }
        let Processor { hardware, asid, .. } = &mut processors.here;
        let around = table.around(who.number, page.page.start());
        let (Some(ranges), Some((range, first, rights))) = (&mut hardware.ranges, around) else {
            return;
        };
        let pages = (range.last().get() - range.start().get()) / constants.granules.0.bytes() + 1;
        if ranges.takes(pages) {
            ranges.tlb.fill(RangeEntry { range, first, asid: *asid, rights });
        }
    }

    /// Fills the range TLB with the contiguous run of pages around a base page that a walk has
    /// found. The run is found in the cache line of page-table entries that the walk has read.
    /// Pages larger than base pages are not entered.
    #[cold]
    fn note_line(&mut self, page: Translation) {
        let size = self.constants.granules.0;
        if page.page.size() != size {
            return;
        }
        let number = page.page.start().get() >> size.shift();
        let line = number & !(LINE_PAGES - 1);
        let is_alike = |at: u64| {
            let place = page.frame.get().wrapping_add(at.wrapping_sub(number) << size.shift());
            let found = self.stack.query(self.who.space, VirtAddr::new(at << size.shift()));
            found.is_some_and(|found| {
                found.page.size() == size
                    && (found.frame.get(), found.rights) == (place, page.rights)
            })
        };
        let first = (line..number).rev().take_while(|at| is_alike(*at)).last().unwrap_or(number);
        let beyond = number + 1..line + LINE_PAGES;
        let last = beyond.take_while(|at| is_alike(*at)).last().unwrap_or(number);
        let bytes = (last + 1 - first) << size.shift();
        let Ok(range) = VirtRange::new(VirtAddr::new(first << size.shift()), bytes) else { return };
        let first = PhysAddr::new(page.frame.get() - ((number - first) << size.shift()));
        let Processor { hardware, asid, .. } = &mut self.processors.here;
        if let Some(ranges) = hardware.ranges.as_mut().filter(|of| of.takes(bytes >> size.shift()))
        {
            ranges.tlb.fill_merged(RangeEntry { range, first, asid: *asid, rights: page.rights });
        }
    }
}
