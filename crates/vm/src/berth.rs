//! Allocation of frames for pages whose addresses determine their possible frames ([`Hashed`]).

use core::ops::Range;

use hat::HatSpace;
use physmem::{Berth, FrameId, Request, State};

use crate::{
    hashed::{Hashed, key},
    host::Host,
    kernel::Kernel,
};

impl<H: Host> Kernel<'_, H> {
    /// Allocates frames for `pages`, which are one base page or the block of a larger page. Only
    /// frames that the address of `pages` allows are used, if they are free.
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
                // A frame of a segment is allocated only to a request for this frame.
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
