//! Replicated pages, which have several adjacent entries in one table. Each entry is for a part of
//! the page, as large as an entry covers (G98 section 6.2; Svnapot; the contiguous bit of AArch64).
//!
//! ```text
//!   64K page over 4K:   entry n     n + 1            n + 15      all in one table
//!                       [f,  64K]   [f + 4K,  64K]   [f + 60K, 64K]
//! ```
//!
//! A walk needs only the entry for its address, and a page's size is changed in place. An operation
//! on a page changes all of its entries, and the usage of the page combines the usage of all
//! entries.

use addr::{Memory, Page, PhysAddr, VirtAddr, VirtRange};

use super::{Radix, change::Change, edit::Edit};
use crate::{Format, Mapping, Usage};

/// The result of editing a page with several entries.
pub(super) struct Copies {
    /// The last byte of the page.
    pub(super) last: VirtAddr,
    /// The number of entries of the page.
    pub(super) count: u64,
}

impl<F: Format> Radix<F> {
    /// The page to which `entry` belongs, with the usage of all its entries. `entry` is in `table`
    /// of `level` and covers `addr`.
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

    /// The address of each entry of `page` in a table of `level`, with the first virtual address
    /// that this entry covers.
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

    /// Whether `entry`, in a table of level 1 for `addr`, is one of several entries of its page.
    #[inline(always)]
    pub(super) fn is_copy(&self, entry: u64, addr: VirtAddr) -> bool {
        // An empty entry has no bit that encodes a page size.
        self.format.other_size(entry, addr, self.format.page_size(1)) != 0
    }

    /// Edits all entries of the page to which `entry` belongs; `entry` is in `table` and covers `start`.
    #[cold]
    #[inline(never)]
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
            // This includes the bits that walkers set before the change.
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
