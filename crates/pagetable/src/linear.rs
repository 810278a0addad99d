//! The linear page table: an array in virtual memory (E99 §2.1).
//!
//! ```text
//!   0                                     0xff80_0000_0000_0000                    2^64
//!   +-------------------------------------+------------------------------------------+
//!   |   pages of the program              |  entry of page 0, 1, 2, ...: 8 bytes each |
//!   +-------------------------------------+------------------------------------------+
//!        va                                  ^ entry 1 of va, in a page of the array
//!                                                     ^ entry 2: of that page
//!                                                        ...     ^ entry 6: in the root,
//!                                                                  in unmapped memory
//! ```
//!
//! One load finds any entry, if the TLB knows the page of the array that it lies in. If not, that
//! is a miss of its own, served from the same array one step up, and so on: at most five such
//! nested misses, for the last of which the root is read by its physical address. The pages of
//! the array that are there form a radix tree, and a table of that tree *is* a page of the
//! array. So this is a tree of six levels ([`Split::linear`]), and [`LinearArray`] says where in
//! virtual memory its tables lie. A machine whose TLB has missed `va` then does
//!
//! ```text
//!   for level in 1..=5:  does the TLB hold table_page(va, level)?  yes: start there
//!   none:                start at the root
//!   walk_from(start); the references above `level` are the nested misses, and each table they
//!   lead to is a translation for the TLB (translation_of)
//! ```
//!
//! When a [`crate::Flush`] says that tables went, the pages of the array that held them must be
//! flushed too ([`LinearArray::pages_for`]).

use addr::{Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::split::{Split, SplitEntries};
use crate::{Geometry, Node, Radix, Translation};

const INDEX_BITS: [u8; 6] = [7, 9, 9, 9, 9, 9];
const TABLE: PageSize = PageSize::SIZE_4K;
const TABLE_INDEX_BITS: u32 = 9;
const ENTRY_SHIFT: u32 = 3;
const ARRAY_START: u64 = 0xff80_0000_0000_0000;

impl Split {
    /// The tree of a linear page table for the addresses of 64 bits below the array.
    pub fn linear() -> Result<Split, Geometry> {
        SplitEntries::new(&INDEX_BITS, &[])
            .map(|entries| Radix::with_format(entries.below(ARRAY_START)))
    }
}

/// Where in virtual memory the tables of [`Split::linear`] lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinearArray;

impl LinearArray {
    /// The highest level whose tables are pages of the array; above it is the root.
    pub const LEVELS: u8 = 5;

    /// All of the array.
    pub const fn range(self) -> VirtRange {
        match VirtRange::new(VirtAddr::new(ARRAY_START), ARRAY_START.wrapping_neg()) {
            Ok(range) => range,
            Err(_) => VirtRange::ALL,
        }
    }

    /// Where the entry for `addr` at `level` lies, 1 to [`LinearArray::LEVELS`].
    #[inline]
    pub fn entry(self, addr: VirtAddr, level: u8) -> VirtAddr {
        (0..level).fold(addr, |addr, _| {
            VirtAddr::new(ARRAY_START + (addr.get() >> TABLE.shift() << ENTRY_SHIFT))
        })
    }

    /// The page of the array that is the table of `level` for `addr`.
    #[inline]
    pub fn table_page(self, addr: VirtAddr, level: u8) -> Page {
        self.entry(addr, level).page(TABLE)
    }

    /// Where a walk for `addr` starts if the TLB has [`LinearArray::table_page`] of `level` in
    /// `frame`.
    #[inline]
    pub fn node(self, level: u8, frame: PhysAddr) -> Node {
        let shift = (TABLE.shift() + TABLE_INDEX_BITS * u32::from(level)) as u8;
        Node { table: frame, level, shift, rights: Rights::ALL }
    }

    /// What a nested miss loads into the TLB: the page of the array for the table `node` that a
    /// walk for `addr` has come to.
    #[inline]
    pub fn translation_of(self, addr: VirtAddr, node: Node) -> Translation {
        Translation::new(
            self.table_page(addr, node.level),
            node.table,
            Rights::READ | Rights::WRITE,
        )
    }

    /// The pages of the array that are the tables of `level` for `range`.
    pub fn pages_for(self, range: VirtRange, level: u8) -> VirtRange {
        let page = |addr| VirtRange::of_page(self.table_page(addr, level));
        page(range.start()).hull(page(range.last()))
    }
}
