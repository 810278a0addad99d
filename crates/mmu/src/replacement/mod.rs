//! Replacement: which entry of a full set makes room for a new one.
//!
//! ```text
//!   hit in slot s ------> touched(s)
//!   new entry in s -----> inserted(s)
//!   set a..b is full ---> victim(a..b) -> the slot to reuse
//! ```
//!
//! One file a policy. A policy is asked only about full sets: an empty slot, the one of the
//! lowest way, is always taken first. It serves whatever has sets and ways: TLBs, MMU caches,
//! data caches.

mod ages;
mod fifo;
mod fixed_insertion;
mod greedy_dual;
mod lfu;
mod lru;
mod nru;
mod random;
mod recency;
mod srrip;
mod tree_plru;
mod vi_lru;

use core::{fmt, ops::Range, str::FromStr};

pub use fifo::Fifo;
pub use fixed_insertion::FixedInsertion;
pub use greedy_dual::GreedyDual;
pub use lfu::Lfu;
pub use lru::Lru;
pub use nru::Nru;
pub use random::Random;
pub use srrip::Srrip;
pub use tree_plru::TreePlru;
pub use vi_lru::ViLru;

/// What decides which entry is replaced.
pub trait Replacement {
    /// The entry in `slot` was hit.
    fn touched(&mut self, slot: usize);

    /// `slot` was given a new entry.
    fn inserted(&mut self, slot: usize);

    /// `slot` was given a new entry that an MMU cache took from a table of `level`: the higher,
    /// the more walks need it. Policies that make no difference take it as any other.
    #[inline]
    fn inserted_at(&mut self, slot: usize, _level: u8) {
        self.inserted(slot);
    }

    /// `slot` was emptied. Policies that do not count entries need not know.
    #[inline]
    fn removed(&mut self, _slot: usize) {}

    /// The slot of `set`, whose slots are all in use, to be given a new entry. It may change the
    /// policy's state: the next answer may be another.
    fn victim(&mut self, set: Range<usize>) -> usize;
}

/// The name of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// Least recently used, exactly.
    Lru,
    /// First in, first out.
    Fifo,
    /// Any slot of the set with equal chances, from a seeded sequence.
    Random,
    /// Tree of bits that point away from what was used.
    TreePlru,
    /// Not recently used: one bit an entry.
    Nru,
    /// Least frequently used since it came in.
    Lfu,
    /// Re-reference interval prediction, two bits an entry.
    Srrip,
    /// By what an entry costs to load again.
    GreedyDual,
    /// LRU in which entries of the lowest level come in three quarters down.
    FixedInsertion,
    /// LRU in which entries come in behind as many as are of higher levels.
    ViLru,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 10] = [
        Policy::Lru,
        Policy::Fifo,
        Policy::Random,
        Policy::TreePlru,
        Policy::Nru,
        Policy::Lfu,
        Policy::Srrip,
        Policy::GreedyDual,
        Policy::FixedInsertion,
        Policy::ViLru,
    ];

    /// The name as machine files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Lru => "lru",
            Policy::Fifo => "fifo",
            Policy::Random => "random",
            Policy::TreePlru => "tree-plru",
            Policy::Nru => "nru",
            Policy::Lfu => "lfu",
            Policy::Srrip => "srrip",
            Policy::GreedyDual => "greedy-dual",
            Policy::FixedInsertion => "fixed-insertion",
            Policy::ViLru => "vi-lru",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no policy; its message lists those that there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsePolicyError {
    text: String,
}

impl fmt::Display for ParsePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no replacement policy: write ", self.text)?;
        for (place, policy) in Policy::ALL.iter().enumerate() {
            let before = match place {
                0 => "",
                _ if place + 1 == Policy::ALL.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}{policy}")?;
        }
        Ok(())
    }
}

impl core::error::Error for ParsePolicyError {}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Policy, ParsePolicyError> {
        Policy::ALL
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| ParsePolicyError { text: text.to_owned() })
    }
}

/// A policy chosen when the program runs. Its `match` goes the same way on every access, so
/// that a processor predicts it.
#[derive(Clone, Debug)]
pub enum AnyReplacement {
    /// See [`Lru`].
    Lru(Lru),
    /// See [`Fifo`].
    Fifo(Fifo),
    /// See [`Random`].
    Random(Random),
    /// See [`TreePlru`].
    TreePlru(TreePlru),
    /// See [`Nru`].
    Nru(Nru),
    /// See [`Lfu`].
    Lfu(Lfu),
    /// See [`Srrip`].
    Srrip(Srrip),
    /// See [`GreedyDual`].
    GreedyDual(GreedyDual),
    /// See [`FixedInsertion`].
    FixedInsertion(FixedInsertion),
    /// See [`ViLru`].
    ViLru(ViLru),
}

impl AnyReplacement {
    /// Whether a use of the slot that its set used last, or filled last, changes nothing.
    pub fn repeats_change_nothing(&self) -> bool {
        use AnyReplacement::{Fifo, Lru, Nru, Random, TreePlru};
        matches!(self, Lru(_) | Fifo(_) | Random(_) | TreePlru(_) | Nru(_))
    }

    /// `policy` for sets whose ways are given in the order of their slots. `seed` starts the
    /// sequence of [`Policy::Random`].
    pub fn new(
        policy: Policy,
        ways_of_sets: impl Iterator<Item = usize> + Clone,
        seed: u64,
    ) -> AnyReplacement {
        let slots = ways_of_sets.clone().sum();
        match policy {
            Policy::Lru => AnyReplacement::Lru(Lru::new(slots)),
            Policy::Fifo => AnyReplacement::Fifo(Fifo::new(slots)),
            Policy::Random => AnyReplacement::Random(Random::new(seed)),
            Policy::TreePlru => AnyReplacement::TreePlru(TreePlru::new(ways_of_sets)),
            Policy::Nru => AnyReplacement::Nru(Nru::new(slots)),
            Policy::Lfu => AnyReplacement::Lfu(Lfu::new(slots)),
            Policy::Srrip => AnyReplacement::Srrip(Srrip::new(slots)),
            Policy::GreedyDual => AnyReplacement::GreedyDual(GreedyDual::new(ways_of_sets)),
            Policy::FixedInsertion => {
                AnyReplacement::FixedInsertion(FixedInsertion::new(ways_of_sets))
            }
            Policy::ViLru => AnyReplacement::ViLru(ViLru::new(ways_of_sets)),
        }
    }
}

impl AnyReplacement {
    /// `touched` of the policies that are not worth a place in every loop.
    fn touched_rarer(&mut self, slot: usize) {
        match self {
            AnyReplacement::Lru(policy) => policy.touched(slot),
            AnyReplacement::Fifo(policy) => policy.touched(slot),
            AnyReplacement::Random(policy) => policy.touched(slot),
            AnyReplacement::TreePlru(policy) => policy.touched(slot),
            AnyReplacement::Nru(policy) => policy.touched(slot),
            AnyReplacement::Lfu(policy) => policy.touched(slot),
            AnyReplacement::Srrip(policy) => policy.touched(slot),
            AnyReplacement::GreedyDual(policy) => policy.touched(slot),
            AnyReplacement::FixedInsertion(policy) => policy.touched(slot),
            AnyReplacement::ViLru(policy) => policy.touched(slot),
        }
    }
}

impl Replacement for AnyReplacement {
    #[inline(always)]
    fn touched(&mut self, slot: usize) {
        match self {
            AnyReplacement::Lru(policy) => policy.touched(slot),
            AnyReplacement::Fifo(_) | AnyReplacement::Random(_) => {}
            AnyReplacement::TreePlru(policy) => policy.touched(slot),
            other => other.touched_rarer(slot),
        }
    }

    #[inline]
    fn inserted(&mut self, slot: usize) {
        match self {
            AnyReplacement::Lru(policy) => policy.inserted(slot),
            AnyReplacement::Fifo(policy) => policy.inserted(slot),
            AnyReplacement::Random(policy) => policy.inserted(slot),
            AnyReplacement::TreePlru(policy) => policy.inserted(slot),
            AnyReplacement::Nru(policy) => policy.inserted(slot),
            AnyReplacement::Lfu(policy) => policy.inserted(slot),
            AnyReplacement::Srrip(policy) => policy.inserted(slot),
            AnyReplacement::GreedyDual(policy) => policy.inserted(slot),
            AnyReplacement::FixedInsertion(policy) => policy.inserted(slot),
            AnyReplacement::ViLru(policy) => policy.inserted(slot),
        }
    }

    #[inline]
    fn inserted_at(&mut self, slot: usize, level: u8) {
        match self {
            AnyReplacement::GreedyDual(policy) => policy.inserted_at(slot, level),
            AnyReplacement::FixedInsertion(policy) => policy.inserted_at(slot, level),
            AnyReplacement::ViLru(policy) => policy.inserted_at(slot, level),
            other => other.inserted(slot),
        }
    }

    #[inline]
    fn removed(&mut self, slot: usize) {
        if let AnyReplacement::ViLru(policy) = self {
            policy.removed(slot);
        }
    }

    #[inline]
    fn victim(&mut self, set: Range<usize>) -> usize {
        match self {
            AnyReplacement::Lru(policy) => policy.victim(set),
            AnyReplacement::Fifo(policy) => policy.victim(set),
            AnyReplacement::Random(policy) => policy.victim(set),
            AnyReplacement::TreePlru(policy) => policy.victim(set),
            AnyReplacement::Nru(policy) => policy.victim(set),
            AnyReplacement::Lfu(policy) => policy.victim(set),
            AnyReplacement::Srrip(policy) => policy.victim(set),
            AnyReplacement::GreedyDual(policy) => policy.victim(set),
            AnyReplacement::FixedInsertion(policy) => policy.victim(set),
            AnyReplacement::ViLru(policy) => policy.victim(set),
        }
    }
}

/// The slot of `set` with the smallest value, the lowest way on a tie.
#[inline]
fn lowest(values: &[u64], set: Range<usize>) -> usize {
    let start = set.start;
    let values = &values[set];
    // Four searches side by side: one alone waits for each comparison.
    let mut best = [(u64::MAX, usize::MAX); 4];
    let chunks = values.chunks_exact(4);
    let tail = values.len() - chunks.remainder().len();
    for (chunk, four) in chunks.enumerate() {
        for lane in 0..4 {
            if four[lane] < best[lane].0 {
                best[lane] = (four[lane], 4 * chunk + lane);
            }
        }
    }
    let tail = (tail..).zip(&values[tail..]).map(|(way, &value)| (value, way));
    let lowest = best.into_iter().chain(tail).min().unwrap_or_default();
    start + lowest.1.min(values.len() - 1)
}
