//! The bit layout of a radix table's entries: radix formats differ only in this layout. The
//! algorithms over entries are shared.

use core::array;

use addr::{Attributes, Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{
    Translation, Unfit, Usage,
    pte::{self, Pte},
};

/// An entry as the OS sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// No table and no page.
    Empty,
    /// A link to a table of the next lower level.
    Table(PhysAddr),
    /// A page. Hardware may treat the entry as not present ([`Format::present`]).
    Page,
}

/// The entry layout and geometry of a radix tree.
///
/// Levels count down to 1 as in [`crate::Reference::level`]. An entry is passed as 64 bits: its 8
/// bytes in memory, or its 4 bytes zero-extended. These laws hold for every level and value:
///
/// * the value zero is [`Entry::Empty`], and no other value that these functions return is empty;
/// * for a value that [`Format::page`] returned, [`Format::translation`] returns the frame, the
///   [granted](Format::granted) rights and the global bit of the page;
/// * for a value that [`Format::table`] returned, [`Format::decode`] returns the table, and
///   [`Format::population`] returns the table's population. Table, population and usage bits are
///   independent of each other.
///
/// The default methods suit formats that software defines: page entries allow any rights, and
/// entries that lead to tables restrict nothing and have no usage bits.
pub trait Format {
    /// The largest number of levels of any table in this format.
    const LEVELS_MAX: u8;

    /// Whether some pages are *replicated*: such a page has several adjacent entries in one table
    /// of the level that [`Format::level_of`] returns. The number of entries is the page's size
    /// divided by the memory that one entry of that table covers. The usage of a replicated page is
    /// the usage of all its entries together.
    const REPLICATES: bool = false;

    /// Whether an entry that leads to a table counts the entries in use in that table. If hardware
    /// leaves no bits for a count, an operation that removes an entry from a table searches the
    /// table for other entries.
    const COUNTS: bool = true;

    /// The distance in bytes from a level-1 entry to its page's note, in formats with notes: see
    /// [`crate::PageTable::has_notes`].
    const NOTE_AT: Option<u64> = None;

    /// Whether page entries have a bit for global pages.
    const HAS_GLOBAL: bool = true;

    /// The number of tables on the path from the root to a base page.
    fn levels(&self) -> u8;

    /// The page sizes for which there are entries, ascending.
    fn page_sizes(&self) -> &[PageSize];

    /// The virtual addresses that a table maps, ascending. Within one of these ranges the index
    /// into the root ascends with the address.
    fn spans(&self) -> &[VirtRange];

    /// Addresses outside all spans, at which tables of other spaces can be visible in a space: see
    /// [`crate::PageTable::lend`].
    fn area(&self) -> Option<VirtRange> {
        None
    }

    /// Whether `addr` is in a span or in the area.
    fn holds(&self, addr: VirtAddr) -> bool;

    /// log2 of the bytes of virtual memory that one entry of a table at `level` covers.
    fn entry_shift(&self, level: u8) -> u32;

    /// The bytes of a table at `level`, a power of two.
    fn table_size(&self, level: u8) -> PageSize;

    /// The offset in bytes, in a table at `level`, of the entry for `addr`.
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64;

    /// The bytes of one entry at `level`: 4 or 8.
    fn entry_bytes(&self, level: u8) -> u8;

    /// The size of a page whose entry is at `level`.
    fn page_size(&self, level: u8) -> PageSize;

    /// The level of the entries of pages of `size`, if the format has that size.
    fn level_of(&self, size: PageSize) -> Option<u8> {
        (1..=self.levels()).find(|&level| self.entry_shift(level) == size.shift())
    }

    /// Whether the `bytes` bytes of physical memory from `start` have addresses that fit into
    /// entries.
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool;

    /// The physical address below which tables must end, so that their addresses fit into entries.
    fn tables_end(&self) -> PhysAddr;

    /// Whether page entries can express `rights`.
    #[inline]
    fn check_rights(&self, _rights: Rights) -> Result<(), Unfit> {
        Ok(())
    }

    /// Whether page entries can express `attributes`. The default accepts only the attributes of
    /// ordinary memory.
    #[inline]
    fn check_attributes(&self, attributes: Attributes) -> Result<(), Unfit> {
        Unfit::unless_normal(attributes)
    }

    /// The smallest set of rights that contains `rights` and that page entries can express. The set
    /// has more rights than requested if entries cannot distinguish some rights.
    #[inline]
    fn granted(&self, rights: Rights) -> Rights {
        rights
    }

    /// An entry, decoded for the OS.
    fn decode(&self, entry: u64, level: u8) -> Entry;

    /// The table that an entry of a level above 1 leads to, or `None` if the entry leads to no
    /// table.
    #[inline]
    fn next_table(&self, entry: u64, level: u8) -> Option<PhysAddr> {
        match self.decode(entry, level) {
            Entry::Table(table) => Some(table),
            Entry::Empty | Entry::Page => None,
        }
    }

    /// Whether hardware treats the entry as valid.
    fn present(&self, entry: u64) -> bool;

    /// Accumulates the rights that entries leading to tables allow: `passed` is the value for the
    /// entries before, `entry` is the next entry. A value of all ones means that no entry was
    /// passed yet. All other values are encoded as the format chooses, so that this step is cheap.
    #[inline]
    fn pass(&self, passed: u64, _entry: u64) -> u64 {
        passed
    }

    /// The rights that a value of [`Format::pass`] stands for.
    #[inline]
    fn passed_rights(&self, _passed: u64) -> Rights {
        Rights::ALL
    }

    /// The entry that leads to a table with `population` entries in use.
    fn table(&self, table: PhysAddr, population: u64) -> u64;

    /// The number of entries in use in the table that `entry` leads to. The count is in bits that
    /// hardware ignores, so that a table can be freed with its last page without a search. Never
    /// called if the format [does not count](Format::COUNTS).
    fn population(&self, entry: u64) -> u64;

    /// `entry` with `by` added to its population, or `None` if the table would then be empty. Never
    /// called if the format [does not count](Format::COUNTS).
    fn recounted(&self, entry: u64, by: i64) -> Option<u64>;

    /// Replaces the entry at `at` by `entry`. The old and the new entry differ only in the
    /// population, and perhaps in bits that walkers have set since the entry was read.
    ///
    /// A plain store is safe beside walkers: in formats whose walkers set a bit in entries that
    /// lead to tables, the population is in bytes that no walker changes.
    #[inline]
    fn write_population(&self, level: u8, at: PhysAddr, entry: u64, memory: &mut impl Memory) {
        self.write(level, at, entry, memory);
    }

    /// The entry at `level` for the part of `page` whose frame begins at `frame`; its usage bits
    /// are clear. The part is the whole page, unless the format [replicates](Format::REPLICATES)
    /// pages.
    fn page(&self, level: u8, page: &Translation, frame: PhysAddr) -> u64;

    /// The bits to invert in a page's entry for `addr`, so that it becomes the entry of a page of
    /// `size` at this level. 0 if entries do not encode the page size. The result never includes
    /// bits that walkers set.
    #[inline]
    fn other_size(&self, _entry: u64, _addr: VirtAddr, _size: PageSize) -> u64 {
        0
    }

    /// Whether processors must flush a page before an entry of another page size replaces it
    /// (break-before-make).
    #[inline]
    fn breaks(&self) -> bool {
        false
    }

    /// The entry of a page during break-before-make, when it is invalid for hardware but still maps
    /// a page for the OS. Never called if the format does not [break](Format::breaks).
    #[inline]
    fn broken(&self, _entry: u64) -> u64 {
        0
    }

    /// The translation that the entry at `level` gives for the page that holds `addr`.
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation;

    /// The bits to invert in a page's entry so that the page gets these rights. The result neither
    /// includes bits that walkers set nor depends on them.
    #[inline]
    fn other_rights(&self, entry: u64, rights: Rights) -> u64 {
        let (mask, bits) = pte::rights_bits(rights);
        (entry ^ bits) & mask
    }

    /// Whether the page entry at `level` allows more than `rights`.
    #[inline]
    fn exceeds(&self, entry: u64, level: u8, rights: Rights) -> bool {
        !rights.contains(self.translation(entry, level, VirtAddr::new(0)).rights)
    }

    /// Whether an access of this kind is allowed after a walk that ends at this page entry, which
    /// is [present](Format::present). `rights` are the rights that the entry and all entries before
    /// it allow. If entries that lead to tables restrict no rights, a format may test the page
    /// entry instead, if that is cheaper.
    #[inline]
    fn permits(&self, _entry: u64, rights: Rights, kind: Kind) -> bool {
        rights.allows(kind)
    }

    /// The usage bits of a page's entry, decoded.
    #[inline]
    fn usage(&self, entry: u64) -> Usage {
        Pte::from_bits(entry).usage()
    }

    /// The bits of a page's entry that represent `usage`.
    #[inline]
    fn usage_bits(&self, usage: Usage) -> u64 {
        pte::usage_bits(usage)
    }

    /// The entry of a page with `usage` in addition to its usage bits.
    #[inline]
    fn used(&self, entry: u64, usage: Usage) -> u64 {
        entry | self.usage_bits(usage)
    }

    /// Changes the rights of the page whose entry at `at` was just read as `entry`, while walkers may set
    /// bits in the entry. Returns the entry as it was immediately before the change, or `None` if nothing
    /// changed.
    #[inline(always)]
    fn change_rights(
        &self,
        level: u8,
        at: PhysAddr,
        entry: u64,
        rights: Rights,
        memory: &mut impl Memory,
    ) -> Option<u64> {
        let bits = self.other_rights(entry, rights);
        (bits != 0).then(|| self.invert(level, at, bits, memory))
    }

    /// Clears the usage bits in `usage` of the page whose entry at `at` was just read as `entry`,
    /// while walkers may set bits in the entry. Returns the entry as it was immediately before this
    /// change, or `None` if nothing changed.
    #[inline(always)]
    fn clear_usage(
        &self,
        level: u8,
        at: PhysAddr,
        entry: u64,
        usage: Usage,
        memory: &mut impl Memory,
    ) -> Option<u64> {
        let bits = self.usage_bits(usage) & entry;
        (bits != 0).then(|| self.invert(level, at, bits, memory))
    }

    /// The bit that a walk sets in an entry that leads to a table, or 0 if walks set no bit there.
    #[inline]
    fn table_usage_bit(&self) -> u64 {
        0
    }

    /// Whether hardware sets usage bits during a walk.
    fn walk_sets_usage(&self) -> bool;

    /// Reads the entry at `at` of a table of `level`.
    #[inline]
    fn read(&self, level: u8, at: PhysAddr, memory: &impl Memory) -> u64 {
        if self.entry_bytes(level) == 8 {
            memory.read_u64(at)
        } else {
            u64::from(memory.read_u32(at))
        }
    }

    /// Reads the entry at `at` of a table of `level` shortly after [`Format::write_population`] may
    /// have stored a part of the entry. It is used by code that often changes populations.
    #[inline]
    fn read_counted(&self, level: u8, at: PhysAddr, memory: &impl Memory) -> u64 {
        self.read(level, at, memory)
    }

    /// Writes the entry at `at`. The entry must have been empty, since walkers do not change empty
    /// entries.
    #[inline]
    fn write(&self, level: u8, at: PhysAddr, entry: u64, memory: &mut impl Memory) {
        if self.entry_bytes(level) == 8 {
            memory.write_u64(at, entry);
        } else {
            memory.write_u32(at, entry as u32);
        }
    }

    /// Replaces the entry at `at` and returns the old one, with all bits that walkers have set in
    /// it.
    #[inline]
    fn swap(&self, level: u8, at: PhysAddr, new: u64, memory: &mut impl Memory) -> u64 {
        if self.entry_bytes(level) == 8 {
            memory.swap_u64(at, new)
        } else {
            u64::from(memory.swap_u32(at, new as u32))
        }
    }

    /// Inverts `bits` of the entry at `at` and returns the old entry, with all bits that walkers
    /// have set in it.
    #[inline]
    fn invert(&self, level: u8, at: PhysAddr, bits: u64, memory: &mut impl Memory) -> u64 {
        if self.entry_bytes(level) == 8 {
            memory.invert_u64(at, bits)
        } else {
            u64::from(memory.invert_u32(at, bits as u32))
        }
    }

    /// Replaces the entry at `at` if it is equal to `current`; otherwise `Err` has the entry.
    #[inline]
    fn exchange(
        &self,
        level: u8,
        at: PhysAddr,
        current: u64,
        new: u64,
        memory: &mut impl Memory,
    ) -> Result<(), u64> {
        if self.entry_bytes(level) == 8 {
            memory.compare_exchange_u64(at, current, new)
        } else {
            memory.compare_exchange_u32(at, current as u32, new as u32).map_err(u64::from)
        }
    }
}

/// The lower half of all addresses and, if a table has both halves, the upper half.
pub(crate) fn halves<const HALVES: usize>(bytes: u64) -> [VirtRange; HALVES] {
    const { assert!(HALVES == 1 || HALVES == 2, "there are two halves, and the lower is there") };
    array::from_fn(|half| {
        let start = VirtAddr::new(if half == 0 { 0 } else { bytes.wrapping_neg() });
        VirtRange::new(start, bytes).expect("each half ends at a power of two")
    })
}
