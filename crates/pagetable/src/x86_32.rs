//! The entries of x86 in 32 bits, with and without physical address extension (Intel SDM vol. 3A §4.3 and
//! §4.4).
//!
//! ```text
//!   32-bit        | 10: directory | 10: table | 12: offset |          entries of 4 bytes; pages of 4K, 4M
//!   PAE       | 2 | 9: directory  |  9: table | 12: offset |          entries of 8 bytes; pages of 4K, 2M
//!
//!     31                                 12 11 9 8 7  6 5 4 3  2  1  0
//!    +-------------------------------------+----+-+--+-+-+----+--+--+-+
//!    |  frame of the next table            |    |    0 |A|    |US|RW|P|   table
//!    +-------------------------------------+----+-+--+-+-+----+--+--+-+
//!    |  frame of the page                  |MK NA|G|PS|D|A|   |US|RW|P|   page; 4M: from bit 22, PS = 1
//!    +-------------------------------------+----+-+--+-+-+----+--+--+-+
//!      PAE: the same in 64 bits, the frame up to bit 51, and NX as bit 63
//! ```
//!
//! *NA* (bit 9, with P = 0) and *MK* (bit 10) belong to the OS, and bits 3 and 4 are the memory
//! type, as in [`crate::X86_64`]. There is no room for the population of a table: a table has up to
//! 1024 entries, but hardware ignores only five bits of an entry that leads to a table.
//!
//! With PAE the root is four directories. A processor does not read the pointers to these
//! directories in a walk: it loads all four when the space changes (§4.4.1). In this format the
//! four directories are one table of 16K, so that a walk reads two entries, as in hardware, and the
//! four pointers take no memory.
//!
//! In 32-bit paging there is no NX: a page that may be read may be executed. Frames are below 4
//! GiB. Pages of 4M above 4 GiB, with the additional address bits of PSE-36, are not supported.

use alloc::vec::Vec;

use addr::{Attributes, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{Entry, Error, Format, Radix, Translation, Unfit, Usage};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// PWT and PCD: the number of the memory type, as in [`crate::X86Entries::PAT`].
const MEMORY_SHIFT: u32 = 3;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const PAGE_SIZE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_ACCESS: u64 = 1 << 9;
const MARKED: u64 = 1 << 10;
const NO_EXECUTE: u64 = 1 << 63;

const FRAME_SHIFT: u32 = 12;
const SIZES: [PageSize; 2] = [PageSize::SIZE_4K, FOUR_MIB];
const SIZES_PAE: [PageSize; 2] = [PageSize::SIZE_4K, PageSize::SIZE_2M];
const FOUR_MIB: PageSize = PageSize::from_shift(22).expect("a power of two");
const ROOT_PAE: PageSize = PageSize::from_shift(14).expect("a power of two");

/// The page table of x86 in 32 bits: two levels, with or without `PAE`. With `MARKS`, walkers set the
/// accessed and dirty bits.
pub type X86_32<const PAE: bool = false, const MARKS: bool = true> =
    Radix<X86Entries32<PAE, MARKS>>;

/// The entry layout of [`X86_32`].
#[derive(Clone, Debug)]
pub struct X86Entries32<const PAE: bool, const MARKS: bool> {
    /// The addresses outside the area: the addresses below and above it, or all addresses if there
    /// is no area.
    spans: Vec<VirtRange>,
    area: Option<VirtRange>,
}

impl<const PAE: bool, const MARKS: bool> X86_32<PAE, MARKS> {
    /// A table without spaces.
    pub fn new() -> X86_32<PAE, MARKS> {
        Radix::with_format(X86Entries32 { spans: Vec::from([between(0, 1 << 32)]), area: None })
    }

    /// A table without spaces, with an area in which tables of other spaces can be visible: see
    /// [`crate::PageTable::lend`]. Both ends of the area must be multiples of the memory that a
    /// directory entry covers.
    pub fn with_area(area: VirtRange) -> Result<X86_32<PAE, MARKS>, Error> {
        let size = if PAE { PageSize::SIZE_2M } else { FOUR_MIB };
        let spans = beside(area, size)?;
        Ok(Radix::with_format(X86Entries32 { spans, area: Some(area) }))
    }
}

/// The 32-bit addresses on either side of an area, whose ends are multiples of `size`.
pub(crate) fn beside(area: VirtRange, size: PageSize) -> Result<Vec<VirtRange>, Error> {
    if !area.is_aligned(size) {
        return Err(Error::Misaligned { addr: area.start().get(), size });
    }
    if area.last().get() >> 32 != 0 {
        return Err(Unfit::Virtual(area.last()).into());
    }
    let (start, end) = (area.start().get(), area.last().get() + 1);
    let sides = [(0, start), (end, 1 << 32)].into_iter().filter(|(from, to)| from < to);
    Ok(sides.map(|(from, to)| between(from, to)).collect())
}

/// The addresses from `start` up to, but not including, `end`.
pub(crate) fn between(start: u64, end: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), end - start).expect("it ends at 4 GiB or below")
}

impl<const PAE: bool, const MARKS: bool> Default for X86_32<PAE, MARKS> {
    fn default() -> X86_32<PAE, MARKS> {
        X86_32::new()
    }
}

impl<const PAE: bool, const MARKS: bool> X86Entries32<PAE, MARKS> {
    const ENTRY_SHIFT: u32 = if PAE { 3 } else { 2 };
    /// The number of index bits of a table of level 1.
    const INDEX_BITS: u32 = if PAE { 9 } else { 10 };
    const PHYSICAL_BITS: u32 = if PAE { 52 } else { 32 };
    const FRAME: u64 = (1 << Self::PHYSICAL_BITS) - (1 << FRAME_SHIFT);
    const RIGHTS: u64 = PRESENT | WRITABLE | USER | NO_ACCESS | if PAE { NO_EXECUTE } else { 0 };

    #[inline]
    fn rights_bits(rights: Rights) -> u64 {
        let bit = |right, bit| if rights.contains(right) { bit } else { 0 };
        let no_execute = if PAE { bit(Rights::EXECUTE, NO_EXECUTE) ^ NO_EXECUTE } else { 0 };
        let present = bit(Rights::READ, PRESENT ^ NO_ACCESS) ^ NO_ACCESS;
        present | bit(Rights::WRITE, WRITABLE) | bit(Rights::USER, USER) | no_execute
    }

    /// The rights of an entry, or of several present entries combined.
    #[inline]
    fn rights(entry: u64) -> Rights {
        let right = |bit, right| if entry & bit != 0 { right } else { Rights::NONE };
        let executes = if PAE { entry & NO_EXECUTE == 0 } else { entry & PRESENT != 0 };
        let execute = if executes { Rights::EXECUTE } else { Rights::NONE };
        right(PRESENT, Rights::READ)
            | right(WRITABLE, Rights::WRITE)
            | right(USER, Rights::USER)
            | execute
    }

    /// The bits of a page's entry that are stored inverted, as in [`crate::X86_64`]: the bits of
    /// its frame, if the entry is not present. With 32-bit frames no bits are inverted, because the
    /// upper half of the addresses may be memory.
    #[inline]
    fn hidden(entry: u64) -> u64 {
        if PAE && entry & PRESENT == 0 { Self::FRAME } else { 0 }
    }
}

impl<const PAE: bool, const MARKS: bool> Format for X86Entries32<PAE, MARKS> {
    const LEVELS_MAX: u8 = 2;
    const COUNTS: bool = false;

    #[inline]
    fn levels(&self) -> u8 {
        2
    }

    fn page_sizes(&self) -> &[PageSize] {
        if PAE { &SIZES_PAE } else { &SIZES }
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
        FRAME_SHIFT + if level == 1 { 0 } else { Self::INDEX_BITS }
    }

    fn table_size(&self, level: u8) -> PageSize {
        if PAE && level == 2 { ROOT_PAE } else { PageSize::SIZE_4K }
    }

    #[inline]
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
        let bits = if level == 1 { Self::INDEX_BITS } else { 32 - self.entry_shift(2) };
        (addr.get() >> self.entry_shift(level) & ((1 << bits) - 1)) << Self::ENTRY_SHIFT
    }

    #[inline]
    fn entry_bytes(&self, _level: u8) -> u8 {
        1 << Self::ENTRY_SHIFT
    }

    #[inline]
    fn page_size(&self, level: u8) -> PageSize {
        self.page_sizes()[usize::from(level) - 1]
    }

    #[inline]
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool {
        start.get().checked_add(bytes).is_some_and(|end| end <= 1 << Self::PHYSICAL_BITS)
    }

    fn tables_end(&self) -> PhysAddr {
        PhysAddr::new(1 << Self::PHYSICAL_BITS)
    }

    #[inline]
    fn granted(&self, rights: Rights) -> Rights {
        let none = Rights::USER.contains(rights);
        let execute = if PAE { Rights::NONE } else { Rights::EXECUTE };
        if none { rights } else { rights | Rights::READ | execute }
    }

    #[inline]
    fn check_attributes(&self, attributes: Attributes) -> Result<(), Unfit> {
        if attributes.key == 0 { Ok(()) } else { Err(Unfit::Key(attributes.key)) }
    }

    #[inline]
    fn decode(&self, entry: u64, level: u8) -> Entry {
        let page = level == 1 || entry & PAGE_SIZE != 0;
        match entry & (PRESENT | NO_ACCESS) {
            0 => Entry::Empty,
            _ if page => Entry::Page,
            _ => Entry::Table(PhysAddr::new(entry & Self::FRAME)),
        }
    }

    #[inline]
    fn present(&self, entry: u64) -> bool {
        entry & PRESENT != 0
    }

    #[inline]
    fn pass(&self, passed: u64, entry: u64) -> u64 {
        // NX forbids an access if it is set; the other bits forbid it if they are clear.
        passed & (entry ^ NO_EXECUTE)
    }

    #[inline]
    fn passed_rights(&self, passed: u64) -> Rights {
        // All passed entries were present.
        Self::rights((passed ^ NO_EXECUTE) | PRESENT)
    }

    fn table(&self, table: PhysAddr, _population: u64) -> u64 {
        table.get() | PRESENT | WRITABLE | USER
    }

    fn population(&self, _entry: u64) -> u64 {
        0
    }

    fn recounted(&self, entry: u64, _by: i64) -> Option<u64> {
        Some(entry)
    }

    #[inline]
    fn page(&self, level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        let size = if level > 1 { PAGE_SIZE } else { 0 };
        let global = if page.global { GLOBAL } else { 0 };
        let memory = (page.attributes.memory as u64) << MEMORY_SHIFT;
        let rights = Self::rights_bits(self.granted(page.rights));
        let entry = frame.get() | size | global | memory | rights;
        entry ^ Self::hidden(entry)
    }

    #[inline]
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
        let size = self.page_size(level);
        let frame = PhysAddr::new((entry ^ Self::hidden(entry)) & Self::FRAME).align_down(size);
        let memory = MemoryType::from_bits((entry >> MEMORY_SHIFT) as u8);
        let translation = Translation::new(addr.page(size), frame, Self::rights(entry));
        Translation { global: entry & GLOBAL != 0, ..translation }.with(Attributes::of(memory))
    }

    #[inline]
    fn other_rights(&self, entry: u64, rights: Rights) -> u64 {
        let other = (entry ^ Self::rights_bits(self.granted(rights))) & Self::RIGHTS;
        // The frame of an absent page is stored inverted, so a change of the present bit also
        // inverts the frame.
        if PAE && other & PRESENT != 0 { other ^ Self::FRAME } else { other }
    }

    #[inline]
    fn usage(&self, entry: u64) -> Usage {
        Usage {
            referenced: entry & ACCESSED != 0,
            dirty: entry & DIRTY != 0,
            marked: entry & MARKED != 0,
        }
    }

    #[inline]
    fn usage_bits(&self, usage: Usage) -> u64 {
        let referenced = if usage.referenced { ACCESSED } else { 0 };
        let dirty = if usage.dirty { DIRTY } else { 0 };
        let marked = if usage.marked { MARKED } else { 0 };
        referenced | dirty | marked
    }

    #[inline]
    fn table_usage_bit(&self) -> u64 {
        ACCESSED
    }

    #[inline]
    fn walk_sets_usage(&self) -> bool {
        MARKS
    }
}
