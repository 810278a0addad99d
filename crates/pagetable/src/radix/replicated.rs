//! Pages that have an entry for each of their base pages (G98 section 6.2).
//!
//! ```text
//!   64K page over 4K:   entry n     n + 1            n + 15      all in one table of level 1
//!                       [f,  64K]   [f + 4K,  64K]   [f + 60K, 64K]
//! ```
//!
//! A walk finds all that it must know in whichever entry it comes to, and a page's size changes in
//! place. What changes a page changes all of its entries, and its usage is that of all together.

use addr::{Memory, PhysAddr, VirtAddr};

use super::{Part, Radix, Table, change::Change, edit::Edit};
use crate::{Entry, Format, Mapping};

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
            for at in self.copies(table, &mapping) {
                let usage = self.format.usage(self.format.read(1, at, memory));
                mapping.usage.referenced |= usage.referenced;
                mapping.usage.dirty |= usage.dirty;
            }
        }
        mapping
    }

    /// Where the entries of a page lie, in a table of level 1.
    fn copies(
        &self,
        table: PhysAddr,
        mapping: &Mapping,
    ) -> impl Iterator<Item = PhysAddr> + use<F> {
        let (page, base) = (mapping.translation.page, self.format.page_size(1));
        let first = self.entry_at(1, table, page.start());
        let bytes = u64::from(self.format.entry_bytes(1));
        (0..page.size().count_of(base)).map(move |number| first.wrapping_add(number * bytes))
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
            let mut bytes = base.bytes();
            if self.format.decode(entry, 1) == Entry::Page {
                let before = self.whole_mapping(entry, 1, table.start, start, memory);
                bytes = before.translation.page.size().bytes();
                let mut changed = false;
                for at in self.copies(table.start, &before) {
                    let entry = self.format.read(1, at, memory);
                    let was = edit.change.apply(&self.format, 1, at, entry, memory);
                    changed |= was.is_some();
                    removed += u64::from(C::REMOVES);
                    seen += 1;
                }
                if changed {
                    if edit.change.must_flush(&self.format, 1, entry) {
                        edit.flush.add(before.translation.page, before.translation.global);
                    }
                    (edit.each)(before);
                }
            }
            let next = start.wrapping_add(bytes);
            if table.entries == Some(seen) || next.get().wrapping_sub(1) >= part.last.get() {
                return removed;
            }
            start = next;
        }
    }
}
