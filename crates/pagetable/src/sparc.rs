//! The entries of the SPARC reference MMU (The SPARC Architecture Manual, version 8, appendix H),
//! which is the MMU of the SuperSPARC processors in K94's SPARCcenter.
//!
//! ```text
//!   va   | 8: level 3 | 6: level 2 | 6: level 1 | 12: offset |      pages of 16M, 256K, 4K
//!          1 KB          256 bytes    256 bytes                      entries of 4 bytes
//!
//!     31                                    8 7 6 5 4   2 1  0
//!    +----------------------------------------------------+----+
//!    |  address of the next table / 64                    | 01 |   table
//!    +---------------------------------------+-+-+-+------+----+
//!    |  frame of the page / 4K               |C|M|R| ACC  | 10 |   page
//!    +---------------------------------------+-+-+-+------+----+
//!    |  the same of a page that allows nothing |1|M|R|  U |1 00 |   invalid: all else is the OS's
//!    +---------------------------------------+-+-+-+------+----+
//! ```
//!
//! The manual numbers levels from the root down, 1 to 3; in this crate the numbers descend to 1, as
//! in every tree. A walker finds the root through an entry of the context table, which the
//! processor caches (its root pointer). A walk of this format therefore does not read the context
//! table.
//!
//! ACC encodes eight combinations of the rights of supervisor and user: a page that may be written may also
//! be read, and a page that only the supervisor may access can always be executed. There is no bit for global
//! pages, and no room for the population of a table. In this implementation each table takes a
//! whole frame, most of which is unused for small tables; an OS would put several tables into one
//! frame.

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{Entry, Format, Radix, Translation, Usage};

const TYPE: u64 = 3;
const TABLE: u64 = 1;
const PAGE: u64 = 2;
const ACCESS_SHIFT: u32 = 2;
const ACCESS: u64 = 7 << ACCESS_SHIFT;
/// In an invalid entry, this bit is set if the entry maps a page that allows no access. Another bit
/// records whether the page has the user right.
const NO_ACCESS: u64 = 1 << 2;
const NO_ACCESS_USER: u64 = 1 << 3;
const REFERENCED: u64 = 1 << 5;
const MODIFIED: u64 = 1 << 6;
const CACHEABLE: u64 = 1 << 7;
/// The number of bits by which the address of a frame or table is shifted left from its field in an
/// entry.
const ADDRESS_SHIFT: u32 = 4;
const FRAME: u64 = 0xffff_ff00;

const PHYSICAL_BITS: u32 = 36;
const LEVELS: u8 = 3;
const ENTRY_SHIFT: u32 = 2;
const SHIFTS: [u32; 3] = [12, 18, 24];
const INDEX_BITS: [u32; 3] = [6, 6, 8];
const SIZES: [PageSize; 3] = [
    PageSize::SIZE_4K,
    PageSize::from_shift(18).expect("a power of two"),
    PageSize::from_shift(24).expect("a power of two"),
];
const SMALL_TABLE: PageSize = PageSize::from_shift(8).expect("a power of two");
const ROOT_TABLE: PageSize = PageSize::from_shift(10).expect("a power of two");

/// The rights of the user and of the supervisor, for each value of ACC.
const ALLOWED: [(Rights, Rights); 8] = {
    const R: Rights = Rights::READ;
    const RW: Rights = Rights::from_bits(3);
    const RX: Rights = Rights::from_bits(5);
    const RWX: Rights = Rights::from_bits(7);
    const X: Rights = Rights::EXECUTE;
    const NONE: Rights = Rights::NONE;
    [(R, R), (RW, RW), (RX, RX), (RWX, RWX), (X, X), (R, RW), (NONE, RX), (NONE, RWX)]
};

/// The page table of the SPARC reference MMU. With `MARKS`, walkers set the referenced and modified bits.
pub type SparcReference<const MARKS: bool = true> = Radix<SparcEntries<MARKS>>;

/// The entry layout of [`SparcReference`].
#[derive(Clone, Debug)]
pub struct SparcEntries<const MARKS: bool> {
    span: [VirtRange; 1],
}

impl<const MARKS: bool> SparcReference<MARKS> {
    /// A table without spaces.
    pub fn new() -> SparcReference<MARKS> {
        let span = VirtRange::new(VirtAddr::new(0), 1 << 32).expect("it ends at a power of two");
        Radix::with_format(SparcEntries { span: [span] })
    }
}

impl<const MARKS: bool> Default for SparcReference<MARKS> {
    fn default() -> SparcReference<MARKS> {
        SparcReference::new()
    }
}

/// The type and access bits in the entry of a page with these rights, which ACC can express.
#[inline]
fn access_bits(rights: Rights) -> u64 {
    let user = rights.contains(Rights::USER);
    let access = match rights.bits() & 7 {
        0 => return NO_ACCESS | if user { NO_ACCESS_USER } else { 0 },
        _ if !user => {
            if rights.contains(Rights::WRITE) {
                7
            } else {
                6
            }
        }
        1 => 0,
        3 => 1,
        5 => 2,
        7 => 3,
        _ => 4,
    };
    access << ACCESS_SHIFT | PAGE
}

/// The rights of a page's entry.
#[inline]
fn rights(entry: u64) -> Rights {
    if entry & TYPE != PAGE {
        return if entry & NO_ACCESS_USER != 0 { Rights::USER } else { Rights::NONE };
    }
    let (user, supervisor) = ALLOWED[((entry & ACCESS) >> ACCESS_SHIFT) as usize];
    if user == Rights::NONE { supervisor } else { user | Rights::USER }
}

impl<const MARKS: bool> Format for SparcEntries<MARKS> {
    const LEVELS_MAX: u8 = LEVELS;
    const COUNTS: bool = false;
    const HAS_GLOBAL: bool = false;

    #[inline]
    fn levels(&self) -> u8 {
        LEVELS
    }

    fn page_sizes(&self) -> &[PageSize] {
        &SIZES
    }

    fn spans(&self) -> &[VirtRange] {
        &self.span
    }

    #[inline]
    fn holds(&self, addr: VirtAddr) -> bool {
        addr.get() >> 32 == 0
    }

    #[inline]
    fn entry_shift(&self, level: u8) -> u32 {
        SHIFTS[usize::from(level) - 1]
    }

    fn table_size(&self, level: u8) -> PageSize {
        if level == LEVELS { ROOT_TABLE } else { SMALL_TABLE }
    }

    #[inline]
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
        let bits = INDEX_BITS[usize::from(level) - 1];
        (addr.get() >> self.entry_shift(level) & ((1 << bits) - 1)) << ENTRY_SHIFT
    }

    #[inline]
    fn entry_bytes(&self, _level: u8) -> u8 {
        1 << ENTRY_SHIFT
    }

    #[inline]
    fn page_size(&self, level: u8) -> PageSize {
        SIZES[usize::from(level) - 1]
    }

    #[inline]
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool {
        start.get().checked_add(bytes).is_some_and(|end| end <= 1 << PHYSICAL_BITS)
    }

    fn tables_end(&self) -> PhysAddr {
        PhysAddr::new(1 << PHYSICAL_BITS)
    }

    #[inline]
    fn granted(&self, rights: Rights) -> Rights {
        if Rights::USER.contains(rights) {
            return rights;
        }
        let read = if rights.contains(Rights::WRITE) { Rights::READ } else { Rights::NONE };
        let of_supervisor = Rights::READ | Rights::EXECUTE;
        rights | if rights.contains(Rights::USER) { read } else { of_supervisor }
    }

    #[inline]
    fn decode(&self, entry: u64, _level: u8) -> Entry {
        match entry & TYPE {
            TABLE => Entry::Table(PhysAddr::new((entry & !TYPE) << ADDRESS_SHIFT)),
            PAGE => Entry::Page,
            _ if entry & NO_ACCESS != 0 => Entry::Page,
            _ => Entry::Empty,
        }
    }

    #[inline]
    fn present(&self, entry: u64) -> bool {
        entry & TYPE == PAGE
    }

    fn table(&self, table: PhysAddr, _population: u64) -> u64 {
        table.get() >> ADDRESS_SHIFT | TABLE
    }

    fn population(&self, _entry: u64) -> u64 {
        0
    }

    fn recounted(&self, entry: u64, _by: i64) -> Option<u64> {
        Some(entry)
    }

    #[inline]
    fn page(&self, _level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        frame.get() >> ADDRESS_SHIFT | CACHEABLE | access_bits(self.granted(page.rights))
    }

    #[inline]
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
        let size = self.page_size(level);
        let frame = PhysAddr::new((entry & FRAME) << ADDRESS_SHIFT).align_down(size);
        Translation::new(addr.page(size), frame, rights(entry))
    }

    #[inline]
    fn other_rights(&self, entry: u64, rights: Rights) -> u64 {
        (entry ^ access_bits(self.granted(rights))) & (ACCESS | TYPE)
    }

    #[inline]
    fn usage(&self, entry: u64) -> Usage {
        let referenced = entry & REFERENCED != 0;
        Usage { referenced, dirty: entry & MODIFIED != 0, marked: false }
    }

    #[inline]
    fn usage_bits(&self, usage: Usage) -> u64 {
        let referenced = if usage.referenced { REFERENCED } else { 0 };
        let dirty = if usage.dirty { MODIFIED } else { 0 };
        referenced | dirty
    }

    #[inline]
    fn walk_sets_usage(&self) -> bool {
        MARKS
    }
}
