//! The implementations of the traits `PageTable` and `Tree` by the algorithms
//! of the other files.

use alloc::vec::Vec;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use super::change::{Clear, Protect, Remove};
use super::single::Recent;
use super::{Radix, Taken};
use crate::{
    Error, Fault, Flush, Footprint, Format, Lent, Loan, Mapping, Node, PageTable, Reference, Space,
    Translation, Tree, TreeShape, Usage,
};

impl<F: Format> PageTable for Radix<F> {
    fn page_sizes(&self) -> &[PageSize] {
        self.format.page_sizes()
    }

    fn granted(&self, rights: Rights) -> Rights {
        self.format.granted(rights)
    }

    fn walks_beside_changes(&self) -> bool {
        true
    }

    fn create(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Space, Error> {
        let level = self.format.levels();
        let size = self.frame_size(level);
        self.spaces.prepare()?;
        let root = frames.allocate(size)?;
        if let Err(unfit) = self.check_table(root, size) {
            frames.free(root, size);
            return Err(unfit.into());
        }
        memory.zero(root, self.format.table_size(level).bytes());
        self.copy_shared(root, memory);
        Ok(self.spaces.create(root, Taken::new(self.table_footprint(level))))
    }

    fn destroy(&mut self, space: Space, memory: &mut impl Memory) -> Result<Flush, Error> {
        let taken = self.spaces.own(space).ok_or(Error::NoSpace(space))?.footprint();
        let mut flush = Flush::whole(space, false);
        flush.try_reserve(self.tables_max(taken))?;
        let (global, _) = self.spaces.destroy(space)?;
        self.recent = Recent::NONE;
        flush.merge(Flush::whole(space, global));
        let root = self.root_table(space);
        flush.add_table(root.start, self.frame_size(root.level));
        for part in self.spanned(VirtRange::ALL) {
            self.collect_tables(root, part, memory, &mut flush);
        }
        Ok(flush)
    }

    #[inline(always)]
    fn map_noted(
        &mut self,
        space: Space,
        (first, count): (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Flush, Error> {
        let note = notes.first().copied().unwrap_or(0);
        if count != 1 || !self.map_single(space, first, note, memory) {
            self.build(space, (first, count), notes, memory, frames)?;
        }
        Ok(Flush::nothing(space))
    }

    fn has_notes(&self) -> bool {
        F::NOTE_AT.is_some()
    }

    fn set_note(
        &mut self,
        space: Space,
        addr: VirtAddr,
        note: u32,
        memory: &mut impl Memory,
    ) -> Result<(), Error> {
        self.spaces.check(space)?;
        let found = self.find(space, addr, memory).ok_or(Error::NotMapped { addr })?;
        self.write_note(found.level, found.at, note, memory);
        Ok(())
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

    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut impl FnMut(&Mapping) -> Option<Rights>,
        memory: &mut impl Memory,
    ) -> Result<Flush, Error> {
        if let Some(stale) = self.protect_single(space, page, rights, memory) {
            return Ok(stale?.flush(space));
        }
        let found = self.query(space, page.start(), memory);
        let found = found.filter(|mapping| mapping.translation.page == page);
        match found.and_then(|mapping| rights(&Mapping { note: 0, ..mapping })) {
            Some(rights) => {
                self.protect(space, VirtRange::of_page(page), rights, memory, &mut |_| ())
            }
            None => Ok(Flush::nothing(space)),
        }
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

    fn resize<M: Memory>(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        memory: &mut M,
        frames: &mut impl Frames,
        forget: &mut impl FnMut(&Flush, &mut M),
    ) -> Result<Vec<Mapping>, Error> {
        let exchanged = self.exchange_sizes(space, range, to, memory, frames)?;
        if !exchanged.flush.is_empty() {
            forget(&exchanged.flush, memory);
        }
        self.complete(&exchanged.pending, memory);
        exchanged.flush.done(frames);
        Ok(exchanged.mapped)
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
        self.set_usage_of(found.level, found.at, found.entry, bits, memory);
        Ok(())
    }

    fn lend(&mut self, loan: Loan, memory: &mut impl Memory) -> Result<Lent, Error> {
        self.lend_entry(loan, memory)
    }

    fn take_back(
        &mut self,
        of: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(VirtAddr, Option<Usage>),
    ) -> Result<(), Error> {
        self.take_back_entries(of, range, memory, each)
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

    #[inline]
    fn last_entry(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<PhysAddr> {
        if !self.format.holds(addr) {
            return None;
        }
        let mut table = space.root();
        for level in (2..=self.format.levels()).rev() {
            let entry = self.format.read(level, self.entry_at(level, table, addr), memory);
            table = self.format.next_table(entry, level)?;
        }
        Some(self.entry_at(1, table, addr))
    }

    fn query(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Mapping> {
        self.spaces.check(space).ok()?;
        let found = self.find(space, addr, memory)?;
        let mapping = self.whole_mapping(found.entry, found.level, found.table, addr, memory);
        Some(self.noted(mapping, found.level, found.at, memory))
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
        self.spaces.owns().map(Taken::footprint).sum()
    }

    fn footprint_of(&self, space: Space) -> Footprint {
        self.spaces.own(space).map(Taken::footprint).unwrap_or_default()
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
