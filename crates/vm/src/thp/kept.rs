//! Records of the blocks that have a page table in place of a large page.

use alloc::{collections::BTreeSet, vec::Vec};
use core::ops::Range;

use crate::region::Region;

/// The blocks of a space that have a page table, possibly empty, in place of a large page: log2 of their
/// number of base pages, and their first base page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(pub(crate) BTreeSet<(u32, u64)>);

impl Kept {
    /// Whether the block of `2^order` base pages from `first` has a table.
    #[inline]
    pub(crate) fn has(&self, order: u32, first: u64) -> bool {
        !self.0.is_empty() && self.0.contains(&(order, first))
    }

    pub(crate) fn enter(&mut self, order: u32, page: u64) {
        self.0.insert((order, page >> order << order));
    }

    /// The blocks of `2^order` base pages that overlap `pages`, by their first base page.
    pub(crate) fn touched(&self, order: u32, pages: &Range<u64>) -> Vec<u64> {
        let all = self.0.range((order, pages.start >> order << order)..(order, pages.end));
        all.map(|&(_, first)| first).collect()
    }

    /// Records that the blocks of each of these orders that are completely in `pages` have no
    /// table.
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

    /// The first block of `2^order` base pages, from `page` on, that has a table, by its first base
    /// page.
    pub(crate) fn next(&self, order: u32, page: u64) -> Option<u64> {
        self.0.range((order, page)..(order + 1, 0)).next().map(|&(_, first)| first)
    }

    /// The tables that the child of a fork has: those of blocks that overlap one of `regions`, which are
    /// sorted by address.
    pub(crate) fn of_regions(&self, regions: &[Region]) -> Kept {
        let is_copied = |&&(order, first): &&(u32, u64)| {
            let next = regions.partition_point(|region| region.pages.end <= first);
            regions.get(next).is_some_and(|region| region.pages.start < first + (1 << order))
        };
        Kept(self.0.iter().filter(is_copied).copied().collect())
    }
}
