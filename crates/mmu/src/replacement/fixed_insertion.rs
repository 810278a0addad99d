//! LRU with a fixed insertion point (B10 §4.3.2): an entry of the lowest level is inserted three
//! quarters down the order of use; when it is used again it becomes the most recent.
//!
//! ```text
//!   most recent |  L4, L3, and whatever was used again  | new L2 ... | least recent
//!                                              3/4 of the ways ^
//! ```
//!
//! Entries that are never used again therefore compete only for a quarter of the set. The thesis
//! does not give its insertion point; three quarters is an assumption.

use core::ops::Range;

use super::{FromTable, Learns, Replacement, recency::Recency};

/// The level of the entries that are inserted below the top: the lowest level that an MMU cache
/// holds.
const LOWEST_LEVEL: u8 = 2;

/// LRU with a fixed insertion point.
#[derive(Clone, Debug)]
pub struct FixedInsertion {
    recency: Recency,
}

impl FixedInsertion {
    /// The policy for sets whose numbers of ways are given in the order of their slots.
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
