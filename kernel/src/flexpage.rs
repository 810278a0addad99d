//! Flexpages, which are aligned ranges whose size is a power of two, and where a page of one is mapped in
//! another (Liedtke 1995; the L4 eXperimental Kernel Reference Manual, version X.2, "Fpage" and "MapItem").
//!
//! ```text
//!   sender   |...|########|...|        of 2^s bytes        the smaller one decides how much is handed on;
//!   receiver |.|......####......|.|    of 2^r bytes        the hot spot, which part of the larger one it is
//! ```

use addr::{Rights, VirtAddr, VirtRange};

use crate::arch::USER_END;

/// A flexpage of user addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flexpage {
    start: u64,
    shift: u32,
    /// The rights that the flexpage gives user mode.
    pub rights: Rights,
}

impl Flexpage {
    /// The flexpage of a word ([`crate::abi::flexpage`]); `None` if it is not aligned, smaller than a page,
    /// or not entirely in user addresses.
    pub fn of(word: u64) -> Option<Flexpage> {
        let (start, shift) = (word & !0xfff, (word >> 4 & 0x3f) as u32);
        let bytes = 1u64 << shift;
        let is_one = shift >= 12 && start & (bytes - 1) == 0 && start < USER_END && bytes <= USER_END - start;
        let rights = Rights::from_bits(word as u8 & 7) | Rights::USER;
        is_one.then_some(Flexpage { start, shift, rights })
    }

    /// The flexpage of all user addresses.
    pub fn all() -> Flexpage {
        Flexpage { start: 0, shift: USER_END.trailing_zeros(), rights: Rights::ALL }
    }

    /// The range of addresses of the flexpage.
    pub fn range(&self) -> VirtRange {
        VirtRange::new(VirtAddr::new(self.start), 1 << self.shift).expect("it ends below the end of user addresses")
    }

    /// The part of this flexpage that is mapped into `window`, and the address at which it is
    /// mapped.
    pub fn into_window(self, window: Flexpage, hot_spot: u64) -> (Flexpage, VirtAddr) {
        let place = |of: Flexpage, shift: u32| of.start | hot_spot & ((1 << of.shift) - 1) & !((1u64 << shift) - 1);
        if self.shift <= window.shift {
            (self, VirtAddr::new(place(window, self.shift)))
        } else {
            let part = Flexpage { start: place(self, window.shift), shift: window.shift, ..self };
            (part, VirtAddr::new(window.start))
        }
    }
}
