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
use hat::{
    HatSpace,
    locking::{Locks, Scheme, Site},
};
use pagetable::Mounted;
use physmem::{Allocator, FrameId};

use crate::{
    error::Error,
    kernel::Kernel,
    map::take_range,
    platform::Platform,
    region::{Backing, Region},
    vm::Within,
};

impl<T, A, P, L, S> Kernel<'_, T, A, P, L, S>
where
    T: Mounted + ?Sized,
    A: Allocator + Send,
    P: Platform,
    L: Locks,
    S: Scheme<Table = T>,
{
    /// What is mapped in `range` is in memory, and stays. Where memory is too small for that, the
    /// pages that were brought in stay.
    pub fn lock(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| kernel.lock_pages(at, pages))
    }

    fn lock_pages(&mut self, at: &mut Within<'_>, pages: Range<u64>) -> Result<(), Error> {
        self.work.calls += 1;
        self.pages_stay(|kernel| kernel.cut_large(at, &pages))?;
        at.known.regions.change(pages.clone(), |region| region.wired = true);
        self.wire_pages(at, pages)
    }

    /// What is mapped in `range` may leave memory.
    pub fn unlock(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| kernel.unlock_pages(at, pages))
    }

    fn unlock_pages(&mut self, at: &mut Within<'_>, pages: Range<u64>) -> Result<(), Error> {
        self.work.calls += 1;
        self.pages_stay(|kernel| {
            kernel.cut_large(at, &pages)?;
            at.known.regions.change(pages.clone(), |region| region.wired = false);
            kernel.unwire_pages(at, pages);
            Ok(())
        })
    }

    /// Wires all that is mapped now, and all that will be, if `current` and `future` say so.
    pub fn lock_all(&mut self, space: HatSpace, current: bool, future: bool) -> Result<(), Error> {
        self.site = Site::Call;
        self.within(space, |kernel, at| {
            at.known.wires_all = future;
            match at.known.regions.hull().filter(|_| current) {
                Some(pages) => kernel.lock_pages(at, pages),
                None => Ok(()),
            }
        })
    }

    /// Nothing of the space is wired, now or later.
    pub fn unlock_all(&mut self, space: HatSpace) -> Result<(), Error> {
        self.site = Site::Call;
        self.within(space, |kernel, at| {
            at.known.wires_all = false;
            match at.known.regions.hull() {
                Some(pages) => kernel.unlock_pages(at, pages),
                None => Ok(()),
            }
        })
    }

    /// Brings the wired regions' pages in. Nobody relies on where pages are: some may have to leave.
    pub(crate) fn wire_pages(
        &mut self,
        at: &mut Within<'_>,
        pages: Range<u64>,
    ) -> Result<(), Error> {
        let mut next = pages.start;
        while next < pages.end {
            let Some(Region { rights, backing, .. }) = at.known.regions.at(next) else {
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
                self.bring(at, next, kind)?;
            }
            next += 1;
        }
        Ok(())
    }

    /// The space wires `frame` at `page`, in place of another that it had wired there.
    pub(crate) fn wire_at(&mut self, at: &mut Within<'_>, page: u64, frame: FrameId) {
        let before = at.known.wired.insert(page, frame);
        if before == Some(frame) {
            return;
        }
        self.lists(|lists, memory| {
            if memory.table().get(frame).wired == 0 {
                lists.policy.leave(memory.allocator_mut().1, frame);
            }
            memory.wire(frame);
            lists.wired += 1;
        });
        before.into_iter().for_each(|frame| self.unwire(frame));
    }

    pub(crate) fn unwire_pages(&mut self, at: &mut Within<'_>, pages: Range<u64>) {
        let gone = take_range(&mut at.known.wired, pages);
        gone.into_values().for_each(|frame| self.unwire(frame));
    }

    pub(crate) fn unwire(&mut self, frame: FrameId) {
        self.lists(|lists, memory| {
            memory.unwire(frame);
            lists.wired -= 1;
            if memory.table().get(frame).wired == 0 {
                lists.policy.enter(memory.allocator_mut().1, frame);
            }
        });
    }
}
