use core::fmt;

use crate::{Page, PageSize, VirtAddr};

/// A non-empty range of virtual addresses that does not wrap; its last byte may be the last
/// byte of the space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtRange {
    start: u64,
    last: u64,
}

/// Why no range has a given start and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeError {
    /// The length is zero.
    Empty,
    /// The end of the range would lie past the end of the address space.
    Wraps,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RangeError::Empty => "the range is empty",
            RangeError::Wraps => "the range runs past the end of the address space",
        })
    }
}

impl core::error::Error for RangeError {}

impl VirtRange {
    /// Every byte of the space.
    pub const ALL: VirtRange = VirtRange { start: 0, last: u64::MAX };

    /// The range of `bytes` bytes that begins at `start`.
    #[inline]
    pub const fn new(start: VirtAddr, bytes: u64) -> Result<VirtRange, RangeError> {
        if bytes == 0 {
            return Err(RangeError::Empty);
        }
        match start.get().checked_add(bytes - 1) {
            Some(last) => Ok(VirtRange { start: start.get(), last }),
            None => Err(RangeError::Wraps),
        }
    }

    /// All bytes of `page`.
    #[inline]
    pub const fn of_page(page: Page) -> VirtRange {
        VirtRange { start: page.start().get(), last: page.start().get() + page.size().mask() }
    }

    /// The first byte of the range.
    #[inline]
    pub const fn start(self) -> VirtAddr {
        VirtAddr::new(self.start)
    }

    /// The last byte of the range.
    #[inline]
    pub const fn last(self) -> VirtAddr {
        VirtAddr::new(self.last)
    }

    /// The length of the range in bytes; `u64::MAX` for the whole 64-bit space, whose length does not fit.
    #[inline]
    pub const fn bytes(self) -> u64 {
        (self.last - self.start).saturating_add(1)
    }

    /// Whether `addr` lies in this range.
    #[inline]
    pub const fn contains(self, addr: VirtAddr) -> bool {
        self.start <= addr.get() && addr.get() <= self.last
    }

    /// Whether all of `other` lies in this range.
    #[inline]
    pub const fn covers(self, other: VirtRange) -> bool {
        self.start <= other.start && other.last <= self.last
    }

    /// The addresses that lie both in this range and in `other`, or `None` if there are none.
    #[inline]
    pub fn intersection(self, other: VirtRange) -> Option<VirtRange> {
        let start = self.start.max(other.start);
        let last = self.last.min(other.last);
        (start <= last).then_some(VirtRange { start, last })
    }

    /// The smallest range that contains both this range and `other`.
    #[inline]
    pub fn hull(self, other: VirtRange) -> VirtRange {
        VirtRange { start: self.start.min(other.start), last: self.last.max(other.last) }
    }

    /// Whether both ends lie on boundaries of `size`.
    #[inline]
    pub const fn is_aligned(self, size: PageSize) -> bool {
        self.start & size.mask() == 0 && self.last & size.mask() == size.mask()
    }

    /// Every page of `size` that has a byte in this range, by ascending address.
    pub const fn pages(self, size: PageSize) -> Pages {
        Pages { next: Some(self.start & !size.mask()), last: self.last, size }
    }
}

impl fmt::Display for VirtRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..={:#x}", self.start, self.last)
    }
}

impl fmt::Debug for VirtRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The pages of one size that overlap a range; see [`VirtRange::pages`].
#[derive(Clone, Debug)]
pub struct Pages {
    next: Option<u64>,
    last: u64,
    size: PageSize,
}

impl Iterator for Pages {
    type Item = Page;

    fn next(&mut self) -> Option<Page> {
        let start = self.next?;
        self.next = start.checked_add(self.size.bytes()).filter(|&next| next <= self.last);
        Some(VirtAddr::new(start).page(self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, bytes: u64) -> VirtRange {
        VirtRange::new(VirtAddr::new(start), bytes).unwrap()
    }

    #[test]
    fn ranges_that_are_none_are_refused() {
        assert_eq!(VirtRange::new(VirtAddr::new(5), 0), Err(RangeError::Empty));
        assert_eq!(VirtRange::new(VirtAddr::new(u64::MAX), 2), Err(RangeError::Wraps));
        assert_eq!(range(u64::MAX, 1).last().get(), u64::MAX);
    }

    /// Exhaustive over a small model: every range within 32 bytes at either end of the address
    /// space, in 4-byte pages.
    #[test]
    fn pages_of_every_small_range_are_those_that_hold_one_of_its_bytes() {
        let size = PageSize::from_shift(2).unwrap();
        for base in [0, u64::MAX - 31] {
            for from in 0..32 {
                for bytes in 1..=32 - from {
                    let range = range(base + from, bytes);
                    let expected = (0..8)
                        .map(|n| VirtAddr::new(base + 4 * n).page(size))
                        .filter(|page| range.intersection(VirtRange::of_page(*page)).is_some());
                    assert!(range.pages(size).eq(expected), "{range}");
                }
            }
        }
    }
}
