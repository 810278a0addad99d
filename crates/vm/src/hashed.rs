//! Placement by hash: an anonymous page gets one of the few frames that its address allows, so that hardware
//! needs few bits to say which one (Mosaic), or finds it without the page table (Utopia).
//!
//! ```text
//!   page, space --> the frames that it may have: one of them free?   yes   that one
//!                                                                    no    any frame
//! ```
//!
//! Where none is free the authors of Mosaic have another page leave memory. Here the page lies elsewhere,
//! and hardware treats it as any other. So it does with what a fork shares, until it is copied, and with
//! what is moved in its space or in memory: whether a page lies where it may is found by looking.

use core::ops::Range;

use hat::{
    HatSpace,
    locking::{Locks, Scheme},
};
use pagetable::Mounted;
use physmem::{Allocator, Berth, FrameId, Iceberg, Request, Segment, State};

use crate::{kernel::Kernel, platform::Platform};

/// Which frames pages may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hashed {
    /// Those of an iceberg hash table over all memory, of base pages.
    Mosaic(Iceberg),
    /// Those of its set in the segment for its size, if there is one.
    Utopia([Option<Segment>; 2]),
}

impl Hashed {
    /// Whether `frame` is one that the page with the number `page`, of `2^order` base frames, may have in
    /// `space`.
    pub fn may_have(&self, space: HatSpace, page: u64, order: u32, frame: FrameId) -> bool {
        match self {
            Hashed::Mosaic(iceberg) => {
                order == 0 && iceberg.number(key(space, page), frame).is_some()
            }
            Hashed::Utopia(_) => {
                self.segment(order).is_some_and(|segment| segment.may_have(page, frame))
            }
        }
    }

    /// The segment for pages of `2^order` base frames.
    pub fn segment(&self, order: u32) -> Option<Segment> {
        match self {
            Hashed::Mosaic(_) => None,
            Hashed::Utopia(all) => all.iter().flatten().copied().find(|of| of.order == order),
        }
    }
}

/// What a page is called by hash functions.
const fn key(space: HatSpace, page: u64) -> u64 {
    page ^ ((space.0 as u64) << 40)
}

impl<T, A, P, L, S> Kernel<'_, T, A, P, L, S>
where
    T: Mounted + ?Sized,
    A: Allocator + Send,
    P: Platform,
    L: Locks,
    S: Scheme<Table = T>,
{
    /// Frames that `pages`, one base page or the block of a larger one, may have by their address, if there
    /// are free ones. They are taken.
    pub(crate) fn hashed(
        &mut self,
        hashed: &Hashed,
        space: HatSpace,
        pages: &Range<u64>,
    ) -> Option<FrameId> {
        let (count, step) = (pages.end - pages.start, self.memory.order(self.vm.base));
        let (log, order) = (count.ilog2(), count.ilog2() + step);
        let (page, min) = (pages.start >> log, self.vm.marks.min());
        match hashed {
            Hashed::Mosaic(_) if log > 0 => return None,
            Hashed::Mosaic(_) => {}
            Hashed::Utopia(_) => _ = hashed.segment(order)?,
        }
        if self.free_pages() < min + count {
            return None;
        }
        let (frame, is_back) = self.frames(|memory| {
            let table = memory.table();
            let is_free = |frame: FrameId| table.get(frame).state() == State::Free;
            let is_free_page =
                |first: &FrameId| (first.0..first.0 + (1 << order)).map(FrameId).all(is_free);
            let berth = match hashed {
                Hashed::Mosaic(iceberg) => iceberg.choose(key(space, page), is_free),
                Hashed::Utopia(_) => hashed.segment(order).and_then(|segment| {
                    let frame = segment.places(segment.set_of(page)).find(is_free_page)?;
                    Some(Berth { frame, is_back: false })
                }),
            };
            let Some(Berth { frame, is_back }) = berth else { return (None, false) };
            let taken = match hashed {
                Hashed::Mosaic(_) => memory.take(frame, order, State::Movable),
                // Only who wishes a frame of a segment gets it.
                Hashed::Utopia(_) => {
                    let near = Some(frame);
                    let request = Request { near, ..Request::new(order, State::Movable) };
                    memory.allocate(&request).is_ok()
                }
            };
            (taken.then_some(frame), is_back)
        });
        self.work.hashed += u64::from(frame.is_some());
        self.work.hashed_back += u64::from(frame.is_some() && is_back);
        self.work.unhashed += u64::from(frame.is_none());
        frame
    }
}
