//! In which slot a key was found last.
//!
//! ```text
//!   key --hash--> | 3 | - | 17 | 3 | ... |  --> slot 17: does it hold the key? the owner looks
//! ```
//!
//! This is no hardware: it saves a simulated structure the selection of a set and the comparison
//! of its tags where the same key comes again. A hint may be false and is never taken on trust.

use crate::SetArray;

/// Bits of a hint that number a slot; those above are the epoch in which it was given.
const SLOT_BITS: u32 = 24;
const EPOCH: u32 = 1 << SLOT_BITS;
const _: () = assert!(SetArray::ENTRIES_MAX <= EPOCH as u64);
/// No slot has this number, in whichever epoch before the last it is read.
const NONE: u32 = u32::MAX;
const EPOCH_LAST: u32 = u32::MAX - (EPOCH - 1);

/// A direct-mapped table of `N` hints, a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Hints<const N: usize> {
    epoch: u32,
    slots: Box<[u32; N]>,
}

impl<const N: usize> Hints<N> {
    const SHIFT: u32 = {
        assert!(N.is_power_of_two() && N > 1);
        u64::BITS - N.trailing_zeros()
    };

    /// No hints yet.
    pub(crate) fn new() -> Hints<N> {
        Hints { epoch: 0, slots: Box::new([NONE; N]) }
    }

    /// The slot that may hold `key`, or a number that is no slot's.
    #[inline(always)]
    pub(crate) fn get(&self, key: u64) -> usize {
        // A hint of another epoch keeps a bit above those of a slot.
        (self.slots[Self::index(key)] ^ self.epoch) as usize
    }

    /// The hints as they are, for many reads.
    #[inline]
    pub(crate) fn view(&self) -> HintsView<'_, N> {
        HintsView { epoch: self.epoch, slots: &self.slots }
    }

    /// Remembers that `slot` holds `key`.
    #[inline]
    pub(crate) fn set(&mut self, key: u64, slot: usize) {
        self.slots[Self::index(key)] = slot as u32 | self.epoch;
    }

    /// Forgets everything, at once: the hints that there are become those of an epoch that is
    /// over.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.epoch += EPOCH;
        if self.epoch == EPOCH_LAST {
            self.epoch = 0;
            self.slots.fill(NONE);
        }
    }

    #[inline(always)]
    fn index(key: u64) -> usize {
        // The upper bits of the product depend on all bits of the key, so that keys a power of
        // two apart do not share a hint.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> Self::SHIFT) as usize
    }
}

/// Hints that do not change while they are read; see [`Hints`].
#[derive(Debug)]
pub(crate) struct HintsView<'a, const N: usize> {
    epoch: u32,
    slots: &'a [u32; N],
}

impl<const N: usize> HintsView<'_, N> {
    /// Hints that lead nowhere.
    pub(crate) const fn nothing() -> HintsView<'static, N> {
        HintsView { epoch: 0, slots: const { &[NONE; N] } }
    }

    /// As [`Hints::get`].
    #[inline(always)]
    pub(crate) fn get(&self, key: u64) -> usize {
        (self.slots[Hints::<N>::index(key)] ^ self.epoch) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Across two rounds of all epochs, a hint lasts until the next clearing.
    #[test]
    fn nothing_outlives_a_clearing() {
        let mut hints = Hints::<4>::new();
        let last = SetArray::ENTRIES_MAX as usize - 1;
        for _ in 0..600 {
            assert!((0..100).all(|key| hints.get(key) > last));
            hints.set(1, last);
            hints.set(2, 0);
            assert_eq!(hints.get(2), 0);
            hints.clear();
        }
    }
}
