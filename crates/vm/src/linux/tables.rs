//! Page tables that stay in the place of a large page (`mm/memory.c`, `mm/mremap.c`).
//!
//! ```text
//!   large page           |               |   its entry is in the upper table, and has no table below
//!   discard of a half    |       | b b b |   split: a table of base pages
//!   ... and of the other |       |       |   the table is empty, and stays: a touch gets a base page
//!   discard of all       |               |   the table goes: a touch may get a large page
//! ```
//!
//! A fault gives a large page where the upper table's entry is empty (`__handle_mm_fault`: `pmd_none`,
//! `pud_none`). The table below goes
//!
//! * where memory is unmapped and no other region has an address in its block (`free_pgtables`,
//!   `free_pgd_range`);
//! * where the whole block of one region is discarded, a table of base pages alone (`zap_pte_range`:
//!   `try_get_and_clear_pmd`, since Linux 6.14 with `CONFIG_PT_RECLAIM`);
//! * where a large page is made there.
//!
//! Pages that move leave a table where they went, if they had one (`move_page_tables`: `pte_alloc`), and so
//! does a fork in the child (`copy_pte_range`).
//!
//! The machine's page table may be of any format, also of one without such tables: these are the tables that
//! the kernel keeps on x86-64 for blocks of the sizes that large pages have here. A table that is not empty is
//! seen by what is there. Only where something goes from a block and the block stays is it noted
//! ([`crate::thp::Kept`]), so that a fault without such blocks asks nothing.

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
    /// Hardware has `mapping` no more, which lay in a table. `noted` are the pages of the table that was entered
    /// last, of an operation that goes through pages by address.
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
    /// What the space has of its own in `pages` is to go: a block that loses a part of it had a table.
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

    /// `pages` are to move: a block that loses a part of them, whatever of it, had a table if there is anything
    /// in it.
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

    /// `pages` are unmapped: tables go whose blocks no region has a page of (`free_pgtables`).
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

    /// `pages`, which are of one region, are discarded: tables of base pages go whose whole block they are
    /// (`zap_pte_range`).
    pub(crate) fn reclaim_tables(&mut self, at: &mut Within<'_>, pages: &Range<u64>) {
        let order = self.vm.pmd_order();
        at.known.tables.forget(self.vm.page_orders().filter(|of| *of <= order), pages);
    }

    /// `pages` have moved and begin with page `to`: tables are where they went (`move_page_tables`).
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
