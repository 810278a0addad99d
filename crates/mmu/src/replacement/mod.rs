//! Replacement policies: they choose which entry of a full set is replaced by a new one.
//!
//! ```text
//!   hit in slot s ------> touched(s)
//!   new entry in s -----> inserted(s)
//!   set a..b is full ---> victim(a..b) -> the slot to reuse
//! ```
//!
//! There is one file per policy. A policy is called only for full sets: if a set has empty slots,
//! the one in the lowest way is used. All structures with sets and ways use these policies: TLBs,
//! MMU caches, data caches.

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

/// The table from which an MMU cache took an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FromTable {
    /// The table's level. The higher the level, the more walks need the entry. Entries for pages
    /// have level 1.
    pub level: u8,
    /// Whether the table belongs to a virtual machine's host, whose walks are parts of the guest's
    /// walks.
    pub host: bool,
}

/// A replacement policy.
pub trait Replacement {
    /// The information that the policy uses of a hit.
    const LEARNS: Learns;

    /// Called when the entry in `slot` was hit.
    fn touched(&mut self, slot: usize);

    /// Called when `slot` got a new entry.
    fn inserted(&mut self, slot: usize);

    /// Called when `slot` got a new entry, which an MMU cache took `from` a table. The default
    /// implementation ignores the table.
    #[inline]
    fn inserted_at(&mut self, slot: usize, _from: FromTable) {
        self.inserted(slot);
    }

    /// Called when `slot` was emptied. A policy that does not count entries need not implement it.
    #[inline]
    fn removed(&mut self, _slot: usize) {}

    /// The slot of `set` whose entry is to be replaced; all slots of the set are in use. The call
    /// may change the policy's state, so that the next call returns another slot.
    fn victim(&mut self, set: Range<usize>) -> usize;

    /// Chooses the victim of `set`, whose slot immediately gets a new entry. This has the effect of
    /// [`Replacement::victim`] followed by [`Replacement::inserted`].
    #[inline]
    fn replaced(&mut self, set: Range<usize>) -> usize {
        let slot = self.victim(set);
        self.inserted(slot);
        slot
    }

    /// Prefetches, on the host, the policy's state for the set that begins with the slot `first`.
    #[inline]
    fn soon(&self, _first: usize) {}

    /// The time of the last hit, for a policy that learns the times of hits.
    #[inline]
    fn now(&self) -> u64 {
        0
    }

    /// Sets the time of the last hit, which must not be earlier than any hit that was reported to
    /// the policy.
    #[inline]
    fn set_now(&mut self, _now: u64) {}

    /// Reports an earlier hit, in `slot` at `time`, to a policy that learns the times of hits.
    /// Later hits may have been reported before it.
    #[inline]
    fn touched_at(&mut self, _slot: usize, _time: u64) {}

    /// The slot to be replaced. `used` returns the time of a slot's last hit, since a policy that
    /// learns only the times of hits may not have been notified of the latest hits yet.
    #[inline]
    fn victim_used(&mut self, set: Range<usize>, _used: impl Fn(usize) -> u64) -> usize {
        self.victim(set)
    }
}

/// The information that a policy uses of a hit. The less a policy uses, the less often hits must be
/// reported to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learns {
    /// Nothing: hits need not be reported.
    Nothing,
    /// The time of the last hit in each slot.
    Time,
    /// Which slot of a set was hit last: reporting the same slot twice in a row changes nothing.
    Last,
    /// Every hit.
    Each,
}

/// Defines [`Policy`] and [`AnyReplacement`] from one row per policy: its doc, its type, its name,
/// and how it is created from the number of slots, the ways of the sets, and a seed.
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

            /// The name in machine files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Policy::$policy => $name,)+
                }
            }
        }

        /// A policy chosen at run time. Its `match` takes one branch at every access, so the host's
        /// processor predicts this branch.
        #[derive(Clone, Debug)]
        pub enum AnyReplacement {
            $(#[doc = concat!("See [`", stringify!($policy), "`].")] $policy($policy),)+
        }

        impl AnyReplacement {
            /// `policy` for sets whose numbers of ways are given in the order of their slots.
            /// `seed` is the seed of [`Policy::Random`].
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

            /// `policy` as created by [`AnyReplacement::new`], for slots whose hits may be reported later by
            /// their times ([`Learns::Time`]).
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

            /// The information that the policy uses of a hit.
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
    /// Any slot of the set with equal probability, from a seeded sequence.
    Random "random" |_slots, _ways, seed| Random::new(seed);
    /// A binary tree of bits per set that point away from recently used ways.
    TreePlru "tree-plru" |_slots, ways, _seed| TreePlru::new(ways);
    /// Not recently used: one bit per entry.
    Nru "nru" |slots, _ways, _seed| Nru::new(slots);
    /// Least frequently used since insertion.
    Lfu "lfu" |slots, _ways, _seed| Lfu::new(slots);
    /// Re-reference interval prediction, two bits per entry.
    Srrip "srrip" |slots, _ways, _seed| Srrip::new(slots);
    /// Greedy Dual: by the cost of loading an entry again.
    GreedyDual "greedy-dual" |_slots, ways, _seed| GreedyDual::new(ways);
    /// LRU in which entries of the lowest level are inserted three quarters down the order.
    FixedInsertion "fixed-insertion" |_slots, ways, _seed| FixedInsertion::new(ways);
    /// LRU in which a new entry is not always the most recent. The number of entries above it in
    /// the order is the number of entries of higher levels in its set.
    ViLru "vi-lru" |_slots, ways, _seed| ViLru::new(ways);
    /// Greedy Dual in which loading a guest's entry costs twice as much as loading a host's entry.
    GreedyDual2d "greedy-dual-2d" |_slots, ways, _seed| GreedyDual2d::new(ways);
    /// VI-LRU in which a guest's entry is inserted above the host's entries of the same level.
    ViLru2d "vi-lru-2d" |_slots, ways, _seed| ViLru2d::new(ways);
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for text that is not the name of a policy. Its message lists the names.
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

/// The slot of `set` with the smallest value. If several slots have this value, the one in the
/// lowest way.
#[inline]
fn lowest(values: &[u64], set: Range<usize>) -> usize {
    let start = set.start;
    let values = &values[set];
    // Four searches are interleaved, because a single search would wait for the result of each
    // comparison.
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
