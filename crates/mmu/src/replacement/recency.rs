//! The order of use of each set, into which an entry can be inserted at any position: the common
//! part of the policies with an insertion point.
//!
//! ```text
//!   most recently used                 least
//!     way 3 | way 0 | way 5 | way 1 | ... way 2      victim: way 2
//!               ^ a new entry of a lower level may come in here
//! ```

use core::ops::Range;

/// The slots of each set, the most recently used first.
#[derive(Clone, Debug)]
pub(super) struct Recency {
    /// The slots of all sets. The slots of one set are adjacent and in the order of use.
    order: Box<[u32]>,
    /// For each slot: the position in `order` at which its set begins, and the number of ways of
    /// the set.
    sets: Box<[(u32, u32)]>,
    /// For each slot: the level of the entry in it, or 0 if it is empty.
    levels: Box<[u8]>,
}

impl Recency {
    /// The orders of sets whose numbers of ways are given in the order of their slots.
    pub(super) fn new(ways_of_sets: impl Iterator<Item = usize>) -> Recency {
        let mut sets = Vec::new();
        for ways in ways_of_sets {
            let start = sets.len() as u32;
            sets.extend(core::iter::repeat_n((start, ways as u32), ways));
        }
        // Empty slots are filled from the first one on, so the first slot must be the least
        // recently used.
        Recency {
            order: (0..sets.len() as u32).collect(),
            levels: vec![0; sets.len()].into_boxed_slice(),
            sets: sets.into_boxed_slice(),
        }
    }

    /// The number of ways of the set that contains `slot`.
    pub(super) fn ways(&self, slot: usize) -> usize {
        self.sets[slot].1 as usize
    }

    /// The number of other entries in the set of `slot` with a level above `level`.
    pub(super) fn above(&self, slot: usize, level: u8) -> usize {
        let (start, ways) = self.sets[slot];
        let set = start as usize..(start + ways) as usize;
        set.filter(|&other| other != slot && self.levels[other] > level).count()
    }

    /// Records the level of the entry in `slot`; 0 if it is empty.
    pub(super) fn set_level(&mut self, slot: usize, level: u8) {
        self.levels[slot] = level;
    }

    /// Moves `slot` to position `position` in the order of its set; position 0 is the most recently
    /// used.
    pub(super) fn put(&mut self, slot: usize, position: usize) {
        let (start, ways) = self.sets[slot];
        let order = &mut self.order[start as usize..(start + ways) as usize];
        if order[position] == slot as u32 {
            return;
        }
        let Some(now) = order.iter().position(|&other| other == slot as u32) else { return };
        if now > position {
            order[position..=now].rotate_right(1);
        } else {
            order[now..=position].rotate_left(1);
        }
    }

    /// The least recently used slot of `set`.
    pub(super) fn last(&self, set: Range<usize>) -> usize {
        self.order[set.end - 1] as usize
    }
}
