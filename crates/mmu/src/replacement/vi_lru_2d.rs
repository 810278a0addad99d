//! VI-LRU for an MMU cache that guest and host share (after B10 §7.1, which proposes such a
//! policy).
//!
//! ```text
//!   most recent | guest L4 | host L4 | guest L3 | host L3 | guest L2 | host L2 | least recent
//! ```
//!
//! Entries are inserted as in VI-LRU ([`ViLru`](super::ViLru)), with one exception: of two entries
//! of one level, the guest's entry is treated as the higher one. to read it again, the host's page
//! table must be walked first. The number of entries above a new entry is therefore the number of
//! entries of higher levels. For a new entry of the host, the guest's entries of the same level are
//! included.

use core::ops::Range;

use super::{FromTable, Learns, Replacement, recency::Recency};

/// VI-LRU that distinguishes both dimensions of a nested walk.
#[derive(Clone, Debug)]
pub struct ViLru2d {
    recency: Recency,
}

impl ViLru2d {
    /// The policy for sets whose numbers of ways are given in the order of their slots.
    pub fn new(ways_of_sets: impl Iterator<Item = usize>) -> ViLru2d {
        ViLru2d { recency: Recency::new(ways_of_sets) }
    }
}

impl Replacement for ViLru2d {
    const LEARNS: Learns = Learns::Each;

    #[inline(never)]
    fn touched(&mut self, slot: usize) {
        self.recency.put(slot, 0);
    }

    fn inserted(&mut self, slot: usize) {
        self.inserted_at(slot, FromTable { level: 1, host: false });
    }

    fn inserted_at(&mut self, slot: usize, FromTable { level, host }: FromTable) {
        let rank = 2 * level + u8::from(!host);
        let above = self.recency.above(slot, rank);
        self.recency.set_level(slot, rank);
        self.recency.put(slot, above);
    }

    fn removed(&mut self, slot: usize) {
        self.recency.set_level(slot, 0);
    }

    fn victim(&mut self, set: Range<usize>) -> usize {
        self.recency.last(set)
    }
}
