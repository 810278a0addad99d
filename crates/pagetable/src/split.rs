//! A radix tree in which the address can be split into indices of any length.
//!
//! ```text
//!   va  | sign |  index, root  |  ...  | index, level 1 | 12: offset |
//!                  1 to 18 bits           1 to 18 bits
//!
//!      63         52 51                12 11  9  8  7         1  0
//!     +-------------+--------------------+-----+---+-----------+---+
//!     | pop., low   |  next table        |  0  | 1 | pop., high| 1 |   table
//!     +-------------+--------------------+-----+---+-----------+---+
//!     |      0      |  frame             |  0  | 0 | D A G UXWR| 1 |   page
//!     +-------------+--------------------+-----+---+-----------+---+
//! ```
//!
//! A table takes 8 bytes per entry and a frame of its own of at least 4 KiB; with an index of 18
//! bits the frame has 2 MiB. *Flattened* tables (Park et al. 2022) are an example: two levels of 9
//! bits are merged into one of 18, so that a walk has two references instead of four. `pop.` is the
//! population of the next table.

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::pte::{Pte, Width};
use crate::{Entry, Format, Geometry, Radix, Translation};

const BASE: PageSize = PageSize::SIZE_4K;
const ENTRY_SHIFT: u32 = 3;
const LEVELS_MAX: usize = 8;
const INDEX_BITS_MAX: u64 = 18;
const PAGE_SHIFT_MAX: u32 = 51;
const PTE: Width = Width::Wide;

const MAPPED: u64 = 1 << 0;
const TABLE: u64 = 1 << 8;
const POPULATION_HIGH_SHIFT: u32 = 1;
const POPULATION_HIGH: u64 = 0x7f;
const POPULATION_LOW_SHIFT: u32 = 52;
const POPULATION_LOW_BITS: u32 = 12;
const POPULATION_LOW: u64 = (1 << POPULATION_LOW_BITS) - 1;
const POPULATION: u64 =
    POPULATION_HIGH << POPULATION_HIGH_SHIFT | POPULATION_LOW << POPULATION_LOW_SHIFT;

/// A radix tree in which the address can be split into indices of any length.
pub type Split = Radix<SplitEntries>;

/// The entry layout of [`Split`].
#[derive(Clone, Debug)]
pub struct SplitEntries {
    /// For each level, from 1 on: log2 of the bytes that an entry covers, and the number of index
    /// bits.
    shifts: [u32; LEVELS_MAX],
    index_bits: [u32; LEVELS_MAX],
    levels: u8,
    sizes: Vec<PageSize>,
    spans: Vec<VirtRange>,
    walk_sets_usage: bool,
}

impl Split {
    /// A tree whose tables have these numbers of index bits, from the root down. Pages are of 4 KiB
    /// at level 1, and, at the levels in `superpage_levels`, of the size that an entry of the level
    /// covers.
    ///
    /// Addresses of fewer than 64 bits are sign-extended. Walks do not set usage bits.
    pub fn new(index_bits: &[u8], superpage_levels: &[u8]) -> Result<Split, Geometry> {
        SplitEntries::new(index_bits, superpage_levels).map(Radix::with_format)
    }

    /// Two levels of 18 bits each for addresses of 48 bits, with pages of 4 KiB and 1 GiB
    /// (Park et al. 2022).
    pub fn flattened() -> Result<Split, Geometry> {
        Split::new(&[18, 18], &[2])
    }

    /// This tree, with walks that set the usage bits of pages. It must not have spaces yet.
    pub fn with_usage(self) -> Split {
        let entries = self.into_format();
        Radix::with_format(entries.with_usage())
    }
}

impl SplitEntries {
    pub(crate) fn new(from_root: &[u8], superpage_levels: &[u8]) -> Result<SplitEntries, Geometry> {
        SplitEntries::over(BASE, from_root, superpage_levels)
    }

    /// The entries of a tree whose base pages have the size `base`; the other parameters are those
    /// of [`Split::new`].
    pub(crate) fn over(
        base: PageSize,
        from_root: &[u8],
        superpage_levels: &[u8],
    ) -> Result<SplitEntries, Geometry> {
        Geometry::in_range("levels", from_root.len() as u64, 1, LEVELS_MAX as u64)?;
        let (mut shifts, mut index_bits) = ([0; LEVELS_MAX], [0; LEVELS_MAX]);
        let mut shift = base.shift();
        for (n, &bits) in from_root.iter().rev().enumerate() {
            Geometry::in_range("bits in an index", bits.into(), 1, INDEX_BITS_MAX)?;
            (shifts[n], index_bits[n]) = (shift, bits.into());
            shift += u32::from(bits);
        }
        Geometry::in_range("bits in an address", shift.into(), 0, u64::BITS.into())?;
        let levels = from_root.len() as u8;
        let mut sizes = Vec::from([base]);
        for &level in superpage_levels {
            Geometry::in_range("levels up to superpages", level.into(), 2, levels.into())?;
            let shift = shifts[usize::from(level) - 1];
            let what = "bits in a superpage's offset";
            Geometry::in_range(what, shift.into(), 0, PAGE_SHIFT_MAX.into())?;
            sizes.extend(PageSize::from_shift(shift as u8));
        }
        sizes.sort();
        sizes.dedup();
        let spans = canonical(shift);
        Ok(SplitEntries { shifts, index_bits, levels, sizes, spans, walk_sets_usage: false })
    }

    /// These entries, with walks that set the usage bits of pages.
    pub(crate) fn with_usage(self) -> SplitEntries {
        SplitEntries { walk_sets_usage: true, ..self }
    }

    /// These entries, for a table in which all addresses are below `end`.
    pub(crate) fn below(mut self, end: u64) -> SplitEntries {
        self.spans = VirtRange::new(VirtAddr::new(0), end).into_iter().collect();
        self
    }
}

/// The virtual addresses that are the sign extension of their lower `bits` bits.
fn canonical(bits: u32) -> Vec<VirtRange> {
    if bits == u64::BITS {
        return Vec::from([VirtRange::ALL]);
    }
    let half = 1u64 << (bits - 1);
    [0, half.wrapping_neg()]
        .into_iter()
        .filter_map(|start| VirtRange::new(VirtAddr::new(start), half).ok())
        .collect()
}

#[inline]
fn with_population(entry: u64, population: u64) -> u64 {
    let high = population >> POPULATION_LOW_BITS << POPULATION_HIGH_SHIFT;
    let low = (population & POPULATION_LOW) << POPULATION_LOW_SHIFT;
    entry & !POPULATION | high | low
}

impl Format for SplitEntries {
    const LEVELS_MAX: u8 = LEVELS_MAX as u8;

    #[inline]
    fn levels(&self) -> u8 {
        self.levels
    }

    fn page_sizes(&self) -> &[PageSize] {
        &self.sizes
    }

    fn spans(&self) -> &[VirtRange] {
        &self.spans
    }

    #[inline]
    fn holds(&self, addr: VirtAddr) -> bool {
        self.spans.iter().any(|span| span.contains(addr))
    }

    #[inline]
    fn entry_shift(&self, level: u8) -> u32 {
        self.shifts[usize::from(level) - 1]
    }

    fn table_size(&self, level: u8) -> PageSize {
        let shift = self.index_bits[usize::from(level) - 1] + ENTRY_SHIFT;
        PageSize::from_shift(shift as u8).unwrap_or(BASE)
    }

    #[inline]
    fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
        let mask = (1 << self.index_bits[usize::from(level) - 1]) - 1;
        (addr.get() >> self.entry_shift(level) & mask) << ENTRY_SHIFT
    }

    #[inline]
    fn entry_bytes(&self, _level: u8) -> u8 {
        PTE.bytes()
    }

    #[inline]
    fn page_size(&self, level: u8) -> PageSize {
        PageSize::from_shift(self.entry_shift(level) as u8).unwrap_or(BASE)
    }

    #[inline]
    fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool {
        start.get().checked_add(bytes).is_some_and(|end| end <= PTE.physical_end())
    }

    fn tables_end(&self) -> PhysAddr {
        PhysAddr::new(PTE.physical_end())
    }

    #[inline]
    fn decode(&self, entry: u64, _level: u8) -> Entry {
        if entry & MAPPED == 0 {
            Entry::Empty
        } else if entry & TABLE == 0 {
            Entry::Page
        } else {
            Entry::Table(PTE.frame(Pte::from_bits(entry)))
        }
    }

    #[inline]
    fn present(&self, entry: u64) -> bool {
        entry & MAPPED != 0
    }

    fn table(&self, table: PhysAddr, population: u64) -> u64 {
        with_population(table.get() | TABLE | MAPPED, population)
    }

    #[inline]
    fn population(&self, entry: u64) -> u64 {
        let high = entry >> POPULATION_HIGH_SHIFT & POPULATION_HIGH;
        high << POPULATION_LOW_BITS | entry >> POPULATION_LOW_SHIFT
    }

    #[inline]
    fn recounted(&self, entry: u64, by: i64) -> Option<u64> {
        let population = self.population(entry).wrapping_add_signed(by);
        (population > 0).then(|| with_population(entry, population))
    }

    #[inline]
    fn page(&self, _level: u8, page: &Translation, frame: PhysAddr) -> u64 {
        PTE.pte(frame, page.rights, page.global).bits()
    }

    #[inline]
    fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
        PTE.translation(Pte::from_bits(entry), addr.page(self.page_size(level)))
    }

    #[inline]
    fn walk_sets_usage(&self) -> bool {
        self.walk_sets_usage
    }
}
