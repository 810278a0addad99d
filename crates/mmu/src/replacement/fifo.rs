//! First in, first out: the entry that has been there longest goes, used or not.

use core::ops::Range;

use super::{Learns, Replacement, ages::Ages};

/// FIFO by time of insertion, which stays exact when entries are flushed out of turn.
#[derive(Clone, Debug)]
pub struct Fifo {
    ages: Ages,
}

impl Fifo {
    /// For sets whose ways are given in the order of their slots.
    pub fn new(ways_of_sets: impl Iterator<Item = usize> + Clone) -> Fifo {
        Fifo { ages: Ages::new(ways_of_sets) }
    }

    /// The slots of a `set` that is full, or some of them, the one that makes room first.
    pub fn in_order(&self, slots: impl Iterator<Item = usize>) -> Vec<usize> {
        self.ages.in_order(slots)
    }
}

impl Replacement for Fifo {
    const LEARNS: Learns = Learns::Nothing;

    #[inline]
    fn touched(&mut self, _slot: usize) {}

    #[inline]
    fn inserted(&mut self, slot: usize) {
        self.ages.stamp(slot);
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        self.ages.oldest(set)
    }
}
