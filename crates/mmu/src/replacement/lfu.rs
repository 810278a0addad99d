//! Least frequently used: the entry with the fewest uses since its insertion is replaced. If
//! several entries have the fewest uses, the entry in the lowest way is replaced. A new entry
//! counts as used once.

use core::ops::Range;

use super::{Learns, Replacement, lowest};

/// LFU without aging.
#[derive(Clone, Debug)]
pub struct Lfu {
    uses: Box<[u64]>,
}

impl Lfu {
    /// The policy for `slots` slots.
    pub fn new(slots: usize) -> Lfu {
        Lfu { uses: vec![0; slots].into_boxed_slice() }
    }
}

impl Replacement for Lfu {
    const LEARNS: Learns = Learns::Each;

    #[inline(never)]
    fn touched(&mut self, slot: usize) {
        self.uses[slot] += 1;
    }

    #[inline]
    fn inserted(&mut self, slot: usize) {
        self.uses[slot] = 1;
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        lowest(&self.uses, set)
    }
}
