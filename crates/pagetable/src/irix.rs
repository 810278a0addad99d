//! The page table of IRIX 6.4 (G98 sections 4 and 6.2): three levels, an entry for each base page, and
//! in each entry the size of its page.
//!
//! ```text
//!   va, base 16K   | 11: root | 11: level 2 | 11: level 1 | 14: offset |     47 bits
//!   va, base 4K    | 11: root | 12: level 2 | 12: level 1 | 12: offset |     47 bits
//!
//!      63     52 51                  12 11     9  8   7                        0
//!     +---------+----------------------+--------+---+---------------------------+
//!     |    0    | frame of this base   |  size  | 0 | D | A | G | U X W R | 1    |   page
//!     |         | page                 |        |   |                           |
//!     +---------+----------------------+--------+---+---------------------------+
//!       size: 0 for 4K, 1 for 16K, 2 for 64K, ... 6 for 16M
//! ```
//!
//! A large page has one entry for each of its base pages, with adjacent frames and the same size
//! field. A refill handler therefore needs only the entry for the missing address, and a page's
//! size is changed in place. Two spaces can map the same frames with different page sizes. The
//! disadvantage is that large pages do not make the table smaller.
//!
//! G98 says only that there are three levels. The number of index bits of each level is an
//! assumption. The levels together have enough bits for the 47 address bits of the programs that
//! are recorded today (the R10000 has 44), and a level-1 table covers a page of 16M. Entries that
//! lead to tables have the layout of [`crate::Split`].

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::split::SplitEntries;
use crate::{Entry, Format, Geometry, Radix, Translation};

const LEVELS: u8 = 3;
const SIZE_SHIFT: u32 = 9;
const SIZE: u64 = 0x7 << SIZE_SHIFT;
/// log2 of the page sizes of the R10000's TLB; each size is four times the previous size.
const SHIFTS: [u8; 7] = [12, 14, 16, 18, 20, 22, 24];
const ADDRESS_END: u64 = 1 << 47;

/// The page table of IRIX.
pub type Irix = Radix<IrixEntries>;

/// The entry layout of [`Irix`].
#[derive(Clone, Debug)]
pub struct IrixEntries {
    split: SplitEntries,
    sizes: Vec<PageSize>,
}

impl Irix {
    /// A table over base pages of 4K or 16K, with larger pages up to 16M. Its refill handler does not
    /// set usage bits.
    pub fn new(base: PageSize) -> Result<Irix, Geometry> {
        Geometry::in_range("bits in a base page's offset", base.shift().into(), 12, 14)?;
        let index_bits: &[u8] = match base.shift() {
            12 => &[11, 12, 12],
            14 => &[11, 11, 11],
            shift => {
                let what = "bits in a base page's offset (12 or 14)";
                return Err(Geometry::OutOfRange { what, value: shift.into(), min: 12, max: 14 });
            }
        };
        let split = SplitEntries::over(base, index_bits, &[])?.below(ADDRESS_END);
        let sizes = SHIFTS.into_iter().filter_map(PageSize::from_shift);
        let sizes = sizes.filter(|size| *size >= base).collect();
        Ok(Radix::with_format(IrixEntries { split, sizes }))
    }

    /// This table, which must not have spaces yet, with walks that set the usage bits of the last entry that
    /// they read.
    pub fn with_usage(self) -> Irix {
        let IrixEntries { split, sizes } = self.into_format();
        Radix::with_format(IrixEntries { split: split.with_usage(), sizes })
    }
}

/// The value of an entry's size field for pages of `size`.
const fn code(size: PageSize) -> u64 {
    ((size.shift() - SHIFTS[0] as u32) / 2) as u64
}

impl IrixEntries {
    #[inline]
    fn size_of(&self, entry: u64) -> PageSize {
        let shift = SHIFTS[0] + 2 * ((entry & SIZE) >> SIZE_SHIFT) as u8;
        PageSize::from_shift(shift).unwrap_or(self.sizes[0])
    }
}

impl Format for IrixEntries {
    const LEVELS_MAX: u8 = LEVELS;
    const REPLICATES: bool = true;

    #[inline]
    fn levels(&self) -> u8 {
        LEVELS
    }

    fn page_sizes(&self) -> &[PageSize] {
        &self.sizes
    }

    fn spans(&self) -> &[VirtRange] {
        self.split.spans()
    }

    #[inline]
    fn holds(&self, addr: VirtAddr) -> bool {
        addr.get() < ADDRESS_END
    }

    #[inline]
    fn entry_shift(&self, level: u8) -> u32 {
        self.split.entry_shift(level)
    }

    fn table_size(&self, level: u8) -> PageSize {
        self.split.table_size(level)
    }

    #[inline]
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
        self.split.entry_offset(level, addr)
    }

    #[inline]
    fn entry_bytes(&self, level: u8) -> u8 {
        self.split.entry_bytes(level)
    }

    /// The base page size: a level-1 entry covers only a base page.
    #[inline]
    fn page_size(&self, level: u8) -> PageSize {
        self.split.page_size(level)
    }

    fn level_of(&self, size: PageSize) -> Option<u8> {
        self.sizes.contains(&size).then_some(1)
    }

    #[inline]
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool {
        self.split.holds_frame(start, bytes)
    }

    fn tables_end(&self) -> PhysAddr {
        self.split.tables_end()
    }

    #[inline]
    fn decode(&self, entry: u64, level: u8) -> Entry {
        self.split.decode(entry, level)
    }

    #[inline]
    fn present(&self, entry: u64) -> bool {
        self.split.present(entry)
    }

    fn table(&self, table: PhysAddr, population: u64) -> u64 {
        self.split.table(table, population)
    }

    #[inline]
    fn population(&self, entry: u64) -> u64 {
        self.split.population(entry)
    }

    #[inline]
    fn recounted(&self, entry: u64, by: i64) -> Option<u64> {
        self.split.recounted(entry, by)
    }

    #[inline]
    fn page(&self, level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        self.split.page(level, page, frame) | code(page.page.size()) << SIZE_SHIFT
    }

    #[inline]
    fn other_size(&self, entry: u64, _addr: VirtAddr, size: PageSize) -> u64 {
        (entry ^ code(size) << SIZE_SHIFT) & SIZE
    }

    #[inline]
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
        let size = self.size_of(entry);
        let part = self.split.translation(entry & !SIZE, level, addr);
        Translation { page: addr.page(size), frame: part.frame.align_down(size), ..part }
    }

    #[inline]
    fn check_rights(&self, rights: Rights) -> Result<(), crate::Unfit> {
        self.split.check_rights(rights)
    }

    #[inline]
    fn walk_sets_usage(&self) -> bool {
        self.split.walk_sets_usage()
    }
}
