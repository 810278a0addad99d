//! A set-associative array: it finds the slots that may hold a key.
//!
//! ```text
//!             set_of(key)                        one byte per way, eight to a word:
//!   key ----------------------> set 0  | 17 | 00 | 9c | 17 |    0 is an empty slot,
//!    \                          set 1  | 5e | e2 | 00 | 00 |    255 pads the last word
//!     \--- fingerprint: 17      set 2  | 17 | 41 | 08 | 5e |
//! ```
//!
//! The owner keeps tags and data, indexed by slot: `set * ways + way`. The array keeps a
//! fingerprint of each key and compares eight fingerprints in one step. It calls the owner's
//! comparison only for slots whose fingerprint matches, so that searching a fully associative
//! structure costs little more than searching a small set. A fully associative structure has one
//! set; a direct-mapped structure has one way.

use core::ops::Range;

use prefetch_index::prefetch_index;

use crate::GeometryError;

const EMPTY: u8 = 0;
const PAD: u8 = 255;
const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// The sets, and the fingerprints of the keys in them.
#[derive(Clone, Debug)]
pub struct SetArray {
    sets: u64,
    /// `sets - 1`, which masks a key to get its set, if the number of sets is a power of two.
    set_mask: Option<u64>,
    ways: usize,
    words: usize,
    fingerprints: Box<[u64]>,
    /// The number of empty slots of each set.
    empty: Box<[u32]>,
    /// The filter, if sets are large.
    filter: Option<Filter>,
}

/// Sets with more ways than this have a filter.
const UNFILTERED_WAYS_MAX: usize = 16;

/// For each hash of a key, the number of slots with this hash. Most keys that are in no slot
/// therefore need no search.
#[derive(Clone, Debug)]
struct Filter {
    shift: u32,
    counts: Box<[u32]>,
    /// For each slot, the hash of its key.
    hashes: Box<[u32]>,
}

impl Filter {
    /// The value for a slot without a key.
    const NONE: u32 = u32::MAX;

    fn new(entries: usize) -> Filter {
        let bits = (16 * entries.next_power_of_two()).ilog2();
        Filter {
            shift: u64::BITS - bits,
            counts: vec![0; 1 << bits].into_boxed_slice(),
            hashes: vec![Filter::NONE; entries].into_boxed_slice(),
        }
    }

    #[inline]
    fn hash(&self, key: u64) -> usize {
        (spread(key) >> self.shift) as usize
    }

    #[inline]
    fn may_hold(&self, key: u64) -> bool {
        self.counts[self.hash(key)] != 0
    }

    /// Records that `slot` now holds a key with this hash, or none.
    #[inline]
    fn store(&mut self, slot: usize, hash: u32) {
        let old = core::mem::replace(&mut self.hashes[slot], hash);
        if let Some(count) = self.counts.get_mut(old as usize) {
            *count -= 1;
        }
        if let Some(count) = self.counts.get_mut(hash as usize) {
            *count += 1;
        }
    }
}

impl SetArray {
    /// The largest number of entries of an array.
    pub const ENTRIES_MAX: u64 = 1 << 24;

    /// An empty array of `entries` entries in sets of `ways` ways; `ways` must divide `entries`.
    pub fn new(entries: u64, ways: u32) -> Result<SetArray, GeometryError> {
        if entries == 0 {
            return Err(GeometryError::Empty);
        }
        if entries > SetArray::ENTRIES_MAX {
            return Err(GeometryError::TooLarge { entries });
        }
        if ways == 0 || !entries.is_multiple_of(u64::from(ways)) {
            return Err(GeometryError::Ways { entries, ways });
        }
        let sets = entries / u64::from(ways);
        let ways = ways as usize;
        let words = ways.div_ceil(8);
        let mut array = SetArray {
            sets,
            set_mask: sets.is_power_of_two().then(|| sets - 1),
            ways,
            words,
            fingerprints: vec![0; words * sets as usize].into_boxed_slice(),
            empty: vec![0; sets as usize].into_boxed_slice(),
            filter: (ways > UNFILTERED_WAYS_MAX).then(|| Filter::new(entries as usize)),
        };
        array.clear();
        Ok(array)
    }

    /// The number of sets.
    pub fn sets(&self) -> usize {
        self.sets as usize
    }

    /// The number of slots per set.
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// The number of slots in all sets.
    pub fn entries(&self) -> usize {
        self.sets as usize * self.ways
    }

    /// The set that may hold `key`: the low bits of `key` if the number of sets is a power of two,
    /// otherwise the remainder of `key` divided by that number.
    #[inline]
    pub fn set_of(&self, key: u64) -> usize {
        match self.set_mask {
            Some(mask) => (key & mask) as usize,
            None => (key % self.sets) as usize,
        }
    }

    /// The slots of `set`.
    #[inline]
    pub fn slots(&self, set: usize) -> Range<usize> {
        set * self.ways..(set + 1) * self.ways
    }

    /// Prefetches, on the host, the fingerprints of `set`.
    #[inline]
    pub fn soon(&self, set: usize) {
        prefetch_index(&self.fingerprints, set * self.words);
        prefetch_index(&self.empty, set);
    }

    /// False if it is known without a search that the array does not hold `key`.
    #[inline(always)]
    pub fn may_hold(&self, key: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_hold(key))
    }

    /// The first slot of `set`, in way order, whose key has the fingerprint of `key` and for which
    /// `is_it` returns true.
    // Inlined whatever its size: most sets are small, and a call would cost as much as searching a
    // small set.
    #[inline(always)]
    pub fn find(
        &self,
        set: usize,
        key: u64,
        mut is_it: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let first = set * self.ways;
        match self.words {
            1 => among(first, equal_bytes(self.fingerprints[set], pattern_of(key)), &mut is_it),
            2 => {
                // Both words are compared together, because the processor cannot predict which of
                // the two has the key.
                let &[low, high] = self.fingerprints[2 * set..].first_chunk()?;
                let pattern = pattern_of(key);
                let equal = equal_bytes(low, pattern) | equal_bytes(high, pattern) << 8;
                among(first, equal, &mut is_it)
            }
            _ => self.find_in_large(set, key, is_it),
        }
    }

    /// The implementation of [`SetArray::find`] for sets whose fingerprints take more than two
    /// words.
    #[inline(never)]
    fn find_in_large(
        &self,
        set: usize,
        key: u64,
        mut is_it: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        if !self.may_hold(key) {
            return None;
        }
        let pattern = pattern_of(key);
        let mut first = set * self.ways;
        // Two words are tested together, because most words have no match.
        let (pairs, rest) = self.fingerprints[set * self.words..][..self.words].as_chunks::<2>();
        for &[low, high] in pairs {
            if may_have_zero(low ^ pattern) | may_have_zero(high ^ pattern) != 0 {
                let equal = equal_bytes(low, pattern) | equal_bytes(high, pattern) << 8;
                if let Some(slot) = among(first, equal, &mut is_it) {
                    return Some(slot);
                }
            }
            first += 16;
        }
        rest.iter().find_map(|&word| among(first, equal_bytes(word, pattern), &mut is_it))
    }

    /// Whether no slot of `set` is empty.
    #[inline]
    pub fn is_full(&self, set: usize) -> bool {
        self.empty[set] == 0
    }

    /// The first empty slot of `set`.
    #[inline]
    pub fn empty_slot(&self, set: usize) -> Option<usize> {
        if self.empty[set] == 0 {
            return None;
        }
        let words = &self.fingerprints[set * self.words..][..self.words];
        words.iter().enumerate().find_map(|(word, &fingerprints)| {
            let empty = zero_bytes(fingerprints);
            (empty != 0).then(|| set * self.ways + word * 8 + empty.trailing_zeros() as usize / 8)
        })
    }

    /// Records that `slot` of `set`, which was empty or held another key, now holds `key`.
    #[inline]
    pub fn occupy(&mut self, set: usize, slot: usize, key: u64) {
        if self.store(set, slot - set * self.ways, fingerprint(key)) == EMPTY {
            self.empty[set] -= 1;
        }
        if let Some(filter) = &mut self.filter {
            filter.store(slot, filter.hash(key) as u32);
        }
    }

    /// Records that `slot` of `set`, which held another key, now holds `key`.
    #[inline]
    pub fn exchange(&mut self, set: usize, slot: usize, key: u64) {
        self.store(set, slot - set * self.ways, fingerprint(key));
        if let Some(filter) = &mut self.filter {
            filter.store(slot, filter.hash(key) as u32);
        }
    }

    /// Records that `slot` is empty.
    pub fn vacate(&mut self, slot: usize) {
        let set = slot / self.ways;
        let was_empty = self.store(set, slot % self.ways, EMPTY) == EMPTY;
        self.empty[set] += u32::from(!was_empty);
        if let Some(filter) = &mut self.filter {
            filter.store(slot, Filter::NONE);
        }
    }

    /// Empties every slot.
    pub fn clear(&mut self) {
        self.empty.fill(self.ways as u32);
        if let Some(filter) = &mut self.filter {
            filter.counts.fill(0);
            filter.hashes.fill(Filter::NONE);
        }
        let used = self.ways % 8;
        for set in self.fingerprints.chunks_exact_mut(self.words) {
            set.fill(EACH_BYTE * u64::from(EMPTY));
            if used != 0 {
                set[self.words - 1] = (EACH_BYTE * u64::from(PAD)) << (8 * used);
            }
        }
    }

    /// Replaces the fingerprint of a slot and returns the old one.
    #[inline]
    fn store(&mut self, set: usize, way: usize, fingerprint: u8) -> u8 {
        let word = &mut self.fingerprints[set * self.words + way / 8];
        let shift = 8 * (way % 8);
        let old = (*word >> shift) as u8;
        *word ^= u64::from(old ^ fingerprint) << shift;
        old
    }
}

/// The product of `key` and a constant; its upper bits are a hash of `key`.
#[inline]
fn spread(key: u64) -> u64 {
    // The multiplier is 2^64 over the golden ratio: it spreads neighbouring keys evenly.
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// One byte of a key's hash. It never has the value that stands for an empty slot or for padding.
#[inline]
fn fingerprint(key: u64) -> u8 {
    let hash = spread(key) >> 56;
    (hash as u8).clamp(EMPTY + 1, PAD - 1)
}

/// A word with the fingerprint of `key` in each of its bytes.
#[inline]
fn pattern_of(key: u64) -> u64 {
    EACH_BYTE * u64::from(fingerprint(key))
}

/// The first slot, counted from `first`, whose bit is set in `bits` and for which `is_it` returns
/// true.
#[inline(always)]
fn among(first: usize, mut bits: u64, is_it: &mut impl FnMut(usize) -> bool) -> Option<usize> {
    while bits != 0 {
        let slot = first + bits.trailing_zeros() as usize;
        if is_it(slot) {
            return Some(slot);
        }
        bits &= bits - 1;
    }
    None
}

/// A mask with one bit per byte of `word`, from the lowest byte up. A bit is set if its byte equals
/// the corresponding byte of `pattern`.
#[inline]
fn equal_bytes(word: u64, pattern: u64) -> u64 {
    // After the shift, the top bit of byte `i` is in the lowest bit of this byte. The
    // multiplication moves it up by 56 - 7i bits, to bit `i` of the highest byte.
    (zero_bytes(word ^ pattern) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// A word with the top bit set in every byte that is zero in `word`; all other bits are zero.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    // Adding 127 to the low seven bits carries into the top bit unless they are all zero, and
    // never into the next byte.
    !(((word & LOW_SEVEN) + LOW_SEVEN) | word | LOW_SEVEN)
}

/// Zero if no byte of `word` is zero: this test is cheaper than determining which bytes are zero.
#[inline]
fn may_have_zero(word: u64) -> u64 {
    // A byte borrows if it is zero; a byte above it may then borrow too, although it is not zero.
    word.wrapping_sub(EACH_BYTE) & !word & !LOW_SEVEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_bytes_finds_each_zero_byte_and_nothing_else() {
        for low in 0..=255u64 {
            for high in [0, 1, 127, 128, 129, 255u64] {
                let word = low | high << 8 | 0x80 << 16 | 0x01_00_01_7f_ff << 24;
                let expected = (0..8)
                    .filter(|byte| word >> (8 * byte) & 0xff == 0)
                    .fold(0, |bits, byte| bits | 0x80 << (8 * byte));
                assert_eq!(zero_bytes(word), expected, "{word:#x}");
                assert_eq!(may_have_zero(word) == 0, expected == 0, "{word:#x}");
            }
        }
    }

    /// Tests every geometry of up to 5 sets and 20 ways; each is filled and emptied way by way.
    #[test]
    fn every_small_geometry_finds_what_it_holds_and_only_that() {
        for sets in 1..=5u64 {
            for ways in 1..=20u32 {
                let mut array = SetArray::new(sets * u64::from(ways), ways).unwrap();
                let mut keys = vec![None; array.entries()];
                for round in 0..u64::from(ways) {
                    for set in 0..sets as usize {
                        let slot = array.empty_slot(set).unwrap();
                        assert_eq!(slot, array.slots(set).start + round as usize);
                        let key = round * 977 * sets + set as u64;
                        assert_eq!(array.set_of(key), set);
                        array.occupy(set, slot, key);
                        keys[slot] = Some(key);
                        for known in keys.iter().flatten() {
                            let found = array.find(array.set_of(*known), *known, |slot| {
                                keys[slot] == Some(*known)
                            });
                            assert_eq!(found.and_then(|slot| keys[slot]), Some(*known));
                        }
                    }
                }
                for set in 0..array.sets() {
                    assert_eq!(array.empty_slot(set), None);
                    let slot = array.slots(set).end - 1;
                    array.vacate(slot);
                    assert_eq!(array.empty_slot(set), Some(slot));
                    let key = keys[slot].unwrap();
                    assert_eq!(array.find(set, key, |other| other == slot), None);
                }
                array.clear();
                assert!((0..array.sets()).all(|set| array.empty_slot(set).is_some()));
            }
        }
    }

    #[test]
    fn impossible_geometries_are_refused() {
        for (entries, ways, error) in [
            (0, 1, GeometryError::Empty),
            (8, 0, GeometryError::Ways { entries: 8, ways: 0 }),
            (8, 3, GeometryError::Ways { entries: 8, ways: 3 }),
            (4, 8, GeometryError::Ways { entries: 4, ways: 8 }),
            (1 << 40, 4, GeometryError::TooLarge { entries: 1 << 40 }),
        ] {
            assert_eq!(SetArray::new(entries, ways).unwrap_err(), error);
        }
    }
}
