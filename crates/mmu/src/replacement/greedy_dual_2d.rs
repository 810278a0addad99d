//! Greedy Dual for an MMU cache that guest and host share (after B10 §7.1, which proposes such a
//! policy).
//!
//! ```text
//!   guest's entry of level k: its host's walk, then the entry    2 (k - 1)
//!   host's entry of level k                                        k - 1
//! ```
//!
//! An entry of the guest's table is at a guest-physical address. To read this entry again, the
//! host's page table must first be walked for that address. Even if the cache holds the upper
//! entries of the host's table, this walk makes at least one reference.

use core::ops::Range;

use super::{
    FromTable, Learns, Replacement,
    greedy_dual::{GreedyDual, references},
};

/// Greedy Dual with costs for both dimensions of a nested walk.
#[derive(Clone, Debug)]
pub struct GreedyDual2d {
    values: GreedyDual,
}

impl GreedyDual2d {
    /// The policy for sets whose numbers of ways are given in the order of their slots.
    pub fn new(ways_of_sets: impl Iterator<Item = usize>) -> GreedyDual2d {
        GreedyDual2d { values: GreedyDual::new(ways_of_sets) }
    }
}

impl Replacement for GreedyDual2d {
    const LEARNS: Learns = Learns::Each;

    #[inline(never)]
    fn touched(&mut self, slot: usize) {
        self.values.touched(slot);
    }

    fn inserted(&mut self, slot: usize) {
        self.values.inserted(slot);
    }

    fn inserted_at(&mut self, slot: usize, FromTable { level, host }: FromTable) {
        self.values.inserted_for(slot, references(level) * if host { 1 } else { 2 });
    }

    fn victim(&mut self, set: Range<usize>) -> usize {
        self.values.victim(set)
    }
}
