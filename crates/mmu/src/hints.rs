//! Hints: the slots in which keys were last found.
//!
//! ```text
//!   key --hash--> | 3 | - | 17 | 3 | ... |  --> slot 17: does it hold the key? the owner looks
//! ```
//!
//! Hints do not model hardware. They speed up the simulation: if the same key is looked up again,
//! the selection of a set and the comparison of its tags are avoided. A hint may be wrong and is
//! always checked.

/// The value of an empty hint.
const NONE: u32 = u32::MAX;

/// A direct-mapped table of `N` hints; `N` is a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Hints<const N: usize> {
    slots: Box<[u32; N]>,
}

impl<const N: usize> Hints<N> {
    const SHIFT: u32 = {
        assert!(N.is_power_of_two() && N > 1);
        u64::BITS - N.trailing_zeros()
    };

    /// A table without hints.
    pub(crate) fn new() -> Hints<N> {
        Hints { slots: Box::new([NONE; N]) }
    }

    /// The slot that may hold `key`, or [`NONE`] if there is no hint.
    #[inline(always)]
    pub(crate) fn get(&self, key: u64) -> usize {
        self.slots[Self::index(key)] as usize
    }

    /// Records that `slot` holds `key`.
    #[inline]
    pub(crate) fn set(&mut self, key: u64, slot: usize) {
        self.slots[Self::index(key)] = slot as u32;
    }

    #[inline(always)]
    fn index(key: u64) -> usize {
        // The upper bits of the product depend on all bits of the key, so that keys a power of
        // two apart do not share a hint.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> Self::SHIFT) as usize
    }
}
