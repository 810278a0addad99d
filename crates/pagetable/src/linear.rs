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
//! A single load reads any entry, if the TLB holds the page of the array that contains the entry.
//! Otherwise the load misses the TLB too, and the translation of that page is loaded from another
//! entry of the array, which belongs to the next level up, and so on. At most five nested misses
//! occur; for the last one, the root is read by its physical address. The pages of the array form a
//! radix tree: each table of that tree *is* a page of the array. The linear table is therefore
//! represented as a tree of six levels ([`Split::linear`]), and [`LinearArray`] computes where in
//! virtual memory its tables lie. A machine whose TLB has missed `va` then does
//!
//! ```text
//!   for level in 1..=5:  does the TLB hold table_page(va, level)?  yes: start there
//!   none:                start at the root
//!   walk_from(start); the references above `level` are the nested misses, and each table they
//!   lead to is a translation for the TLB (translation_of)
//! ```
//!
//! When a [`crate::Flush`] names removed tables, the pages of the array that held them must be
//! flushed from the TLB as well ([`LinearArray::pages_for`]).

use addr::{Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::split::{Split, SplitEntries};
use crate::{Geometry, Node, Radix, Translation};

const INDEX_BITS: [u8; 6] = [7, 9, 9, 9, 9, 9];
const TABLE: PageSize = PageSize::SIZE_4K;
const TABLE_INDEX_BITS: u32 = 9;
const ENTRY_SHIFT: u32 = 3;
const ARRAY_START: u64 = 0xff80_0000_0000_0000;

impl Split {
    /// The tree of a linear page table for the 64-bit addresses below the array.
    pub fn linear() -> Result<Split, Geometry> {
        SplitEntries::new(&INDEX_BITS, &[])
            .map(|entries| Radix::with_format(entries.below(ARRAY_START)))
    }
}

/// The virtual addresses of the tables of [`Split::linear`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinearArray;

impl LinearArray {
    /// The highest level whose tables are pages of the array; the next level is the root.
    pub const LEVELS: u8 = 5;

    /// The addresses of the whole array.
    pub const fn range(self) -> VirtRange {
        match VirtRange::new(VirtAddr::new(ARRAY_START), ARRAY_START.wrapping_neg()) {
            Ok(range) => range,
            Err(_) => VirtRange::ALL,
        }
    }

    /// The virtual address of the entry for `addr` at `level`, which is 1 to
    /// [`LinearArray::LEVELS`].
    #[inline]
    pub fn entry(self, addr: VirtAddr, level: u8) -> VirtAddr {
        (0..level).fold(addr, |addr, _| {
            VirtAddr::new(ARRAY_START + (addr.get() >> TABLE.shift() << ENTRY_SHIFT))
        })
    }

    /// The array's page that is the table at `level` for `addr`.
    #[inline]
    pub fn table_page(self, addr: VirtAddr, level: u8) -> Page {
        self.entry(addr, level).page(TABLE)
    }

    /// The node at which a walk for `addr` starts if the TLB translates [`LinearArray::table_page`]
    /// of `level` to `frame`.
    #[inline]
    pub fn node(self, level: u8, frame: PhysAddr) -> Node {
        let shift = (TABLE.shift() + TABLE_INDEX_BITS * u32::from(level)) as u8;
        Node { table: frame, level, shift, rights: Rights::ALL }
    }

    /// The translation that a nested miss loads into the TLB: the translation of the array's page
    /// for the table `node`, which a walk for `addr` has reached.
    #[inline]
    pub fn translation_of(self, addr: VirtAddr, node: Node) -> Translation {
        Translation::new(
            self.table_page(addr, node.level),
            node.table,
            Rights::READ | Rights::WRITE,
        )
    }

    /// The pages of the array that are tables at `level` for addresses in `range`.
    pub fn pages_for(self, range: VirtRange, level: u8) -> VirtRange {
        let page = |addr| VirtRange::of_page(self.table_page(addr, level));
        page(range.start()).hull(page(range.last()))
    }
}
