use core::fmt;

use crate::{Page, PageSize};

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The address `value`, in bytes.
            #[inline]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The address in bytes.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The first byte of the page or frame of `size` that contains this byte.
            #[inline]
            pub const fn align_down(self, size: PageSize) -> Self {
                Self(self.0 & !size.mask())
            }

            /// Bytes from the start of the page or frame of `size` to this byte.
            #[inline]
            pub const fn offset_in(self, size: PageSize) -> u64 {
                self.0 & size.mask()
            }

            /// Whether this is the first byte of a page or frame of `size`.
            #[inline]
            pub const fn is_aligned(self, size: PageSize) -> bool {
                self.offset_in(size) == 0
            }

            /// The address `bytes` further on, or `None` past the end of the space.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// The address `bytes` further on, modulo 2^64.
            #[inline]
            pub const fn wrapping_add(self, bytes: u64) -> Self {
                Self(self.0.wrapping_add(bytes))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

address! {
    /// An address as the program sees it.
    VirtAddr
}
address! {
    /// An address in physical memory.
    PhysAddr
}

impl VirtAddr {
    /// The page of `size` that contains this byte.
    #[inline]
    pub const fn page(self, size: PageSize) -> Page {
        Page::containing(self, size)
    }
}
