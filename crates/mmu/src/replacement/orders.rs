//! The slots of each set in the order of use, the most recent first, for sets so small that the
//! order fits into a word.
//!
//! ```text
//!   a set of 4 ways   ..  2 | 0 | 3 | 1      way 1 was used last, then 3, 0, 2: the victim
//!   touch way 0       ..  2 | 3 | 1 | 0      what was before it moves up by one place
//! ```
//!
//! Recording a use costs more than storing a time, and choosing a victim costs much less than
//! searching for the oldest slot. This suits structures that are accessed after another structure
//! has missed.

use core::ops::Range;

use prefetch_index::prefetch_index;

/// The largest number of ways of a set: a word has this many fields of four bits.
const WAYS_MAX: usize = 16;
const PLACE_BITS: u32 = 4;
const EACH_PLACE: u64 = 0x1111_1111_1111_1111;

/// One word for each set.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    words: Box<[u64]>,
    ways: usize,
    /// 2^32 divided by the number of ways, rounded up: multiplication by it replaces the division
    /// of slot numbers.
    reciprocal: u64,
}

impl Orders {
    /// The orders of sets whose numbers of ways are given in the order of their slots; `None`
    /// unless all sets have the same small number of ways.
    pub(super) fn new(mut ways_of_sets: impl Iterator<Item = usize> + Clone) -> Option<Orders> {
        let ways = ways_of_sets.clone().next()?;
        let sets = ways_of_sets.clone().count();
        let fits = ways <= WAYS_MAX && sets * ways < 1 << 26;
        (fits && ways_of_sets.all(|other| other == ways)).then(|| Orders {
            words: vec![0xfedc_ba98_7654_3210; sets].into_boxed_slice(),
            ways,
            reciprocal: (1u64 << 32).div_ceil(ways as u64),
        })
    }

    #[inline(always)]
    fn set_of(&self, slot: usize) -> usize {
        ((slot as u64 * self.reciprocal) >> 32) as usize
    }

    /// Prefetches, on the host, the order of the set of `slot`.
    #[inline]
    pub(super) fn soon(&self, slot: usize) {
        prefetch_index(&self.words, self.set_of(slot));
    }

    /// Makes `slot` the most recently used slot of its set.
    #[inline(always)]
    pub(super) fn touch(&mut self, slot: usize) {
        let set = self.set_of(slot);
        let way = (slot - set * self.ways) as u64;
        let word = &mut self.words[set];
        let at = place_of(*word, way);
        // Only the ways in the places up to the place of this way are moved.
        let moved = u64::MAX >> (u64::BITS - PLACE_BITS - at);
        *word = *word & !moved | *word << PLACE_BITS & moved | way;
    }

    /// Returns the least recently used slot of `set` and makes it the most recently used.
    #[inline]
    pub(super) fn replaced(&mut self, set: Range<usize>) -> usize {
        let index = self.set_of(set.start);
        let word = &mut self.words[index];
        let way = *word >> (PLACE_BITS as usize * (self.ways - 1)) & (WAYS_MAX as u64 - 1);
        // The places beyond the set's ways may have arbitrary values, because ways are searched for
        // from the first place on.
        *word = *word << PLACE_BITS | way;
        set.start + way as usize
    }

    /// The least recently used slot of `set`.
    #[inline]
    pub(super) fn last(&self, set: Range<usize>) -> usize {
        let word = self.words[self.set_of(set.start)];
        set.start + (word >> (PLACE_BITS as usize * (self.ways - 1))) as usize % WAYS_MAX
    }
}

/// The bit position, in `word`, of the field that contains `way`.
#[inline(always)]
fn place_of(word: u64, way: u64) -> u32 {
    let other = word ^ EACH_PLACE.wrapping_mul(way);
    // The lowest place that is zero is the first one to borrow, so it is found correctly.
    let zero = other.wrapping_sub(EACH_PLACE) & !other & EACH_PLACE << (PLACE_BITS - 1);
    zero.trailing_zeros() & !(PLACE_BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares sets of all sizes with lists.
    #[test]
    fn a_word_is_a_list() {
        let mut state = 1u64;
        for ways in 1..=WAYS_MAX {
            let sets = 5;
            let mut orders = Orders::new(core::iter::repeat_n(ways, sets)).unwrap();
            let mut lists: Vec<Vec<usize>> = (0..sets).map(|_| (0..ways).collect()).collect();
            for _ in 0..2000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let slot = (state >> 33) as usize % (sets * ways);
                let list = &mut lists[slot / ways];
                list.retain(|&way| way != slot % ways);
                list.insert(0, slot % ways);
                orders.touch(slot);
                for (set, list) in lists.iter().enumerate() {
                    let start = set * ways;
                    assert_eq!(orders.last(start..start + ways), start + list[ways - 1]);
                }
                let set = (state >> 20) as usize % sets * ways;
                if state >> 63 == 1 {
                    lists[set / ways].rotate_right(1);
                    let newest = set + lists[set / ways][0];
                    assert_eq!(orders.replaced(set..set + ways), newest);
                }
            }
        }
    }

    #[test]
    fn sets_that_are_large_or_differ_have_none() {
        assert!(Orders::new([17].into_iter()).is_none());
        assert!(Orders::new([4, 8].into_iter()).is_none());
        assert!(Orders::new([].into_iter()).is_none());
    }
}
