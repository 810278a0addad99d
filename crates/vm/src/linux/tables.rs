//! Page tables that remain where a large page could be (`mm/memory.c`, `mm/mremap.c`).
//!
//! ```text
//!   large page           |               |   its entry is in the upper table, and has no table below
//!   discard of a half    |       | b b b |   split: a table of base pages
//!   ... and of the other |       |       |   the table is empty, and stays: a touch gets a base page
//!   discard of all       |               |   the table goes: a touch may get a large page
//! ```
//!
//! A fault loads a large page only where the upper table's entry is empty (`__handle_mm_fault`:
//! `pmd_none`, `pud_none`). The lower table is removed
//!
//! * where memory is unmapped and no other region has an address in its block (`free_pgtables`,
//!   `free_pgd_range`);
//! * where the whole block of one region is discarded, a table of base pages alone (`zap_pte_range`:
//!   `try_get_and_clear_pmd`, since Linux 6.14 with `CONFIG_PT_RECLAIM`);
//! * where a large page is made there.
//!
//! Moved pages leave a table at their new place if they had one (`move_page_tables`: `pte_alloc`), and a
//! fork leaves one in the child (`copy_pte_range`).
//!
//! The machine's page table may have any format, including one without such tables. This module
//! records the tables that Linux would have on x86-64, for blocks of the sizes of large pages.
//! Where pages are mapped, it is known that there is a table. A table is recorded
//! ([`crate::thp::Kept`]) only if pages are removed from a block and the table remains, so that
//! faults have no additional cost if there are no such blocks.

use core::ops::Range;

use hat::locking::Locks;
use pagetable::Mapping;

use crate::{
    host::Host,
    kernel::Kernel,
    thp::Kept,
    vm::{Vm, Within},
};

impl<L: Locks> Vm<L> {
    /// Records the table of `mapping`, which has just been unloaded. `noted` has the pages of the
    /// table that was recorded last; it saves work for an operation that handles pages in the order
    /// of their addresses.
    #[inline]
    pub(crate) fn keep_table(&self, tables: &mut Kept, mapping: &Mapping, noted: &mut Range<u64>) {
        let page = mapping.translation.page;
        let first = self.page_of(page.start());
        if self.thp.is_none() || page.size() == self.base && noted.contains(&first) {
            return;
        }
        let order = page.size().shift() - self.base.shift();
        for larger in self.page_orders().filter(|larger| *larger > order) {
            tables.enter(larger, first);
            *noted = Self::aligned(first, larger);
        }
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Records that blocks which lose a part of the space's own pages in `pages` keep a table.
    pub(crate) fn keep_tables(&mut self, at: &mut Within<'_>, pages: &Range<u64>) {
        if self.vm.thp.is_none() || pages.is_empty() {
            return;
        }
        for order in self.vm.page_orders() {
            for end in [pages.start, pages.end - 1] {
                let block = Vm::<H::Locks>::aligned(end, order);
                let part = block.start.max(pages.start)..block.end.min(pages.end);
                if part != block && at.known.anons.within(part).next().is_some() {
                    at.known.tables.enter(order, end);
                }
            }
        }
    }

    /// Called when `pages` are moved: for each block that loses a part of them, records that the
    /// block keeps a table if some page was mapped in the block.
    pub(crate) fn keep_around(&mut self, at: &mut Within<'_>, pages: &Range<u64>) {
        if self.vm.thp.is_none() || pages.is_empty() {
            return;
        }
        for order in self.vm.page_orders() {
            for end in [pages.start, pages.end - 1] {
                let block = Vm::<H::Locks>::aligned(end, order);
                let is_part = block.start < pages.start || block.end > pages.end;
                if is_part
                    && (at.known.anons.within(block.clone()).next().is_some() || {
                        let mut loaded = false;
                        self.hat.visit(at.space, self.vm.range_of(&block), &mut |_| loaded = true);
                        loaded
                    })
                {
                    at.known.tables.enter(order, end);
                }
            }
        }
    }

    /// Removes the tables of blocks that overlap `pages`, which were unmapped, if no region has a
    /// page in the block (`free_pgtables`).
    pub(crate) fn free_tables(&mut self, at: &mut Within<'_>, pages: &Range<u64>) {
        for order in self.vm.page_orders() {
            for first in at.known.tables.touched(order, pages) {
                let block = first..first + (1 << order);
                if at.known.regions.within(&block).next().is_none() {
                    at.known.tables.0.remove(&(order, first));
                }
            }
        }
    }

    /// Removes the tables of base pages whose whole block lies in `pages`, which are of one region and are
    /// discarded (`zap_pte_range`).
    pub(crate) fn reclaim_tables(&mut self, at: &mut Within<'_>, pages: &Range<u64>) {
        if self.vm.thp.is_some_and(|thp| !thp.frees_tables) {
            return;
        }
        let order = self.vm.pmd_order();
        at.known.tables.forget(self.vm.page_orders().filter(|of| *of <= order), pages);
    }

    /// Records the tables at the new place of `pages`, which have moved to page `to`
    /// (`move_page_tables`).
    pub(crate) fn move_tables(&mut self, at: &mut Within<'_>, pages: &Range<u64>, to: u64) {
        for order in self.vm.page_orders() {
            for first in at.known.tables.touched(order, pages) {
                let moved = |page: u64| page.wrapping_sub(pages.start).wrapping_add(to);
                let (start, last) =
                    (first.max(pages.start), (first + (1 << order)).min(pages.end) - 1);
                at.known.tables.enter(order, moved(start));
                at.known.tables.enter(order, moved(last));
            }
        }
        self.free_tables(at, pages);
    }
}
