use addr::{Memory, PhysAddr, VirtAddr, VirtRange};

use super::{Part, Radix, Table};
use crate::{Entry, Error, Flush, Format, Mapping, Space};

/// An edit under way: the change of a page's entry (`None` keeps it, 0 removes it), the report
/// of each change made, and the token it fills.
struct Edit<'a, C, R> {
    change: &'a C,
    report: &'a mut R,
    flush: Flush,
}

impl<F: Format> Radix<F> {
    /// Changes the entries of all pages in `range` and unlinks the tables that become empty.
    #[inline]
    pub(super) fn edit(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        change: &impl Fn(&F, u64) -> Option<u64>,
        report: &mut impl FnMut(&mut Flush, Mapping),
    ) -> Result<Flush, Error> {
        let mut flush = Flush::nothing(space);
        if self.edit_single(space, range, memory, change, report, &mut flush) {
            return Ok(flush);
        }
        self.edit_range(space, range, memory, change, report)
    }

    #[inline(never)]
    fn edit_range(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        change: &impl Fn(&F, u64) -> Option<u64>,
        report: &mut impl FnMut(&mut Flush, Mapping),
    ) -> Result<Flush, Error> {
        self.spaces.check(space)?;
        self.check_end(space, range, range.start(), range.start(), memory)?;
        let end = range.last().wrapping_add(1);
        self.check_end(space, range, range.last(), end, memory)?;
        let mut edit = Edit { change, report, flush: Flush::nothing(space) };
        for span in 0..self.format.spans().len() {
            if let Some(part) = self.format.spans()[span].intersection(range) {
                self.edit_table(self.root_table(space), part.into(), memory, &mut edit);
            }
        }
        Ok(edit.flush)
    }

    /// That one end of `range` lies between pages: `inside` is its outermost byte there, and
    /// `boundary` must be a base-page boundary.
    fn check_end(
        &self,
        space: Space,
        range: VirtRange,
        inside: VirtAddr,
        boundary: VirtAddr,
        memory: &impl Memory,
    ) -> Result<(), Error> {
        let sizes = self.format.page_sizes();
        if !boundary.is_aligned(sizes[0]) {
            return Err(Error::Misaligned { addr: boundary.get(), size: sizes[0] });
        }
        if sizes.last().is_some_and(|&largest| boundary.is_aligned(largest)) {
            return Ok(());
        }
        let Some(found) = self.find(space, inside, memory) else { return Ok(()) };
        let page = inside.page(self.format.page_size(found.level));
        if range.covers(VirtRange::of_page(page)) { Ok(()) } else { Err(Error::Splits { page }) }
    }

    /// Edits the pages of `part` below `table`; how many of its entries it removed.
    fn edit_table<C, R>(
        &mut self,
        table: Table,
        part: Part,
        memory: &mut impl Memory,
        edit: &mut Edit<'_, C, R>,
    ) -> u64
    where
        C: Fn(&F, u64) -> Option<u64>,
        R: FnMut(&mut Flush, Mapping),
    {
        let level = table.level;
        let (mut seen, mut removed) = (0, 0);
        let mut start = part.start;
        loop {
            let slot = self.part(level, start, part.last);
            let at = self.entry_at(level, table.start, start);
            let entry = self.format.read(level, at, memory);
            match self.format.decode(entry, level) {
                Entry::Empty => {}
                Entry::Page => {
                    seen += 1;
                    removed += u64::from(self.edit_page(level, at, entry, start, memory, edit));
                }
                Entry::Table(next) => {
                    seen += 1;
                    let entries = Some(self.format.population(entry));
                    let next = Table { level: level - 1, start: next, entries };
                    let gone = self.edit_table(next, slot, memory, edit);
                    if gone > 0 {
                        removed += u64::from(self.shrink(level, at, entry, gone, memory));
                    }
                    if gone > 0 && entries == Some(gone) {
                        self.spaces.remove(edit.flush.space(), self.table_footprint(next.level));
                        edit.flush.add_table(next.start, self.frame_size(next.level));
                    }
                }
            }
            if slot.last == part.last || table.entries == Some(seen) {
                return removed;
            }
            start = slot.last.wrapping_add(1);
        }
    }

    /// Edits one page's entry; whether it was removed.
    fn edit_page<C, R>(
        &self,
        level: u8,
        at: PhysAddr,
        mut entry: u64,
        addr: VirtAddr,
        memory: &mut impl Memory,
        edit: &mut Edit<'_, C, R>,
    ) -> bool
    where
        C: Fn(&F, u64) -> Option<u64>,
        R: FnMut(&mut Flush, Mapping),
    {
        while let Some(new) = (edit.change)(&self.format, entry) {
            match self.format.exchange(level, at, entry, new, memory) {
                Ok(()) => {
                    (edit.report)(&mut edit.flush, self.mapping(entry, level, addr));
                    return new == 0;
                }
                // A walker has set a bit since the entry was read.
                Err(found) => entry = found,
            }
        }
        false
    }

    /// Takes `gone` entries off the population of the table that `entry` leads to, and the
    /// entry away if none is left; whether it went.
    pub(super) fn shrink(
        &self,
        level: u8,
        at: PhysAddr,
        entry: u64,
        gone: u64,
        memory: &mut impl Memory,
    ) -> bool {
        0 == self.update(level, at, entry, memory, |entry| {
            match self.format.population(entry) - gone {
                0 => 0,
                left => self.format.with_population(entry, left),
            }
        })
    }

    /// Hands the tables below `table` to the token, without looking at entries of base pages.
    pub(super) fn collect_tables(
        &self,
        table: Table,
        part: Part,
        memory: &impl Memory,
        flush: &mut Flush,
    ) {
        let level = table.level;
        if level == 1 {
            return;
        }
        let mut seen = 0;
        let mut start = part.start;
        loop {
            let slot = self.part(level, start, part.last);
            let entry = self.format.read(level, self.entry_at(level, table.start, start), memory);
            match self.format.decode(entry, level) {
                Entry::Empty => {}
                Entry::Page => seen += 1,
                Entry::Table(next) => {
                    seen += 1;
                    flush.add_table(next, self.frame_size(level - 1));
                    let entries = Some(self.format.population(entry));
                    let next = Table { level: level - 1, start: next, entries };
                    self.collect_tables(next, slot, memory, flush);
                }
            }
            if slot.last == part.last || table.entries == Some(seen) {
                return;
            }
            start = slot.last.wrapping_add(1);
        }
    }
}
