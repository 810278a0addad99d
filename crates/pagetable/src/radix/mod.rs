//! The radix tree: an address is divided into indices, one for each level of tables.
//!
//! ```text
//!   va  | index L |  ...  | index 2 | index 1 | offset |
//!            |                 |         |
//!   root  [  .  ] -> ...    [  .  ] -> [  .  ] -> page
//!          population = how many entries of the next table are in use
//! ```
//!
//! A page larger than the base page is an entry that ends the walk at a higher level. Every table
//! except the root has at least one entry in use: when the last entry is removed, the table is
//! removed too. To detect this, the entry that leads to a table holds the number of entries in use
//! in the table.
//!
//! The layout of an entry is a [`Format`]; the algorithms are in the files beside this one.

mod build;
mod change;
mod contract;
mod counted;
mod edit;
mod lend;
mod replicated;
mod resize;
mod search;
mod share;
mod single;
mod subtree;

use alloc::collections::TryReserveError;
use core::sync::atomic::{AtomicUsize, Ordering};

use addr::{Memory, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::spaces::Spaces;
use crate::{Flush, Footprint, Format, Mapping, Space, Unfit};

use single::Recent;

/// The page table with entries in the format `F`, with all of its spaces.
#[derive(Debug)]
pub struct Radix<F> {
    format: F,
    /// The memory that the tables of each space take.
    spaces: Spaces<Taken>,
    recent: Recent,
    /// Whether the next operation may start at the table in `recent`.
    remembers: bool,
    /// The root given to [`Radix::sharing`]: new spaces get copies of its entries for the addresses that this
    /// format does not map.
    shared: Option<PhysAddr>,
}

impl<F: Format> Radix<F> {
    /// A table in this format, without spaces.
    pub fn with_format(format: F) -> Radix<F> {
        let (spaces, recent) = (Spaces::new(), Recent::NONE);
        Radix { format, spaces, recent, remembers: true, shared: None }
    }

    /// Makes every operation descend from the root: the lowest-level table of the last operation is
    /// not remembered for the next one.
    pub fn forgetful(self) -> Radix<F> {
        Radix { remembers: false, ..self }
    }

    /// The format of a table without spaces.
    pub(crate) fn into_format(self) -> F {
        self.format
    }

    fn root_table(&self, space: Space) -> Table {
        Table { level: self.format.levels(), start: space.root(), entries: None }
    }

    /// The size of the frame that a table of `level` takes; tables do not share frames.
    fn frame_size(&self, level: u8) -> PageSize {
        self.format.table_size(level).max(self.format.page_size(1))
    }

    /// Checks that the address of a table in `frame` fits into entries.
    fn check_table(&self, frame: PhysAddr, size: PageSize) -> Result<(), Unfit> {
        let end = self.format.tables_end();
        match frame.checked_add(size.bytes()) {
            Some(last) if last <= end => Ok(()),
            _ => Err(Unfit::Table { frame, end }),
        }
    }

    fn table_footprint(&self, level: u8) -> Footprint {
        Footprint {
            table_bytes: self.format.table_size(level).bytes(),
            frame_bytes: self.frame_size(level).bytes(),
        }
    }

    /// An upper bound of the number of tables, including the root, that occupy the memory `taken`.
    fn tables_max(&self, taken: Footprint) -> usize {
        let root = self.frame_size(self.format.levels()).bytes();
        1 + (taken.frame_bytes.saturating_sub(root) / self.format.page_size(1).bytes()) as usize
    }

    /// Reserves memory in `flush` for all tables that may become empty when the pages of `range`
    /// are unmapped.
    #[inline]
    fn reserve_tables(
        &self,
        space: Space,
        range: VirtRange,
        flush: &mut Flush,
    ) -> Result<(), TryReserveError> {
        let of_level = |level| {
            let number = |addr: VirtAddr| addr.get() >> self.format.entry_shift(level);
            number(range.last()) - number(range.start()) + 1
        };
        let touched = (2..=self.format.levels()).map(of_level).fold(0, u64::saturating_add);
        if touched <= Flush::FEW as u64 {
            return Ok(());
        }
        let taken = self.spaces.own(space).map(Taken::footprint).unwrap_or_default();
        flush.try_reserve(touched.min(self.tables_max(taken) as u64) as usize)
    }

    #[inline]
    fn entry_at(&self, level: u8, table: PhysAddr, addr: VirtAddr) -> PhysAddr {
        table.wrapping_add(self.format.entry_offset(level, addr))
    }

    /// Adds `more` to the memory that the tables of `space`, which exists, take.
    fn takes(&self, space: Space, more: Footprint) {
        if let Some(taken) = self.spaces.own(space) {
            taken.table_bytes.fetch_add(more.table_bytes as usize, Ordering::Relaxed);
            taken.frame_bytes.fetch_add(more.frame_bytes as usize, Ordering::Relaxed);
        }
    }

    /// Subtracts `less` from the memory that the tables of `space` take, while other operations may run.
    fn gives_back(&self, space: Space, less: Footprint) {
        if let Some(taken) = self.spaces.own(space) {
            taken.table_bytes.fetch_sub(less.table_bytes as usize, Ordering::Relaxed);
            taken.frame_bytes.fetch_sub(less.frame_bytes as usize, Ordering::Relaxed);
        }
    }

    /// Subtracts `less` from the memory that the tables of `space`, which exists, take. No other operation
    /// runs, so no locked instruction is needed.
    fn gives_back_alone(&mut self, space: Space, less: Footprint) {
        let taken = self.spaces.own_mut(space);
        *taken.table_bytes.get_mut() -= less.table_bytes as usize;
        *taken.frame_bytes.get_mut() -= less.frame_bytes as usize;
    }

    /// Of the addresses from `start` to `last`, the part that is covered by the entry of `level`
    /// that covers `start`.
    #[inline]
    fn part(&self, level: u8, start: VirtAddr, last: VirtAddr) -> Part {
        let mask = (1u64 << self.format.entry_shift(level)) - 1;
        Part { start, last: VirtAddr::new((start.get() | mask).min(last.get())) }
    }

    #[inline]
    fn mapping(&self, entry: u64, level: u8, addr: VirtAddr) -> Mapping {
        self.mapping_used(entry, level, addr, entry)
    }

    /// The mapping of `entry`, with the usage bits of `last`, which is the value of the entry when
    /// it was changed.
    ///
    /// All other parts are from `entry`, the value that was read first. If the caller ignores the
    /// usage bits, the exchange therefore need not return the old value, and the compiler chooses a
    /// cheaper instruction.
    #[inline]
    fn mapping_used(&self, entry: u64, level: u8, addr: VirtAddr, last: u64) -> Mapping {
        Mapping {
            translation: self.format.translation(entry, level, addr),
            usage: self.format.usage(last),
            note: 0,
        }
    }

    /// `mapping` with the page's note filled in; `at` is the address of the page's entry.
    #[inline(always)]
    fn noted(&self, mapping: Mapping, level: u8, at: PhysAddr, memory: &impl Memory) -> Mapping {
        match F::NOTE_AT {
            Some(behind) if level == 1 => {
                Mapping { note: memory.read_u32(at.wrapping_add(behind)), ..mapping }
            }
            Some(_) | None => mapping,
        }
    }

    /// Writes the note of a page whose entry is, or will be, at `at`.
    #[inline(always)]
    fn write_note(&self, level: u8, at: PhysAddr, note: u32, memory: &mut impl Memory) {
        match F::NOTE_AT {
            Some(behind) if level == 1 => memory.write_u32(at.wrapping_add(behind), note),
            Some(_) | None => {}
        }
    }

    /// The parts of `range` that this format maps.
    fn spanned(&self, range: VirtRange) -> impl Iterator<Item = Part> + '_ {
        let spans = self.format.spans().iter();
        spans.filter_map(move |span| span.intersection(range)).map(Part::from)
    }
}

/// The memory that the tables of a space take: a [`Footprint`] that several operations can change
/// at the same time.
#[derive(Debug)]
struct Taken {
    table_bytes: AtomicUsize,
    frame_bytes: AtomicUsize,
}

impl Taken {
    const fn new(of: Footprint) -> Taken {
        Taken {
            table_bytes: AtomicUsize::new(of.table_bytes as usize),
            frame_bytes: AtomicUsize::new(of.frame_bytes as usize),
        }
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            table_bytes: self.table_bytes.load(Ordering::Relaxed) as u64,
            frame_bytes: self.frame_bytes.load(Ordering::Relaxed) as u64,
        }
    }
}

/// A table that an algorithm has reached.
#[derive(Clone, Copy)]
struct Table {
    level: u8,
    start: PhysAddr,
    /// The number of the table's entries in use, if known. It is not known for the root, and in
    /// formats that do not count.
    entries: Option<u64>,
}

/// Addresses from `start` to `last`, both included, inside one span of a format.
#[derive(Clone, Copy)]
struct Part {
    start: VirtAddr,
    last: VirtAddr,
}

impl From<VirtRange> for Part {
    fn from(range: VirtRange) -> Part {
        Part { start: range.start(), last: range.last() }
    }
}

/// Marks a branch as unlikely: the compiler moves code that calls this out of the hot path.
#[cold]
#[inline]
pub(crate) fn seldom() {}
