//! Where the bits of a radix table's entries are: all that differs from one radix format to the
//! next, apart from the algorithms over them.

use core::array;

use addr::{Attributes, Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{
    Translation, Unfit, Usage,
    pte::{self, Pte},
};

/// An entry, decoded for the OS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing.
    Empty,
    /// A table of the next lower level.
    Table(PhysAddr),
    /// A page, which may be one that hardware sees as not present.
    Page,
}

/// The entry layout and geometry of a radix tree.
///
/// Levels count down to 1 as in [`crate::Reference::level`]. An entry is passed as the 64 bits
/// that it takes in memory, or its 32 with zeros above. The laws, for every level and value:
///
/// * zero is [`Entry::Empty`], and nothing else that these functions make is;
/// * [`Format::translation`] of [`Format::page`] gives back frame, [granted](Format::granted) rights and
///   global bit;
/// * [`Format::decode`] of [`Format::table`] gives back the table, [`Format::population`] the
///   population; neither depends on the other, nor on the usage bits.
///
/// The provided methods are those of formats that software defines: entries of pages that allow
/// any rights, and tables that restrict nothing and are never marked.
pub trait Format {
    /// The most levels that it can have.
    const LEVELS_MAX: u8;

    /// Whether some pages have several entries, side by side in one table of the level that
    /// [`Format::level_of`] says: as many as such a page is larger than what an entry there covers. The
    /// page's usage is that of all its entries together.
    const REPLICATES: bool = false;

    /// Whether the entry that leads to a table counts those in use there. Where hardware leaves no
    /// bits for that, a table from which something goes is searched for what is left.
    const COUNTS: bool = true;

    /// How far behind an entry of level 1 the note of its page lies, where there are notes: see
    /// [`crate::PageTable::has_notes`].
    const NOTE_AT: Option<u64> = None;

    /// Whether page entries have a bit for pages that all spaces share.
    const HAS_GLOBAL: bool = true;

    /// Tables on the way from the root to a base page.
    fn levels(&self) -> u8;

    /// The page sizes that have entries, ascending.
    fn page_sizes(&self) -> &[PageSize];

    /// The virtual addresses that it covers, ascending. Within one of them the index into the
    /// root ascends with the address.
    fn spans(&self) -> &[VirtRange];

    /// Addresses that no span holds, at which tables of other spaces can be seen: see
    /// [`crate::PageTable::lend`].
    fn area(&self) -> Option<VirtRange> {
        None
    }

    /// Whether some span, or the area, holds `addr`.
    fn holds(&self, addr: VirtAddr) -> bool;

    /// log2 of the bytes of virtual memory that one entry of a table at `level` covers.
    fn entry_shift(&self, level: u8) -> u32;

    /// The bytes of a table at `level`, a power of two.
    fn table_size(&self, level: u8) -> PageSize;

    /// Where in a table at `level` the entry for `addr` lies, in bytes.
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64;

    /// The bytes of one entry at `level`: 4 or 8.
    fn entry_bytes(&self, level: u8) -> u8;

    /// The size of a page whose entry is at `level`.
    fn page_size(&self, level: u8) -> PageSize;

    /// The level of the entries of pages of `size`, if it has any.
    fn level_of(&self, size: PageSize) -> Option<u8> {
        (1..=self.levels()).find(|&level| self.entry_shift(level) == size.shift())
    }

    /// Whether entries can name the `bytes` bytes of physical memory from `start`.
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool;

    /// Below which physical address a table must end for entries to name it.
    fn tables_end(&self) -> PhysAddr;

    /// Whether page entries can express `rights`.
    #[inline]
    fn check_rights(&self, _rights: Rights) -> Result<(), Unfit> {
        Ok(())
    }

    /// Whether page entries can express `attributes`. Without a word of a format: those of ordinary memory
    /// alone.
    #[inline]
    fn check_attributes(&self, attributes: Attributes) -> Result<(), Unfit> {
        Unfit::unless_normal(attributes)
    }

    /// The least rights with all of `rights` that page entries can express: more than was asked for where
    /// hardware does not tell apart what is.
    #[inline]
    fn granted(&self, rights: Rights) -> Rights {
        rights
    }

    /// What the entry is to the OS.
    fn decode(&self, entry: u64, level: u8) -> Entry;

    /// The table that the entry of a level above 1 leads to, if it leads to one.
    #[inline]
    fn next_table(&self, entry: u64, level: u8) -> Option<PhysAddr> {
        match self.decode(entry, level) {
            Entry::Table(table) => Some(table),
            Entry::Empty | Entry::Page => None,
        }
    }

    /// Whether hardware takes the entry as valid.
    fn present(&self, entry: u64) -> bool;

    /// What the entries passed on the way allow, after one more that leads to a table: all ones
    /// before the first, and else the format's own affair, for as cheap a step as can be.
    #[inline]
    fn pass(&self, passed: u64, _entry: u64) -> u64 {
        passed
    }

    /// The rights that [`Format::pass`] stands for.
    #[inline]
    fn passed_rights(&self, _passed: u64) -> Rights {
        Rights::ALL
    }

    /// The entry for a table that holds `population` entries.
    fn table(&self, table: PhysAddr, population: u64) -> u64;

    /// How many entries of the table behind this entry are not empty: kept in bits that
    /// hardware ignores, so that a table is freed when its last page goes, without a search. Nobody
    /// asks where the format [does not count](Format::COUNTS).
    fn population(&self, entry: u64) -> u64;

    /// The entry with `by` added to the population; `None` where no entry of the table would be in
    /// use any more. Nobody asks where the format [does not count](Format::COUNTS).
    fn recounted(&self, entry: u64, by: i64) -> Option<u64>;

    /// Replaces the entry at `at` by `entry`, which differs from it in the population and perhaps
    /// in bits that walkers have set since it was read.
    ///
    /// A plain store does it, whatever walkers run: where a walker sets a bit in entries that lead
    /// to tables, the population is in bytes of the entry that no walker changes.
    #[inline]
    fn write_population(&self, level: u8, at: PhysAddr, entry: u64, memory: &mut impl Memory) {
        self.write(level, at, entry, memory);
    }

    /// The entry at `level` for `page` whose part of the frame begins at `frame`, never referenced.
    /// The part is the whole, unless the format [replicates](Format::REPLICATES) pages.
    fn page(&self, level: u8, page: &Translation, frame: PhysAddr) -> u64;

    /// The bits of a page's entry, which is for `addr`, to invert so that it is one of a page of `size` with
    /// entries at the same level: 0 where an entry does not say what size its page has. None of them is one
    /// that walkers set.
    #[inline]
    fn other_size(&self, _entry: u64, _addr: VirtAddr, _size: PageSize) -> u64 {
        0
    }

    /// Whether processors must have forgotten a page before there is one of another size in its place: a
    /// break before the make.
    #[inline]
    fn breaks(&self) -> bool {
        false
    }

    /// The entry of a page while it is broken: hardware takes it for none, and the OS for a page. Nobody asks
    /// where the format does not [break](Format::breaks).
    #[inline]
    fn broken(&self, _entry: u64) -> u64 {
        0
    }

    /// What the entry of the page at `level` that holds `addr` says.
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation;

    /// The bits of a page's entry to invert so that it has these rights: none that walkers set,
    /// and the same whatever those are.
    #[inline]
    fn other_rights(&self, entry: u64, rights: Rights) -> u64 {
        let (mask, bits) = pte::rights_bits(rights);
        (entry ^ bits) & mask
    }

    /// Whether the entry of a page at `level` allows more than `rights`.
    #[inline]
    fn exceeds(&self, entry: u64, level: u8, rights: Rights) -> bool {
        !rights.contains(self.translation(entry, level, VirtAddr::new(0)).rights)
    }

    /// Whether a walk to this entry of a page, which is [present](Format::present), allows an access of this
    /// kind, where `rights` are those of the entry that all tables on the way allow too. A format whose tables
    /// restrict nothing may look at the entry instead, if that is cheaper.
    #[inline]
    fn permits(&self, _entry: u64, rights: Rights, kind: Kind) -> bool {
        rights.allows(kind)
    }

    /// The usage bits of a page's entry.
    #[inline]
    fn usage(&self, entry: u64) -> Usage {
        Pte::from_bits(entry).usage()
    }

    /// Which bits of a page's entry stand for `usage`.
    #[inline]
    fn usage_bits(&self, usage: Usage) -> u64 {
        pte::usage_bits(usage)
    }

    /// The entry of a page with `usage` in addition to what it has.
    #[inline]
    fn used(&self, entry: u64, usage: Usage) -> u64 {
        entry | self.usage_bits(usage)
    }

    /// Gives the page whose entry at `at` was just read as `entry` these rights, where walkers may set bits of
    /// the entry at any time; if it changed, what it was then.
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

    /// Clears what `usage` names of it in the same way.
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

    /// The bit of a table's entry that a walk through it sets, or 0.
    #[inline]
    fn table_usage_bit(&self) -> u64 {
        0
    }

    /// Whether hardware sets usage bits during a walk.
    fn walk_sets_usage(&self) -> bool;

    /// The entry at `at`, which a table of `level` holds.
    #[inline]
    fn read(&self, level: u8, at: PhysAddr, memory: &impl Memory) -> u64 {
        if self.entry_bytes(level) == 8 {
            memory.read_u64(at)
        } else {
            u64::from(memory.read_u32(at))
        }
    }

    /// The entry at `at`, which a table of `level` holds, for callers that often change its population:
    /// [`Format::write_population`] may just have stored part of the entry.
    #[inline]
    fn read_counted(&self, level: u8, at: PhysAddr, memory: &impl Memory) -> u64 {
        self.read(level, at, memory)
    }

    /// Replaces the entry at `at`, which no walker changes meanwhile: it is empty.
    #[inline]
    fn write(&self, level: u8, at: PhysAddr, entry: u64, memory: &mut impl Memory) {
        if self.entry_bytes(level) == 8 {
            memory.write_u64(at, entry);
        } else {
            memory.write_u32(at, entry as u32);
        }
    }

    /// Replaces the entry at `at`; what it was, with all that walkers have set in it.
    #[inline]
    fn swap(&self, level: u8, at: PhysAddr, new: u64, memory: &mut impl Memory) -> u64 {
        if self.entry_bytes(level) == 8 {
            memory.swap_u64(at, new)
        } else {
            u64::from(memory.swap_u32(at, new as u32))
        }
    }

    /// Inverts the `bits` of the entry at `at`; what it was, with all that walkers have set in it.
    #[inline]
    fn invert(&self, level: u8, at: PhysAddr, bits: u64, memory: &mut impl Memory) -> u64 {
        if self.entry_bytes(level) == 8 {
            memory.invert_u64(at, bits)
        } else {
            u64::from(memory.invert_u32(at, bits as u32))
        }
    }

    /// Replaces the entry at `at` if it is `current`; `Err` has what it is.
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

/// The lower half of all addresses, and the upper one where a table has both.
pub(crate) fn halves<const HALVES: usize>(bytes: u64) -> [VirtRange; HALVES] {
    const { assert!(HALVES == 1 || HALVES == 2, "there are two halves, and the lower is there") };
    array::from_fn(|half| {
        let start = VirtAddr::new(if half == 0 { 0 } else { bytes.wrapping_neg() });
        VirtRange::new(start, bytes).expect("each half ends at a power of two")
    })
}
