//! Pages that stay in memory because a process wants it: `mlock`.
//!
//! ```text
//!   lock(range) --> regions wired --> each page brought in --> its frame wired, in no list
//!   unlock, unmap, exit ------------> the frame's count falls; at 0 it is in a list again
//! ```
//!
//! A frame that several spaces have wired counts each of them. A private page that may be stored to
//! is copied at once, so that the store takes no fault later. A fork's child does not inherit locks.

use core::ops::Range;

use addr::{Kind, Rights, VirtRange};
use hat::HatSpace;
use pagetable::Mounted;
use physmem::{Allocator, FrameId};

use crate::{
    error::Error,
    map::take_range,
    platform::Platform,
    region::{Backing, Region},
    vm::Kernel,
};

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// What is mapped in `range` is in memory, and stays. Where memory is too small for that, the
    /// pages that were brought in stay.
    pub fn lock(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.cut_large(space, &pages)?;
        let regions = &mut self.vm.space_mut(space)?.regions;
        regions.change(pages.clone(), |region| region.wired = true);
        self.wire_pages(space, pages)
    }

    /// What is mapped in `range` may leave memory.
    pub fn unlock(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.cut_large(space, &pages)?;
        let regions = &mut self.vm.space_mut(space)?.regions;
        regions.change(pages.clone(), |region| region.wired = false);
        self.unwire_pages(space, pages)
    }

    /// Wires all that is mapped now, and all that will be, if `current` and `future` say so.
    pub fn lock_all(&mut self, space: HatSpace, current: bool, future: bool) -> Result<(), Error> {
        self.vm.space_mut(space)?.wires_all = future;
        match self.vm.space(space)?.regions.hull().filter(|_| current) {
            Some(pages) => self.lock(space, self.vm.range_of(&pages)),
            None => Ok(()),
        }
    }

    /// Nothing of the space is wired, now or later.
    pub fn unlock_all(&mut self, space: HatSpace) -> Result<(), Error> {
        self.vm.space_mut(space)?.wires_all = false;
        match self.vm.space(space)?.regions.hull() {
            Some(pages) => self.unlock(space, self.vm.range_of(&pages)),
            None => Ok(()),
        }
    }

    /// Brings the wired regions' pages in.
    pub(crate) fn wire_pages(&mut self, space: HatSpace, pages: Range<u64>) -> Result<(), Error> {
        let mut next = pages.start;
        while next < pages.end {
            let region = self.vm.space(space)?.regions.at(next);
            let Some(Region { rights, backing, .. }) = region else {
                next += 1;
                continue;
            };
            let own = !matches!(backing, Backing::Shared { .. });
            let kind = match rights {
                rights if own && rights.contains(Rights::WRITE) => Some(Kind::Store),
                rights if rights.contains(Rights::READ) => Some(Kind::Load),
                _ => None,
            };
            if let Some(kind) = kind {
                self.bring(space, next, kind)?;
            }
            next += 1;
        }
        Ok(())
    }

    /// The space wires `frame` at `page`, in place of another that it had wired there.
    pub(crate) fn wire_at(
        &mut self,
        space: HatSpace,
        page: u64,
        frame: FrameId,
    ) -> Result<(), Error> {
        let before = self.vm.space_mut(space)?.wired.insert(page, frame);
        if before == Some(frame) {
            return Ok(());
        }
        if self.memory.table().get(frame).wired == 0 {
            let (_, table) = self.memory.allocator_mut();
            self.vm.policy.leave(table, frame);
        }
        self.memory.wire(frame);
        before.into_iter().for_each(|frame| self.unwire(frame));
        Ok(())
    }

    pub(crate) fn unwire_pages(&mut self, space: HatSpace, pages: Range<u64>) -> Result<(), Error> {
        let gone = take_range(&mut self.vm.space_mut(space)?.wired, pages);
        gone.into_values().for_each(|frame| self.unwire(frame));
        Ok(())
    }

    pub(crate) fn unwire(&mut self, frame: FrameId) {
        self.memory.unwire(frame);
        if self.memory.table().get(frame).wired == 0 {
            let (_, table) = self.memory.allocator_mut();
            self.vm.policy.enter(table, frame);
        }
    }
}
