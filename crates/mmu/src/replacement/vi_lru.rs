//! VI-LRU, LRU with a variable insertion point (B10 §4.3.2): a new entry is not always the most
//! recent. The number of entries above it in the order of use is the number of entries of higher
//! levels in its set. When the entry is used again, it becomes the most recently used entry.
//!
//! ```text
//!   two L4 and six L3 entries are here: a new L2 entry becomes the ninth
//!
//!   most recent | 1  2  3  4  5  6  7  8 | new L2 | ... | least recent
//! ```
//!
//! Entries of the lowest level that are never used again compete only for the space that the other
//! entries leave. If all entries are of the lowest level, the policy is LRU.

use core::ops::Range;

use super::{FromTable, Learns, Replacement, recency::Recency};

/// LRU with a variable insertion point.
#[derive(Clone, Debug)]
pub struct ViLru {
    recency: Recency,
}

impl ViLru {
    /// The policy for sets whose numbers of ways are given in the order of their slots.
    pub fn new(ways_of_sets: impl Iterator<Item = usize>) -> ViLru {
        ViLru { recency: Recency::new(ways_of_sets) }
    }
}

impl Replacement for ViLru {
    const LEARNS: Learns = Learns::Each;

    #[inline(never)]
    fn touched(&mut self, slot: usize) {
        self.recency.put(slot, 0);
    }

    fn inserted(&mut self, slot: usize) {
        self.inserted_at(slot, FromTable { level: 1, host: false });
    }

    fn inserted_at(&mut self, slot: usize, FromTable { level, .. }: FromTable) {
        let above = self.recency.above(slot, level);
        self.recency.set_level(slot, level);
        self.recency.put(slot, above);
    }

    fn removed(&mut self, slot: usize) {
        self.recency.set_level(slot, 0);
    }

    fn victim(&mut self, set: Range<usize>) -> usize {
        self.recency.last(set)
    }
}
