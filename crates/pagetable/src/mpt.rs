//! The multi-level page table of 64-bit addresses (E99 §3.2): six levels of small entries.
//!
//! ```text
//!  va  63  61 60        51 50        41 40        31 30        21 20      13   12   11     0
//!     +------+------------+------------+------------+------------+----------+------+--------+
//!     |  3   |     10     |     10     |     10     |     10     |    8     |which |  12:   |
//!     +------+------------+------------+------------+------------+----------+ of 2 | offset |
//! level: 6         5            4            3            2            1    +------+--------+
//!
//!      31                      12   10                0
//!     +--------------------------+-+-------------------+
//!     | next table / 4K: 20 bits |0|  population: 11   |   levels 2 to 6: 4 bytes
//!     +--------------------------+-+-------------------+
//!     | PTE of even page | PTE of odd page | mapping tree, even | mapping tree, odd |   level 1: 16
//!     +------------------+-----------------+--------------------+-------------------+
//! ```
//!
//! Pointers of 32 bits restrict tables to the first 4 GiB of physical memory. Tables are aligned to
//! frames, so the lower bits of a pointer count the entries in use in the next table. A page entry
//! has 32 bits too (24 for the frame: 64 GiB). An entry for a pair of pages, which is what an entry
//! of the R4700's TLB holds, ends with two 32-bit pointers into the kernel's mapping tree: the
//! notes of the two pages.

use addr::{PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::pte::{Pte, Width};
use crate::{Entry, Format, Radix, Translation};

const LEVELS: u8 = 6;
const PAIR_SHIFT: u32 = 13;
/// log2 of the bytes that one entry covers, by level from 1 on. A page entry at level 1 is half of
/// a pair.
const ENTRY_SHIFTS: [u32; 6] = [12, 21, 31, 41, 51, 61];
const PAIR_INDEX_MASK: u64 = (1 << 8) - 1;
const INDEX_MASK: u64 = (1 << 10) - 1;
const PAIR_BYTES_SHIFT: u32 = 4;
const ENTRY_BYTES_SHIFT: u32 = 2;

const TABLE: u64 = 0xffff_f000;
const POPULATION: u64 = 0x7ff;
const TABLES_END: u64 = 1 << 32;

const SIZES: [PageSize; 1] = [PageSize::SIZE_4K];
/// The root has eight entries and takes 32 bytes.
const ROOT_SHIFT: u8 = 5;
const PTE: Width = Width::Narrow;

/// The six-level page table of E99 for all 64 bits of an address.
pub type Mpt = Radix<MptEntries>;

/// The entry layout of [`Mpt`].
#[derive(Clone, Debug)]
pub struct MptEntries {
    walk_sets_usage: bool,
}

impl Mpt {
    /// A table whose refill handler does not set usage bits, as in E99.
    pub fn new() -> Mpt {
        Radix::with_format(MptEntries { walk_sets_usage: false })
    }

    /// A table whose refill handler sets usage bits.
    pub fn with_usage() -> Mpt {
        Radix::with_format(MptEntries { walk_sets_usage: true })
    }
}

impl Default for Mpt {
    fn default() -> Mpt {
        Mpt::new()
    }
}

impl Format for MptEntries {
    const LEVELS_MAX: u8 = 6;
    const NOTE_AT: Option<u64> = Some(8);

    #[inline]
    fn levels(&self) -> u8 {
        LEVELS
    }

    fn page_sizes(&self) -> &[PageSize] {
        &SIZES
    }

    fn spans(&self) -> &[VirtRange] {
        &[VirtRange::ALL]
    }

    #[inline]
    fn holds(&self, _addr: VirtAddr) -> bool {
        true
    }

    #[inline]
    fn entry_shift(&self, level: u8) -> u32 {
        ENTRY_SHIFTS[usize::from(level) - 1]
    }

    fn table_size(&self, level: u8) -> PageSize {
        match level {
            LEVELS => PageSize::from_shift(ROOT_SHIFT).unwrap_or(PageSize::SIZE_4K),
            _ => PageSize::SIZE_4K,
        }
    }

    #[inline]
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
        if level > 1 {
            return (addr.get() >> self.entry_shift(level) & INDEX_MASK) << ENTRY_BYTES_SHIFT;
        }
        let pair = addr.get() >> PAIR_SHIFT & PAIR_INDEX_MASK;
        let odd = addr.get() >> (PAIR_SHIFT - 1) & 1;
        pair << PAIR_BYTES_SHIFT | odd << ENTRY_BYTES_SHIFT
    }

    #[inline]
    fn entry_bytes(&self, _level: u8) -> u8 {
        1 << ENTRY_BYTES_SHIFT
    }

    #[inline]
    fn page_size(&self, _level: u8) -> PageSize {
        PageSize::SIZE_4K
    }

    #[inline]
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool {
        start.get().checked_add(bytes).is_some_and(|end| end <= PTE.physical_end())
    }

    fn tables_end(&self) -> PhysAddr {
        PhysAddr::new(TABLES_END)
    }

    #[inline]
    fn decode(&self, entry: u64, level: u8) -> Entry {
        match (entry, level) {
            (0, _) => Entry::Empty,
            (_, 1) => Entry::Page,
            _ => Entry::Table(PhysAddr::new(entry & TABLE)),
        }
    }

    #[inline]
    fn present(&self, entry: u64) -> bool {
        entry != 0
    }

    fn table(&self, table: PhysAddr, population: u64) -> u64 {
        table.get() | population
    }

    #[inline]
    fn population(&self, entry: u64) -> u64 {
        entry & POPULATION
    }

    #[inline]
    fn recounted(&self, entry: u64, by: i64) -> Option<u64> {
        let new = entry.wrapping_add_signed(by);
        (new & POPULATION != 0).then_some(new)
    }

    #[inline]
    fn page(&self, _level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        PTE.pte(frame, page.rights, page.global).bits()
    }

    #[inline]
    fn translation(&self, entry: u64, _level: u8, addr: VirtAddr) -> Translation {
        PTE.translation(Pte::from_bits(entry), addr.page(PageSize::SIZE_4K))
    }

    #[inline]
    fn walk_sets_usage(&self) -> bool {
        self.walk_sets_usage
    }
}
