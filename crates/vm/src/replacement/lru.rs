use core::ops::RangeInclusive;

use physmem::{FrameId, FrameTable};

use super::{Pages, Replacement, list::List};

/// The flag, in a descriptor's owner bits, of a frame in the active list.
const ACTIVE: u8 = 1;

/// Two lists that approximate LRU (least recently used), as in Linux.
///
/// ```text
///   new page --> [ inactive ] -- oldest, not referenced --> victim
///                  |      ^
///       referenced |      | oldest, while active is longer than inactive; its bit is cleared
///                  v      |
///                [ active ]
/// ```
///
/// An inactive page must be used again to become active. A single scan over much memory therefore
/// does not evict pages that are used all the time. Keeping both lists equally long is an
/// assumption; Linux balances them by the size of memory.
#[derive(Debug, Default)]
pub(super) struct Lru {
    active: List,
    inactive: List,
}

impl Lru {
    fn activate(&mut self, table: &mut FrameTable, frame: FrameId) {
        table.get_mut(frame).flags |= ACTIVE;
        self.active.push(table, frame);
    }

    fn deactivate(&mut self, table: &mut FrameTable, frame: FrameId) {
        table.get_mut(frame).flags &= !ACTIVE;
        self.inactive.push(table, frame);
    }
}

impl Replacement for Lru {
    fn enter(&mut self, table: &mut FrameTable, frame: FrameId) {
        self.deactivate(table, frame);
    }

    fn leave(&mut self, table: &mut FrameTable, frame: FrameId) {
        if table.get(frame).flags & ACTIVE != 0 {
            self.active.remove(table, frame);
        } else {
            self.inactive.remove(table, frame);
        }
    }

    fn victim(&mut self, pages: &mut dyn Pages) -> Option<FrameId> {
        // After each page was examined once, no referenced bit is set.
        for _ in 0..=self.pages() {
            while self.active.len() > self.inactive.len() {
                let Some(frame) = self.active.pop_of(pages) else { break };
                pages.referenced(frame);
                pages.with_table(&mut |table| self.deactivate(table, frame));
            }
            let frame = self.inactive.pop_of(pages)?;
            if !pages.referenced(frame) {
                return Some(frame);
            }
            pages.with_table(&mut |table| self.activate(table, frame));
        }
        self.inactive.pop_of(pages).or_else(|| self.active.pop_of(pages))
    }

    /// This policy keeps no data about evicted pages.
    fn forget(&mut self, _: u32, _: RangeInclusive<u64>) {}

    fn pages(&self) -> u64 {
        self.active.len() + self.inactive.len()
    }
}
