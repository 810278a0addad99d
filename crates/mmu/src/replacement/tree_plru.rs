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
//!
//! All nodes on the way up are set at once, by two masks that each way has ready: node n is bit
//! n of the set's word. Sets of more ways keep their nodes in several words and climb.

use core::ops::Range;

use prefetch_index::prefetch_index;

use super::{Learns, Replacement};

/// Bits of a word of nodes.
const WORD: usize = u64::BITS as usize;

/// Tree pseudo-LRU for any number of ways.
#[derive(Clone, Debug)]
pub struct TreePlru {
    /// The nodes of all sets: the bit of a node tells which child it points to.
    nodes: Box<[u64]>,
    places: Places,
    /// What to do to a set's word when a way is touched; tables of several numbers of ways.
    touches: Box<[Touch]>,
}

/// Where the nodes of slots are.
#[derive(Clone, Debug)]
enum Places {
    /// All sets have so many ways, and a word each. Their number is divided by with a product: 2^32
    /// over it, rounded up.
    Alike { ways: u32, reciprocal: u64 },
    /// By slot.
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

/// Where the nodes of a slot's set are.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The first word of the set's nodes.
    word: u32,
    /// The first slot of the set.
    start: u32,
    /// The slots of the set.
    ways: u32,
    /// The slot's touch, or [`CLIMB`].
    touch: u32,
}

/// The set has too many ways for masks.
const CLIMB: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Touch {
    /// The nodes that are not on the way up.
    keep: u64,
    /// Those on the way up whose other child is the right one.
    right: u64,
}

impl TreePlru {
    /// For sets whose ways are given in the order of their slots.
    pub fn new(mut ways_of_sets: impl Iterator<Item = usize> + Clone) -> TreePlru {
        if let Some(alike) = TreePlru::alike(&mut ways_of_sets.clone()) {
            return alike;
        }
        TreePlru::each(&mut ways_of_sets)
    }

    /// For sets that are all alike and have a word each.
    fn alike(ways_of_sets: &mut impl Iterator<Item = usize>) -> Option<TreePlru> {
        let ways = ways_of_sets.next()?;
        let mut sets = 1;
        for other in ways_of_sets {
            sets += 1;
            if other != ways {
                return None;
            }
        }
        // So that the product is exact.
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

    /// `touched` for a set of more ways than a word has bits.
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
    /// What touching `way` of `ways` ways does.
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

    /// After all ways were touched in order, a tree of a power of two evicts the first; touching
    /// a way never makes it the victim.
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

    /// Sets of several sizes, beside each as one of sets that are alike.
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
