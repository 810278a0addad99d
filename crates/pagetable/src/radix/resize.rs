//! A split or a merge in a radix tree, while processors walk the tree.
//!
//! ```text
//!   split     [ 2M ]  --one exchange-->  [ table ] --> [ 4K | 4K | ... | 4K ]    filled before it is linked
//!   merge     [ table ] --> [ 4K | ... ]  --one exchange-->  [ 2M ]
//!                             ^ stays as it is until no processor can come here: bits set late are carried over
//!   restamp   [ 64K | 64K | ... ]  --an exchange each-->  [ 4K | 4K | ... ]      entries that say their size
//! ```
//!
//! Entries are replaced by a compare-and-exchange: if a walker has set a bit in the old entry since
//! then, the bit is added to the new table first, and the exchange is tried again. A walk therefore
//! finds the frame at every moment, and no bit is lost. All frames are allocated before anything
//! changes.
//!
//! Hardware that must not see two sizes at the same time (AArch64 without FEAT_BBM at level 2) needs
//! break-before-make. For such hardware the old entries are first invalidated, stay invalid until
//! the processors have flushed the old pages, and are written in [`Radix::complete`].

use alloc::vec::Vec;

use addr::{Frames, Memory, PageSize, PhysAddr, VirtAddr, VirtRange};

use super::{
    Part, Radix,
    build::{Stock, no_stock},
    single::Recent,
};
use crate::{
    Entry, Error, Flush, Footprint, Format, Mapping, Space, Translation, Unfit, Usage,
    resize::{Pending, resized},
};

/// The result of exchanging entries. Pages have the new size, but hardware may still hold the old
/// translations.
pub(super) struct Exchanged {
    /// Names the old translations that hardware may hold.
    pub(super) flush: Flush,
    /// The new pages.
    pub(super) mapped: Vec<Mapping>,
    /// The work that remains after hardware has flushed the old translations.
    pub(super) pending: Vec<Pending>,
}

/// The state of a resize after all steps that can fail.
struct Resize<'a, M> {
    to: PageSize,
    /// The level of the entries of pages of the size `to`.
    level: u8,
    memory: &'a mut M,
    /// Frames for the tables that are missing, in the order in which they are needed.
    stock: Stock,
    used: usize,
    flush: Flush,
    pending: Vec<Pending>,
    taken: Footprint,
    freed: Footprint,
}

impl<F: Format> Radix<F> {
    /// The first step of [`crate::PageTable::resize`]: exchanges the entries. It may fail.
    pub(super) fn exchange_sizes(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Exchanged, Error> {
        self.spaces.check(space)?;
        let known = self.format.page_sizes().contains(&to);
        let level = self.format.level_of(to).filter(|_| known).ok_or(Unfit::PageSize(to))?;
        let (mut before, mut is_short) = (Vec::new(), false);
        let top = self.format.levels();
        for part in self.spanned(range) {
            let each = &mut |mapping: Mapping| {
                is_short = is_short || before.try_reserve(1).is_err();
                if !is_short {
                    before.push(mapping);
                }
            };
            self.visit_table(top, space.root(), part, memory, each);
        }
        if is_short {
            return Err(Error::NoMemory);
        }
        let mapped = resized(&before, range, to)?;
        let (mut flush, mut pending) = (Flush::nothing(space), Vec::new());
        pending.try_reserve(self.pending_max(&before, to))?;
        if before.iter().any(|mapping| mapping.translation.page.size() < to) {
            self.reserve_tables(space, range, &mut flush)?;
        }
        let mut stock = no_stock();
        for part in self.spanned(range) {
            if let Err(error) =
                self.stock_splits((top, space.root()), part, level, memory, frames, &mut stock)
            {
                stock.iter().for_each(|(frame, size)| frames.free(frame, size));
                return Err(error);
            }
        }
        for Mapping { translation: Translation { page, global, .. }, .. } in &before {
            if page.size() != to {
                flush.add(*page, *global);
            }
        }
        let (taken, freed) = (Footprint::default(), Footprint::default());
        let mut job = Resize { to, level, memory, stock, used: 0, flush, pending, taken, freed };
        for part in self.spanned(range) {
            self.resize_table(top, space.root(), part, &mut job);
        }
        let Resize { flush, pending, taken, freed, .. } = job;
        self.recent = Recent::NONE;
        self.takes(space, taken);
        self.gives_back(space, freed);
        Ok(Exchanged { flush, mapped, pending })
    }

    /// An upper bound of the number of entries that [`Radix::complete`] has to complete if these
    /// pages get the size `to`: the sum of the entries of each page whose size changes.
    fn pending_max(&self, before: &[Mapping], to: PageSize) -> usize {
        let pages = before.iter().map(|mapping| mapping.translation.page.size());
        let entries = pages.filter(|size| *size != to).map(|size| {
            let shift =
                self.format.level_of(size).map_or(0, |level| self.format.entry_shift(level));
            size.bytes() >> shift
        });
        entries.sum::<u64>() as usize
    }

    /// The step of [`crate::PageTable::resize`] after hardware has flushed the old translations:
    /// copies bits that hardware has set in the old entries to the new ones, and writes entries
    /// that were invalidated.
    pub(super) fn complete(&self, pending: &[Pending], memory: &mut impl Memory) {
        for &Pending { level, at, made, went } in pending {
            let late = went.map(|table| self.usage_below(level - 1, table, memory));
            match (made, late) {
                (Some(entry), late) => {
                    let entry = late.map_or(entry, |late| self.format.used(entry, late));
                    self.format.write(level, at, entry, memory);
                }
                (None, Some(late)) => {
                    // The new page already has the mark, if all old pages were marked.
                    let late = Usage { marked: false, ..late };
                    let entry = self.format.read(level, at, memory);
                    self.set_usage_of(level, at, entry, late, memory);
                }
                (None, None) => {}
            }
        }
    }

    /// Allocates frames for the tables of the pages in `part` that get smaller, in the order in which
    /// [`Radix::split`] uses them.
    fn stock_splits(
        &self,
        (level, table): (u8, PhysAddr),
        part: Part,
        to: u8,
        memory: &impl Memory,
        frames: &mut impl Frames,
        stock: &mut Stock,
    ) -> Result<(), Error> {
        if level <= to {
            return Ok(());
        }
        let mut start = part.start;
        loop {
            let slot = self.part(level, start, part.last);
            let entry = self.format.read(level, self.entry_at(level, table, start), memory);
            match self.format.decode(entry, level) {
                Entry::Empty => {}
                Entry::Table(next) => {
                    self.stock_splits((level - 1, next), slot, to, memory, frames, stock)?;
                }
                Entry::Page => self.stock_split(level, to, frames, stock)?,
            }
            if slot.last == part.last {
                return Ok(());
            }
            start = slot.last.wrapping_add(1);
        }
    }

    /// Allocates frames for the tables that one entry of `level` needs to lead to pages whose
    /// entries are at level `to`.
    fn stock_split(
        &self,
        level: u8,
        to: u8,
        frames: &mut impl Frames,
        stock: &mut Stock,
    ) -> Result<(), Error> {
        let size = self.frame_size(level - 1);
        stock.prepare()?;
        let frame = frames.allocate(size)?;
        stock.push((frame, size))?;
        self.check_table(frame, size)?;
        if level - 1 > to {
            for _ in 0..self.entries_below(level) {
                self.stock_split(level - 1, to, frames, stock)?;
            }
        }
        Ok(())
    }

    /// Whether `slot` consists of all addresses that an entry of `level` covers.
    fn is_whole(&self, level: u8, slot: Part) -> bool {
        let mask = (1 << self.format.entry_shift(level)) - 1;
        slot.last.get() - slot.start.get() == mask
    }

    /// The number of entries of the next lower level that one entry of `level` covers.
    fn entries_below(&self, level: u8) -> u64 {
        1 << (self.format.entry_shift(level) - self.format.entry_shift(level - 1))
    }

    /// Gives the pages of `part`, in and below a table of `level`, their new size.
    fn resize_table<M: Memory>(
        &self,
        level: u8,
        table: PhysAddr,
        part: Part,
        job: &mut Resize<'_, M>,
    ) {
        let mut start = part.start;
        loop {
            let mut slot = self.part(level, start, part.last);
            let at = self.entry_at(level, table, start);
            let entry = self.format.read(level, at, job.memory);
            match self.format.decode(entry, level) {
                Entry::Empty => {}
                Entry::Table(next) if level > job.level => {
                    self.resize_table(level - 1, next, slot, job);
                }
                // If only a part of a table is in the range, this part has no pages, so there is
                // nothing to merge.
                Entry::Table(next) if self.is_whole(level, slot) => {
                    self.merge(level, (at, entry), next, start, job);
                }
                Entry::Table(_) => {}
                Entry::Page if level > job.level && F::REPLICATES => {
                    let last = self.split_copies(level, table, entry, start, job);
                    slot.last = last.min(part.last);
                }
                Entry::Page if level > job.level => {
                    self.split(level, (at, entry), start, job);
                }
                Entry::Page if F::REPLICATES => {
                    let last = self.resize_copies(level, table, entry, start, job);
                    slot.last = last.min(part.last);
                }
                Entry::Page => {}
            }
            if slot.last == part.last {
                return;
            }
            start = slot.last.wrapping_add(1);
        }
    }

    /// Splits a larger page, which may have several entries in a table of `level`. Each of these
    /// entries is made to lead to a table of smaller pages. Returns the address of the page's last
    /// byte.
    fn split_copies<M: Memory>(
        &self,
        level: u8,
        table: PhysAddr,
        entry: u64,
        addr: VirtAddr,
        job: &mut Resize<'_, M>,
    ) -> VirtAddr {
        let page = self.format.translation(entry, level, addr).page;
        let (first, mut usage) = (job.pending.len(), Usage::default());
        let mut count = 0;
        for (at, addr) in self.copies(level, table, page) {
            let entry = self.format.read(level, at, job.memory);
            let (_, was) = self.split(level, (at, entry), addr, job);
            count += 1;
            usage.referenced |= was.referenced;
            usage.dirty |= was.dirty;
        }
        if count == 1 || usage == Usage::default() {
            return VirtRange::of_page(page).last();
        }
        // A walker sets the bits of only one of the entries. Each part of the page gets the bits of
        // the whole page.
        for (number, (at, _)) in self.copies(level, table, page).enumerate() {
            let leads = match job.pending.get(first + number) {
                Some(Pending { made: Some(leads), .. }) if self.format.breaks() => *leads,
                _ => self.format.read(level, at, job.memory),
            };
            if let Some(below) = self.format.next_table(leads, level) {
                self.use_below(level - 1, below, usage, job);
            }
        }
        VirtRange::of_page(page).last()
    }

    /// Splits one entry of a larger page, for `addr`: makes it lead to a table of smaller pages. Returns
    /// that table and the usage that the entry had.
    fn split<M: Memory>(
        &self,
        level: u8,
        (at, mut entry): (PhysAddr, u64),
        addr: VirtAddr,
        job: &mut Resize<'_, M>,
    ) -> (PhysAddr, Usage) {
        let page = self.format.translation(entry, level, addr);
        let offset = addr.get() - page.page.start().get();
        let first = Translation { frame: page.frame.wrapping_add(offset), ..page };
        let table = self.build_split(level - 1, addr, &first, self.format.usage(entry), job);
        let leads = self.format.table(table, self.entries_below(level));
        if self.format.breaks() {
            let was = self.format.swap(level, at, self.format.broken(entry), job.memory);
            let was = self.format.usage(was);
            self.use_below(level - 1, table, was, job);
            job.pending.push(Pending { level, at, made: Some(leads), went: None });
            return (table, was);
        }
        while let Err(found) = self.format.exchange(level, at, entry, leads, job.memory) {
            // A walker has set bits in the entry in the meantime.
            entry = found;
            self.use_below(level - 1, table, self.format.usage(entry), job);
        }
        (table, self.format.usage(entry))
    }

    /// Fills a new table of `level` with pages, before any entry leads to the table. The first page
    /// begins at `addr` and has the frame, rights and attributes of `first`; the following pages
    /// have the following frames.
    fn build_split<M: Memory>(
        &self,
        level: u8,
        addr: VirtAddr,
        first: &Translation,
        usage: Usage,
        job: &mut Resize<'_, M>,
    ) -> PhysAddr {
        let table = job.stock.get(job.used).map(|(table, _)| table);
        let table = table.expect("every missing table was stocked");
        job.used += 1;
        let footprint = self.table_footprint(level);
        job.memory.zero(table, footprint.table_bytes);
        job.taken += footprint;
        for number in 0..self.entries_below(level + 1) {
            let offset = number << self.format.entry_shift(level);
            let start = addr.wrapping_add(offset);
            let frame = first.frame.wrapping_add(offset);
            let entry = if level > job.level {
                let below = Translation { frame, ..*first };
                let next = self.build_split(level - 1, start, &below, usage, job);
                self.format.table(next, self.entries_below(level))
            } else {
                self.format.used(self.page_of(level, job.to, start, frame, first), usage)
            };
            let at = self.entry_at(level, table, start);
            self.format.write(level, at, entry, job.memory);
        }
        table
    }

    /// The entry at `level` for the page of the size `to` that holds `addr`, mapped to `frame` with
    /// the rights and attributes of `like`.
    fn page_of(
        &self,
        level: u8,
        to: PageSize,
        addr: VirtAddr,
        frame: PhysAddr,
        like: &Translation,
    ) -> u64 {
        let page = Translation { page: addr.page(to), frame: frame.align_down(to), ..*like };
        self.format.page(level, &page, frame)
    }

    /// Adds `usage` to all pages below a table, which walkers may see already.
    fn use_below<M: Memory>(
        &self,
        level: u8,
        table: PhysAddr,
        usage: Usage,
        job: &mut Resize<'_, M>,
    ) {
        for number in 0..self.entries_below(level + 1) {
            let at = table.wrapping_add(number * u64::from(self.format.entry_bytes(level)));
            let entry = self.format.read(level, at, job.memory);
            match self.format.decode(entry, level) {
                Entry::Empty => {}
                Entry::Table(next) => self.use_below(level - 1, next, usage, job),
                Entry::Page => self.set_usage_of(level, at, entry, usage, job.memory),
            }
        }
    }

    /// Merges the pages of a full table, `next`: makes the entry that leads to this table the entry
    /// of one larger page at `addr`.
    fn merge<M: Memory>(
        &self,
        level: u8,
        (at, mut entry): (PhysAddr, u64),
        next: PhysAddr,
        addr: VirtAddr,
        job: &mut Resize<'_, M>,
    ) {
        let like = self.first_below(level - 1, next, addr, job.memory);
        let new = self.page_of(level, job.to, addr, like.frame, &like);
        self.unlink_below((level - 1, next), job);
        if self.format.breaks() {
            self.format.swap(level, at, self.format.broken(new), job.memory);
            job.pending.push(Pending { level, at, made: Some(new), went: Some(next) });
            return;
        }
        loop {
            let usage = self.usage_below(level - 1, next, job.memory);
            let new = self.format.used(new, usage);
            match self.format.exchange(level, at, entry, new, job.memory) {
                Ok(()) => break,
                // A walker has set the accessed bit of this entry in the meantime.
                Err(found) => entry = found,
            }
        }
        job.pending.push(Pending { level, at, made: None, went: Some(next) });
    }

    /// The page that begins at `addr`, below a full table.
    fn first_below(
        &self,
        mut level: u8,
        mut table: PhysAddr,
        addr: VirtAddr,
        memory: &impl Memory,
    ) -> Translation {
        loop {
            let entry = self.format.read(level, self.entry_at(level, table, addr), memory);
            match self.format.next_table(entry, level).filter(|_| level > 1) {
                Some(next) => (level, table) = (level - 1, next),
                None => return self.format.translation(entry, level, addr),
            }
        }
    }

    /// The usage of the pages below a full table: referenced or dirty if any of them is, marked if
    /// all of them are.
    fn usage_below(&self, level: u8, table: PhysAddr, memory: &impl Memory) -> Usage {
        let mut usage = Usage { referenced: false, dirty: false, marked: true };
        for number in 0..self.entries_below(level + 1) {
            let at = table.wrapping_add(number * u64::from(self.format.entry_bytes(level)));
            let entry = self.format.read(level, at, memory);
            let below = match self.format.decode(entry, level) {
                Entry::Empty => continue,
                Entry::Table(next) => self.usage_below(level - 1, next, memory),
                Entry::Page => self.format.usage(entry),
            };
            usage.referenced |= below.referenced;
            usage.dirty |= below.dirty;
            usage.marked &= below.marked;
        }
        usage
    }

    /// Records a removed table, and all tables below it, in the token, which frees them after the flush.
    fn unlink_below<M: Memory>(&self, (level, table): (u8, PhysAddr), job: &mut Resize<'_, M>) {
        job.freed += self.table_footprint(level);
        job.flush.add_table(table, self.frame_size(level));
        if level == 1 {
            return;
        }
        for number in 0..self.entries_below(level + 1) {
            let at = table.wrapping_add(number * u64::from(self.format.entry_bytes(level)));
            let entry = self.format.read(level, at, job.memory);
            if let Some(next) = self.format.next_table(entry, level) {
                self.unlink_below((level - 1, next), job);
            }
        }
    }

    /// Changes the page size in all entries of a replicated page, in a table of `level`. They
    /// become entries of smaller pages, or some of the entries of a larger page. Returns the
    /// address of the page's last byte.
    fn resize_copies<M: Memory>(
        &self,
        level: u8,
        table: PhysAddr,
        entry: u64,
        addr: VirtAddr,
        job: &mut Resize<'_, M>,
    ) -> VirtAddr {
        let page = self.format.translation(entry, level, addr).page;
        let last = VirtRange::of_page(page).last();
        if page.size() == job.to {
            return last;
        }
        let first = job.pending.len();
        let mut usage = Usage::default();
        for (at, addr) in self.copies(level, table, page) {
            let entry = self.format.read(level, at, job.memory);
            let bits = self.format.other_size(entry, addr, job.to);
            let was = if self.format.breaks() {
                let was = self.format.swap(level, at, self.format.broken(entry), job.memory);
                job.pending.push(Pending { level, at, made: Some(was ^ bits), went: None });
                was
            } else {
                self.format.invert(level, at, bits, job.memory)
            };
            let was = self.format.usage(was);
            usage.referenced |= was.referenced;
            usage.dirty |= was.dirty;
        }
        if page.size() < job.to || usage == Usage::default() {
            return last;
        }
        // Each part of the page gets the bits that the whole page had.
        if self.format.breaks() {
            for pending in &mut job.pending[first..] {
                pending.made = pending.made.map(|entry| self.format.used(entry, usage));
            }
            return last;
        }
        for (at, _) in self.copies(level, table, page) {
            let entry = self.format.read(level, at, job.memory);
            self.set_usage_of(level, at, entry, usage, job.memory);
        }
        last
    }
}
