use addr::{Memory, VirtAddr, VirtRange};

use super::{Part, Radix, Table, change::Change, single::Recent};
use crate::{Entry, Error, Flush, Footprint, Format, Mapping, Space};

/// The state of an edit: the change, the callback for each changed page, the token, and the memory
/// of the tables removed so far.
pub(super) struct Edit<'a, C, E> {
    pub(super) change: C,
    pub(super) each: &'a mut E,
    pub(super) flush: Flush,
    pub(super) freed: Footprint,
}

impl<'a, C, E> Edit<'a, C, E> {
    /// An edit before its first change.
    pub(super) fn new(space: Space, change: C, each: &'a mut E) -> Edit<'a, C, E> {
        Edit { change, each, flush: Flush::nothing(space), freed: Footprint::default() }
    }
}

impl<F: Format> Radix<F> {
    /// Changes the entries of all pages in `range` and unlinks the tables that become empty.
    #[inline(always)]
    pub(super) fn edit<C: Change<F>>(
        &mut self,
        space: Space,
        range: VirtRange,
        change: C,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        if let Some(stale) = self.edit_single(space, range, change, memory, each) {
            return Ok(stale.flush(space));
        }
        // The result is unwrapped and wrapped again, so that the token of a single page need not be
        // stored in memory.
        let flush = self.edit_range(space, range, change, memory, each)?;
        Ok(flush)
    }

    #[cold]
    #[inline(never)]
    fn edit_range<C: Change<F>>(
        &mut self,
        space: Space,
        range: VirtRange,
        change: C,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        if C::REMOVES
            && let Some((stale, table)) = self.unmap_last(space, range, memory, each)
        {
            return Ok(stale.flush(space).with_table(table, self.frame_size(1)));
        }
        self.spaces.check(space)?;
        self.check_end(space, range, range.start(), range.start(), memory)?;
        let end = range.last().wrapping_add(1);
        self.check_end(space, range, range.last(), end, memory)?;
        let mut edit = Edit::new(space, change, each);
        if C::REMOVES {
            self.reserve_tables(space, range, &mut edit.flush)?;
        }
        for span in 0..self.format.spans().len() {
            if let Some(part) = self.format.spans()[span].intersection(range) {
                self.edit_table(self.root_table(space), part.into(), memory, &mut edit);
            }
        }
        if edit.flush.tables().is_some() {
            self.recent = Recent::NONE;
            self.gives_back_alone(space, edit.freed);
        }
        Ok(edit.flush)
    }

    /// Checks that one end of `range` does not lie inside a page. `inside` is the outermost byte of
    /// the range at that end; `boundary` must be a base-page boundary.
    pub(super) fn check_end(
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
        let page = self.format.translation(found.entry, found.level, inside).page;
        if range.covers(VirtRange::of_page(page)) { Ok(()) } else { Err(Error::Splits { page }) }
    }

    /// Edits the pages of `part` below `table`. Returns how many of the table's entries were
    /// removed.
    pub(super) fn edit_table<C: Change<F>, E: FnMut(Mapping)>(
        &self,
        table: Table,
        part: Part,
        memory: &mut impl Memory,
        edit: &mut Edit<'_, C, E>,
    ) -> u64 {
        let level = table.level;
        if level == 1 {
            return self.edit_leaf(table, part, memory, edit);
        }
        let (mut seen, mut removed) = (0, 0);
        let mut start = part.start;
        loop {
            let mut slot = self.part(level, start, part.last);
            let at = self.entry_at(level, table.start, start);
            let entry = self.format.read(level, at, memory);
            match self.format.decode(entry, level) {
                Entry::Empty => {}
                Entry::Page if F::REPLICATES => {
                    let copies = self.edit_copies((level, table.start), entry, start, memory, edit);
                    slot.last = copies.last.min(part.last);
                    seen += copies.count;
                    removed += if C::REMOVES { copies.count } else { 0 };
                }
                Entry::Page => {
                    seen += 1;
                    if let Some(usage) = edit.change.apply(&self.format, level, at, entry, memory) {
                        let mut before = self.mapping_used(entry, level, start, usage);
                        if C::REMOVES {
                            before = self.noted(before, level, at, memory);
                        }
                        if edit.change.must_flush(&self.format, level, entry) {
                            edit.flush.add(before.translation.page, before.translation.global);
                        }
                        (edit.each)(before);
                        removed += u64::from(C::REMOVES);
                    }
                }
                Entry::Table(next) => {
                    seen += 1;
                    let next = Table { level: level - 1, start: next, entries: self.used(entry) };
                    let gone = self.edit_table(next, slot, memory, edit);
                    match self.less(next, entry, gone, slot, memory) {
                        _ if gone == 0 => {}
                        Some(entry) => self.write_population(level, at, entry, memory),
                        None => {
                            self.format.swap(level, at, 0, memory);
                            removed += 1;
                            edit.freed += self.table_footprint(next.level);
                            edit.flush.add_table(next.start, self.frame_size(next.level));
                        }
                    }
                }
            }
            if slot.last == part.last || table.entries == Some(seen) {
                return removed;
            }
            start = slot.last.wrapping_add(1);
        }
    }

    /// The implementation of [`Radix::edit_table`] for a table of level 1. The ends of `part` do
    /// not lie inside a page.
    fn edit_leaf<C: Change<F>, E: FnMut(Mapping)>(
        &self,
        table: Table,
        part: Part,
        memory: &mut impl Memory,
        edit: &mut Edit<'_, C, E>,
    ) -> u64 {
        let base = self.format.page_size(1);
        // `u64::MAX` stands for an unknown number, so that one comparison per entry is enough.
        let entries = table.entries.unwrap_or(u64::MAX);
        let (mut seen, mut changed) = (0, 0);
        // The range to flush, in local variables that the compiler keeps in registers.
        let (mut first, mut last, mut pages, mut global) = (part.start, part.start, 0, false);
        let mut addr = part.start;
        loop {
            let at = self.entry_at(1, table.start, addr);
            let entry = self.format.read(1, at, memory);
            let mut end = addr.wrapping_add(base.mask());
            if F::REPLICATES && self.is_copy(entry, addr) {
                let copies = self.edit_copies((1, table.start), entry, addr, memory, edit);
                end = copies.last;
                seen += copies.count;
                changed += copies.count;
            } else if self.format.decode(entry, 1) == Entry::Page {
                seen += 1;
                if let Some(usage) = edit.change.apply(&self.format, 1, at, entry, memory) {
                    let mut before = self.mapping_used(entry, 1, addr, usage);
                    if C::REMOVES {
                        before = self.noted(before, 1, at, memory);
                    }
                    if edit.change.must_flush(&self.format, 1, entry) {
                        first = if pages == 0 { addr } else { first };
                        last = addr;
                        pages += 1;
                        global |= before.translation.global;
                    }
                    (edit.each)(before);
                    changed += 1;
                }
            }
            if seen == entries || end >= part.last {
                break;
            }
            addr = end.wrapping_add(1);
        }
        edit.flush.add_pages(first.page(base), last.page(base), pages, global);
        if C::REMOVES { changed } else { 0 }
    }

    /// Adds the frames of all tables below `table` to the token, without reading entries of base
    /// pages.
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
                    let next = Table { level: level - 1, start: next, entries: self.used(entry) };
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
