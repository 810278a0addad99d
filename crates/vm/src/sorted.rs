//! An ordered map whose insertions can fail.
//!
//! ```text
//!   firsts   [ 3 | 40 | 71 ]                   the first key of each leaf
//!   leaves     |    |    +--> [ 71 80 92 ]     sorted, of limited length
//!              |    +-------> [ 40 41 ]
//!              +------------> [ 3 5 9 22 ]
//! ```
//!
//! The map of the standard library aborts the program if no memory is left for a node. In a kernel
//! an insertion must return an error instead, and leave the map unchanged. [`SortedMap::reserve`]
//! allocates the memory for later insertions, for callers that change other data first.

use alloc::{collections::TryReserveError, vec::Vec};
use core::{
    fmt,
    ops::{Bound, RangeBounds},
};

/// The heap has no memory left for data of the memory manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory;

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> NoMemory {
        NoMemory
    }
}

/// An ordered map from `K` to `V`.
#[derive(Clone)]
pub(crate) struct SortedMap<K, V> {
    firsts: Vec<K>,
    /// No leaf is empty.
    leaves: Vec<Vec<(K, V)>>,
    /// Empty leaves with room for all entries that a leaf may have, for insertions that must not fail.
    spare: Vec<Vec<(K, V)>>,
}

/// The place of an entry: its leaf, and its index there.
type Place = (usize, usize);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> SortedMap<K, V> {
        SortedMap::new()
    }
}

impl<K, V> SortedMap<K, V> {
    /// An empty map, which allocates nothing.
    pub(crate) const fn new() -> SortedMap<K, V> {
        SortedMap { firsts: Vec::new(), leaves: Vec::new(), spare: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// The largest number of entries in a leaf, so that an insertion moves at most about 2 KiB.
    const LEAF: usize = {
        let fit = 2048 / (size_of::<(K, V)>() + 1);
        if fit > 64 {
            64
        } else if fit < 4 {
            4
        } else {
            fit
        }
    };
}

impl<K: Ord + Copy, V> SortedMap<K, V> {
    /// The place of `key`. The error is the place where `key` would be inserted.
    fn find(&self, key: &K) -> Result<Place, Place> {
        let Some(leaf) = self.firsts.partition_point(|first| first <= key).checked_sub(1) else {
            return Err((0, 0));
        };
        match self.leaves[leaf].binary_search_by(|(known, _)| known.cmp(key)) {
            Ok(at) => Ok((leaf, at)),
            Err(at) => Err((leaf, at)),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let (leaf, at) = self.find(key).ok()?;
        Some(&self.leaves[leaf][at].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (leaf, at) = self.find(key).ok()?;
        Some(&mut self.leaves[leaf][at].1)
    }

    /// Allocates the memory for `count` insertions of keys that are, or are next to, the keys
    /// `first` and `last`, so that these insertions cannot fail. Entries between the two keys may
    /// be removed before the insertions.
    pub(crate) fn reserve(
        &mut self,
        [first, last]: [&K; 2],
        count: usize,
    ) -> Result<(), TryReserveError> {
        self.firsts.try_reserve(count)?;
        self.leaves.try_reserve(count)?;
        // Leaves that become empty are also kept there.
        self.spare.try_reserve(count + 2)?;
        let mut is_short = self.is_empty();
        for key in [first, last] {
            let (Ok((leaf, _)) | Err((leaf, _))) = self.find(key);
            let Some(leaf) = self.leaves.get_mut(leaf) else { continue };
            if leaf.len() + count > Self::LEAF {
                is_short = true;
            } else {
                leaf.try_reserve_exact(count)?;
            }
        }
        while is_short && self.spare.len() < count {
            let mut leaf = Vec::new();
            leaf.try_reserve_exact(Self::LEAF)?;
            self.spare.push(leaf);
        }
        Ok(())
    }

    /// Frees the memory of [`SortedMap::reserve`] that no insertion has used.
    pub(crate) fn unreserve(&mut self) {
        if self.spare.capacity() > 0 {
            self.spare = Vec::new();
        }
    }

    /// Sets the value of `key`. Returns the value that the key had before. After an error the map
    /// is unchanged.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Result<Option<V>, TryReserveError> {
        let (leaf, at) = match self.find(&key) {
            Ok((leaf, at)) => {
                return Ok(Some(core::mem::replace(&mut self.leaves[leaf][at].1, value)));
            }
            Err(place) if self.leaves.is_empty() => {
                self.first_leaf(key)?;
                place
            }
            Err((leaf, at)) if self.has_room(leaf) => (leaf, at),
            // The first entries of the following leaf may have been removed.
            Err((leaf, at)) if at == self.leaves[leaf].len() && self.has_room(leaf + 1) => {
                (leaf + 1, 0)
            }
            Err((leaf, at)) if at == self.leaves[leaf].len() && !self.spare.is_empty() => {
                self.begin_after(leaf, key)?
            }
            Err((leaf, at)) if self.leaves[leaf].len() < Self::LEAF => {
                self.grow(leaf)?;
                (leaf, at)
            }
            Err(place) => self.split(place)?,
        };
        self.leaves[leaf].insert(at, (key, value));
        if at == 0 {
            self.firsts[leaf] = key;
        }
        Ok(None)
    }

    /// Whether there is such a leaf, with memory for another entry.
    fn has_room(&self, leaf: usize) -> bool {
        self.leaves.get(leaf).is_some_and(|leaf| leaf.len() < leaf.capacity())
    }

    /// Adds a leaf, to which `key` will be added, to an empty map.
    fn first_leaf(&mut self, key: K) -> Result<(), TryReserveError> {
        self.firsts.try_reserve(1)?;
        self.leaves.try_reserve(1)?;
        let mut leaf = self.take_spare();
        leaf.try_reserve(1)?;
        self.firsts.push(key);
        self.leaves.push(leaf);
        Ok(())
    }

    /// Adds a spare leaf after `leaf`, to which `key` will be added. Returns the place of the key.
    fn begin_after(&mut self, leaf: usize, key: K) -> Result<Place, TryReserveError> {
        self.firsts.try_reserve(1)?;
        self.leaves.try_reserve(1)?;
        let mut new = self.take_spare();
        new.try_reserve(1)?;
        self.firsts.insert(leaf + 1, key);
        self.leaves.insert(leaf + 1, new);
        Ok((leaf + 1, 0))
    }

    /// The spare leaf with the most memory, or a leaf without memory.
    fn take_spare(&mut self) -> Vec<(K, V)> {
        let largest = self.spare.iter().enumerate().max_by_key(|(_, leaf)| leaf.capacity());
        largest.map(|(at, _)| at).map_or_else(Vec::new, |at| self.spare.swap_remove(at))
    }

    /// Keeps an empty leaf as a spare leaf. If there are enough spare leaves, it replaces one with
    /// less memory.
    fn keep_spare(&mut self, leaf: Vec<(K, V)>) {
        if self.spare.len() < self.spare.capacity() {
            self.spare.push(leaf);
        } else if let Some(least) = self.spare.iter_mut().min_by_key(|leaf| leaf.capacity())
            && least.capacity() < leaf.capacity()
        {
            *least = leaf;
        }
    }

    /// Makes room in a leaf that may have more entries than it has memory for.
    fn grow(&mut self, leaf: usize) -> Result<(), TryReserveError> {
        let mut larger = self.take_spare();
        let leaf = &mut self.leaves[leaf];
        match larger.capacity() > leaf.len() {
            true => {
                larger.append(leaf);
                *leaf = larger;
                Ok(())
            }
            false => leaf.try_reserve_exact(leaf.len().clamp(1, Self::LEAF - leaf.len())),
        }
    }

    /// Splits a full leaf, in which an entry is to be inserted at `at`. Returns the entry's place after
    /// that.
    fn split(&mut self, (leaf, at): Place) -> Result<Place, TryReserveError> {
        self.firsts.try_reserve(1)?;
        self.leaves.try_reserve(1)?;
        let mut right = self.take_spare();
        right.try_reserve_exact(Self::LEAF)?;
        // If keys are inserted in ascending order, leaves stay full.
        let kept = if at == Self::LEAF { at - 1 } else { Self::LEAF / 2 };
        right.extend(self.leaves[leaf].drain(kept..));
        self.firsts.insert(leaf + 1, right[0].0);
        self.leaves.insert(leaf + 1, right);
        Ok(if at > kept { (leaf + 1, at - kept) } else { (leaf, at) })
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (leaf, at) = self.find(key).ok()?;
        let (_, value) = self.leaves[leaf].remove(at);
        match self.leaves[leaf].first() {
            None => {
                let empty = self.leaves.remove(leaf);
                self.firsts.remove(leaf);
                self.keep_spare(empty);
            }
            Some((first, _)) => self.firsts[leaf] = *first,
        }
        Some(value)
    }

    /// The last entry whose key is at most `key`.
    #[inline]
    pub(crate) fn up_to(&self, key: &K) -> Option<(K, &V)> {
        let leaf = self.firsts.partition_point(|first| first <= key).checked_sub(1)?;
        let entries = &self.leaves[leaf];
        let at = entries.partition_point(|(known, _)| known <= key).checked_sub(1)?;
        Some((entries[at].0, &entries[at].1))
    }

    /// The last entry whose key is at most `key`, with mutable access.
    pub(crate) fn up_to_mut(&mut self, key: &K) -> Option<(K, &mut V)> {
        let leaf = self.firsts.partition_point(|first| first <= key).checked_sub(1)?;
        let entries = &mut self.leaves[leaf];
        let at = entries.partition_point(|(known, _)| known <= key).checked_sub(1)?;
        Some((entries[at].0, &mut entries[at].1))
    }

    /// All entries, ascending, with mutable access.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.leaves.iter_mut().flatten().map(|(key, value)| (*key, value))
    }

    /// The first key that is at least `key`.
    pub(crate) fn next_key(&self, key: K) -> Option<K> {
        self.range(key..).next().map(|(key, _)| key)
    }

    /// All entries, ascending.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.leaves.iter().flatten().map(|(key, value)| (*key, value))
    }

    /// The entries whose keys are in `range`, ascending.
    pub(crate) fn range(
        &self,
        range: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (K, &V)> {
        let (start, end) = self.ends(range);
        let leaves = start.0..(end.0 + 1).min(self.leaves.len());
        let inside = leaves.flat_map(move |leaf| self.part(leaf, start, end));
        inside.map(|(key, value)| (*key, value))
    }

    /// The part of a leaf that lies between two places.
    fn part(&self, leaf: usize, start: Place, end: Place) -> &[(K, V)] {
        let all = &self.leaves[leaf][..];
        let first = if leaf == start.0 { start.1 } else { 0 };
        let last = if leaf == end.0 { end.1 } else { all.len() };
        all.get(first..last).unwrap_or(&[])
    }

    /// The places of the first entry in `range` and of the first entry after `range`.
    fn ends(&self, range: impl RangeBounds<K>) -> (Place, Place) {
        let place = |key: &K, is_before: bool| match self.find(key) {
            Ok((leaf, at)) => (leaf, at + usize::from(!is_before)),
            Err(place) => place,
        };
        let start = match range.start_bound() {
            Bound::Included(key) => place(key, true),
            Bound::Excluded(key) => place(key, false),
            Bound::Unbounded => (0, 0),
        };
        let end = match range.end_bound() {
            Bound::Included(key) => place(key, false),
            Bound::Excluded(key) => place(key, true),
            Bound::Unbounded => (self.leaves.len(), 0),
        };
        (start, end)
    }
}

impl<K: fmt::Debug + Ord + Copy, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeMap, vec::Vec};

    use super::*;

    /// Inserts and removes entries in random, ascending and descending order, and compares the map
    /// with the map of the standard library.
    #[test]
    fn is_an_ordered_map() {
        let mut below = crate::random::below();
        for keys in [3, 90, 2000] {
            let (mut map, mut model) = (SortedMap::new(), BTreeMap::new());
            for step in 0..6000u64 {
                let key = match step / 1000 % 3 {
                    0 => below(keys),
                    1 => step % 1000 % keys,
                    _ => keys - 1 - step % 1000 % keys,
                };
                if step % 20 == 5 {
                    map.reserve([&0, &keys], 2).unwrap();
                }
                let before = (0..=key).rev().find(|key| model.contains_key(key));
                assert_eq!(map.up_to(&key).map(|(key, _)| key), before);
                match below(5) {
                    0 => assert_eq!(map.remove(&key), model.remove(&key)),
                    1 => assert_eq!(map.get_mut(&key), model.get_mut(&key)),
                    _ => assert_eq!(map.insert(key, step).unwrap(), model.insert(key, step)),
                }
                assert_eq!(map.get(&key), model.get(&key));
                assert_eq!(map.is_empty(), model.is_empty());
                if step % 50 == 0 {
                    let range = below(keys)..below(keys);
                    let range = range.start.min(range.end)..range.end;
                    let found: Vec<_> = map.range(range.clone()).collect();
                    assert!(
                        found.iter().copied().eq(model.range(range.clone()).map(|(k, v)| (*k, v)))
                    );
                    let back: Vec<_> = map.range(..=range.end).rev().collect();
                    assert!(
                        back.iter()
                            .copied()
                            .eq(model.range(..=range.end).rev().map(|(k, v)| (*k, v)))
                    );
                    assert!(map.iter().eq(model.iter().map(|(k, v)| (*k, v))));
                }
            }
            let all: Vec<u64> = map.iter().map(|(key, _)| key).collect();
            all.iter().for_each(|key| _ = map.remove(key));
            assert!(map.is_empty() && map.firsts.is_empty());
        }
    }

    /// After a reservation, no insertion allocates: the number of leaves with memory does not
    /// change.
    #[test]
    fn what_is_reserved_needs_no_memory() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let mut map = SortedMap::<u64, [u64; 20]>::new();
        let memory = |map: &SortedMap<u64, [u64; 20]>| {
            let of = |leaves: &[Vec<_>]| leaves.iter().map(Vec::capacity).sum::<usize>();
            [of(&map.leaves) + of(&map.spare), map.leaves.capacity(), map.firsts.capacity()]
        };
        for _ in 0..3000 {
            let start = below(500);
            let end = start + below(60);
            map.unreserve();
            map.reserve([&start, &end], 2).unwrap();
            let reserved = memory(&map);
            let inside: Vec<u64> = map.range(start..end).map(|(key, _)| key).collect();
            if below(2) == 0 {
                inside.iter().for_each(|key| _ = map.remove(key));
            }
            for key in [start, end] {
                map.insert(key, [0; 20]).unwrap();
            }
            assert!(memory(&map)[0] <= reserved[0], "{:?} of {reserved:?}", memory(&map));
            assert_eq!(memory(&map)[1..], reserved[1..]);
        }
    }

    #[test]
    fn leaves_are_full_after_insertions_in_order() {
        let mut map = SortedMap::new();
        (0..10_000u64).for_each(|key| _ = map.insert(key, ()).unwrap());
        assert!(map.leaves.len() <= 10_000 / (SortedMap::<u64, ()>::LEAF - 1) + 1);
    }
}
