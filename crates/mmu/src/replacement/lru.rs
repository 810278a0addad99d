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

    /// The time of the last use of each slot, to be stored by the user.
    pub(crate) fn stamps(&mut self) -> &mut [u64] {
        self.ages.stamps()
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
