//! Greedy Dual (Young 1991; for MMU caches B10 §4.3.2): the value of an entry is the cost of
//! loading it again, and the values of all entries decrease together.
//!
//! ```text
//!   used or new:  value = floor + cost        cost of a level-k entry: k - 1 references
//!   victim:       the smallest value, and of equals the cheapest, then the oldest;
//!                 its value becomes the floor
//! ```
//!
//! The thesis does not give the costs that it uses; here the cost rises by one reference per level.
//! Young leaves open which of several equal entries is replaced. Here the entry of the lowest level
//! is replaced. This is the purpose of the policy in the thesis, and it approximately reproduces
//! the thesis's result for a database join: 31 entries are needed to serve nine of ten walks,
//! compared with 30 in the thesis. If the oldest of equal entries were replaced, 42 entries would
//! be needed. With equal costs the policy is LRU.

use core::ops::Range;

use super::{FromTable, Learns, Replacement};

/// Greedy Dual.
#[derive(Clone, Debug)]
pub struct GreedyDual {
    clock: u64,
    /// By the first slot of a set: the value of the last victim.
    floors: Box<[u64]>,
    /// For each slot, the first slot of its set.
    set_starts: Box<[u32]>,
    costs: Box<[u64]>,
    /// For each slot, the time when its value was last set.
    times: Box<[u64]>,
    values: Box<[u64]>,
}

impl GreedyDual {
    /// The policy for sets whose numbers of ways are given in the order of their slots.
    pub fn new(ways_of_sets: impl Iterator<Item = usize>) -> GreedyDual {
        let mut set_starts = Vec::new();
        for ways in ways_of_sets {
            let start = set_starts.len() as u32;
            set_starts.extend(core::iter::repeat_n(start, ways));
        }
        let slots = set_starts.len();
        GreedyDual {
            clock: 0,
            floors: vec![0; slots].into_boxed_slice(),
            set_starts: set_starts.into_boxed_slice(),
            costs: vec![1; slots].into_boxed_slice(),
            times: vec![0; slots].into_boxed_slice(),
            values: vec![0; slots].into_boxed_slice(),
        }
    }

    /// Records that `slot` has a new entry that costs `cost` to load again.
    pub(super) fn inserted_for(&mut self, slot: usize, cost: u64) {
        self.costs[slot] = cost;
        self.touched(slot);
    }
}

/// The cost of an entry of `level`, in references.
pub(super) fn references(level: u8) -> u64 {
    u64::from(level.saturating_sub(1).max(1))
}

impl Replacement for GreedyDual {
    const LEARNS: Learns = Learns::Each;

    #[inline(never)]
    fn touched(&mut self, slot: usize) {
        self.clock += 1;
        let floor = self.floors[self.set_starts[slot] as usize];
        self.values[slot] = floor + self.costs[slot];
        self.times[slot] = self.clock;
    }

    fn inserted(&mut self, slot: usize) {
        self.inserted_for(slot, 1);
    }

    fn inserted_at(&mut self, slot: usize, FromTable { level, .. }: FromTable) {
        self.inserted_for(slot, references(level));
    }

    fn victim(&mut self, set: Range<usize>) -> usize {
        let start = set.start;
        let worth = |&slot: &usize| (self.values[slot], self.costs[slot], self.times[slot]);
        let victim = set.min_by_key(worth).unwrap_or(start);
        self.floors[start] = self.values[victim];
        victim
    }
}
