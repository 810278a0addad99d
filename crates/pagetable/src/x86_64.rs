//! The entries of x86-64 in long mode (Intel SDM vol. 3A §4.5, AMD APM vol. 2 §5.3).
//!
//! ```text
//!  va  63       56 47       38       29       20       11         0
//!     +-----------+--------+--------+--------+--------+-----------+
//!     | sign (57) | 9: PML4| 9: PDPT| 9: PD  | 9: PT  | 12: offset|    5 levels: 9 more, PML5
//!     +-----------+--------+--------+--------+--------+-----------+
//!       level:        4        3        2        1
//!
//!      63 62    59 58  52 51                       12 11 9 8 7  6 5 4 3  2  1  0
//!     +--+--------+------+---------------------------+----+-+--+-+-+----+--+--+-+
//!     |NX| population: 10|  frame of the next table  |    |  0   |A|    |US|RW|P|   table
//!     +--+--------+------+---------------------------+----+-+--+-+-+----+--+--+-+
//!     |NX| key |    0    |  frame of the page     |MK NA |G|PS|D|A| MT |US|RW|P|   page
//!     +--+--------+------+---------------------------+----+-+--+-+-+----+--+--+-+
//!                             2M: from bit 21, 1G: from bit 30; PS = 1 at levels 2 and 3
//! ```
//!
//! Three fields belong to the OS, in bits that hardware ignores. *population* (bits 52 to 61 of an
//! entry that leads to a table) counts the entries in use in that table. *NA* (bit 9, with P = 0)
//! marks a page that is mapped but allows no access, which hardware sees as not present. Bit 10,
//! *MK*, is the mark of a page, which B10 section 6.2.1 uses for pages in reservations.
//!
//! An NA entry stores the bits of its frame, 12 to 51, inverted. Processors with L1 Terminal Fault
//! (Intel 2018, CVE-2018-3620) look up the frame of an entry in the first-level cache before they
//! see that P is 0. The inverse of a frame in the lower half of the physical addresses lies in the
//! upper half, where there is no memory, so that this lookup finds nothing. Linux does the same
//! ("PTE inversion", Documentation/admin-guide/hw-vuln/l1tf.rst).
//!
//! A walker sets A and D, both in the lower half of an entry, by a locked update of the entry (SDM
//! vol. 3A, "Automatic Locking"). No store of the OS can take effect in the middle of such an
//! update. A plain store to the upper half, where the population is, therefore loses no bit of the
//! lower half.
//!
//! *MT* is PWT and PCD (bits 3 and 4), which select one of the first four fields of the register
//! IA32_PAT: a kernel loads [`X86Entries::PAT`] there (SDM vol. 3A §12.12). The bit PAT (7, or 12
//! in larger pages) is always clear. *key* is the protection key (bits 59 to 62, §4.6.2), which
//! processors use if CR4.PKE or CR4.PKS is set and ignore otherwise. A walk of this format returns
//! the key and does not apply it, since the register with the keys' rights is part of a thread's
//! state.
//!
//! x86-64 cannot express a page that may be written or executed but not read.

use addr::{Attributes, Memory, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::radix::seldom;
use crate::{Entry, Format, Radix, Translation, Unfit, Usage, format::halves};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// The position of PWT and PCD, which hold the number of the memory type.
const MEMORY_SHIFT: u32 = 3;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const PAGE_SIZE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_ACCESS: u64 = 1 << 9;
const MARKED: u64 = 1 << 10;
const NO_EXECUTE: u64 = 1 << 63;
const RIGHTS: u64 = PRESENT | WRITABLE | USER | NO_ACCESS | NO_EXECUTE;

const KEY_SHIFT: u32 = 59;
const KEYS: u8 = 16;

const FRAME_SHIFT: u32 = 12;
const PHYSICAL_BITS: u32 = 52;
const FRAME: u64 = (1 << PHYSICAL_BITS) - (1 << FRAME_SHIFT);

const POPULATION_SHIFT: u32 = 52;
const POPULATION: u64 = 0x3ff << POPULATION_SHIFT;

const INDEX_BITS: u32 = 9;
const ENTRY_SHIFT: u32 = 3;
const SIZES: [PageSize; 3] = [PageSize::SIZE_4K, PageSize::SIZE_2M, PageSize::SIZE_1G];

/// The radix tree of x86-64, with 4 or 5 levels and pages of 4K, 2M and 1G. With `MARKS`, walkers
/// set the accessed and dirty bits, as all processors do; without `MARKS`, the operating system
/// keeps these bits.
///
/// If `HALVES` is 1, the upper half of each root belongs to the kernel: no operation except a walk reads
/// it, and mapping a page there is refused. A new space gets these entries from the kernel's own root
/// ([`Radix::sharing`]), or a kernel writes them when it creates a space, and does not change them
/// later.
///
/// # Registers
///
/// | register | holds |
/// |---|---|
/// | CR3 | [`Space::root`](crate::Space::root) of the space, and its PCID where CR4.PCIDE is set |
/// | CR4 | PAE; LA57 with 5 levels; PGE for global pages; PKE for protection keys |
/// | CR0 | PG, and WP so that the kernel too stores only to pages that allow it |
/// | IA32_EFER | LME, and NXE: entries of pages that may not be executed have bit 63 set |
/// | IA32_PAT | [`X86Entries::PAT`] |
pub type X86_64<const LEVELS: u8 = 4, const MARKS: bool = true, const HALVES: usize = 2> =
    Radix<X86Entries<LEVELS, MARKS, HALVES>>;

/// The entry layout of x86-64.
#[derive(Clone, Debug)]
pub struct X86Entries<const LEVELS: u8, const MARKS: bool, const HALVES: usize = 2> {
    spans: [VirtRange; HALVES],
    /// The bits of an entry that determine whether the entry leads to a table, and to which table.
    /// This is a field and not a constant, since the compiler would split a constant into two
    /// masks, and the second mask would cost 5 % of a walk.
    next_bits: u64,
    /// `one` is the encoding of a population of one, and the next field is the mask of the
    /// population. Both are fields, since a constant would take an additional instruction.
    one: u64,
    population: u64,
}

impl<const LEVELS: u8, const MARKS: bool, const HALVES: usize> X86_64<LEVELS, MARKS, HALVES> {
    /// A table without spaces.
    pub fn new() -> X86_64<LEVELS, MARKS, HALVES> {
        let half_bytes = 1u64 << (X86Entries::<LEVELS, MARKS, HALVES>::ADDRESS_BITS - 1);
        let spans = halves(half_bytes);
        Radix::with_format(X86Entries {
            spans,
            next_bits: FRAME | PRESENT | PAGE_SIZE,
            one: 1 << POPULATION_SHIFT,
            population: POPULATION,
        })
    }
}

impl<const LEVELS: u8, const MARKS: bool, const HALVES: usize> Default
    for X86_64<LEVELS, MARKS, HALVES>
{
    fn default() -> X86_64<LEVELS, MARKS, HALVES> {
        X86_64::new()
    }
}

impl<const LEVELS: u8, const MARKS: bool, const HALVES: usize> X86Entries<LEVELS, MARKS, HALVES> {
    /// The value for IA32_PAT, with one type for each [`MemoryType`] in the order of
    /// their numbers: write-back, write-combining, uncached (UC-), device (UC). Entries of this
    /// format never select the other fields. Linux loads the same value.
    pub const PAT: u64 = 0x0407_0506_0007_0106;

    const ADDRESS_BITS: u32 = {
        assert!(LEVELS == 4 || LEVELS == 5, "x86-64 has 4 or 5 levels");
        FRAME_SHIFT + INDEX_BITS * LEVELS as u32
    };
}

impl<const LEVELS: u8, const MARKS: bool, const HALVES: usize> Format
    for X86Entries<LEVELS, MARKS, HALVES>
{
    const LEVELS_MAX: u8 = LEVELS;

    #[inline]
    fn levels(&self) -> u8 {
        LEVELS
    }

    fn page_sizes(&self) -> &[PageSize] {
        &SIZES
    }

    fn spans(&self) -> &[VirtRange] {
        &self.spans
    }

    #[inline]
    fn holds(&self, addr: VirtAddr) -> bool {
        // In a canonical address all bits from the sign bit up are equal, so that the sum has only
        // zeros above the address.
        let half = 1u64 << (Self::ADDRESS_BITS - 1);
        addr.get().wrapping_add(half) >> Self::ADDRESS_BITS == 0
    }

    #[inline]
    fn entry_shift(&self, level: u8) -> u32 {
        FRAME_SHIFT + INDEX_BITS * (u32::from(level) - 1)
    }

    fn table_size(&self, _level: u8) -> PageSize {
        PageSize::SIZE_4K
    }

    #[inline]
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
        (addr.get() >> self.entry_shift(level) & ((1 << INDEX_BITS) - 1)) << ENTRY_SHIFT
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
    fn check_rights(&self, rights: Rights) -> Result<(), Unfit> {
        let fits = rights.contains(Rights::READ) || Rights::USER.contains(rights);
        if fits { Ok(()) } else { Err(Unfit::Rights(rights)) }
    }

    #[inline]
    fn check_attributes(&self, attributes: Attributes) -> Result<(), Unfit> {
        if attributes.key < KEYS { Ok(()) } else { Err(Unfit::Key(attributes.key)) }
    }

    #[inline]
    fn decode(&self, entry: u64, level: u8) -> Entry {
        let page = level == 1 || level <= 3 && entry & PAGE_SIZE != 0;
        match entry & (PRESENT | NO_ACCESS) {
            0 => Entry::Empty,
            _ if page => Entry::Page,
            _ => Entry::Table(PhysAddr::new(entry & FRAME)),
        }
    }

    #[inline]
    fn next_table(&self, entry: u64, level: u8) -> Option<PhysAddr> {
        // An entry that leads to a table always has the present bit.
        let kept = entry & if level <= 3 { self.next_bits } else { FRAME | PRESENT };
        (kept as u8 == PRESENT as u8).then_some(PhysAddr::new(kept.wrapping_sub(PRESENT)))
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
        rights((passed ^ NO_EXECUTE) | PRESENT)
    }

    fn table(&self, table: PhysAddr, population: u64) -> u64 {
        table.get() | PRESENT | WRITABLE | USER | population << POPULATION_SHIFT
    }

    #[inline]
    fn population(&self, entry: u64) -> u64 {
        (entry & POPULATION) >> POPULATION_SHIFT
    }

    #[inline]
    fn recounted(&self, entry: u64, by: i64) -> Option<u64> {
        let new = entry.wrapping_add(self.one.wrapping_mul(by as u64));
        (new & self.population != 0).then_some(new)
    }

    #[inline]
    fn read_counted(&self, _level: u8, at: PhysAddr, memory: &impl Memory) -> u64 {
        memory.read_halves_u64(at)
    }

    #[inline]
    fn write_population(&self, _level: u8, at: PhysAddr, entry: u64, memory: &mut impl Memory) {
        memory.write_upper_u64(at, entry);
    }

    #[inline]
    fn page(&self, level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        let size = if level > 1 { PAGE_SIZE } else { 0 };
        let global = if page.global { GLOBAL } else { 0 };
        let Attributes { memory, key } = page.attributes;
        let attributes = (memory as u64) << MEMORY_SHIFT | u64::from(key) << KEY_SHIFT;
        let entry = frame.get() | size | global | attributes | rights_bits(page.rights);
        entry ^ hidden(entry)
    }

    #[inline]
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
        let size = self.page_size(level);
        Translation {
            page: addr.page(size),
            frame: PhysAddr::new((entry ^ hidden(entry)) & FRAME).align_down(size),
            rights: rights(entry),
            global: entry & GLOBAL != 0,
            attributes: Attributes {
                memory: MemoryType::from_bits((entry >> MEMORY_SHIFT) as u8),
                key: (entry >> KEY_SHIFT) as u8 & (KEYS - 1),
            },
        }
    }

    #[inline]
    fn other_rights(&self, entry: u64, rights: Rights) -> u64 {
        let other = (entry ^ rights_bits(rights)) & RIGHTS;
        if other & PRESENT == 0 {
            return other;
        }
        // The frame of an absent page is stored inverted, so a change of the present bit also
        // inverts the frame.
        seldom();
        other ^ FRAME
    }

    #[inline]
    fn exceeds(&self, entry: u64, _level: u8, allowed: Rights) -> bool {
        // The rights are compared as bits of entries, because the bits of `allowed` are computed
        // only once for many pages.
        let grants = |entry: u64| (entry ^ NO_EXECUTE) & (RIGHTS ^ NO_ACCESS);
        grants(entry) & !grants(rights_bits(allowed)) != 0
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

/// The bits of a page's entry that are stored inverted: the bits of its frame, if the entry is not
/// present.
#[inline]
fn hidden(entry: u64) -> u64 {
    if entry & PRESENT == 0 { FRAME } else { 0 }
}

/// The rights of an entry. An entry that is not present maps a page that allows no access: it has
/// RW clear and NX set, and only its user bit is significant.
#[inline]
fn rights(entry: u64) -> Rights {
    let right = |bit, right| if entry & bit != 0 { right } else { Rights::NONE };
    let execute = if entry & NO_EXECUTE == 0 { Rights::EXECUTE } else { Rights::NONE };
    right(PRESENT, Rights::READ)
        | right(WRITABLE, Rights::WRITE)
        | right(USER, Rights::USER)
        | execute
}

#[inline]
fn rights_bits(rights: Rights) -> u64 {
    let bit = |right, bit| if rights.contains(right) { bit } else { 0 };
    let present = bit(Rights::READ, PRESENT ^ NO_ACCESS) ^ NO_ACCESS;
    let execute = bit(Rights::EXECUTE, NO_EXECUTE) ^ NO_EXECUTE;
    present | bit(Rights::WRITE, WRITABLE) | bit(Rights::USER, USER) | execute
}
