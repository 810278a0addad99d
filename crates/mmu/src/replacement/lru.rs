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
