//! The entries of RISC-V: Sv39, Sv48 and Sv57, with Svnapot and Svpbmt (The RISC-V Instruction Set Manual,
//! Volume II: Privileged Architecture, chapters "Supervisor-Level ISA", "Svnapot" and "Svpbmt").
//!
//! ```text
//!  va  63       39 38       30 29       21 20       12 11         0
//!     +-----------+-----------+-----------+-----------+-----------+
//!     | sign (38) | 9: VPN[2] | 9: VPN[1] | 9: VPN[0] | 12: offset|     Sv48, Sv57: 9 and 18 bits more
//!     +-----------+-----------+-----------+-----------+-----------+
//!       level:          3           2           1
//!
//!      63 62  61 60   54 53                       10 9  8  7 6 5 4 3 2 1 0
//!     +--+------+-------+---------------------------+--+--+-+-+-+-+-+-+-+-+
//!     |0 |  0   |   0   |  frame of the next table  | 0   |0|0|0|0|0 0 0|1|   table
//!     +--+------+-------+---------------------------+--+--+-+-+-+-+-+-+-+-+
//!     |N | PBMT |   0   |  frame of the page        |NA|MK|D|A|G|U|X W R|V|   page
//!     +--+------+-------+---------------------------+--+--+-+-+-+-+-+-+-+-+
//!          N = 1: one of 16 entries alike of a page of 64K, whose frame number ends in 1000
//! ```
//!
//! Two bits belong to the OS (RSW). *NA* (bit 9, with V = 0) marks a page that is mapped but allows
//! no access, which hardware sees as not valid; *MK* (bit 8) is the page's mark. An entry that
//! leads to a table has no bits for a population: when a page is removed, its table is searched for
//! another page.
//!
//! A walker sets A and D if the processor has Svadu and the OS has enabled it. Otherwise, as in Svade, an
//! access to a page with A clear, or a store to a page with D clear, is a page fault, and the OS sets the
//! bits ([`crate::PageTable::set_usage`]). For processors with Svade, the walks of this format
//! leave the bits unchanged but do not fault.
//!
//! A page that may be written may also be read. A page may allow only execution. Svpbmt has three memory
//! types: ordinary memory as defined by the physical memory attributes (write-back), NC
//! (write-combining), IO (device).

use addr::{Asid, Attributes, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{
    Entry, Format, Radix, Space, Translation, Unfit, Usage, format::halves, radix::seldom,
};

const VALID: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const GLOBAL: u64 = 1 << 5;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const MARKED: u64 = 1 << 8;
const NO_ACCESS: u64 = 1 << 9;
const NAPOT: u64 = 1 << 63;
const LEAF: u64 = READ | WRITE | EXECUTE;
const RIGHTS: u64 = VALID | LEAF | USER | NO_ACCESS;

const OFFSET_BITS: u32 = 12;
const PPN_SHIFT: u32 = 10;
const PHYSICAL_BITS: u32 = 56;
const PPN: u64 = ((1 << (PHYSICAL_BITS - OFFSET_BITS)) - 1) << PPN_SHIFT;
/// The number of bits by which a frame's address is shifted left from the field with the frame's
/// number in an entry.
const FRAME_SHIFT: u32 = OFFSET_BITS - PPN_SHIFT;
/// The lowest bits of the frame number in the entries of a page of 64K.
const NAPOT_CODE: u64 = 0b1000 << PPN_SHIFT;
const NAPOT_BITS: u64 = 0b1111 << PPN_SHIFT;

const PBMT_SHIFT: u32 = 61;
/// The memory type for each value of the PBMT field; the value 3 is reserved.
const PBMT: [MemoryType; 4] =
    [MemoryType::WriteBack, MemoryType::WriteCombining, MemoryType::Device, MemoryType::Device];

const INDEX_BITS: u32 = 9;
const ENTRY_SHIFT: u32 = 3;
const LEVELS_MAX: usize = 5;

const fn size(shift: u8) -> PageSize {
    PageSize::from_shift(shift).expect("a power of two")
}

const SIZE_64K: PageSize = size(16);
/// The page size whose entries are at each level, starting with level 1.
const SIZES: [PageSize; LEVELS_MAX] =
    [PageSize::SIZE_4K, PageSize::SIZE_2M, PageSize::SIZE_1G, size(39), size(48)];
const SIZES_NAPOT: [PageSize; LEVELS_MAX + 1] =
    [SIZES[0], SIZE_64K, SIZES[1], SIZES[2], SIZES[3], SIZES[4]];

/// RISC-V's table of `LEVELS` levels, 3 to 5: [`Sv39`], [`Sv48`] and [`Sv57`].
///
/// With `MARKS` walkers set the accessed and dirty bits, as processors with Svadu do. Without
/// `MARKS`, the operating system sets the bits, as on processors with Svade: hardware faults at a
/// page with A clear, and at a store to a page with D clear, and the handler sets the bits by
/// [`set_usage`](crate::PageTable::set_usage). A page is mapped with both bits clear; to avoid such
/// faults, set both bits after mapping it.
///
/// With one of the `HALVES`, the upper half of each root belongs to a kernel, as in
/// [`X86_64`](crate::X86_64).
///
/// # Registers
///
/// | register | holds |
/// |---|---|
/// | `satp` | [`Riscv::satp`] of the space |
/// | `menvcfg`, of the firmware (`henvcfg` of a hypervisor) | PBMTE (bit 62) for memory types other than write-back; ADUE (bit 61) for `MARKS` |
///
/// ```
/// use addr::{Asid, PhysAddr};
/// use pagetable::{Space, Sv39};
///
/// let space = Space::new(0, PhysAddr::new(0x8020_3000));
/// assert_eq!(Sv39::<true>::satp(space, Asid(7)), 8 << 60 | 7 << 44 | 0x80203);
/// ```
pub type Riscv<const LEVELS: u8, const MARKS: bool = true, const HALVES: usize = 2> =
    Radix<RiscvEntries<LEVELS, MARKS, HALVES>>;

/// [`Riscv`] with three levels: addresses of 39 bits, pages of 4K, 64K (Svnapot), 2M and 1G.
pub type Sv39<const MARKS: bool = true, const HALVES: usize = 2> = Riscv<3, MARKS, HALVES>;

/// [`Riscv`] with four levels: addresses of 48 bits, pages of 4K, 64K (Svnapot), 2M, 1G and 512G.
pub type Sv48<const MARKS: bool = true> = Riscv<4, MARKS>;

/// [`Riscv`] with five levels: addresses of 57 bits, pages of 4K, 64K (Svnapot), 2M, 1G, 512G and 256T.
pub type Sv57<const MARKS: bool = true> = Riscv<5, MARKS>;

/// The entry layout of [`Riscv`].
#[derive(Clone, Debug)]
pub struct RiscvEntries<const LEVELS: u8, const MARKS: bool, const HALVES: usize = 2> {
    spans: [VirtRange; HALVES],
    /// The bits of an entry that determine whether the entry leads to a table, and to which table:
    /// see [`Format::next_table`]. It is a field and not a constant, since the compiler would split
    /// a constant into two masks.
    next_bits: u64,
    svnapot: bool,
    svpbmt: bool,
}

impl<const LEVELS: u8, const MARKS: bool, const HALVES: usize> Riscv<LEVELS, MARKS, HALVES> {
    /// A table without spaces, for processors with Svnapot and Svpbmt.
    pub fn new() -> Riscv<LEVELS, MARKS, HALVES> {
        let half_bytes = 1u64 << (RiscvEntries::<LEVELS, MARKS, HALVES>::ADDRESS_BITS - 1);
        let (spans, next_bits) = (halves(half_bytes), PPN | LEAF | VALID);
        Radix::with_format(RiscvEntries { spans, next_bits, svnapot: true, svpbmt: true })
    }

    /// This table, which must not have spaces yet, for processors without Svnapot: there are no pages of 64K.
    pub fn without_svnapot(self) -> Riscv<LEVELS, MARKS, HALVES> {
        Radix::with_format(RiscvEntries { svnapot: false, ..self.into_format() })
    }

    /// This table, which must not have spaces yet, for processors without Svpbmt: all memory is write-back.
    pub fn without_svpbmt(self) -> Riscv<LEVELS, MARKS, HALVES> {
        Radix::with_format(RiscvEntries { svpbmt: false, ..self.into_format() })
    }

    /// The value of `satp` for a space: MODE 8, 9 or 10 by the levels, the ASID, and the number of
    /// the root's frame.
    pub const fn satp(space: Space, asid: Asid) -> u64 {
        let mode = LEVELS as u64 + 5;
        mode << 60 | (asid.0 as u64) << 44 | space.root().get() >> OFFSET_BITS
    }
}

impl<const LEVELS: u8, const MARKS: bool, const HALVES: usize> Default
    for Riscv<LEVELS, MARKS, HALVES>
{
    fn default() -> Riscv<LEVELS, MARKS, HALVES> {
        Riscv::new()
    }
}

impl<const LEVELS: u8, const MARKS: bool, const HALVES: usize> RiscvEntries<LEVELS, MARKS, HALVES> {
    const ADDRESS_BITS: u32 = {
        assert!(LEVELS >= 3 && LEVELS <= 5, "Sv39, Sv48 and Sv57 have 3 to 5 levels");
        OFFSET_BITS + INDEX_BITS * LEVELS as u32
    };
}

impl<const LEVELS: u8, const MARKS: bool, const HALVES: usize> Format
    for RiscvEntries<LEVELS, MARKS, HALVES>
{
    const LEVELS_MAX: u8 = LEVELS;
    const REPLICATES: bool = true;
    const COUNTS: bool = false;

    #[inline]
    fn levels(&self) -> u8 {
        LEVELS
    }

    fn page_sizes(&self) -> &[PageSize] {
        let levels = usize::from(LEVELS);
        if self.svnapot { &SIZES_NAPOT[..=levels] } else { &SIZES[..levels] }
    }

    fn spans(&self) -> &[VirtRange] {
        &self.spans
    }

    #[inline]
    fn holds(&self, addr: VirtAddr) -> bool {
        // If all bits from the sign bit up are equal, the sum has only zeros above the address.
        let half = 1u64 << (Self::ADDRESS_BITS - 1);
        addr.get().wrapping_add(half) >> Self::ADDRESS_BITS == 0
    }

    #[inline]
    fn entry_shift(&self, level: u8) -> u32 {
        OFFSET_BITS + INDEX_BITS * (u32::from(level) - 1)
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

    fn level_of(&self, size: PageSize) -> Option<u8> {
        if size == SIZE_64K {
            return self.svnapot.then_some(1);
        }
        (1..=LEVELS).find(|&level| self.page_size(level) == size)
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
        let fits = rights.contains(Rights::READ) || !rights.contains(Rights::WRITE);
        if fits { Ok(()) } else { Err(Unfit::Rights(rights)) }
    }

    #[inline]
    fn check_attributes(&self, attributes: Attributes) -> Result<(), Unfit> {
        match attributes {
            Attributes { memory: MemoryType::WriteCombining | MemoryType::Device, key: 0 }
                if self.svpbmt =>
            {
                Ok(())
            }
            attributes => Unfit::unless_normal(attributes),
        }
    }

    #[inline]
    fn decode(&self, entry: u64, level: u8) -> Entry {
        match entry & (VALID | NO_ACCESS) {
            0 => Entry::Empty,
            _ if level > 1 && entry & (VALID | LEAF) == VALID => {
                Entry::Table(PhysAddr::new((entry & PPN) << FRAME_SHIFT))
            }
            _ => Entry::Page,
        }
    }

    #[inline]
    fn next_table(&self, entry: u64, _level: u8) -> Option<PhysAddr> {
        // The lowest byte contains no bit of the frame number.
        let kept = entry & self.next_bits;
        (kept as u8 == VALID as u8)
            .then_some(PhysAddr::new(kept.wrapping_sub(VALID) << FRAME_SHIFT))
    }

    #[inline]
    fn present(&self, entry: u64) -> bool {
        entry & VALID != 0
    }

    fn table(&self, table: PhysAddr, _population: u64) -> u64 {
        table.get() >> FRAME_SHIFT | VALID
    }

    fn population(&self, _entry: u64) -> u64 {
        0
    }

    fn recounted(&self, entry: u64, _by: i64) -> Option<u64> {
        Some(entry)
    }

    #[inline]
    fn page(&self, _level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        let ppn = frame.get() >> FRAME_SHIFT;
        let is_napot = page.page.size() == SIZE_64K;
        let ppn = if is_napot { ppn & !NAPOT_BITS | NAPOT_CODE | NAPOT } else { ppn };
        let global = if page.global { GLOBAL } else { 0 };
        let memory = match page.attributes.memory {
            MemoryType::WriteBack => 0,
            MemoryType::WriteCombining => 1 << PBMT_SHIFT,
            // This value never occurs for uncached memory, which was refused before.
            MemoryType::Uncached | MemoryType::Device => 2 << PBMT_SHIFT,
        };
        ppn | global | memory | rights_bits(page.rights)
    }

    #[inline]
    fn other_size(&self, entry: u64, addr: VirtAddr, size: PageSize) -> u64 {
        if (entry & NAPOT != 0) == (size == SIZE_64K) {
            return 0;
        }
        // The frame has the position in a frame of 64K that the page has in a page of 64K.
        let number = addr.get() >> FRAME_SHIFT & NAPOT_BITS;
        NAPOT | number ^ NAPOT_CODE
    }

    #[inline]
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
        let of_size = |size| Translation {
            page: addr.page(size),
            frame: PhysAddr::new((entry & PPN) << FRAME_SHIFT).align_down(size),
            rights: rights(entry),
            global: entry & GLOBAL != 0,
            attributes: Attributes::of(PBMT[(entry >> PBMT_SHIFT & 3) as usize]),
        };
        if level == 1 && entry & NAPOT != 0 {
            seldom();
            return of_size(SIZE_64K);
        }
        of_size(self.page_size(level))
    }

    #[inline]
    fn other_rights(&self, entry: u64, rights: Rights) -> u64 {
        (entry ^ rights_bits(rights)) & RIGHTS
    }

    #[inline]
    fn exceeds(&self, entry: u64, _level: u8, allowed: Rights) -> bool {
        entry & (LEAF | USER) & !rights_bits(allowed) != 0
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
        let bit = |is, bit| if is { bit } else { 0 };
        bit(usage.referenced, ACCESSED) | bit(usage.dirty, DIRTY) | bit(usage.marked, MARKED)
    }

    #[inline]
    fn walk_sets_usage(&self) -> bool {
        MARKS
    }
}

/// The rights of an entry. The entry of a page that allows no access has R, W and X clear.
#[inline]
fn rights(entry: u64) -> Rights {
    // R, W, X and U are in the order of the rights.
    Rights::from_bits((entry >> 1) as u8)
}

#[inline]
fn rights_bits(rights: Rights) -> u64 {
    let nothing = Rights::USER.contains(rights);
    u64::from(rights.bits()) << 1 | if nothing { NO_ACCESS } else { VALID }
}
