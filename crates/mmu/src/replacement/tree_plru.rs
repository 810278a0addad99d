//! Tree pseudo-LRU: a binary tree over the ways whose bits point away from what was used.
//!
//! ```text
//!              1                 inner nodes 1 .. ways, numbered as in a heap;
//!           /     \              way w is leaf ways + w
//!         2         3
//!        / \       / \           touched: every node on the way up points to its other child
//!      w0   w1   w2   w3         victim:  follow the bits down from node 1
//! ```
//!
//! For ways that are no power of two the heap still is a tree over them, with leaves at two
//! depths; real designs of 12 or 48 ways build theirs in various ways, and this is one of them.

use core::ops::Range;

use super::Replacement;

/// Tree pseudo-LRU for any number of ways.
#[derive(Clone, Debug)]
pub struct TreePlru {
    /// Node n of the set that starts at slot s is at s + n: which child it points to.
    towards: Box<[u8]>,
    /// For each slot the first slot of its set.
    starts: Box<[u32]>,
    /// For each slot the ways of its set.
    ways: Box<[u32]>,
}

impl TreePlru {
    /// For sets whose ways are given in the order of their slots.
    pub fn new(ways_of_sets: impl Iterator<Item = usize>) -> TreePlru {
        let (mut starts, mut all_ways) = (Vec::new(), Vec::new());
        for ways in ways_of_sets {
            let start = starts.len() as u32;
            starts.extend(core::iter::repeat_n(start, ways));
            all_ways.extend(core::iter::repeat_n(ways as u32, ways));
        }
        TreePlru {
            towards: vec![0; starts.len()].into_boxed_slice(),
            starts: starts.into_boxed_slice(),
            ways: all_ways.into_boxed_slice(),
        }
    }
}

impl Replacement for TreePlru {
    #[inline]
    fn touched(&mut self, slot: usize) {
        let (start, ways) = (self.starts[slot] as usize, self.ways[slot] as usize);
        let nodes = &mut self.towards[start..start + ways];
        let mut node = ways + (slot - start);
        while node > 1 {
            nodes[node / 2] = (node & 1 ^ 1) as u8;
            node /= 2;
        }
    }

    #[inline]
    fn inserted(&mut self, slot: usize) {
        self.touched(slot);
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        let ways = set.len();
        let nodes = &self.towards[set.clone()];
        let mut node = 1;
        while node < ways {
            node = 2 * node + usize::from(nodes[node]);
        }
        set.start + node - ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After all ways were touched in order, a tree of a power of two evicts the first; touching
    /// a way never makes it the victim.
    #[test]
    fn the_victim_is_never_the_way_touched_last() {
        for ways in 1..=64usize {
            let mut policy = TreePlru::new([ways, ways].into_iter());
            for slot in ways..2 * ways {
                policy.touched(slot);
                assert!(ways == 1 || policy.victim(ways..2 * ways) != slot);
            }
            if ways.is_power_of_two() {
                assert_eq!(policy.victim(ways..2 * ways), ways);
            }
            assert_eq!(policy.victim(0..ways), TreePlru::new([ways].into_iter()).victim(0..ways));
        }
    }

    /// The textbook case of four ways, written out: bits a (root), b (ways 0, 1), c (2, 3).
    #[test]
    fn four_ways_behave_as_the_three_bits_of_the_textbook() {
        let (mut a, mut b, mut c);
        (b, c) = (0, 0);
        let mut policy = TreePlru::new([4].into_iter());
        let mut word = 12345u32;
        for _ in 0..1000 {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let way = (word >> 30) as usize;
            policy.touched(way);
            match way {
                0 => (a, b) = (1, 1),
                1 => (a, b) = (1, 0),
                2 => (a, c) = (0, 1),
                _ => (a, c) = (0, 0),
            }
            let expected = if a == 0 { b } else { 2 + c };
            assert_eq!(policy.victim(0..4), expected);
        }
    }
}
