//! Least recently used: the entry whose last use is longest ago is replaced.
//!
//! ```text
//!   clock 9     slot   0   1   2   3
//!               used   7   3   9   5      victim: 1
//! ```
//!
//! If hits are frequent, a hit only stores the clock, and a miss searches for the oldest entry. If
//! misses are frequent, small sets keep their slots in order instead.

use core::ops::Range;

use super::{Learns, Replacement, ages::Ages, orders::Orders};

/// Exact LRU over any sets.
#[derive(Clone, Debug)]
pub struct Lru {
    kept: Kept,
}

#[derive(Clone, Debug)]
enum Kept {
    Times(Ages),
    Orders(Orders),
}

impl Lru {
    /// The policy for sets whose numbers of ways are given in the order of their slots; hits may be
    /// reported later, by their times.
    pub fn timed(ways_of_sets: impl Iterator<Item = usize> + Clone) -> Lru {
        Lru { kept: Kept::Times(Ages::new(ways_of_sets)) }
    }

    /// The policy for sets whose numbers of ways are given in the order of their slots; each hit is
    /// reported immediately.
    pub fn new(ways_of_sets: impl Iterator<Item = usize> + Clone) -> Lru {
        let orders = Orders::new(ways_of_sets.clone()).map(Kept::Orders);
        Lru { kept: orders.unwrap_or_else(|| Kept::Times(Ages::new(ways_of_sets))) }
    }
}

impl Replacement for Lru {
    const LEARNS: Learns = Learns::Time;

    #[inline(always)]
    fn touched(&mut self, slot: usize) {
        match &mut self.kept {
            Kept::Times(ages) => ages.stamp(slot),
            Kept::Orders(orders) => orders.touch(slot),
        }
    }

    #[inline]
    fn inserted(&mut self, slot: usize) {
        self.touched(slot);
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        match &mut self.kept {
            Kept::Times(ages) => ages.oldest(set),
            Kept::Orders(orders) => orders.last(set),
        }
    }

    #[inline]
    fn replaced(&mut self, set: Range<usize>) -> usize {
        match &mut self.kept {
            Kept::Times(ages) => {
                let slot = ages.oldest(set);
                ages.stamp(slot);
                slot
            }
            Kept::Orders(orders) => orders.replaced(set),
        }
    }

    #[inline]
    fn soon(&self, first: usize) {
        if let Kept::Orders(orders) = &self.kept {
            orders.soon(first);
        }
    }

    #[inline]
    fn now(&self) -> u64 {
        match &self.kept {
            Kept::Times(ages) => ages.now(),
            Kept::Orders(_) => 0,
        }
    }

    #[inline]
    fn set_now(&mut self, now: u64) {
        if let Kept::Times(ages) = &mut self.kept {
            ages.set_now(now);
        }
    }

    #[inline]
    fn touched_at(&mut self, slot: usize, time: u64) {
        if let Kept::Times(ages) = &mut self.kept {
            ages.stamp_at(slot, time);
        }
    }

    #[inline]
    fn victim_used(&mut self, set: Range<usize>, used: impl Fn(usize) -> u64) -> usize {
        match &mut self.kept {
            Kept::Times(ages) => ages.oldest_used(set, used),
            Kept::Orders(orders) => orders.last(set),
        }
    }
}
