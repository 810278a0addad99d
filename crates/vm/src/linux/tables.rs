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
//! ([`Kept`]), so that a fault without such blocks asks nothing.

use alloc::{collections::BTreeSet, vec::Vec};
use core::ops::Range;

use hat::locking::{Locks, Scheme};
use pagetable::{Mapping, Mounted};
use physmem::Allocator;

use crate::{
    kernel::Kernel,
    platform::Platform,
    region::Region,
    vm::{Vm, Within},
};

/// The blocks of a space that have a table in the place of a large page, though it may be empty: log2 of
/// their base pages, and their first base page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(BTreeSet<(u32, u64)>);

impl Kept {
    /// Whether the block of `2^order` base pages from `first` has a table.
    #[inline]
    pub(crate) fn has(&self, order: u32, first: u64) -> bool {
        !self.0.is_empty() && self.0.contains(&(order, first))
    }

    fn enter(&mut self, order: u32, page: u64) {
        self.0.insert((order, page >> order << order));
    }

    /// The blocks of `2^order` base pages that have one of `pages`, by their first base page.
    fn touched(&self, order: u32, pages: &Range<u64>) -> Vec<u64> {
        let all = self.0.range((order, pages.start >> order << order)..(order, pages.end));
        all.map(|&(_, first)| first).collect()
    }

    /// The blocks of each of these orders that lie in `pages` as a whole have no table.
    pub(crate) fn forget(&mut self, orders: impl Iterator<Item = u32>, pages: &Range<u64>) {
        if self.0.is_empty() {
            return;
        }
        for of in orders {
            let (start, end) = (pages.start.next_multiple_of(1 << of), pages.end >> of << of);
            while start < end
                && let Some(&block) = self.0.range((of, start)..(of, end)).next()
            {
                self.0.remove(&block);
            }
        }
    }

    /// The first block of `2^order` base pages from `page` on that has a table, by its first base page.
    pub(crate) fn next(&self, order: u32, page: u64) -> Option<u64> {
        self.0.range((order, page)..(order + 1, 0)).next().map(|&(_, first)| first)
    }

    /// The tables that a child of a fork has: those of blocks that one of `regions` has a page of, which
    /// are sorted by address.
    pub(crate) fn of_regions(&self, regions: &[Region]) -> Kept {
        let is_copied = |&&(order, first): &&(u32, u64)| {
            let next = regions.partition_point(|region| region.pages.end <= first);
            regions.get(next).is_some_and(|region| region.pages.start < first + (1 << order))
        };
        Kept(self.0.iter().filter(is_copied).copied().collect())
    }
}

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

impl<T, A, P, L, S> Kernel<'_, T, A, P, L, S>
where
    T: Mounted + ?Sized,
    A: Allocator + Send,
    P: Platform,
    L: Locks,
    S: Scheme<Table = T>,
{
    /// What the space has of its own in `pages` is to go: a block that loses a part of it had a table.
    pub(crate) fn keep_tables(&mut self, at: &mut Within<'_>, pages: &Range<u64>) {
        if self.vm.thp.is_none() || pages.is_empty() {
            return;
        }
        for order in self.vm.page_orders() {
            for end in [pages.start, pages.end - 1] {
                let block = Vm::<L>::aligned(end, order);
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
                let block = Vm::<L>::aligned(end, order);
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
