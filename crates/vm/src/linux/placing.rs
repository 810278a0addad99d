//! Contiguity-aware placement: all pages of a region have one offset between page and frame, so
//! that the region is contiguous in memory (Alverti and others 2020, "CA paging").
//!
//! ```text
//!   first fault of a region       the allocator finds a free run as long as the region: an offset
//!   page p                        wants the frame at p + offset
//!     free?  yes                  that one
//!            no, of 2M            a run for the rest of the region: another offset from here on
//!            no, a base page      any frame
//! ```
//!
//! A region has up to 64 offsets; a page uses the offset of the nearest lower page. Not modelled:
//! offsets of files, and keeping base pages from splitting the largest free blocks.

use core::ops::Range;

use physmem::{Allocator, FrameId, Request, State};

use crate::host::Host;
use crate::{kernel::Kernel, vm::Within};

/// Stands for no offset: no free run was found for this part of a region, and its pages get any
/// frame.
const NOWHERE: i64 = i64::MIN;

impl<H: Host> Kernel<'_, H> {
    /// Allocates the frames that `pages`, which are in one region, should have because of their addresses
    /// or their region's offset, if these frames are free.
    pub(crate) fn placed(&mut self, at: &mut Within<'_>, pages: &Range<u64>) -> Option<FrameId> {
        if let Some(hashed) = self.vm.hashed {
            return self.hashed(&hashed, at.space, pages);
        }
        let placing = self.vm.thp?.placing?;
        let region = at.known.regions.at(pages.start)?.pages.clone();
        let known = at.known.offsets.range(region.start..=pages.start).next_back();
        let known = known.map(|(_, &offset)| offset);
        if let Some(frame) = known.and_then(|offset| self.take_at(pages, offset)) {
            return Some(frame);
        }
        let is_large = pages.end - pages.start > 1;
        if known.is_some() && !is_large {
            return None;
        }
        let from = if known.is_none() { region.start } else { pages.start };
        let aligned = from >> placing.order << placing.order;
        let step = self.memory.order(self.vm.base);
        let place = self.frames(|memory| {
            let (allocator, table) = memory.allocator_mut();
            allocator.places()?.place(table, (region.end - aligned) << step)
        });
        self.work.places += 1;
        let offset = match place {
            Some(first) => i64::from(first.0 >> step) - aligned as i64,
            None => NOWHERE,
        };
        let mut all = at.known.offsets.range(region.clone());
        if let Some((&oldest, _)) = all.next()
            && 1 + all.count() >= placing.offsets_max
        {
            at.known.offsets.remove(&oldest);
        }
        at.known.offsets.insert(from, offset);
        self.take_at(pages, offset)
    }

    /// Allocates the frames of `pages` at an offset, if all are free.
    fn take_at(&mut self, pages: &Range<u64>, offset: i64) -> Option<FrameId> {
        let (count, step) = (pages.end - pages.start, self.memory.order(self.vm.base));
        if offset == NOWHERE || self.free_pages() < self.vm.marks.min() + count {
            return None;
        }
        let first = u32::try_from((pages.start as i64 + offset) << step).ok()?;
        let order = count.ilog2() + step;
        let request = Request { near: Some(FrameId(first)), ..Request::new(order, State::Movable) };
        let frame = self.frames(|memory| memory.allocate(&request)).ok()?;
        Some(frame)
    }
}
