//! Pages that have several entries, side by side in one table: as many as the page is larger than what an
//! entry covers (G98 section 6.2; Svnapot; the contiguous bit of AArch64).
//!
//! ```text
//!   64K page over 4K:   entry n     n + 1            n + 15      all in one table
//!                       [f,  64K]   [f + 4K,  64K]   [f + 60K, 64K]
//! ```
//!
//! A walk finds all that it must know in whichever entry it comes to, and a page's size changes in
//! place. What changes a page changes all of its entries, and its usage is that of all together.

use addr::{Memory, Page, PhysAddr, VirtAddr, VirtRange};

use super::{Part, Radix, Table, change::Change, edit::Edit};
use crate::{Entry, Format, Mapping, Usage};

/// An edited page of several entries.
pub(super) struct Copies {
    /// Its last byte.
    pub(super) last: VirtAddr,
    /// How many entries it has.
    pub(super) count: u64,
}

impl<F: Format> Radix<F> {
    /// The page that `entry` is of, which lies in `table` of `level` for `addr`, with the usage of
    /// all its entries.
    #[inline]
    pub(super) fn whole_mapping(
        &self,
        entry: u64,
        level: u8,
        table: PhysAddr,
        addr: VirtAddr,
        memory: &impl Memory,
    ) -> Mapping {
        let mut mapping = self.mapping(entry, level, addr);
        if F::REPLICATES {
            for (at, _) in self.copies(level, table, mapping.translation.page) {
                let usage = self.format.usage(self.format.read(level, at, memory));
                mapping.usage.referenced |= usage.referenced;
                mapping.usage.dirty |= usage.dirty;
            }
        }
        mapping
    }

    /// Where the entries of a page lie, in a table of `level`, and the addresses that they are for.
    pub(super) fn copies(
        &self,
        level: u8,
        table: PhysAddr,
        page: Page,
    ) -> impl Iterator<Item = (PhysAddr, VirtAddr)> + use<F> {
        let (start, shift) = (page.start(), self.format.entry_shift(level));
        let first = self.entry_at(level, table, start);
        let bytes = u64::from(self.format.entry_bytes(level));
        (0..page.size().bytes() >> shift).map(move |number| {
            (first.wrapping_add(number * bytes), start.wrapping_add(number << shift))
        })
    }

    /// Edits the pages of `part`, which cuts none of them, in a table of level 1; how many of its
    /// entries it removed.
    pub(super) fn edit_replicated<C: Change<F>, E: FnMut(Mapping)>(
        &self,
        table: Table,
        part: Part,
        memory: &mut impl Memory,
        edit: &mut Edit<'_, C, E>,
    ) -> u64 {
        let base = self.format.page_size(1);
        let (mut seen, mut removed) = (0, 0);
        let mut start = part.start;
        loop {
            let entry = self.format.read(1, self.entry_at(1, table.start, start), memory);
            let mut last = start.wrapping_add(base.mask());
            if self.format.decode(entry, 1) == Entry::Page {
                let copies = self.edit_copies((1, table.start), entry, start, memory, edit);
                last = copies.last;
                seen += copies.count;
                removed += if C::REMOVES { copies.count } else { 0 };
            }
            if table.entries == Some(seen) || last >= part.last {
                return removed;
            }
            start = last.wrapping_add(1);
        }
    }

    /// Edits the page of `entry`, which lies in a table of some level for `start`, in all of its entries.
    pub(super) fn edit_copies<C: Change<F>, E: FnMut(Mapping)>(
        &self,
        (level, table): (u8, PhysAddr),
        entry: u64,
        start: VirtAddr,
        memory: &mut impl Memory,
        edit: &mut Edit<'_, C, E>,
    ) -> Copies {
        let mut before = self.mapping(entry, level, start);
        let page = before.translation.page;
        let marked = before.usage.marked;
        before.usage = Usage { marked, ..Usage::default() };
        let (mut changed, mut count) = (false, 0);
        for (at, _) in self.copies(level, table, page) {
            let entry = self.format.read(level, at, memory);
            let was = edit.change.apply(&self.format, level, at, entry, memory);
            changed |= was.is_some();
            // With what walkers have set until the change.
            let usage = self.format.usage(was.unwrap_or(entry));
            before.usage.referenced |= usage.referenced;
            before.usage.dirty |= usage.dirty;
            count += 1;
        }
        if changed {
            if edit.change.must_flush(&self.format, level, entry) {
                edit.flush.add(page, before.translation.global);
            }
            (edit.each)(before);
        }
        Copies { last: VirtRange::of_page(page).last(), count }
    }
}
