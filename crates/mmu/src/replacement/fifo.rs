//! First in, first out: the entry inserted first is replaced, whether or not it was used.

use core::ops::Range;

use super::{Learns, Replacement, ages::Ages};

/// FIFO by time of insertion; the order stays exact even if entries are flushed.
#[derive(Clone, Debug)]
pub struct Fifo {
    ages: Ages,
}

impl Fifo {
    /// The policy for sets whose numbers of ways are given in the order of their slots.
    pub fn new(ways_of_sets: impl Iterator<Item = usize> + Clone) -> Fifo {
        Fifo { ages: Ages::new(ways_of_sets) }
    }

    /// The given slots of a full `set`, in the order in which they will be replaced.
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
