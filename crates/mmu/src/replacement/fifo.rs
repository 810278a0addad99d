//! First in, first out: the entry that has been there longest goes, used or not.

use core::ops::Range;

use super::{Replacement, lowest};

/// FIFO by time of insertion, which stays exact when entries are flushed out of turn.
#[derive(Clone, Debug)]
pub struct Fifo {
    clock: u64,
    inserted: Box<[u64]>,
}

impl Fifo {
    /// For `slots` slots.
    pub fn new(slots: usize) -> Fifo {
        Fifo { clock: 0, inserted: vec![0; slots].into_boxed_slice() }
    }
}

impl Replacement for Fifo {
    #[inline]
    fn touched(&mut self, _slot: usize) {}

    #[inline]
    fn inserted(&mut self, slot: usize) {
        self.clock += 1;
        self.inserted[slot] = self.clock;
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        lowest(&self.inserted, set)
    }
}
