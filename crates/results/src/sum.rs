//! The counts of several processors together.
//!
//! Structures are equal on all of them: what they are is that of the first, what they counted is
//! added up.

use std::collections::BTreeMap;

use super::{
    BlockCounts, ByKind, CacheCounts, CacheTraffic, HitsAndMisses, LevelCounts, MmuCacheCounts,
    MmuCacheLevel, RangeTlbCounts, RestSegCounts, ShootdownCounts, SizeCounts, SpecOutcome,
    SpecTlbCounts, TlbCounts, Walks,
};

/// Counts that can be added up.
pub trait Sum: Sized {
    /// Adds those of `other`.
    fn add(&mut self, other: &Self);

    /// All of them together; `None` if there are none.
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
    /// What one of both does not know stays unknown.
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

/// Lists of things that have a key, in the order of their keys.
fn add_by<T: Sum + Clone, K: Ord>(sums: &mut Vec<T>, others: &[T], key: impl Fn(&T) -> K) {
    for other in others {
        match sums.binary_search_by_key(&key(other), &key) {
            Ok(known) => sums[known].add(other),
            Err(place) => sums.insert(place, other.clone()),
        }
    }
}

/// Pairs of a key and a count.
impl<K: Copy> Sum for (K, u64) {
    fn add(&mut self, other: &(K, u64)) {
        self.1 += other.1;
    }
}

impl Sum for HitsAndMisses {
    fn add(&mut self, other: &HitsAndMisses) {
        *self = self.plus(*other);
    }
}

impl Sum for SizeCounts {
    fn add(&mut self, other: &SizeCounts) {
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

impl<T: Sum> Sum for ByKind<T> {
    fn add(&mut self, other: &ByKind<T>) {
        self.fetch.add(&other.fetch);
        self.load.add(&other.load);
        self.store.add(&other.store);
    }
}

impl Sum for BlockCounts {
    fn add(&mut self, other: &BlockCounts) {
        self.fills += other.fills;
        self.pages_filled += other.pages_filled;
        self.tag_hits += other.tag_hits;
    }
}

impl Sum for TlbCounts {
    fn add(&mut self, other: &TlbCounts) {
        self.total.add(&other.total);
        self.cold_misses += other.cold_misses;
        self.denied += other.denied;
        self.invalid += other.invalid;
        self.evictions += other.evictions;
        self.flushed += other.flushed;
        self.table_hits += other.table_hits;
        self.blocks.add(&other.blocks);
        self.by_kind.add(&other.by_kind);
        self.by_page_size.add(&other.by_page_size);
    }
}

impl Sum for LevelCounts {
    fn add(&mut self, other: &LevelCounts) {
        self.references += other.references;
        self.served.add(&other.served);
    }
}

impl Sum for Vec<LevelCounts> {
    fn add(&mut self, others: &Vec<LevelCounts>) {
        // The root comes first.
        add_by(self, others, |level| std::cmp::Reverse(level.level));
    }
}

impl Sum for Walks {
    fn add(&mut self, other: &Walks) {
        self.walks += other.walks;
        self.cold += other.cold;
        self.references += other.references;
        self.dirty_assists += other.dirty_assists;
        self.modify_traps += other.modify_traps;
        self.cold_references += other.cold_references;
        add_by(&mut self.references_per_walk, &other.references_per_walk, |pair| pair.0);
        self.by_level.add(&other.by_level);
        self.handler_instructions.add(&other.handler_instructions);
        add_by(&mut self.nested_misses, &other.nested_misses, |pair| pair.0);
    }
}

impl Sum for MmuCacheLevel {
    fn add(&mut self, other: &MmuCacheLevel) {
        self.needed += other.needed;
        self.held += other.held;
    }
}

impl Sum for MmuCacheCounts {
    fn add(&mut self, other: &MmuCacheCounts) {
        self.searches += other.searches;
        add_by(&mut self.by_level, &other.by_level, |level| std::cmp::Reverse(level.level));
    }
}

impl Sum for SpecOutcome {
    fn add(&mut self, other: &SpecOutcome) {
        self.walks += other.walks;
        self.references.add(&other.references);
        self.ptes.add(&other.ptes);
        self.accesses.add(&other.accesses);
    }
}

impl Sum for SpecTlbCounts {
    fn add(&mut self, other: &SpecTlbCounts) {
        self.attempts += other.attempts;
        self.right += other.right;
        self.denied += other.denied;
        self.wrong.add(&other.wrong);
        self.none += other.none;
        self.none_faulted += other.none_faulted;
        self.overlapped.add(&other.overlapped);
        self.overlapped_cycles.add(&other.overlapped_cycles);
        self.devices += other.devices;
        self.devices_reached += other.devices_reached;
        // Each processor has all of them, in one order.
        self.outcomes.iter_mut().zip(&other.outcomes).for_each(|(sum, one)| sum.add(one));
    }
}

impl Sum for RangeTlbCounts {
    /// The table is one for all processors.
    fn add(&mut self, other: &RangeTlbCounts) {
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.misses += other.misses;
        self.fills += other.fills;
        self.evictions += other.evictions;
        self.flushed += other.flushed;
    }
}

impl Sum for RestSegCounts {
    fn add(&mut self, other: &RestSegCounts) {
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.misses += other.misses;
        self.filtered += other.filtered;
        self.filter_reads += other.filter_reads;
        self.tag_reads += other.tag_reads;
    }
}

impl Sum for CacheTraffic {
    fn add(&mut self, other: &CacheTraffic) {
        self.reads += other.reads;
        self.read_misses += other.read_misses;
        self.writes += other.writes;
        self.write_misses += other.write_misses;
    }
}

impl Sum for CacheCounts {
    fn add(&mut self, other: &CacheCounts) {
        self.program.add(&other.program);
        self.walker.add(&other.walker);
        self.writebacks += other.writebacks;
        if let (Some(sum), Some(one)) = (&mut self.flushes, &other.flushes) {
            sum.times += one.times;
            sum.looked += one.looked;
            sum.lines += one.lines;
            sum.written += one.written;
        }
    }
}

impl Sum for ShootdownCounts {
    fn add(&mut self, other: &ShootdownCounts) {
        self.made += other.made;
        self.asked += other.asked;
        self.received += other.received;
        self.entries += other.entries;
        self.sender_cycles.add(&other.sender_cycles);
        self.receiver_cycles.add(&other.receiver_cycles);
    }
}
