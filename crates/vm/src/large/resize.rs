//! Large pages are split if an operation concerns only a part of them (G98 section 6.7).
//!
//! ```text
//!   64K, of which the last 4K are to go:
//!
//!   |              64K              |      16K each: even and odd are a pair of the TLB,
//!   |  16K  |  16K  |  16K  |  16K  |      of one size
//!   |  16K  |  16K  |4|4|4|4|4|4|4|x|      the second pair is cut: both halves get smaller
//! ```
//!
//! A pair that lies outside the changed range, or completely inside it, keeps the larger size. If a
//! page is split, the other page of its pair is split as well.

use core::ops::Range;

use addr::PageSize;
use hat::{HatSpace, LoadError, locking::Locks};
use physmem::FrameId;

use crate::{
    error::Error,
    host::Host,
    kernel::Kernel,
    map::note_used,
    vm::{Vm, Within},
};

impl<L: Locks> Vm<L> {
    /// The base pages of the page of `size` that contains `page`.
    pub(crate) fn block(&self, page: u64, size: PageSize) -> Range<u64> {
        let count = size.count_of(self.base);
        let first = page & !(count - 1);
        first..first + count
    }

    /// The size of a page that consists of these base pages.
    pub(crate) fn size_of(&self, pages: &Range<u64>) -> PageSize {
        let shift = self.base.shift() + (pages.end - pages.start).ilog2();
        PageSize::from_shift(shift as u8).unwrap_or(self.base)
    }

    /// The base pages of the other page of the pair.
    pub(crate) fn pair_of(&self, pages: &Range<u64>) -> Range<u64> {
        let count = pages.end - pages.start;
        let first = pages.start ^ count;
        first..first + count
    }

    /// The next smaller size.
    pub(crate) fn below(&self, size: PageSize) -> PageSize {
        let smaller = self.sizes.iter().rev().find(|smaller| **smaller < size);
        smaller.copied().unwrap_or(self.base)
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Splits pages so that no page extends across an end of `pages`, where regions will be cut.
    pub(crate) fn cut_large(
        &mut self,
        at: &mut Within<'_>,
        pages: &Range<u64>,
    ) -> Result<(), Error> {
        if at.known.has_given {
            self.cut_given(at.known, pages)?;
        }
        if !at.known.has_large || pages.is_empty() {
            return Ok(());
        }
        let space = at.space;
        for page in [pages.start, pages.end - 1] {
            let Some(held) = self.held_at(space, page) else { continue };
            if held.start >= pages.start && held.end <= pages.end {
                continue;
            }
            if self.is_shared_memory(at, page) {
                self.drop_large(at, &held)?;
            } else {
                self.downgrade(space, &held, pages)?;
            }
        }
        Ok(())
    }

    /// Splits pages so that `pages` can be loaded as one page. Afterwards no larger page contains
    /// these pages, and no larger page is in the other half of a pair around them.
    pub(crate) fn keep_apart(&mut self, at: &Within<'_>, pages: Range<u64>) -> Result<(), Error> {
        if !at.known.has_large {
            return Ok(());
        }
        let space = at.space;
        if let Some(held) = self.held_at(space, pages.start)
            && held.end - held.start > pages.end - pages.start
        {
            self.downgrade(space, &held, &pages)?;
        }
        let size = self.vm.size_of(&pages);
        for place in 0..self.vm.sizes.len() {
            let larger = self.vm.sizes[place];
            if !self.vm.paired || larger <= size {
                continue;
            }
            let other = self.vm.pair_of(&self.vm.block(pages.start, larger));
            if self.held_at(space, other.start) == Some(other.clone()) {
                self.set_size(space, &other, self.vm.below(larger))?;
                self.work.downgrades += 1;
            }
        }
        Ok(())
    }

    /// The base pages of the page that hardware has at `page`.
    fn held_at(&mut self, space: HatSpace, page: u64) -> Option<Range<u64>> {
        self.work.table_reads += 1;
        let held = self.hat.query(space, self.vm.addr_of(page))?.translation.page;
        let first = self.vm.page_of(held.start());
        Some(first..first + held.size().count_of(self.vm.base))
    }

    /// Splits the page of `held`, so that no page extends across an end of `part`.
    pub(crate) fn downgrade(
        &mut self,
        space: HatSpace,
        held: &Range<u64>,
        part: &Range<u64>,
    ) -> Result<(), Error> {
        self.work.downgrades += 1;
        self.shrink(space, held, part)?;
        if !self.vm.paired {
            return Ok(());
        }
        let other = self.vm.pair_of(held);
        if self.held_at(space, other.start) == Some(other.clone()) {
            let below = self.vm.below(self.vm.size_of(held));
            self.set_size(space, &other, below)?;
            self.work.downgrades += 1;
        }
        Ok(())
    }

    /// Splits the pages of one size in `held`, so that no page extends across an end of `part`. The
    /// other pages of their pairs may have any size.
    fn shrink(
        &mut self,
        space: HatSpace,
        held: &Range<u64>,
        part: &Range<u64>,
    ) -> Result<(), Error> {
        let Some(page) = self.held_at(space, held.start) else { return Ok(()) };
        let size = self.vm.below(self.vm.size_of(&page));
        self.set_size(space, held, size)?;
        if size == self.vm.base {
            return Ok(());
        }
        let step = size.count_of(self.vm.base) << u32::from(self.vm.paired);
        let mut first = held.start;
        while first < held.end {
            let pair = first..first + step;
            let inside = part.start <= pair.start && pair.end <= part.end;
            let apart = pair.end <= part.start || part.end <= pair.start;
            if !inside && !apart {
                self.shrink(space, &pair, part)?;
            }
            first += step;
        }
        Ok(())
    }

    /// Makes hardware map `pages` by pages of the size `to`, with the same frames.
    pub(crate) fn set_size(
        &mut self,
        space: HatSpace,
        pages: &Range<u64>,
        to: PageSize,
    ) -> Result<(), Error> {
        let range = self.vm.range_of(pages);
        let (memory, site, base) = (self.memory, self.site, self.vm.base);
        let (hat, mut below) = self.hat();
        match hat.resize(space, range, to, &mut below) {
            Ok(()) => Ok(()),
            // Pages for which a table has no room are unloaded; minor faults load them again.
            Err(LoadError::NoTableMemory | LoadError::NoMemory) => {
                let each = &mut |mapping| note_used(memory, site, base, &mapping);
                hat.unload(space, range, each, &mut below).map_err(Error::of_table)
            }
            Err(LoadError::Table(error)) => Err(Error::Table(error)),
            Err(LoadError::NoSpace(space)) => Err(Error::NoSpace(space)),
        }
    }

    /// Records that the large page that contains `frame`, if there is one, was used or will be
    /// removed: the large page is then no longer idle.
    pub(crate) fn not_idle(&mut self, frame: FrameId) {
        if self.vm.sizes.len() == 1 {
            return;
        }
        self.lists(|lists, _| {
            if let Some(first) = lists.idle_page(frame).map(|frames| frames.start) {
                lists.idle.remove(&first);
            }
        });
    }
}
