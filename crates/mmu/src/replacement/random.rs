//! Random replacement: every way has the same probability. A seed always gives the same sequence,
//! so that a run can be repeated.

use core::ops::Range;

use super::{Learns, Replacement};

/// Random replacement from a splitmix64 sequence.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence that begins with `seed`.
    pub const fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The seed of a generator that continues this sequence.
    pub fn rest(&self) -> u64 {
        self.state
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

impl Replacement for Random {
    const LEARNS: Learns = Learns::Nothing;

    #[inline]
    fn touched(&mut self, _slot: usize) {}

    #[inline]
    fn inserted(&mut self, _slot: usize) {}

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        // The high half of a product is a remainder without a division; its bias is below
        // ways / 2^64.
        let way = (u128::from(self.next()) * set.len() as u128) >> 64;
        set.start + way as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_comes_up_about_as_often_and_a_seed_repeats_itself() {
        for ways in [1usize, 2, 3, 12, 48, 64] {
            let (mut policy, mut again) = (Random::new(7), Random::new(7));
            let mut counts = vec![0u32; ways];
            for _ in 0..1000 * ways {
                let slot = policy.victim(100..100 + ways);
                assert_eq!(slot, again.victim(100..100 + ways));
                counts[slot - 100] += 1;
            }
            // With 1000 draws per way, six standard deviations are 190.
            assert!(counts.iter().all(|count| (810..1190).contains(count)), "{counts:?}");
        }
    }
}
