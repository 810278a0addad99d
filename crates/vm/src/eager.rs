//! Eager paging: the frames of a region are allocated when it is mapped, in as few contiguous runs
//! as possible (Karakostas and others 2015, *Redundant Memory Mappings*).
//!
//! ```text
//!   region of 11 pages   | 0 . . . . . . 7 | 8 9 | 10 |      of what remains the largest power of two ...
//!   frames                 a block of 8      2     1         ... or smaller, where no such block is free
//! ```
//!
//! Translations are still those of base pages: eager paging is for hardware that translates ranges.
//! No frame is allocated if fewer frames than the low mark would then be free. Memory without the
//! right to store gets no frames either. Faults load all pages that have no frame.

use alloc::vec::Vec;
use core::ops::Range;

use addr::{Kind, VirtRange};
use hat::{HatSpace, locking::Site};
use physmem::{FrameId, Request, State};

use crate::{
    error::{Error, Stop},
    fault::RegionPage,
    host::Host,
    kernel::Kernel,
    region::{Backing, Region},
    vm::Within,
    work::{How, Why},
};

/// The result of loading pages into adjacent frames.
pub(crate) struct Filled {
    pub(crate) how: How,
    /// The number of base pages that hardware now has, counted from the first.
    pub(crate) pages: u64,
    /// Why loading ended before the last page.
    pub(crate) stopped: Option<Stop>,
}

impl<H: Host> Kernel<'_, H> {
    /// Allocates frames for those pages of anonymous memory in `range` that have no frame yet.
    /// Returns the number of base pages.
    pub fn populate(&mut self, space: HatSpace, range: VirtRange) -> Result<u64, Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.staying_within(space, |kernel, at| {
            let is_own = |region: &&Region| {
                region.backing == Backing::Anonymous
                    && region.rights.allows(Kind::Store)
                    && region.pages.start < pages.end
                    && pages.start < region.pages.end
            };
            let regions: Vec<Region> = at.known.regions.all().filter(is_own).cloned().collect();
            let mut given = 0;
            for region in regions {
                let end = region.pages.end.min(pages.end);
                let mut page = region.pages.start.max(pages.start);
                while page < end {
                    let known = at.known.anons.within(page..end).next().map(|(known, _)| known);
                    if known == Some(page) {
                        page += 1;
                        continue;
                    }
                    let Some((first, run)) = kernel.run_for(page..known.unwrap_or(end)) else {
                        return Ok(given);
                    };
                    page = run.end;
                    let filled = kernel.side_by_side(at, &region, &run, first);
                    if filled.pages > 0 {
                        let (place, base) = ((space, run.start), kernel.vm.base);
                        kernel.decided(place, (base, Why::PolicyAsksBase), base, filled.pages);
                    }
                    given += filled.pages;
                    match filled.stopped {
                        Some(Stop::Refused(error)) => return Err(error),
                        Some(Stop::Full) => return Ok(given),
                        None => {}
                    }
                }
            }
            Ok(given)
        })
    }

    /// Allocates adjacent frames for the first of `pages`: the largest free power of two. Returns
    /// the first frame, and the pages that get the frames.
    fn run_for(&mut self, pages: Range<u64>) -> Option<(FrameId, Range<u64>)> {
        let step = self.memory.order(self.vm.base);
        let spare = self.free_pages().checked_sub(self.vm.marks.low())?;
        let largest = (pages.end - pages.start).min(spare).checked_ilog2()?;
        (0..=largest).rev().find_map(|order| {
            let request = Request::new(order + step, State::Movable);
            let first = self.frames(|memory| memory.allocate(&request)).ok()?;
            self.work.frames_taken += 1 << (order + step);
            Some((first, pages.start..pages.start + (1 << order)))
        })
    }

    /// Loads `pages` of `region`, none of which is in memory, as base pages in the adjacent frames
    /// from `first` on, which are allocated. Frames of pages that could not be loaded are freed.
    pub(crate) fn side_by_side(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        first: FrameId,
    ) -> Filled {
        self.prezeroed = false;
        let mut filled = Filled { how: How::Minor, pages: 0, stopped: None };
        for (page, frame) in pages.clone().zip(self.frames_of(first, pages)) {
            let mut given = Some(frame);
            if filled.stopped.is_none() {
                let said = (page, &RegionPage::of(region, page));
                let came = self.page_for(at, said, Kind::Store, &mut given, &mut filled.how);
                match came.and_then(|needed| self.enter(at, page, &needed, &mut How::Minor)) {
                    Ok(_) => filled.pages += 1,
                    Err(stop) => filled.stopped = Some(stop),
                }
            }
            if let Some(frame) = given {
                self.free_frame(frame);
            }
        }
        filled
    }
}
