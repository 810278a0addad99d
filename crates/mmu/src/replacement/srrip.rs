//! SRRIP, static re-reference interval prediction (Jaleel et al. 2010): two bits per entry predict
//! how far in the future the entry's next use is.
//!
//! ```text
//!   new: 2 (far)    hit: 0 (near)    victim: the lowest way with 3 (distant);
//!                                    none: all of the set age by one, and again
//! ```

use core::ops::Range;

use super::{Learns, Replacement};

const DISTANT: u8 = 3;
const FAR: u8 = 2;

/// SRRIP with hit priority and two bits.
#[derive(Clone, Debug)]
pub struct Srrip {
    predictions: Box<[u8]>,
}

impl Srrip {
    /// The policy for `slots` slots.
    pub fn new(slots: usize) -> Srrip {
        Srrip { predictions: vec![DISTANT; slots].into_boxed_slice() }
    }
}

impl Replacement for Srrip {
    const LEARNS: Learns = Learns::Each;

    #[inline(never)]
    fn touched(&mut self, slot: usize) {
        self.predictions[slot] = 0;
    }

    fn inserted(&mut self, slot: usize) {
        self.predictions[slot] = FAR;
    }

    fn victim(&mut self, set: Range<usize>) -> usize {
        let start = set.start;
        let set = &mut self.predictions[set];
        let age = DISTANT - set.iter().copied().max().unwrap_or(DISTANT);
        set.iter_mut().for_each(|prediction| *prediction += age);
        let way = set.iter().position(|&prediction| prediction == DISTANT);
        start + way.unwrap_or(0)
    }
}
