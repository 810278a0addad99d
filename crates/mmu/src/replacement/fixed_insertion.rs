//! LRU with a fixed insertion point (B10 §4.3.2): an entry of the lowest level comes in three
//! quarters down the order of use; one that is used again is then the most recent.
//!
//! ```text
//!   most recent |  L4, L3, and whatever was used again  | new L2 ... | least recent
//!                                              3/4 of the ways ^
//! ```
//!
//! Entries that are never used again so compete for a quarter of the set only. The thesis does
//! not say where its point lies; three quarters is an assumption.

use core::ops::Range;

use super::{FromTable, Learns, Replacement, recency::Recency};

/// The level of the entries that come in below the top: the lowest that an MMU cache holds.
const LOWEST_LEVEL: u8 = 2;

/// LRU with a fixed insertion point.
#[derive(Clone, Debug)]
pub struct FixedInsertion {
    recency: Recency,
}

impl FixedInsertion {
    /// For sets whose ways are given in the order of their slots.
    pub fn new(ways_of_sets: impl Iterator<Item = usize>) -> FixedInsertion {
        FixedInsertion { recency: Recency::new(ways_of_sets) }
    }
}

impl Replacement for FixedInsertion {
    const LEARNS: Learns = Learns::Each;

    #[inline(never)]
    fn touched(&mut self, slot: usize) {
        self.recency.put(slot, 0);
    }

    fn inserted(&mut self, slot: usize) {
        self.recency.put(slot, 0);
    }

    fn inserted_at(&mut self, slot: usize, FromTable { level, .. }: FromTable) {
        let low = self.recency.ways(slot) * 3 / 4;
        self.recency.put(slot, if level <= LOWEST_LEVEL { low } else { 0 });
    }

    fn victim(&mut self, set: Range<usize>) -> usize {
        self.recency.last(set)
    }
}
