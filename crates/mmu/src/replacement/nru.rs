//! Not recently used: one bit per entry, set by use.
//!
//! ```text
//!   used   1 1 0 1    victim: the lowest way whose bit is clear
//!   used   1 1 1 1    all set: clear them all, then the lowest way
//! ```

use core::ops::Range;

use super::{Learns, Replacement};

/// NRU; the bits of a set are cleared when a victim is needed and all are set.
#[derive(Clone, Debug)]
pub struct Nru {
    used: Box<[bool]>,
}

impl Nru {
    /// The policy for `slots` slots.
    pub fn new(slots: usize) -> Nru {
        Nru { used: vec![false; slots].into_boxed_slice() }
    }
}

impl Replacement for Nru {
    const LEARNS: Learns = Learns::Last;

    #[inline(never)]
    fn touched(&mut self, slot: usize) {
        self.used[slot] = true;
    }

    #[inline]
    fn inserted(&mut self, slot: usize) {
        self.touched(slot);
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        let start = set.start;
        let used = &mut self.used[set];
        let way = used.iter().position(|used| !used).unwrap_or_else(|| {
            used.fill(false);
            0
        });
        start + way
    }
}
