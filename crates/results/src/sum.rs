//! Sums of counts over several processors.
//!
//! All processors are alike: fields that describe a structure (its name, its size) are taken from the first processor, and
//! fields that count are added up. [`sums!`] lists every field of a structure in one of the two groups, so that a new field
//! does not compile until it has been put into a group.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    BlockCounts, ByKind, CacheCounts, CacheFlushes, CacheTraffic, HitsAndMisses, LevelCounts,
    MmuCacheCounts, MmuCacheLevel, RangeTlbCounts, RestSegCounts, ShootdownCounts, SizeCounts,
    SpecOutcome, SpecTlbCounts, TlbCounts, Walks,
};

/// Counts that can be added up.
pub trait Sum: Sized {
    /// Adds the counts of `other`.
    fn add(&mut self, other: &Self);

    /// The sum of `all`; `None` if there are none.
    fn of(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|mut sum, other| {
            sum.add(&other);
            sum
        })
    }
}

impl Sum for u64 {
    fn add(&mut self, other: &u64) {
        *self += other;
    }
}

impl<T: Sum + Clone> Sum for Option<T> {
    /// `None` if either count is unknown.
    fn add(&mut self, other: &Option<T>) {
        *self = self.take().zip(other.as_ref()).map(|(mut sum, other)| {
            sum.add(other);
            sum
        });
    }
}

impl<K: Ord + Clone, T: Sum + Clone> Sum for BTreeMap<K, T> {
    fn add(&mut self, other: &BTreeMap<K, T>) {
        for (key, count) in other {
            match self.get_mut(key) {
                Some(sum) => sum.add(count),
                None => drop(self.insert(key.clone(), count.clone())),
            }
        }
    }
}

/// Adds two lists of counts with keys; both are in the order of their keys, and so is the sum.
fn add_by<T: Sum + Clone, K: Ord>(sums: &mut Vec<T>, others: &[T], key: impl Fn(&T) -> K) {
    for other in others {
        match sums.binary_search_by_key(&key(other), &key) {
            Ok(known) => sums[known].add(other),
            Err(place) => sums.insert(place, other.clone()),
        }
    }
}

/// A pair of a key and a count.
impl<K: Copy> Sum for (K, u64) {
    fn add(&mut self, other: &(K, u64)) {
        self.1 += other.1;
    }
}

impl<K: Ord + Copy> Sum for Vec<(K, u64)> {
    fn add(&mut self, others: &Vec<(K, u64)>) {
        add_by(self, others, |pair| pair.0);
    }
}

impl Sum for Vec<LevelCounts> {
    fn add(&mut self, others: &Vec<LevelCounts>) {
        // The root comes first.
        add_by(self, others, |level| Reverse(level.level));
    }
}

impl Sum for Vec<MmuCacheLevel> {
    fn add(&mut self, others: &Vec<MmuCacheLevel>) {
        add_by(self, others, |level| Reverse(level.level));
    }
}

impl Sum for Vec<SpecOutcome> {
    fn add(&mut self, others: &Vec<SpecOutcome>) {
        // Each processor has all of them, in one order.
        self.iter_mut().zip(others).for_each(|(sum, one)| sum.add(one));
    }
}

/// `Type { fields that are added; fields that are taken from the first }`: every field of the type is in one of the two lists.
macro_rules! sums {
    ($($type:ident $(<$of:ident>)? { $($count:ident),*; $($first:ident),* })*) => {
        $(impl $(<$of: Sum>)? Sum for $type $(<$of>)? {
            fn add(&mut self, other: &$type $(<$of>)?) {
                let $type { $($count,)* $($first: _,)* } = other;
                $(self.$count.add($count);)*
            }
        })*
    };
}

sums! {
    HitsAndMisses { lookups, hits, misses; }
    SizeCounts { hits, misses; }
    ByKind<T> { fetch, load, store; }
    BlockCounts { fills, pages_filled, tag_hits; kind, pages }
    TlbCounts {
        total, cold_misses, denied, invalid, evictions, flushed, table_hits, blocks, by_kind, by_page_size;
        name, level, serves, entries, ways, replacement
    }
    LevelCounts { references, served; level }
    Walks {
        walks, cold, references, dirty_assists, modify_traps, cold_references, references_per_walk, by_level,
        handler_instructions, nested_misses;
    }
    MmuCacheLevel { needed, held; level }
    MmuCacheCounts { searches, by_level; design, replacement, arrays, latency_cycles }
    SpecOutcome { walks, references, ptes, accesses; outcome }
    SpecTlbCounts {
        attempts, right, denied, wrong, none, none_faulted, overlapped, overlapped_cycles, devices,
        devices_reached, outcomes;
        entries, ways, replacement, page_size, fill
    }
    // The table is one for all processors.
    RangeTlbCounts {
        lookups, hits, misses, fills, evictions, flushed; entries, replacement, from, ranges, range_bytes
    }
    RestSegCounts {
        lookups, hits, misses, filtered, filter_reads, tag_reads; filter_lines, tag_lines, ways
    }
    CacheTraffic { reads, read_misses, writes, write_misses; }
    CacheFlushes { times, looked, lines, written; }
    CacheCounts {
        program, walker, writebacks, flushes; name, size_bytes, line_bytes, ways, replacement
    }
    ShootdownCounts {
        made, asked, received, entries, broadcast, widened, deferred, swept, swept_early, sender_cycles,
        receiver_cycles;
    }
}
