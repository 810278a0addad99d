//! The entries of ARM's first MMU, which the StrongARM has (ARM Architecture Reference Manual, 2nd
//! edition, part B chapter 3).
//!
//! ```text
//!   va   | 12: first level | 8: coarse table | 12: offset |        pages of 1M (sections), 4K
//!           16 KB             1 KB                                   entries of 4 bytes
//!
//!     31                20 19      12 11 10 9 8     5  4  3 2 1 0
//!    +--------------------------------+-----+--------+--+----+---+
//!    |  address of a coarse table / 1K      |  domain|      | 01|   first level: table
//!    +---------------------+----------+-----+--------+--+----+---+
//!    |  frame of a section |    OS    | AP  |  domain|  |C B | 10|   first level: section
//!    +---------------------+----------+--+--+--+--+--+--+----+---+
//!    |  frame of a small page            |AP|AP|AP|AP|  |C B | 10|   coarse table: a field each 1 KB
//!    +-----------------------------------+--+--+--+--+--+----+---+
//!    |  the same of a page that allows nothing        |NA|   | 00|   fault: all else is the OS's
//!    +------------------------------------------------+--+---+---+
//! ```
//!
//! AP gives the rights of supervisor and user, with the control register's S bit set: 0 is *supervisor may
//! read*, 1 *supervisor may write*, 2 *user may read too*, 3 *user may write too*. Execution cannot be
//! forbidden. There is no bit for global pages. A TLB can flush one entry or all of its entries.
//!
//! Hardware sets no usage bits, and the entry of a small page has no spare bits for the OS. An OS
//! keeps a second table for usage bits beside each coarse table, as ARM Linux does: here each entry
//! has an OS word 1 KB above it in the same frame. A section's entry has should-be-zero bits, of
//! which this format uses two.
//!
//! The domain is left 0: a caller that puts entries of several spaces into one table (Wiggins and
//! Heiser 2000) writes the domain of the space there. Large pages of 64K (sixteen identical
//! entries) and fine tables with tiny pages of 1K are not supported.

use alloc::vec::Vec;

use addr::{Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{
    Entry, Error, Format, Radix, Translation, Usage,
    x86_32::{beside, between},
};

const TYPE: u64 = 3;
const COARSE: u64 = 1;
/// The type of an entry that maps a section (at level 2) or a small page (at level 1).
const PAGE: u64 = 2;
/// C and B set: cacheable and bufferable, for ordinary memory.
const MEMORY: u64 = 3 << 2;
/// In an entry of type 0, this bit is set if the entry maps a page that allows no access.
const NO_ACCESS: u64 = 1 << 2;
const AP_SHIFT: u32 = 10;
const AP: u64 = 3;
/// The position of the first of the AP fields in a small page's entry: one field for each quarter
/// of the page.
const SMALL_AP_SHIFT: u32 = 4;
const EACH_QUARTER: u64 = 0b0101_0101;

const SECTION_FRAME: u64 = 0xfff0_0000;
const SMALL_FRAME: u64 = 0xffff_f000;
const TABLE: u64 = 0xffff_fc00;

/// Distance in bytes from the hardware's word of a small page to the OS's word.
const BESIDE: u64 = 1 << 10;
/// The algorithms treat an entry as 64 bits: the hardware's word, with the usage bits above it.
const REFERENCED: u64 = 1 << 32;
const DIRTY: u64 = 2 << 32;
const MARKED: u64 = 4 << 32;
const OWN_SHIFT: u32 = 32;
/// The position of the usage bits in the entry of a section. For other pages, the usage bits are the
/// lowest bits of the OS's word.
const SECTION_OWN_SHIFT: u32 = 12;
const OWN: u64 = 7;
/// This bit is set in the 64 bits of a small page, and clear in those of a section.
const SMALL: u64 = 1 << 63;

const SIZES: [PageSize; 2] = [PageSize::SIZE_4K, SECTION];
const SECTION: PageSize = PageSize::from_shift(20).expect("a power of two");
const COARSE_TABLE: PageSize = PageSize::from_shift(10).expect("a power of two");
const ROOT_TABLE: PageSize = PageSize::from_shift(14).expect("a power of two");

/// The page table of ARM's first MMU, with sections and coarse tables.
pub type Arm = Radix<ArmEntries>;

/// The entry layout of [`Arm`].
#[derive(Clone, Debug)]
pub struct ArmEntries {
    /// The addresses outside the area: the addresses below and above it, or all addresses if there
    /// is no area.
    spans: Vec<VirtRange>,
    area: Option<VirtRange>,
}

impl Arm {
    /// A table without spaces.
    pub fn new() -> Arm {
        Radix::with_format(ArmEntries { spans: Vec::from([between(0, 1 << 32)]), area: None })
    }

    /// A table without spaces, with an area in which tables of other spaces can be visible: see
    /// [`crate::PageTable::lend`]. Both ends of the area are multiples of a section.
    pub fn with_area(area: VirtRange) -> Result<Arm, Error> {
        let spans = beside(area, SECTION)?;
        Ok(Radix::with_format(ArmEntries { spans, area: Some(area) }))
    }
}

impl Default for Arm {
    fn default() -> Arm {
        Arm::new()
    }
}

/// The type and access bits in the entry of a small page or a section.
#[inline]
fn rights_bits(rights: Rights, is_small: bool) -> u64 {
    let user = u64::from(rights.contains(Rights::USER));
    let access = user << 1 | u64::from(rights.contains(Rights::WRITE));
    let nothing = Rights::USER.contains(rights);
    in_fields(access, is_small) | if nothing { NO_ACCESS } else { PAGE | MEMORY }
}

/// `access` in each AP field of an entry. The entry of a section has one field, the entry of a
/// small page four.
#[inline]
fn in_fields(access: u64, is_small: bool) -> u64 {
    if is_small { (access * EACH_QUARTER) << SMALL_AP_SHIFT } else { access << AP_SHIFT }
}

#[inline]
fn rights(entry: u64) -> Rights {
    let access = entry >> if entry & SMALL != 0 { SMALL_AP_SHIFT } else { AP_SHIFT };
    let user = if access & 2 != 0 { Rights::USER } else { Rights::NONE };
    if entry & TYPE != PAGE {
        return user;
    }
    let write = if access & 1 != 0 { Rights::WRITE } else { Rights::NONE };
    Rights::READ | Rights::EXECUTE | write | user
}

/// The 64 bits that represent an entry, from the hardware's word and the OS's word in memory.
#[inline]
fn from_words(level: u8, word: u64, own: u64) -> u64 {
    match (level, word) {
        (_, 0) => 0,
        (1, _) => word | (own & OWN) << OWN_SHIFT | SMALL,
        _ if word & TYPE == COARSE => word,
        _ => {
            let own = word >> SECTION_OWN_SHIFT & OWN;
            word & !(OWN << SECTION_OWN_SHIFT) | own << OWN_SHIFT
        }
    }
}

/// The hardware's word of an entry (or of bits to invert) at `level`.
#[inline]
fn word(level: u8, entry: u64) -> u32 {
    let own = if level == 1 { 0 } else { (entry >> OWN_SHIFT & OWN) << SECTION_OWN_SHIFT };
    entry as u32 | own as u32
}

/// The OS's word of an entry.
#[inline]
fn own_word(entry: u64) -> u32 {
    (entry >> OWN_SHIFT & OWN) as u32
}

impl Format for ArmEntries {
    const LEVELS_MAX: u8 = 2;
    const COUNTS: bool = false;
    const HAS_GLOBAL: bool = false;

    #[inline]
    fn levels(&self) -> u8 {
        2
    }

    fn page_sizes(&self) -> &[PageSize] {
        &SIZES
    }

    fn spans(&self) -> &[VirtRange] {
        &self.spans
    }

    fn area(&self) -> Option<VirtRange> {
        self.area
    }

    #[inline]
    fn holds(&self, addr: VirtAddr) -> bool {
        addr.get() >> 32 == 0
    }

    #[inline]
    fn entry_shift(&self, level: u8) -> u32 {
        if level == 1 { 12 } else { 20 }
    }

    fn table_size(&self, level: u8) -> PageSize {
        if level == 1 { COARSE_TABLE } else { ROOT_TABLE }
    }

    #[inline]
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
        let bits = if level == 1 { 8 } else { 12 };
        (addr.get() >> self.entry_shift(level) & ((1 << bits) - 1)) << 2
    }

    #[inline]
    fn entry_bytes(&self, _level: u8) -> u8 {
        4
    }

    #[inline]
    fn page_size(&self, level: u8) -> PageSize {
        SIZES[usize::from(level) - 1]
    }

    #[inline]
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool {
        start.get().checked_add(bytes).is_some_and(|end| end <= 1 << 32)
    }

    fn tables_end(&self) -> PhysAddr {
        PhysAddr::new(1 << 32)
    }

    #[inline]
    fn granted(&self, rights: Rights) -> Rights {
        let nothing = Rights::USER.contains(rights);
        if nothing { rights } else { rights | Rights::READ | Rights::EXECUTE }
    }

    #[inline]
    fn decode(&self, entry: u64, level: u8) -> Entry {
        match entry & TYPE {
            0 if entry & NO_ACCESS == 0 => Entry::Empty,
            COARSE if level == 2 => Entry::Table(PhysAddr::new(entry & TABLE)),
            _ => Entry::Page,
        }
    }

    #[inline]
    fn present(&self, entry: u64) -> bool {
        entry & TYPE != 0
    }

    fn table(&self, table: PhysAddr, _population: u64) -> u64 {
        table.get() | COARSE
    }

    fn population(&self, _entry: u64) -> u64 {
        0
    }

    fn recounted(&self, entry: u64, _by: i64) -> Option<u64> {
        Some(entry)
    }

    #[inline]
    fn page(&self, level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        let kind = if level == 1 { SMALL } else { 0 };
        frame.get() | rights_bits(self.granted(page.rights), level == 1) | kind
    }

    #[inline]
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
        let frame = if level == 1 { SMALL_FRAME } else { SECTION_FRAME };
        Translation::new(
            addr.page(self.page_size(level)),
            PhysAddr::new(entry & frame),
            rights(entry),
        )
    }

    #[inline]
    fn other_rights(&self, entry: u64, rights: Rights) -> u64 {
        let is_small = entry & SMALL != 0;
        let mask = in_fields(AP, is_small) | TYPE | MEMORY | NO_ACCESS;
        (entry ^ rights_bits(self.granted(rights), is_small)) & mask
    }

    #[inline]
    fn usage(&self, entry: u64) -> Usage {
        Usage {
            referenced: entry & REFERENCED != 0,
            dirty: entry & DIRTY != 0,
            marked: entry & MARKED != 0,
        }
    }

    #[inline]
    fn usage_bits(&self, usage: Usage) -> u64 {
        let bit = |is, bit| if is { bit } else { 0 };
        bit(usage.referenced, REFERENCED) | bit(usage.dirty, DIRTY) | bit(usage.marked, MARKED)
    }

    #[inline]
    fn walk_sets_usage(&self) -> bool {
        false
    }

    #[inline]
    fn read(&self, level: u8, at: PhysAddr, memory: &impl Memory) -> u64 {
        let word = u64::from(memory.read_u32(at));
        let has_own = level == 1 && word != 0;
        let own = if has_own { memory.read_u32(at.wrapping_add(BESIDE)) } else { 0 };
        from_words(level, word, own.into())
    }

    #[inline]
    fn write(&self, level: u8, at: PhysAddr, entry: u64, memory: &mut impl Memory) {
        if level == 1 {
            memory.write_u32(at.wrapping_add(BESIDE), own_word(entry));
        }
        memory.write_u32(at, word(level, entry));
    }

    #[inline]
    fn swap(&self, level: u8, at: PhysAddr, new: u64, memory: &mut impl Memory) -> u64 {
        let before = u64::from(memory.swap_u32(at, word(level, new)));
        let own = match level {
            1 => memory.swap_u32(at.wrapping_add(BESIDE), own_word(new)),
            _ => 0,
        };
        from_words(level, before, own.into())
    }

    #[inline]
    fn invert(&self, level: u8, at: PhysAddr, bits: u64, memory: &mut impl Memory) -> u64 {
        let before = u64::from(memory.invert_u32(at, word(level, bits)));
        let own = match level {
            1 => memory.invert_u32(at.wrapping_add(BESIDE), own_word(bits)),
            _ => 0,
        };
        from_words(level, before, own.into())
    }

    #[inline]
    fn exchange(
        &self,
        level: u8,
        at: PhysAddr,
        current: u64,
        new: u64,
        memory: &mut impl Memory,
    ) -> Result<(), u64> {
        // No walker changes the OS's word, and changes of entries by the OS exclude each other, so
        // a plain store is enough.
        let (from, to) = (word(level, current), word(level, new));
        match memory.compare_exchange_u32(at, from, to) {
            Ok(()) if level == 1 => {
                memory.write_u32(at.wrapping_add(BESIDE), own_word(new));
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(_) => Err(self.read(level, at, memory)),
        }
    }
}
