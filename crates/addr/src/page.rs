use alloc::string::{String, ToString};
use core::{fmt, str::FromStr};

use crate::VirtAddr;

/// A page size: a power of two, in bytes, from 4 bytes to 2^62.
///
/// The value is always a power of two, so that the mask and the shift of a page size agree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize {
    shift: u8,
}

impl PageSize {
    /// 4 KiB, the base page of x86-64 and of most machines.
    pub const SIZE_4K: PageSize = PageSize { shift: 12 };
    /// 2 MiB, the superpage of an x86-64 page directory.
    pub const SIZE_2M: PageSize = PageSize { shift: 21 };
    /// 1 GiB, the superpage of an x86-64 page-directory-pointer table.
    pub const SIZE_1G: PageSize = PageSize { shift: 30 };

    /// The page size of `1 << shift` bytes, or `None` if `shift` is outside 2..=62.
    pub const fn from_shift(shift: u8) -> Option<PageSize> {
        if shift >= 2 && shift <= 62 { Some(PageSize { shift }) } else { None }
    }

    /// The page size of `bytes`, or `None` if `bytes` is not a power of two in range.
    pub const fn from_bytes(bytes: u64) -> Option<PageSize> {
        if bytes.is_power_of_two() {
            PageSize::from_shift(bytes.trailing_zeros() as u8)
        } else {
            None
        }
    }

    /// log2 of the size in bytes: the number of offset bits.
    #[inline]
    pub const fn shift(self) -> u32 {
        self.shift as u32
    }

    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The offset bits: size - 1.
    #[inline]
    pub const fn mask(self) -> u64 {
        self.bytes() - 1
    }

    /// How many pages of the size `smaller` make one page of this size; 0 if `smaller` is larger.
    pub const fn count_of(self, smaller: PageSize) -> u64 {
        if smaller.shift > self.shift { 0 } else { 1 << (self.shift - smaller.shift) }
    }
}

const SUFFIXES: [(u8, char); 5] = [(50, 'P'), (40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, suffix) in SUFFIXES {
            if self.shift >= shift {
                return write!(f, "{}{}", 1u64 << (self.shift - shift), suffix);
            }
        }
        write!(f, "{}B", self.bytes())
    }
}

impl fmt::Debug for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for text that is not a page size. Its message has an example of a page size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsePageSizeError {
    text: String,
}

impl fmt::Display for ParsePageSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a page size: write a power of two with its unit, as in 4K, 2M or 1G",
            self.text
        )
    }
}

impl core::error::Error for ParsePageSizeError {}

impl FromStr for PageSize {
    type Err = ParsePageSizeError;

    fn from_str(text: &str) -> Result<PageSize, ParsePageSizeError> {
        let error = || ParsePageSizeError { text: text.to_string() };
        let unit = text.chars().last().ok_or_else(error)?;
        let shift = match unit {
            'B' => 0,
            _ => SUFFIXES.iter().find(|(_, suffix)| *suffix == unit).ok_or_else(error)?.0,
        };
        let number: u64 = text[..text.len() - 1].parse().map_err(|_| error())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(error)?;
        PageSize::from_bytes(bytes).ok_or_else(error)
    }
}

/// A page: its first address and its size. The address is always aligned to the size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Page {
    start: VirtAddr,
    size: PageSize,
}

impl Page {
    /// The page of `size` that contains `addr`.
    #[inline]
    pub const fn containing(addr: VirtAddr, size: PageSize) -> Page {
        Page { start: addr.align_down(size), size }
    }

    /// The first byte of the page.
    #[inline]
    pub const fn start(self) -> VirtAddr {
        self.start
    }

    /// The size of the page.
    #[inline]
    pub const fn size(self) -> PageSize {
        self.size
    }

    /// The page number: the address without the offset bits.
    #[inline]
    pub const fn number(self) -> u64 {
        self.start.get() >> self.size.shift()
    }
}

/// An address-space identifier: the tag that keeps the TLB entries of spaces apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Asid(pub u16);

impl Asid {
    /// The identifier of a virtual machine's host, whose walks translate guest-physical addresses.
    /// In structures that guest and host share, this identifier distinguishes their entries. No
    /// space of a guest has this identifier.
    pub const HOST: Asid = Asid(u16::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_size_prints_what_it_parses() {
        for shift in 2..=62 {
            let size = PageSize::from_shift(shift).unwrap();
            assert_eq!(size.to_string().parse::<PageSize>().unwrap(), size);
            assert_eq!(PageSize::from_bytes(size.bytes()), Some(size));
            assert_eq!(size.mask() + 1, size.bytes());
        }
    }

    #[test]
    fn what_is_no_page_size_is_refused() {
        for text in
            ["", "K", "4", "4096", "3K", "0K", "4k", "4KiB", "-4K", "16E", "1B", "2B", "8192P"]
        {
            assert!(text.parse::<PageSize>().is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn a_page_holds_its_first_and_last_byte_and_no_more() {
        for shift in [12u8, 13, 21, 30] {
            let size = PageSize::from_shift(shift).unwrap();
            let page = Page::containing(VirtAddr::new(0x7fff_dead_beef), size);
            let last = page.start().wrapping_add(size.mask());
            assert_eq!(last.page(size), page);
            assert_eq!(last.wrapping_add(1).page(size).number(), page.number() + 1);
        }
    }
}
