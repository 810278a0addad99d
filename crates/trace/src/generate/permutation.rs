//! A random permutation of 0..n that needs no memory.
//!
//! ```text
//!   x --> + key, xor with its upper half, * odd     (three times, modulo 2^k)  --> y
//!                                                    again while y >= n
//! ```
//!
//! Each step is invertible within k bits, so the steps together are a permutation of 0..2^k; k is
//! the smallest number for which 2^k >= n. If the result is not in 0..n, it is permuted again. The
//! result is still a permutation (cycle walking: Black and Rogaway 2002, §3), and takes fewer than
//! two rounds on average.

use super::{Rng, Xoshiro256PlusPlus};

const ROUNDS: usize = 3;

/// A permutation of `0..len`.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    len: u64,
    mask: u64,
    shift: u32,
    keys: [(u64, u64); ROUNDS],
}

impl Permutation {
    /// A random permutation of `0..len`; `len` is at least 1.
    pub(super) fn new(len: u64, random: &mut Xoshiro256PlusPlus) -> Permutation {
        let bits = 64 - (len - 1).leading_zeros();
        let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        let keys = [(); ROUNDS].map(|()| (random.next_u64(), random.next_u64() | 1));
        Permutation { len, mask, shift: bits.div_ceil(2).max(1), keys }
    }

    /// The number of elements.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The image of `index`, which is below the length.
    #[inline]
    pub(super) fn apply(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            for (key, odd) in self.keys {
                value = value.wrapping_add(key) & self.mask;
                value ^= value >> self.shift;
                value = value.wrapping_mul(odd) & self.mask;
            }
            value ^= value >> self.shift;
            if value < self.len {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random;
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for len in (1..300).chain([4095, 4096, 4097, 10_000]) {
            for seed in 0..4 {
                let permutation = Permutation::new(len, &mut random(seed));
                let mut seen = vec![false; len as usize];
                for index in 0..len {
                    let to = permutation.apply(index) as usize;
                    assert!(!std::mem::replace(&mut seen[to], true), "len {len} seed {seed}");
                }
            }
        }
    }

    /// Consecutive elements are scattered, and every part of the range follows every other: the
    /// counts of transitions between 16 parts have the expected mean, and the spread of independent
    /// draws.
    #[test]
    fn neighbours_are_scattered() {
        for (len, seed) in [(1u64 << 16, 1), (1 << 20, 2), (100_000, 3), (1 << 16, 4)] {
            let permutation = Permutation::new(len, &mut random(seed));
            let mut moves = [[0u64; 16]; 16];
            let part = |index: u64| (permutation.apply(index) * 16 / len) as usize;
            for index in 0..len - 1 {
                moves[part(index)][part(index + 1)] += 1;
            }
            let mean = len as f64 / 256.0;
            let chi: f64 = moves.iter().flatten().map(|&n| (n as f64 - mean).powi(2) / mean).sum();
            assert!(chi < 255.0 + 6.0 * (2.0f64 * 255.0).sqrt(), "len {len} seed {seed}: {chi}");
        }
    }
}
