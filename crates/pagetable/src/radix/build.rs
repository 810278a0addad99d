//! Mapping pages: first all steps that can fail, then all changes.
//!
//! ```text
//!   survey:  descend where tables are, refuse what is in the way,
//!            take a frame for every table that is missing       -> stock of frames, or error
//!   fill:    descend again, link tables out of the stock in the same order, write the entries
//! ```
//!
//! A new table is zeroed and filled before it is linked, so that a walker never sees an incomplete
//! table. After an error, nothing has to be undone except to free frames that are not linked yet.

use addr::{Frames, Memory, Page, PageSize, PhysAddr, RangeError, VirtAddr, VirtRange};

use super::{Part, Radix, Table};
use crate::{Entry, Error, Format, Space, Translation, Unfit, few::Few};

/// Adjacent pages to be mapped to adjacent frames.
pub(super) struct Run<'a> {
    first: Translation,
    level: u8,
    part: Part,
    /// The note of each page; empty if all notes are 0.
    notes: &'a [u32],
}

/// The state of a survey. `stock` has frames for the missing tables, in the order in which they are
/// needed.
struct Survey<'a, M, A> {
    run: &'a Run<'a>,
    memory: &'a M,
    frames: &'a mut A,
    stock: Stock,
}

/// Frames for tables, in the order in which the tables are created. A page needs at most one frame
/// per level below the root, so most calls that map pages need no heap memory.
pub(super) type Stock = Few<(PhysAddr, PageSize), 4>;

/// Returns an empty stock.
pub(super) const fn no_stock() -> Stock {
    Few::new((PhysAddr::new(0), PageSize::SIZE_4K))
}

/// The state while a run of pages is entered in the tree. New tables get the frames of `stock`; the
/// first `used` frames have been used.
struct Fill<'a, M> {
    run: &'a Run<'a>,
    space: Space,
    memory: &'a mut M,
    stock: &'a Stock,
    used: usize,
}

impl Run<'_> {
    /// The note of the page that begins at `start`; 0 for a replicated page, which has no notes.
    fn note(&self, start: VirtAddr) -> u32 {
        let page = self.first.page;
        let number = (start.get() - page.start().get()) >> page.size().shift();
        self.notes.get(number as usize).copied().unwrap_or(0)
    }
}

impl<F: Format> Radix<F> {
    /// Maps `pages.1` adjacent pages, the first of which is `pages.0`.
    #[cold]
    #[inline(never)]
    pub(super) fn build(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        self.spaces.check(space)?;
        let run = &self.check_run(pages, notes)?;
        self.build_below(self.root_table(space), space, run, memory, frames)?;
        if pages.0.global {
            self.spaces.set_global(space);
        }
        Ok(())
    }

    /// Maps the pages of `run`, which all lie below `table`. Returns the number of entries of the
    /// table that came into use.
    pub(super) fn build_below(
        &self,
        table: Table,
        space: Space,
        run: &Run<'_>,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<u64, Error> {
        let mut survey = Survey { run, memory: &*memory, frames, stock: no_stock() };
        let result = self.survey(table.level, Some(table.start), run.part, &mut survey);
        let stock = survey.stock;
        if let Err(error) = result {
            stock.iter().for_each(|(frame, size)| frames.free(frame, size));
            return Err(error);
        }
        let mut fill = Fill { run, space, memory, stock: &stock, used: 0 };
        Ok(self.fill(table.level, table.start, run.part, &mut fill))
    }

    /// Checks that there is at least one page, that pages and frames are aligned, and that the
    /// format supports them.
    pub(super) fn check_run<'a>(
        &self,
        (first, count): (Translation, u64),
        notes: &'a [u32],
    ) -> Result<Run<'a>, Error> {
        let size = first.page.size();
        if !self.format.page_sizes().contains(&size) {
            return Err(Unfit::PageSize(size).into());
        }
        if !first.frame.is_aligned(size) {
            return Err(Error::Misaligned { addr: first.frame.get(), size });
        }
        self.format.check_rights(first.rights)?;
        self.format.check_attributes(first.attributes)?;
        if first.global && !F::HAS_GLOBAL {
            return Err(Unfit::Global.into());
        }
        let start = first.page.start();
        let bytes = count.checked_mul(size.bytes()).ok_or(RangeError::Wraps)?;
        let range = VirtRange::new(start, bytes)?;
        let spans = self.format.spans();
        let span = spans.iter().find(|span| span.contains(start)).ok_or(Unfit::Virtual(start))?;
        if !span.covers(range) {
            return Err(Unfit::Virtual(span.last().wrapping_add(1)).into());
        }
        if !self.format.holds_frame(first.frame, bytes) {
            return Err(Unfit::Physical(first.frame).into());
        }
        let level = self.format.level_of(size).ok_or(Unfit::PageSize(size))?;
        Ok(Run { first, level, part: range.into(), notes })
    }

    /// Checks that no page is mapped in `part` below a table of `level`, and allocates frames for
    /// the missing tables, which may include this table.
    fn survey<M: Memory, A: Frames>(
        &self,
        level: u8,
        table: Option<PhysAddr>,
        part: Part,
        survey: &mut Survey<'_, M, A>,
    ) -> Result<(), Error> {
        let is_last = level == survey.run.level;
        if is_last && table.is_none() {
            return Ok(());
        }
        let mut start = part.start;
        loop {
            let slot = self.part(level, start, part.last);
            let entry = table.map_or(Entry::Empty, |table| {
                let at = self.entry_at(level, table, start);
                self.format.decode(self.format.read(level, at, survey.memory), level)
            });
            match entry {
                Entry::Empty if is_last => {}
                Entry::Empty => {
                    self.stock_table(level - 1, survey)?;
                    self.survey(level - 1, None, slot, survey)?;
                }
                Entry::Table(next) if !is_last => {
                    self.survey(level - 1, Some(next), slot, survey)?;
                }
                Entry::Table(_) | Entry::Page => {
                    let page = self.page_in_the_way(level, table, slot, survey.memory);
                    return Err(Error::AlreadyMapped { page });
                }
            }
            if slot.last == part.last {
                return Ok(());
            }
            start = slot.last.wrapping_add(1);
        }
    }

    /// Allocates a frame for a table of `level`.
    fn stock_table<M, A: Frames>(
        &self,
        level: u8,
        survey: &mut Survey<'_, M, A>,
    ) -> Result<(), Error> {
        let size = self.frame_size(level);
        survey.stock.prepare()?;
        let frame = survey.frames.allocate(size)?;
        survey.stock.push((frame, size))?;
        Ok(self.check_table(frame, size)?)
    }

    /// The first mapped page in `slot`, which is covered by a used entry in `table` of `level`.
    #[cold]
    fn page_in_the_way(
        &self,
        level: u8,
        table: Option<PhysAddr>,
        slot: Part,
        memory: &impl Memory,
    ) -> Page {
        let mut first = slot.start.page(self.format.page_size(level));
        if let Some(table) = table {
            self.visit_while(level, table, slot, memory, &mut |mapping| {
                first = mapping.translation.page;
                false
            });
        }
        first
    }

    /// Writes the entries for `part` into `table` and the tables below it. Returns the number of
    /// entries of this table that came into use.
    fn fill<M: Memory>(
        &self,
        level: u8,
        table: PhysAddr,
        part: Part,
        fill: &mut Fill<'_, M>,
    ) -> u64 {
        let is_last = level == fill.run.level;
        // This is a local copy: no store to memory can change it, so the compiler reads it only
        // once.
        let first = fill.run.first;
        let mut added = 0;
        let mut start = part.start;
        loop {
            let slot = self.part(level, start, part.last);
            let at = self.entry_at(level, table, start);
            if is_last {
                self.write_note(level, at, fill.run.note(start), fill.memory);
                let into = start.get() - first.page.start().get();
                let entry = self.format.page(level, &first, first.frame.wrapping_add(into));
                self.format.write(level, at, entry, fill.memory);
                added += 1;
            } else {
                added += u64::from(self.fill_below(level, at, slot, fill));
            }
            if slot.last == part.last {
                return added;
            }
            start = slot.last.wrapping_add(1);
        }
    }

    /// Fills the table that the entry at `at` leads to. Returns whether that table is new.
    fn fill_below<M: Memory>(
        &self,
        level: u8,
        at: PhysAddr,
        slot: Part,
        fill: &mut Fill<'_, M>,
    ) -> bool {
        let entry = self.format.read(level, at, fill.memory);
        if let Entry::Table(next) = self.format.decode(entry, level) {
            let added = self.fill(level - 1, next, slot, fill);
            if added > 0
                && let Some(entry) = self.recounted(entry, added as i64)
            {
                self.write_population(level, at, entry, fill.memory);
            }
            return false;
        }
        let next = fill.stock.get(fill.used).map(|(next, _)| next);
        let next = next.expect("the survey stocked every missing table");
        fill.used += 1;
        let footprint = self.table_footprint(level - 1);
        fill.memory.zero(next, footprint.table_bytes);
        self.takes(fill.space, footprint);
        let population = self.fill(level - 1, next, slot, fill);
        self.format.write(level, at, self.format.table(next, population), fill.memory);
        true
    }
}
