//! Least recently used: a time stamp an entry; the oldest goes.
//!
//! ```text
//!   clock 9     slot   0   1   2   3
//!               used   7   3   9   5      victim: 1
//! ```
//!
//! A hit only stores the clock, so that it stays cheap; the search for the oldest is left to
//! the miss.

use core::ops::Range;

use super::{Replacement, ages::Ages};

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

    /// `slot` was hit at `time`, if it was not later.
    pub(crate) fn touched_at(&mut self, slot: usize, time: u64) {
        self.ages.stamp_at(slot, time);
    }

    /// The victim where slots may have been hit later than this has heard: `used` gives the last
    /// time of that.
    pub(crate) fn victim_used(&mut self, set: Range<usize>, used: impl Fn(usize) -> u64) -> usize {
        self.ages.oldest_used(set, used)
    }

    /// The time of the last use.
    pub(crate) fn now(&self) -> u64 {
        self.ages.now()
    }

    /// Goes on from `now`, which no stored time is above.
    pub(crate) fn set_now(&mut self, now: u64) {
        self.ages.set_now(now);
    }
}

impl Replacement for Lru {
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
}
