//! The entries of AArch64: VMSAv8-64, stage 1 of EL1 and EL0 (Arm Architecture Reference Manual for
//! A-profile, DDI 0487, section D8).
//!
//! ```text
//!   granule  levels (48 bits)          pages, and with the contiguous bit
//!   4K       9 | 9 | 9 | 9 | 12        4K  64K   2M  32M   1G          52 bits: 4 more above
//!   16K      1 | 11 | 11 | 11 | 14     16K  2M   32M  1G               52 bits: 5 in place of 1
//!   64K      6 | 13 | 13 | 16          64K  2M   512M  16G             52 bits: 10 in place of 6
//!
//!     63  59 58 55 54  53  52   51 50 48 47                 12 11 10 9 8 7   5 4  2 1 0
//!    +------+-----+---+---+----+---+----+---------------------+--+--+---+-----+----+----+
//!    |  0   |  pop 7-0|   | next table                         |  0     0| pop 13-8 | 11 |   table
//!    +------+-----+---+---+----+---+----+---------------------+--+--+---+-----+----+----+
//!    |  0   | OS  |UXN|PXN|cont|DBM| 0  |  frame              |nG|AF|SH |AP  0| MT | 11 |   page; 01: a block
//!    +------+-----+---+---+----+---+----+---------------------+--+--+---+-----+----+----+
//!       OS: NA 58, MK 57, referenced 56, dirty 55
//!       52 bits: frame bits 51:48 in 15:12 with granules of 64K; 51:50 in 9:8, in place of SH, with others
//! ```
//!
//! The root consists of two adjacent tables. The first is for TTBR0_EL1 and maps the addresses from
//! 0 up. The second is for TTBR1_EL1 and maps the addresses below the end of the address space. Its
//! offset from the first is half the [root table's size](Format::table_size). [`Aarch64`] returns
//! the value for each register.
//!
//! *Usage* (FEAT_HAFDBS). A walker sets AF. DBM means that the page may be written: AP\[2\]
//! (read-only) is set while the page is clean, and the walker clears it at the first store. When a
//! page loses the right to write, its dirty state is kept in the OS's bit 55. If walkers set no
//! bits, AF is always set, so that no access faults because of AF, and the OS keeps the referenced
//! and dirty bits.
//!
//! *population* is the number of entries in use in the next table, kept in bits that hardware ignores. *NA*
//! (with bit 0 clear) marks a page that is mapped but allows no access; *MK* is the page's mark. A page that
//! may be written or executed may also be read. A user page can be executed only by the user, a kernel page
//! only by the kernel.
//!
//! *Break before make* (section D8.16). An entry with another page size or another contiguous bit
//! must not directly replace an entry that a TLB may hold. Resizing a page therefore invalidates
//! the entry first, and writes the new entry when processors have flushed the old one. With
//! FEAT_BBM at level 2 ([`Aarch64::with_bbm2`]), one exchange of the entry is enough.
//!
//! Not supported: the block sizes that only 52-bit addresses have (512G, 64G, 4T), runs of 16 blocks of 1G (16G,
//! with a granule of 4K), hierarchical rights (APTable and similar fields) and permission overlays.

use addr::{Attributes, Kind, Memory, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{
    Entry, Format, Radix, Space, Translation, Unfit, Usage, format::halves, radix::seldom,
};

const VALID: u64 = 1 << 0;
/// In a valid entry: set if the entry leads to a table or, at level 1, maps a page; clear in the
/// entry of a block.
const NO_BLOCK: u64 = 1 << 1;
const TABLE: u64 = VALID | NO_BLOCK;
const MEMORY_SHIFT: u32 = 2;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const DIRTY_MODIFIER: u64 = 1 << 51;
const CONTIGUOUS: u64 = 1 << 52;
const NO_EXECUTE: u64 = 1 << 53;
const NO_USER_EXECUTE: u64 = 1 << 54;
const OWN_DIRTY: u64 = 1 << 55;
const OWN_REFERENCED: u64 = 1 << 56;
const MARKED: u64 = 1 << 57;
const NO_ACCESS: u64 = 1 << 58;
const RIGHTS: u64 =
    VALID | NO_ACCESS | USER | READ_ONLY | DIRTY_MODIFIER | NO_EXECUTE | NO_USER_EXECUTE;

/// The position of the population's lower eight bits in an entry; its upper six bits have another
/// position.
const LOW_SHIFT: u32 = 51;
const LOW_BITS: u32 = 8;
const HIGH_SHIFT: u32 = 2;
const HIGH_BITS: u32 = 6;
const POPULATION: u64 = mask(LOW_BITS) << LOW_SHIFT | mask(HIGH_BITS) << HIGH_SHIFT;

const ENTRY_SHIFT: u32 = 3;
/// The smallest alignment of a table, in bytes.
const TABLE_BYTES_MIN: u64 = 64;

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

const fn size(shift: u32) -> PageSize {
    PageSize::from_shift(shift as u8).expect("a power of two")
}

const SIZES_4K: [PageSize; 5] = [size(12), size(16), size(21), size(25), size(30)];
const SIZES_16K: [PageSize; 4] = [size(14), size(21), size(25), size(30)];
const SIZES_64K: [PageSize; 4] = [size(16), size(21), size(29), size(34)];

/// The page table of AArch64, with granules of 1 << `GRANULE` bytes (12, 14 or 16), for addresses of `BITS`
/// bits (48 or 52). With `MARKS` walkers set AF and the dirty state (FEAT_HAFDBS). Without `MARKS`,
/// AF is always set, so that no access faults because of AF, and the operating system keeps the
/// usage bits ([`set_usage`](crate::PageTable::set_usage)).
///
/// The root is two tables in one frame: a space needs one frame of twice the granule. The page
/// sizes by granule, including those with the contiguous bit, are: 4K, 64K, 2M, 32M and 1G; 16K,
/// 2M, 32M and 1G; 64K, 2M, 512M and 16G.
///
/// # Registers
///
/// | register | holds |
/// |---|---|
/// | TTBR0_EL1, TTBR1_EL1 | [`Aarch64::ttbrs`] of the space, and the ASID in the one that TCR_EL1.A1 names |
/// | TCR_EL1 | [`Aarch64Entries::TCR`], and what the entries leave open: IPS, AS, A1, and the cacheability of walks (IRGN, ORGN, SH) |
/// | MAIR_EL1 | [`Aarch64Entries::MAIR`] |
///
/// ```
/// use addr::PhysAddr;
/// use pagetable::{Aarch64, Aarch64Entries, Space};
///
/// // A granule of 4K and addresses of 48 bits: T0SZ and T1SZ are 16, TG1 is 2, HA and HD are set.
/// assert_eq!(Aarch64Entries::<12, 48, true>::TCR, 0x0000_0180_8010_0010);
/// let space = Space::new(0, PhysAddr::new(0x4000_2000));
/// assert_eq!(Aarch64::<12, 48>::ttbrs(space), [0x4000_2000, 0x4000_3000]);
/// ```
pub type Aarch64<const GRANULE: u8 = 12, const BITS: u8 = 48, const MARKS: bool = true> =
    Radix<Aarch64Entries<GRANULE, BITS, MARKS>>;

/// The entry layout of [`Aarch64`].
#[derive(Clone, Debug)]
pub struct Aarch64Entries<const GRANULE: u8, const BITS: u8, const MARKS: bool> {
    spans: [VirtRange; 2],
    /// The bits of an entry that determine whether the entry leads to a table, and to which table:
    /// see [`Format::next_table`]. It is a field and not a constant, since the compiler would split
    /// a constant into two masks.
    next_bits: u64,
    bbm2: bool,
}

impl<const GRANULE: u8, const BITS: u8, const MARKS: bool> Aarch64<GRANULE, BITS, MARKS> {
    /// A table without spaces, for processors that need break-before-make.
    pub fn new() -> Aarch64<GRANULE, BITS, MARKS> {
        let spans = halves(1 << Aarch64Entries::<GRANULE, BITS, MARKS>::ADDRESS_BITS);
        let next_bits = Aarch64Entries::<GRANULE, BITS, MARKS>::place(u64::MAX) | TABLE;
        Radix::with_format(Aarch64Entries { spans, next_bits, bbm2: false })
    }

    /// This table, which must not have spaces yet, for processors with FEAT_BBM at level 2. Such a processor
    /// accepts a valid entry that is replaced by one with another page size or contiguous bit, without an
    /// invalid entry and a flush in between.
    pub fn with_bbm2(self) -> Aarch64<GRANULE, BITS, MARKS> {
        Radix::with_format(Aarch64Entries { bbm2: true, ..self.into_format() })
    }

    /// The values of TTBR0_EL1 and TTBR1_EL1 for a space, without an ASID: the first bytes of the
    /// tables for addresses from 0 up and for those below the end. For addresses of 52 bits, bits
    /// 51 to 48 are stored in bits 5 to 2.
    pub const fn ttbrs(space: Space) -> [u64; 2] {
        let lower = space.root().get();
        let upper = lower + Aarch64Entries::<GRANULE, BITS, MARKS>::HALF_BYTES;
        [base_register(lower), base_register(upper)]
    }
}

const fn base_register(table: u64) -> u64 {
    table & mask(48) | (table >> 48) << 2
}

impl<const GRANULE: u8, const BITS: u8, const MARKS: bool> Default
    for Aarch64<GRANULE, BITS, MARKS>
{
    fn default() -> Aarch64<GRANULE, BITS, MARKS> {
        Aarch64::new()
    }
}

impl<const GRANULE: u8, const BITS: u8, const MARKS: bool> Aarch64Entries<GRANULE, BITS, MARKS> {
    /// The value for MAIR_EL1, with one attribute for each [`MemoryType`] in the order of their
    /// numbers: Normal write-back, Normal non-cacheable, Device-nGnRnE, Device-nGnRE.
    pub const MAIR: u64 = 0x0400_44ff;

    /// The fields of TCR_EL1 that depend on the format of the entries; all other fields are 0: T0SZ
    /// and T1SZ by the bits of an address, TG0 and TG1 by the granule, HA and HD where walkers set
    /// bits, DS with 52 bits and a granule of 4K or 16K.
    pub const TCR: u64 = {
        let size = 64 - Self::ADDRESS_BITS as u64;
        let (lower, upper) = match GRANULE {
            12 => (0, 2),
            14 => (2, 1),
            _ => (1, 3),
        };
        let marks = if MARKS { 3 << 39 } else { 0 };
        let ds = if Self::DS { 1 << 59 } else { 0 };
        size | size << 16 | lower << 14 | upper << 30 | marks | ds
    };

    const ADDRESS_BITS: u32 = {
        assert!(GRANULE == 12 || GRANULE == 14 || GRANULE == 16, "granules: 4K, 16K and 64K");
        assert!(BITS == 48 || BITS == 52, "addresses have 48 or 52 bits");
        BITS as u32
    };
    const OFFSET_BITS: u32 = GRANULE as u32;
    const INDEX_BITS: u32 = Self::OFFSET_BITS - ENTRY_SHIFT;
    const LEVELS: u8 = (Self::ADDRESS_BITS - Self::OFFSET_BITS).div_ceil(Self::INDEX_BITS) as u8;
    const ROOT_BITS: u32 = Self::ADDRESS_BITS - Self::shift(Self::LEVELS);
    /// The bytes of each of the root's two tables.
    const HALF_BYTES: u64 = {
        let bytes = 1 << (Self::ROOT_BITS + ENTRY_SHIFT);
        if bytes < TABLE_BYTES_MIN { TABLE_BYTES_MIN } else { bytes }
    };
    const SIZES: &[PageSize] = match GRANULE {
        12 => &SIZES_4K,
        14 => &SIZES_16K,
        _ => &SIZES_64K,
    };
    /// Whether bits 51 and 50 of a frame are stored in place of the shareability field (FEAT_LPA2).
    const DS: bool = BITS == 52 && GRANULE < 16;
    /// Whether bits 51 to 48 of a frame are stored below its other bits (FEAT_LPA).
    const LPA: bool = BITS == 52 && GRANULE == 16;
    /// The bits of a frame that an entry stores at their own positions.
    const FRAME: u64 = mask(if Self::DS { 50 } else { 48 }) & !mask(Self::OFFSET_BITS);

    const fn shift(level: u8) -> u32 {
        Self::OFFSET_BITS + Self::INDEX_BITS * (level as u32 - 1)
    }

    /// log2 of the number of entries of a page with the contiguous bit.
    const fn run_bits(level: u8) -> u32 {
        match (GRANULE, level) {
            (12, _) => 4,
            (14, 1) => 7,
            _ => 5,
        }
    }

    #[inline]
    const fn place(frame: u64) -> u64 {
        let low = frame & Self::FRAME;
        if Self::LPA {
            low | (frame >> 48 & 0xf) << 12
        } else if Self::DS {
            low | (frame >> 50 & 3) << 8
        } else {
            low
        }
    }

    #[inline]
    const fn frame(entry: u64) -> u64 {
        let low = entry & Self::FRAME;
        if Self::LPA {
            low | (entry >> 12 & 0xf) << 48
        } else if Self::DS {
            low | (entry >> 8 & 3) << 50
        } else {
            low
        }
    }

    /// The access bits, for `rights`, in the entry of a page that was never stored to.
    #[inline]
    fn rights_bits(rights: Rights) -> u64 {
        let is_user = rights.contains(Rights::USER);
        let write = match (rights.contains(Rights::WRITE), MARKS) {
            (true, true) => DIRTY_MODIFIER | READ_ONLY,
            (true, false) => 0,
            (false, _) => READ_ONLY,
        };
        let execute = match (rights.contains(Rights::EXECUTE), is_user) {
            (true, true) => NO_EXECUTE,
            (true, false) => NO_USER_EXECUTE,
            (false, _) => NO_EXECUTE | NO_USER_EXECUTE,
        };
        let valid = if rights.contains(Rights::READ) { VALID } else { NO_ACCESS };
        valid | write | execute | if is_user { USER } else { 0 }
    }

    #[inline]
    const fn is_writable(entry: u64) -> bool {
        if MARKS { entry & DIRTY_MODIFIER != 0 } else { entry & READ_ONLY == 0 }
    }

    /// Whether hardware has recorded a store to the page of `entry`.
    #[inline]
    const fn is_written(entry: u64) -> bool {
        MARKS && entry & (DIRTY_MODIFIER | READ_ONLY) == DIRTY_MODIFIER
    }

    #[inline]
    fn rights(entry: u64) -> Rights {
        let right = |is, right| if is { right } else { Rights::NONE };
        let user = right(entry & USER != 0, Rights::USER);
        if entry & NO_ACCESS != 0 {
            return user;
        }
        let forbids = if entry & USER != 0 { NO_USER_EXECUTE } else { NO_EXECUTE };
        Rights::READ
            | right(Self::is_writable(entry), Rights::WRITE)
            | right(entry & forbids == 0, Rights::EXECUTE)
            | user
    }

    /// `entry` with other rights and unchanged usage.
    #[inline]
    fn with_rights(entry: u64, rights: Rights) -> u64 {
        let new = entry & !RIGHTS | Self::rights_bits(rights);
        match (Self::is_written(entry), rights.contains(Rights::WRITE)) {
            (true, true) => new & !READ_ONLY,
            (true, false) => new | OWN_DIRTY,
            (false, _) => new,
        }
    }
}

impl<const GRANULE: u8, const BITS: u8, const MARKS: bool> Format
    for Aarch64Entries<GRANULE, BITS, MARKS>
{
    const LEVELS_MAX: u8 = Self::LEVELS;
    const REPLICATES: bool = true;

    #[inline]
    fn levels(&self) -> u8 {
        Self::LEVELS
    }

    fn page_sizes(&self) -> &[PageSize] {
        Self::SIZES
    }

    fn spans(&self) -> &[VirtRange] {
        &self.spans
    }

    #[inline]
    fn holds(&self, addr: VirtAddr) -> bool {
        // The bits above the address must be all 0 or all 1. After adding 1 to them, all except the
        // lowest are then 0.
        addr.get().wrapping_add(1 << Self::ADDRESS_BITS) >> (Self::ADDRESS_BITS + 1) == 0
    }

    #[inline]
    fn entry_shift(&self, level: u8) -> u32 {
        Self::shift(level)
    }

    fn table_size(&self, level: u8) -> PageSize {
        if level == Self::LEVELS {
            size(Self::HALF_BYTES.trailing_zeros() + 1)
        } else {
            size(Self::OFFSET_BITS)
        }
    }

    #[inline]
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
        let index = addr.get() >> Self::shift(level);
        if level < Self::LEVELS {
            return (index & mask(Self::INDEX_BITS)) << ENTRY_SHIFT;
        }
        if Self::HALF_BYTES == 1 << (Self::ROOT_BITS + ENTRY_SHIFT) {
            // All bits above the index are equal; the lowest of them selects the half.
            return (index & mask(Self::ROOT_BITS + 1)) << ENTRY_SHIFT;
        }
        let half = (addr.get() >> 63) * Self::HALF_BYTES;
        half + ((index & mask(Self::ROOT_BITS)) << ENTRY_SHIFT)
    }

    #[inline]
    fn entry_bytes(&self, _level: u8) -> u8 {
        1 << ENTRY_SHIFT
    }

    #[inline]
    fn page_size(&self, level: u8) -> PageSize {
        size(Self::shift(level))
    }

    fn level_of(&self, size: PageSize) -> Option<u8> {
        let is_of = |level: &u8| {
            let shift = Self::shift(*level);
            size.shift() == shift || size.shift() == shift + Self::run_bits(*level)
        };
        (1..=Self::LEVELS).find(is_of).filter(|_| Self::SIZES.contains(&size))
    }

    #[inline]
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool {
        start.get().checked_add(bytes).is_some_and(|end| end <= 1 << Self::ADDRESS_BITS)
    }

    fn tables_end(&self) -> PhysAddr {
        PhysAddr::new(1 << Self::ADDRESS_BITS)
    }

    #[inline]
    fn check_rights(&self, rights: Rights) -> Result<(), Unfit> {
        let fits = rights.contains(Rights::READ) || Rights::USER.contains(rights);
        if fits { Ok(()) } else { Err(Unfit::Rights(rights)) }
    }

    #[inline]
    fn check_attributes(&self, attributes: Attributes) -> Result<(), Unfit> {
        if attributes.key == 0 { Ok(()) } else { Err(Unfit::Key(attributes.key)) }
    }

    #[inline]
    fn decode(&self, entry: u64, level: u8) -> Entry {
        match entry & (VALID | NO_BLOCK) {
            3 if level > 1 => Entry::Table(PhysAddr::new(Self::frame(entry))),
            kind if kind & VALID == 0 && entry & NO_ACCESS == 0 => Entry::Empty,
            _ => Entry::Page,
        }
    }

    #[inline]
    fn next_table(&self, entry: u64, _level: u8) -> Option<PhysAddr> {
        // The lowest byte contains no bit of a frame.
        let kept = entry & self.next_bits;
        let table = kept.wrapping_sub(TABLE);
        let table = if Self::LPA || Self::DS { Self::frame(table) } else { table };
        (kept as u8 == TABLE as u8).then_some(PhysAddr::new(table))
    }

    #[inline]
    fn present(&self, entry: u64) -> bool {
        entry & VALID != 0
    }

    fn table(&self, table: PhysAddr, population: u64) -> u64 {
        let low = (population & mask(LOW_BITS)) << LOW_SHIFT;
        let high = (population >> LOW_BITS) << HIGH_SHIFT;
        Self::place(table.get()) | TABLE | low | high
    }

    #[inline]
    fn population(&self, entry: u64) -> u64 {
        entry >> LOW_SHIFT & mask(LOW_BITS) | (entry >> HIGH_SHIFT & mask(HIGH_BITS)) << LOW_BITS
    }

    #[inline]
    fn recounted(&self, entry: u64, by: i64) -> Option<u64> {
        let population = self.population(entry).wrapping_add(by as u64);
        let low = (population & mask(LOW_BITS)) << LOW_SHIFT;
        let high = (population >> LOW_BITS) << HIGH_SHIFT;
        (population != 0).then_some(entry & !POPULATION | low | high)
    }

    #[inline]
    fn page(&self, level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        let kind = if level == 1 { NO_BLOCK } else { 0 };
        let is_run = page.page.size().shift() > Self::shift(level);
        let run = if is_run { CONTIGUOUS } else { 0 };
        let share = if Self::DS { 0 } else { INNER_SHAREABLE };
        let global = if page.global { 0 } else { NOT_GLOBAL };
        let accessed = if MARKS { 0 } else { ACCESSED };
        let memory = (page.attributes.memory as u64) << MEMORY_SHIFT;
        let rights = Self::rights_bits(page.rights);
        Self::place(frame.get()) | kind | run | share | global | accessed | memory | rights
    }

    #[inline]
    fn other_size(&self, entry: u64, _addr: VirtAddr, size: PageSize) -> u64 {
        // A page that is as large as the memory covered by one entry of some level has a single
        // entry, so it has no contiguous bit.
        let is_run = (1..=Self::LEVELS).all(|level| size.shift() != Self::shift(level));
        if (entry & CONTIGUOUS != 0) == is_run { 0 } else { CONTIGUOUS }
    }

    #[inline]
    fn breaks(&self) -> bool {
        !self.bbm2
    }

    #[inline]
    fn broken(&self, entry: u64) -> u64 {
        entry & !VALID | NO_ACCESS
    }

    #[inline]
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
        let of_size = |size| Translation {
            page: addr.page(size),
            frame: PhysAddr::new(Self::frame(entry)).align_down(size),
            rights: Self::rights(entry),
            global: entry & NOT_GLOBAL == 0,
            attributes: Attributes::of(MemoryType::from_bits((entry >> MEMORY_SHIFT) as u8)),
        };
        if entry & CONTIGUOUS != 0 {
            seldom();
            return of_size(size(Self::shift(level) + Self::run_bits(level)));
        }
        of_size(size(Self::shift(level)))
    }

    #[inline]
    fn other_rights(&self, entry: u64, rights: Rights) -> u64 {
        entry ^ Self::with_rights(entry, rights)
    }

    #[inline]
    fn exceeds(&self, entry: u64, _level: u8, rights: Rights) -> bool {
        !rights.contains(Self::rights(entry))
    }

    #[inline]
    fn permits(&self, entry: u64, rights: Rights, kind: Kind) -> bool {
        match kind {
            Kind::Load => entry & NO_ACCESS == 0,
            Kind::Store | Kind::Fetch => rights.allows(kind),
        }
    }

    #[inline]
    fn usage(&self, entry: u64) -> Usage {
        Usage {
            referenced: entry & if MARKS { ACCESSED } else { OWN_REFERENCED } != 0,
            dirty: entry & OWN_DIRTY != 0 || Self::is_written(entry),
            marked: entry & MARKED != 0,
        }
    }

    /// The bits for `usage`. The dirty state of a writable page is not a bit to set: see
    /// [`Format::used`].
    #[inline]
    fn usage_bits(&self, usage: Usage) -> u64 {
        let bit = |is, bit| if is { bit } else { 0 };
        let referenced = if MARKS { ACCESSED } else { OWN_REFERENCED };
        bit(usage.referenced, referenced) | bit(usage.dirty, OWN_DIRTY) | bit(usage.marked, MARKED)
    }

    #[inline]
    fn used(&self, entry: u64, usage: Usage) -> u64 {
        if MARKS && usage.dirty && entry & DIRTY_MODIFIER != 0 {
            let others = Usage { dirty: false, ..usage };
            return (entry | self.usage_bits(others)) & !READ_ONLY;
        }
        entry | self.usage_bits(usage)
    }

    #[inline(always)]
    fn change_rights(
        &self,
        level: u8,
        at: PhysAddr,
        mut entry: u64,
        rights: Rights,
        memory: &mut impl Memory,
    ) -> Option<u64> {
        if !MARKS {
            let bits = self.other_rights(entry, rights);
            return (bits != 0).then(|| self.invert(level, at, bits, memory));
        }
        // The new value of AP[2] depends on whether a walker has changed it in the meantime.
        loop {
            let new = Self::with_rights(entry, rights);
            if new == entry {
                return None;
            }
            match self.exchange(level, at, entry, new, memory) {
                Ok(()) => return Some(entry),
                Err(found) => entry = found,
            }
        }
    }

    #[inline(always)]
    fn clear_usage(
        &self,
        level: u8,
        at: PhysAddr,
        entry: u64,
        usage: Usage,
        memory: &mut impl Memory,
    ) -> Option<u64> {
        // A walker does not change bits that are already set, so inverting these bits clears them.
        let written = if usage.dirty && Self::is_written(entry) { READ_ONLY } else { 0 };
        let bits = self.usage_bits(usage) & entry | written;
        (bits != 0).then(|| self.invert(level, at, bits, memory))
    }

    #[inline]
    fn walk_sets_usage(&self) -> bool {
        MARKS
    }
}
