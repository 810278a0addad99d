//! The deep part of an LRU stack: keys with the times at which they were added.
//!
//! ```text
//!   times    0 1 2 3 4 5 6 7 8 9            every push takes the next one
//!   keys     - d b - c - a f                c is taken: a and f are younger, so it was 2 deep here
//!   count    a tree over the times (Fenwick 1994), one leaf for 64 of them
//! ```
//!
//! When all times are used up, the keys are renumbered: they get consecutive times from 0 on, in
//! their order. Keys that are added later get the times after these.
//!
//! Keys are page numbers, and programs use pages that are near each other. Eight keys that differ
//! only in their lowest bits share an entry of the map from keys to times. For 65536 adjacent keys
//! the map takes 0.7 megabytes; with one entry per key it would take two megabytes. For 65536 keys
//! that are all far apart, it takes five to eleven megabytes.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

/// The number of times per leaf of the tree, as bits of a word.
const LEAF: usize = u64::BITS as usize;

/// The number of keys per entry of the map; these keys differ only in their lowest bits.
const NEAR: usize = 8;
/// The time of a key that is not in this part of the stack.
const NONE: u32 = u32::MAX;

/// Keys that have been pushed and not removed since.
#[derive(Clone, Debug)]
pub(super) struct Older {
    keys_max: usize,
    /// The number of keys.
    len: usize,
    /// The times of the keys in each entry, or [`NONE`]; [`split`] gives the entry of a key and the
    /// index in it.
    times: FxHashMap<u64, [u32; NEAR]>,
    /// The key of each time whose bit in `present` is set.
    keys: Box<[u64]>,
    present: Box<[u64]>,
    /// The Fenwick tree: node i has the number of keys in the leaves from `i & (i + 1)` to i.
    counts: Box<[u32]>,
    /// The next time.
    now: usize,
    /// A lower bound of all times in use.
    oldest: usize,
}

/// The number of the map's entry that has the time of `key`, and the index of that time in the entry.
#[inline]
fn split(key: u64) -> (u64, usize) {
    (key / NEAR as u64, key as usize % NEAR)
}

impl Older {
    /// An empty structure for the last `keys_max` keys.
    pub(super) fn new(keys_max: usize) -> Older {
        // There is room for four times as many times as keys, so renumbering costs a third of a
        // move per push.
        let times = (4 * keys_max).next_multiple_of(LEAF).max(4 * LEAF);
        Older {
            keys_max,
            len: 0,
            times: FxHashMap::default(),
            keys: vec![0; times].into_boxed_slice(),
            present: vec![0; times / LEAF].into_boxed_slice(),
            counts: vec![0; times / LEAF].into_boxed_slice(),
            now: 0,
            oldest: 0,
        }
    }

    /// Removes `key` if it is in this part of the stack, and returns the number of younger keys.
    pub(super) fn take(&mut self, key: u64) -> Option<usize> {
        let (entry, place) = split(key);
        // An entry without any time stays in the map: its key is now among the youngest keys, and
        // is pushed again when it leaves them. There are therefore at most as many entries without
        // a time as there are youngest keys.
        let time = core::mem::replace(&mut self.times.get_mut(&entry)?[place], NONE);
        if time == NONE {
            return None;
        }
        let time = time as usize;
        let not_younger = self.before(time / LEAF)
            + (self.present[time / LEAF] << (LEAF - 1 - time % LEAF)).count_ones() as usize;
        let younger = self.len - not_younger;
        self.clear(time);
        Some(younger)
    }

    /// Adds `key`, which is not in this part of the stack, as the youngest, and removes the oldest
    /// key if there is no room.
    pub(super) fn push(&mut self, key: u64) {
        if self.keys_max == 0 {
            return;
        }
        if self.len == self.keys_max {
            self.forget_oldest();
        }
        if self.now == self.keys.len() {
            self.move_together();
        }
        self.keys[self.now] = key;
        self.set(key, self.now);
        self.present[self.now / LEAF] |= 1 << (self.now % LEAF);
        self.count(self.now / LEAF, 1);
        (self.now, self.len) = (self.now + 1, self.len + 1);
    }

    /// Sets the time of `key`.
    #[inline]
    fn set(&mut self, key: u64, time: usize) {
        let (entry, place) = split(key);
        self.times.entry(entry).or_insert([NONE; NEAR])[place] = time as u32;
    }

    fn forget_oldest(&mut self) {
        let mut leaf = self.oldest / LEAF;
        while self.present[leaf] == 0 {
            leaf += 1;
        }
        self.oldest = leaf * LEAF + self.present[leaf].trailing_zeros() as usize;
        self.forget_time(self.keys[self.oldest]);
        self.clear(self.oldest);
    }

    /// Removes `key`, if it is or was in this part of the stack, and the memory kept for it.
    pub(super) fn forget(&mut self, key: u64) {
        self.take(key);
        self.forget_time(key);
    }

    /// Removes the time of `key`, and its entry of the map if no other key has a time there.
    fn forget_time(&mut self, key: u64) {
        let (entry, place) = split(key);
        if let Entry::Occupied(mut times) = self.times.entry(entry) {
            times.get_mut()[place] = NONE;
            if *times.get() == [NONE; NEAR] {
                times.remove();
            }
        }
    }

    fn clear(&mut self, time: usize) {
        self.present[time / LEAF] &= !(1 << (time % LEAF));
        self.count(time / LEAF, -1);
        self.len -= 1;
    }

    /// Renumbers the keys with consecutive times from 0 on, in their order.
    fn move_together(&mut self) {
        let mut next = 0;
        for leaf in 0..self.present.len() {
            let mut word = std::mem::take(&mut self.present[leaf]);
            while word != 0 {
                let key = self.keys[leaf * LEAF + word.trailing_zeros() as usize];
                word &= word - 1;
                self.keys[next] = key;
                self.set(key, next);
                next += 1;
            }
        }
        self.counts.fill(0);
        for leaf in 0..next.div_ceil(LEAF) {
            let keys = (next - leaf * LEAF).min(LEAF);
            self.present[leaf] = u64::MAX >> (LEAF - keys);
            self.count(leaf, keys as i32);
        }
        (self.now, self.oldest) = (next, 0);
    }

    /// Adds `change` to the count of `leaf`.
    #[inline]
    fn count(&mut self, leaf: usize, change: i32) {
        let mut node = leaf;
        while let Some(count) = self.counts.get_mut(node) {
            *count = count.wrapping_add_signed(change);
            node |= node + 1;
        }
    }

    /// The number of keys in all leaves before `leaf`.
    #[inline]
    fn before(&self, leaf: usize) -> usize {
        let (mut end, mut sum) = (leaf, 0);
        while end > 0 {
            sum += self.counts[end - 1] as usize;
            end &= end - 1;
        }
        sum
    }
}
