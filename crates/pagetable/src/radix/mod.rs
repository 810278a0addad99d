//! The radix tree: the address cut into indices, one for each level of tables.
//!
//! ```text
//!   va  | index L |  ...  | index 2 | index 1 | offset |
//!            |                 |         |
//!   root  [  .  ] -> ...    [  .  ] -> [  .  ] -> page
//!          population = how many entries of the next table are in use
//! ```
//!
//! A page larger than the base page is an entry that ends the walk at a higher level. Every
//! table but the root holds at least one entry: the last one removed takes the table with it.
//! The count that tells so travels in the entry that leads to the table.
//!
//! What an entry looks like is a [`Format`]; the algorithms stand in the files beside this one.

mod build;
mod change;
mod edit;
mod search;
mod single;

use addr::{Frames, Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::spaces::Spaces;
use crate::{
    Error, Fault, Flush, Footprint, Format, Mapping, Node, PageTable, Reference, Space,
    Translation, Tree, TreeShape, Unfit, Usage,
};

use change::{Clear, Protect, Remove};
use single::Leaf;

/// The page table whose entries `F` lays out, with all of its spaces.
#[derive(Debug)]
pub struct Radix<F> {
    format: F,
    spaces: Spaces,
    /// The table of level 1 that an operation on a single page used last.
    recent: Leaf,
}

impl<F: Format> Radix<F> {
    /// A table in this format, without spaces.
    pub fn with_format(format: F) -> Radix<F> {
        Radix { format, spaces: Spaces::default(), recent: Leaf::NONE }
    }

    /// The format of a table without spaces.
    pub(crate) fn into_format(self) -> F {
        self.format
    }

    fn root_table(&self, space: Space) -> Table {
        Table { level: self.format.levels(), start: space.root(), entries: None }
    }

    /// The frame that a table of `level` takes; no table shares one.
    fn frame_size(&self, level: u8) -> PageSize {
        self.format.table_size(level).max(self.format.page_size(1))
    }

    /// That entries can name a table in `frame`.
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

    #[inline]
    fn entry_at(&self, level: u8, table: PhysAddr, addr: VirtAddr) -> PhysAddr {
        table.wrapping_add(self.format.entry_offset(level, addr))
    }

    /// The part of `range` from `start` that one entry of `level` covers.
    #[inline]
    fn part(&self, level: u8, start: VirtAddr, last: VirtAddr) -> Part {
        let mask = (1u64 << self.format.entry_shift(level)) - 1;
        Part { start, last: VirtAddr::new((start.get() | mask).min(last.get())) }
    }

    /// Replaces the entry at `at`, just read as `entry`, by what `new` makes of it, however
    /// often a walker sets bits meanwhile; what it was replaced by.
    #[inline]
    fn update(
        &self,
        level: u8,
        at: PhysAddr,
        mut entry: u64,
        memory: &mut impl Memory,
        new: impl Fn(u64) -> u64,
    ) -> u64 {
        loop {
            let new = new(entry);
            match self.format.exchange(level, at, entry, new, memory) {
                Ok(()) => return new,
                Err(found) => entry = found,
            }
        }
    }

    #[inline]
    fn mapping(&self, entry: u64, level: u8, addr: VirtAddr) -> Mapping {
        Mapping {
            translation: self.format.translation(entry, level, addr),
            usage: self.format.usage(entry),
        }
    }

    /// The parts of `range` that this format covers.
    fn spanned(&self, range: VirtRange) -> impl Iterator<Item = Part> + '_ {
        let spans = self.format.spans().iter();
        spans.filter_map(move |span| span.intersection(range)).map(Part::from)
    }
}

/// A table that an algorithm has come to.
#[derive(Clone, Copy)]
struct Table {
    level: u8,
    start: PhysAddr,
    /// How many of its entries are in use, where that is known: not for the root.
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

impl<F: Format> PageTable for Radix<F> {
    fn page_sizes(&self) -> &[PageSize] {
        self.format.page_sizes()
    }

    fn create(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Space, Error> {
        let level = self.format.levels();
        let size = self.frame_size(level);
        let root = frames.allocate(size)?;
        if let Err(unfit) = self.check_table(root, size) {
            frames.free(root, size);
            return Err(unfit.into());
        }
        memory.zero(root, self.format.table_size(level).bytes());
        let space = self.spaces.create(root);
        self.spaces.add(space, self.table_footprint(level));
        Ok(space)
    }

    fn destroy(&mut self, space: Space, memory: &mut impl Memory) -> Result<Flush, Error> {
        let global = self.spaces.destroy(space)?;
        self.recent = Leaf::NONE;
        let mut flush = Flush::whole(space, global);
        let root = self.root_table(space);
        flush.add_table(root.start, self.frame_size(root.level));
        for part in self.spanned(VirtRange::ALL) {
            self.collect_tables(root, part, memory, &mut flush);
        }
        Ok(flush)
    }

    #[inline(always)]
    fn map(
        &mut self,
        space: Space,
        first: Translation,
        count: u64,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        if count == 1 && self.map_single(space, first, memory) {
            return Ok(());
        }
        self.build(space, first, count, memory, frames)
    }

    #[inline(always)]
    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.edit(space, range, Remove, memory, each)
    }

    #[inline(always)]
    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.format.check_rights(rights)?;
        self.edit(space, range, Protect(rights), memory, each)
    }

    #[inline]
    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.edit(space, range, Clear(bits), memory, each)
    }

    fn set_usage(
        &mut self,
        space: Space,
        addr: VirtAddr,
        bits: Usage,
        memory: &mut impl Memory,
    ) -> Result<(), Error> {
        self.spaces.check(space)?;
        let found = self.find(space, addr, memory).ok_or(Error::NotMapped { addr })?;
        let bits = self.format.usage_bits(bits);
        self.set_bits(found.level, found.at, found.entry, bits, memory);
        Ok(())
    }

    #[inline]
    fn walk(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        self.walk_from(self.root(space), addr, kind, memory, each)
    }

    fn query(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Mapping> {
        self.spaces.check(space).ok()?;
        let found = self.find(space, addr, memory)?;
        Some(self.mapping(found.entry, found.level, addr))
    }

    fn visit(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Mapping),
    ) {
        if self.spaces.check(space).is_ok() {
            for part in self.spanned(range) {
                self.visit_table(self.format.levels(), space.root(), part, memory, each);
            }
        }
    }

    fn footprint(&self) -> Footprint {
        self.spaces.footprint()
    }

    fn footprint_of(&self, space: Space) -> Footprint {
        self.spaces.footprint_of(space)
    }
}

impl<F: Format> Tree for Radix<F> {
    fn shape(&self) -> TreeShape {
        let levels = self.format.levels();
        let entry_shift = self.format.entry_bytes(levels).trailing_zeros();
        let table_shift = |level| self.format.table_size(level).shift();
        let index_bits = table_shift(levels) - entry_shift;
        TreeShape {
            levels,
            address_bits: (self.format.entry_shift(levels) + index_bits) as u8,
            entry_shift: entry_shift as u8,
            table_shift: (1..levels).map(table_shift).min().unwrap_or_default() as u8,
            spans: Some((2..=levels).map(|level| self.format.entry_shift(level) as u8).collect()),
        }
    }

    #[inline]
    fn levels(&self) -> u8 {
        self.format.levels()
    }

    #[inline]
    fn root(&self, space: Space) -> Node {
        Node { table: space.root(), level: self.format.levels(), shift: 64, rights: Rights::ALL }
    }

    #[inline]
    fn walk_from(
        &self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        if !self.format.holds(addr) {
            return Err(Fault::Unfit);
        }
        self.descend(start, addr, kind, memory, each)
    }
}
