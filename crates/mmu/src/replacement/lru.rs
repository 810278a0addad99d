//! Least recently used: one time stamp per entry; the oldest goes.
//!
//! ```text
//!   clock 9     slot   0   1   2   3
//!               used   7   3   9   5      victim: 1
//! ```
//!
//! A hit only stores the clock, so that it stays cheap; the search for the oldest is left to
//! the miss.

use core::ops::Range;

use super::{Learns, Replacement, ages::Ages};

/// Exact LRU over any sets.
#[derive(Clone, Debug)]
pub struct Lru {
    ages: Ages,
}

impl Lru {
    /// For `slots` slots.
    pub fn new(slots: usize) -> Lru {
        Lru { ages: Ages::new(slots) }
    }
}

impl Replacement for Lru {
    const LEARNS: Learns = Learns::Time;

    #[inline]
    fn touched(&mut self, slot: usize) {
        self.ages.stamp(slot);
    }

    #[inline]
    fn inserted(&mut self, slot: usize) {
        self.touched(slot);
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        self.ages.oldest(set)
    }

    #[inline]
    fn now(&self) -> u64 {
        self.ages.now()
    }

    #[inline]
    fn set_now(&mut self, now: u64) {
        self.ages.set_now(now);
    }

    #[inline]
    fn touched_at(&mut self, slot: usize, time: u64) {
        self.ages.stamp_at(slot, time);
    }

    #[inline]
    fn victim_used(&mut self, set: Range<usize>, used: impl Fn(usize) -> u64) -> usize {
        self.ages.oldest_used(set, used)
    }
}
