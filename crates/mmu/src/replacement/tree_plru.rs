//! Tree pseudo-LRU: a binary tree over the ways, whose bits point away from recently used ways.
//!
//! ```text
//!              1                 inner nodes 1 .. ways, numbered as in a heap;
//!           /     \              way w is leaf ways + w
//!         2         3
//!        / \       / \           touched: every node on the way up points to its other child
//!      w0   w1   w2   w3         victim:  follow the bits down from node 1
//! ```
//!
//! The tree is stored as a heap. If the number of ways is not a power of two, its leaves are at two
//! depths. Real designs with 12 or 48 ways build their trees differently; this is one possible
//! form.
//!
//! All nodes on the path from a way to the root are set together by two masks, which are
//! precomputed for each way: node n is bit n of the set's word. A set with more ways than bits
//! keeps its nodes in several words, and sets them one by one.

use core::ops::Range;

use prefetch_index::prefetch_index;

use super::{Learns, Replacement};

/// The number of bits of a word of nodes.
const WORD: usize = u64::BITS as usize;

/// Tree pseudo-LRU for any number of ways.
#[derive(Clone, Debug)]
pub struct TreePlru {
    /// The nodes of all sets: the bit of a node is set if the node points to its right child.
    nodes: Box<[u64]>,
    places: Places,
    /// For each number of ways and each way, the changes that touching this way makes to the word
    /// of a set.
    touches: Box<[Touch]>,
}

/// How the nodes for a slot are found.
#[derive(Clone, Debug)]
enum Places {
    /// All sets have this number of ways and one word each. `reciprocal` is 2^32 divided by the
    /// number of ways, rounded up: multiplication by it replaces the division.
    Alike { ways: u32, reciprocal: u64 },
    /// For each slot, the place of its nodes.
    Each(Box<[Slot]>),
}

impl Places {
    #[inline(always)]
    fn of(&self, slot: usize) -> Slot {
        match self {
            Places::Alike { ways, reciprocal } => {
                let word = ((slot as u64 * reciprocal) >> 32) as u32;
                let start = word * ways;
                Slot { word, start, ways: *ways, touch: slot as u32 - start }
            }
            Places::Each(slots) => slots[slot],
        }
    }
}

/// Where the tree nodes of the set of a slot are stored.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The first word of the set's nodes.
    word: u32,
    /// The first slot of the set.
    start: u32,
    /// The number of slots of the set.
    ways: u32,
    /// The index in `touches` for this slot, or [`CLIMB`].
    touch: u32,
}

/// The value for a set with too many ways for masks.
const CLIMB: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Touch {
    /// The nodes that are not on the path to the root.
    keep: u64,
    /// The nodes on the path to the root whose right child is not on the path.
    right: u64,
}

impl TreePlru {
    /// The policy for sets whose numbers of ways are given in the order of their slots.
    pub fn new(mut ways_of_sets: impl Iterator<Item = usize> + Clone) -> TreePlru {
        if let Some(alike) = TreePlru::alike(&mut ways_of_sets.clone()) {
            return alike;
        }
        TreePlru::each(&mut ways_of_sets)
    }

    /// The policy for sets that all have the same number of ways and fit into a word each;
    /// otherwise `None`.
    fn alike(ways_of_sets: &mut impl Iterator<Item = usize>) -> Option<TreePlru> {
        let ways = ways_of_sets.next()?;
        let mut sets = 1;
        for other in ways_of_sets {
            sets += 1;
            if other != ways {
                return None;
            }
        }
        // These limits ensure that the product is exact.
        let fits = (1..=WORD).contains(&ways) && sets * ways <= 1 << 26;
        fits.then(|| TreePlru {
            nodes: vec![0; sets].into_boxed_slice(),
            places: Places::Alike {
                ways: ways as u32,
                reciprocal: (1u64 << 32).div_ceil(ways as u64),
            },
            touches: (0..ways).map(|way| Touch::new(ways, way)).collect(),
        })
    }

    fn each(ways_of_sets: &mut impl Iterator<Item = usize>) -> TreePlru {
        let (mut slots, mut touches, mut words) = (Vec::new(), Vec::new(), 0);
        let mut tables: Vec<(usize, usize)> = Vec::new();
        for ways in ways_of_sets {
            let table = match tables.iter().find(|(of, _)| *of == ways) {
                Some((_, table)) => *table,
                None => {
                    tables.push((ways, touches.len()));
                    if ways <= WORD {
                        touches.extend((0..ways).map(|way| Touch::new(ways, way)));
                    }
                    tables[tables.len() - 1].1
                }
            };
            let start = slots.len() as u32;
            slots.extend((0..ways).map(|way| {
                let touch = if ways <= WORD { (table + way) as u32 } else { CLIMB };
                Slot { word: words as u32, start, ways: ways as u32, touch }
            }));
            words += ways.div_ceil(WORD);
        }
        TreePlru {
            nodes: vec![0; words].into_boxed_slice(),
            places: Places::Each(slots.into_boxed_slice()),
            touches: touches.into_boxed_slice(),
        }
    }

    /// The implementation of `touched` for a set with more ways than a word has bits.
    #[inline(never)]
    fn climb(&mut self, slot: usize) {
        let Slot { word, start, ways, .. } = self.places.of(slot);
        let mut node = ways as usize + slot - start as usize;
        while node > 1 {
            let bit = 1 << (node / 2 % WORD);
            let nodes = &mut self.nodes[word as usize + node / 2 / WORD];
            *nodes = if node & 1 == 0 { *nodes | bit } else { *nodes & !bit };
            node /= 2;
        }
    }
}

impl Touch {
    /// The effect of touching way `way` of `ways`.
    fn new(ways: usize, way: usize) -> Touch {
        let mut touch = Touch { keep: u64::MAX, right: 0 };
        let mut node = ways + way;
        while node > 1 {
            touch.keep &= !(1 << (node / 2));
            touch.right |= u64::from(node & 1 == 0) << (node / 2);
            node /= 2;
        }
        touch
    }
}

impl Replacement for TreePlru {
    const LEARNS: Learns = Learns::Last;

    #[inline(always)]
    fn touched(&mut self, slot: usize) {
        let Slot { word, touch, .. } = self.places.of(slot);
        match self.touches.get(touch as usize) {
            Some(touch) => {
                let nodes = &mut self.nodes[word as usize];
                *nodes = *nodes & touch.keep | touch.right;
            }
            None => self.climb(slot),
        }
    }

    #[inline]
    fn inserted(&mut self, slot: usize) {
        self.touched(slot);
    }

    #[inline]
    fn soon(&self, first: usize) {
        prefetch_index(&self.nodes, self.places.of(first).word as usize);
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        let ways = set.len();
        let words = &self.nodes[self.places.of(set.start).word as usize..];
        let mut node = 1;
        while node < ways {
            node = 2 * node + (words[node / WORD] >> (node % WORD)) as usize % 2;
        }
        set.start + node - ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After all ways have been touched in order, a tree over a power of two ways evicts the first
    /// way. A way that was just touched is never the victim.
    #[test]
    fn the_victim_is_never_the_way_touched_last() {
        for ways in (1..=64usize).chain([96, 100, 128, 1000, 1024]) {
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

    /// Sets of several sizes have the victims that each set would have in a policy of its own.
    #[test]
    fn a_set_does_not_depend_on_the_others() {
        let of_sets = [4usize, 12, 16, 64, 3, 100];
        let mut mixed = TreePlru::new(of_sets.into_iter());
        let mut alone: Vec<TreePlru> =
            of_sets.iter().map(|&ways| TreePlru::new([ways, ways].into_iter())).collect();
        let mut word = 99u32;
        for _ in 0..5000 {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let set = (word >> 8) as usize % of_sets.len();
            let (start, ways) = (of_sets[..set].iter().sum::<usize>(), of_sets[set]);
            let way = (word >> 16) as usize % ways;
            mixed.touched(start + way);
            alone[set].touched(ways + way);
            let victim = mixed.victim(start..start + ways) - start;
            assert_eq!(victim, alone[set].victim(ways..2 * ways) - ways);
        }
    }

    /// The textbook case of four ways, with its bits a (root), b (ways 0, 1) and c (ways 2, 3).
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
