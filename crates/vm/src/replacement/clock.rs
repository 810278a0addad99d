use core::ops::RangeInclusive;

use physmem::{FrameId, FrameTable};

use super::{Pages, Replacement, list::List};

/// The clock policy: all pages are in a ring, and a hand passes over pages that are in use (Corbató
/// 1968).
///
/// ```text
///   hand --> page, referenced: bit cleared, a round more
///            page, not referenced: the victim          new pages come in behind the hand
/// ```
///
/// The ring is a list whose oldest page is under the hand. A page that the hand passes becomes the
/// newest.
#[derive(Debug, Default)]
pub(super) struct Clock {
    ring: List,
}

impl Replacement for Clock {
    fn enter(&mut self, table: &mut FrameTable, frame: FrameId) {
        self.ring.push(table, frame);
    }

    fn leave(&mut self, table: &mut FrameTable, frame: FrameId) {
        self.ring.remove(table, frame);
    }

    fn victim(&mut self, pages: &mut dyn Pages) -> Option<FrameId> {
        // After a complete round, no referenced bit is set.
        for _ in 0..=self.ring.len() {
            let frame = self.ring.pop_of(pages)?;
            if !pages.referenced(frame) {
                return Some(frame);
            }
            pages.with_table(&mut |table| self.ring.push(table, frame));
        }
        self.ring.pop_of(pages)
    }

    /// This policy keeps no data about evicted pages.
    fn forget(&mut self, _: u32, _: RangeInclusive<u64>) {}

    fn pages(&self) -> u64 {
        self.ring.len()
    }
}
