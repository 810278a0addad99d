//! Replacement: which entry of a full set makes room for a new one.
//!
//! ```text
//!   hit in slot s ------> touched(s)
//!   new entry in s -----> inserted(s)
//!   set a..b is full ---> victim(a..b) -> the slot to reuse
//! ```
//!
//! One file per policy. A policy is asked only about full sets: an empty slot, the one of the
//! lowest way, is always taken first. It serves whatever has sets and ways: TLBs, MMU caches,
//! data caches.

mod ages;
mod fifo;
mod fixed_insertion;
mod greedy_dual;
mod greedy_dual_2d;
mod lfu;
mod lru;
mod nru;
mod orders;
mod random;
mod recency;
mod rings;
mod srrip;
mod tree_plru;
mod vi_lru;
mod vi_lru_2d;

use core::{fmt, ops::Range, str::FromStr};

pub use fifo::Fifo;
pub use fixed_insertion::FixedInsertion;
pub use greedy_dual::GreedyDual;
pub use greedy_dual_2d::GreedyDual2d;
pub use lfu::Lfu;
pub use lru::Lru;
pub use nru::Nru;
pub use random::Random;
pub use srrip::Srrip;
pub use tree_plru::TreePlru;
pub use vi_lru::ViLru;
pub use vi_lru_2d::ViLru2d;

/// The table that an MMU cache took an entry from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FromTable {
    /// Its level: the higher, the more walks need the entry. Entries for pages are of level 1.
    pub level: u8,
    /// Whether it is a table of a virtual machine's host, whose walks are parts of the guest's.
    pub host: bool,
}

/// What decides which entry is replaced.
pub trait Replacement {
    /// What it learns of a hit.
    const LEARNS: Learns;

    /// The entry in `slot` was hit.
    fn touched(&mut self, slot: usize);

    /// `slot` was given a new entry.
    fn inserted(&mut self, slot: usize);

    /// `slot` was given a new entry that an MMU cache took `from` a table. Policies that make no
    /// difference take it as any other.
    #[inline]
    fn inserted_at(&mut self, slot: usize, _from: FromTable) {
        self.inserted(slot);
    }

    /// `slot` was emptied. Policies that do not count entries need not know.
    #[inline]
    fn removed(&mut self, _slot: usize) {}

    /// The slot of `set`, whose slots are all in use, to be given a new entry. It may change the
    /// policy's state: the next answer may be another.
    fn victim(&mut self, set: Range<usize>) -> usize;

    /// The victim of `set`, which is given a new entry at once: [`Replacement::victim`] and
    /// [`Replacement::inserted`] in one.
    #[inline]
    fn replaced(&mut self, set: Range<usize>) -> usize {
        let slot = self.victim(set);
        self.inserted(slot);
        slot
    }

    /// Has the host fetch what it knows of the set that begins with the slot `first`.
    #[inline]
    fn soon(&self, _first: usize) {}

    /// The time of the last hit, for a policy that learns times.
    #[inline]
    fn now(&self) -> u64 {
        0
    }

    /// Sets the time of the last hit. No hit that the policy was told of is later.
    #[inline]
    fn set_now(&mut self, _now: u64) {}

    /// There was a hit in `slot` at `time` that a policy which learns times has not been told of. It
    /// may have been told of a later one.
    #[inline]
    fn touched_at(&mut self, _slot: usize, _time: u64) {}

    /// The victim, if `used` gives the time of a slot's last hit: a policy that learns times may not
    /// have been told of it.
    #[inline]
    fn victim_used(&mut self, set: Range<usize>, _used: impl Fn(usize) -> u64) -> usize {
        self.victim(set)
    }
}

/// What a policy learns of a hit: the less, the less often it must be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learns {
    /// Nothing at all.
    Nothing,
    /// The time of the last one.
    Time,
    /// Which slot of a set was used last: being told so twice changes nothing.
    Last,
    /// Each of them.
    Each,
}

/// Makes [`Policy`] and [`AnyReplacement`] out of a row for each policy: its doc, its type, its
/// name, and how it is made for so many slots, for sets of so many ways, from a seed.
macro_rules! policies {
    ($($(#[$doc:meta])+ $policy:ident $name:literal
        |$slots:ident, $ways_of_sets:ident, $seed:ident| $new:expr;)+) => {
        /// The name of a policy.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Policy {
            $($(#[$doc])+ $policy,)+
        }

        impl Policy {
            /// All policies.
            pub const ALL: [Policy; [$(Policy::$policy),+].len()] = [$(Policy::$policy),+];

            /// The name as machine files write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Policy::$policy => $name,)+
                }
            }
        }

        /// A policy chosen when the program runs. Its `match` goes the same way on every access,
        /// so that a processor predicts it.
        #[derive(Clone, Debug)]
        pub enum AnyReplacement {
            $(#[doc = concat!("See [`", stringify!($policy), "`].")] $policy($policy),)+
        }

        impl AnyReplacement {
            /// `policy` for sets whose ways are given in the order of their slots. `seed` starts
            /// the sequence of [`Policy::Random`].
            pub fn new(
                policy: Policy,
                ways_of_sets: impl Iterator<Item = usize> + Clone,
                seed: u64,
            ) -> AnyReplacement {
                let slots = ways_of_sets.clone().sum();
                match policy {
                    $(Policy::$policy => {
                        let ($slots, $ways_of_sets, $seed): (usize, _, u64) =
                            (slots, ways_of_sets, seed);
                        AnyReplacement::$policy($new)
                    })+
                }
            }

            /// `policy` as [`AnyReplacement::new`] makes it, for slots whose hits may be reported by the time
            /// of each ([`Learns::Time`]).
            pub fn timed(
                policy: Policy,
                ways_of_sets: impl Iterator<Item = usize> + Clone,
                seed: u64,
            ) -> AnyReplacement {
                match policy {
                    Policy::Lru => AnyReplacement::Lru(Lru::timed(ways_of_sets)),
                    other => AnyReplacement::new(other, ways_of_sets, seed),
                }
            }

            /// What it learns of a hit.
            pub const fn learns(&self) -> Learns {
                match self {
                    $(AnyReplacement::$policy(_) => <$policy as Replacement>::LEARNS,)+
                }
            }

            /// See [`Replacement::touched`].
            #[inline(always)]
            pub fn touched(&mut self, slot: usize) {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.touched(slot),)+
                }
            }

            /// See [`Replacement::inserted`].
            #[inline]
            pub fn inserted(&mut self, slot: usize) {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.inserted(slot),)+
                }
            }

            /// See [`Replacement::inserted_at`].
            #[inline]
            pub fn inserted_at(&mut self, slot: usize, from: FromTable) {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.inserted_at(slot, from),)+
                }
            }

            /// See [`Replacement::removed`].
            #[inline]
            pub fn removed(&mut self, slot: usize) {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.removed(slot),)+
                }
            }

            /// See [`Replacement::victim`].
            #[inline]
            pub fn victim(&mut self, set: Range<usize>) -> usize {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.victim(set),)+
                }
            }

            /// See [`Replacement::replaced`].
            #[inline]
            pub fn replaced(&mut self, set: Range<usize>) -> usize {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.replaced(set),)+
                }
            }

            /// See [`Replacement::soon`].
            #[inline]
            pub fn soon(&self, first: usize) {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.soon(first),)+
                }
            }

            /// See [`Replacement::now`].
            #[inline]
            pub fn now(&self) -> u64 {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.now(),)+
                }
            }

            /// See [`Replacement::set_now`].
            #[inline]
            pub fn set_now(&mut self, now: u64) {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.set_now(now),)+
                }
            }

            /// See [`Replacement::touched_at`].
            #[inline]
            pub fn touched_at(&mut self, slot: usize, time: u64) {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.touched_at(slot, time),)+
                }
            }

            /// See [`Replacement::victim_used`].
            #[inline]
            pub fn victim_used(
                &mut self,
                set: Range<usize>,
                used: impl Fn(usize) -> u64,
            ) -> usize {
                match self {
                    $(AnyReplacement::$policy(policy) => policy.victim_used(set, used),)+
                }
            }
        }
    };
}

policies! {
    /// Least recently used, exactly.
    Lru "lru" |_slots, ways, _seed| Lru::new(ways);
    /// First in, first out.
    Fifo "fifo" |_slots, ways, _seed| Fifo::new(ways);
    /// Any slot of the set with equal chances, from a seeded sequence.
    Random "random" |_slots, _ways, seed| Random::new(seed);
    /// Tree of bits that point away from what was used.
    TreePlru "tree-plru" |_slots, ways, _seed| TreePlru::new(ways);
    /// Not recently used: one bit per entry.
    Nru "nru" |slots, _ways, _seed| Nru::new(slots);
    /// Least frequently used since it came in.
    Lfu "lfu" |slots, _ways, _seed| Lfu::new(slots);
    /// Re-reference interval prediction, two bits per entry.
    Srrip "srrip" |slots, _ways, _seed| Srrip::new(slots);
    /// By what an entry costs to load again.
    GreedyDual "greedy-dual" |_slots, ways, _seed| GreedyDual::new(ways);
    /// LRU in which entries of the lowest level come in three quarters down.
    FixedInsertion "fixed-insertion" |_slots, ways, _seed| FixedInsertion::new(ways);
    /// LRU in which entries come in behind as many as are of higher levels.
    ViLru "vi-lru" |_slots, ways, _seed| ViLru::new(ways);
    /// Greedy Dual in which an entry of a guest costs twice what one of its host does.
    GreedyDual2d "greedy-dual-2d" |_slots, ways, _seed| GreedyDual2d::new(ways);
    /// VI-LRU in which a guest's entries come in before those of its host at the same level.
    ViLru2d "vi-lru-2d" |_slots, ways, _seed| ViLru2d::new(ways);
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
        write!(f, "`{}` is not a replacement policy: write ", self.text)?;
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
