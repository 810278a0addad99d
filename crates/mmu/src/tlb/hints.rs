//! In which slot a page was found last; see the module above.

use addr::{PageSize, VirtAddr};

/// Bits of a hint's index.
const BITS: u32 = 10;
/// No slot has this number.
const NONE: u32 = u32::MAX;

/// A direct-mapped table from pages of the smallest size to slots.
#[derive(Clone, Debug)]
pub(super) struct Hints {
    granule: PageSize,
    slots: Box<[u32; 1 << BITS]>,
}

impl Hints {
    /// No hints yet; `granule` is the smallest page size.
    pub(super) fn new(granule: PageSize) -> Hints {
        Hints { granule, slots: Box::new([NONE; 1 << BITS]) }
    }

    /// The slot that may translate `va`, or a number that is no slot's.
    #[inline]
    pub(super) fn get(&self, va: VirtAddr) -> usize {
        self.slots[self.index(va)] as usize
    }

    /// Remembers that `slot` translates `va`.
    #[inline]
    pub(super) fn set(&mut self, va: VirtAddr, slot: usize) {
        let index = self.index(va);
        self.slots[index] = slot as u32;
    }

    /// The page size of which each page has one hint.
    #[inline]
    pub(super) fn granule(&self) -> PageSize {
        self.granule
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.slots.fill(NONE);
    }

    #[inline]
    fn index(&self, va: VirtAddr) -> usize {
        // The upper bits of the product depend on all bits of the page number, so that arrays
        // a power of two apart do not share a hint.
        ((va.get() >> self.granule.shift()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS))
            as usize
    }
}
