//! Pages that are pinned for input and output: a device accesses their frames while the process
//! continues to run.
//!
//! ```text
//!   pin(range) --> each page in memory, the space its only user --> wired, counted in pins
//!        |                                                              |
//!        |   fork: the child gets a copy at once                        |  not evicted, not migrated
//!        |   unmap, discard, truncate, exit: the page loses its owner,  |
//!        |                                   the frame stays            |
//!        v                                                              v
//!   unpin(pin) -------------------------------> the last pin: unwired; free if it has no owner
//! ```
//!
//! A device would not notice that a page has moved to another frame. Therefore every operation that
//! gives a page another frame must be done before the pin, or must not be done at all. A page of
//! private memory is copied before it is pinned, unless the space is its only user, even if the
//! device only reads: a later store by the process would go to a copy, which the device does not
//! have. For the same reason a fork copies the pinned pages of the parent for the child, and does
//! not share them (Linux: `FOLL_LONGTERM`, `gup_must_unshare`, `copy_present_page`).
//!
//! A [`Pin`] owns its frames. If the space unmaps them or ends, the frames stay allocated until the
//! pin is ended, so that a device never stores to a frame with a new owner. A pin that is never
//! ended keeps its frames forever; [`Vm::pinned`] counts them.

use alloc::vec::Vec;

use addr::{Kind, PhysAddr, VirtRange};
use hat::{
    HatSpace,
    locking::{Locks, Mutex, Site},
};
use physmem::FrameId;

use crate::{
    access::Reach,
    anon::AnonId,
    error::Error,
    frames::{DIRTY, FILE, Owner},
    host::Host,
    kernel::Kernel,
    object::PageLocation,
    platform::Platform,
    vm::{Vm, Within},
};

/// Pinned pages. They stay in their frames until [`Kernel::unpin`] ends the pin.
#[derive(Debug)]
#[must_use = "pages stay pinned until the pin is given back"]
pub struct Pin {
    range: VirtRange,
    kind: Kind,
    frames: Vec<PhysAddr>,
    page_bytes: u64,
}

impl Pin {
    /// The pinned range, as it was requested.
    pub fn range(&self) -> VirtRange {
        self.range
    }

    /// The frame of each page that overlaps the range, by ascending address.
    pub fn frames(&self) -> &[PhysAddr] {
        &self.frames
    }

    /// The parts of memory that a device has to transfer, for a list of such parts: the address and the
    /// number of bytes of each. Parts that are adjacent in memory are one part.
    pub fn parts(&self) -> impl Iterator<Item = (PhysAddr, u64)> {
        let (mut next, mut offset) = (0, self.range.start().get() & (self.page_bytes - 1));
        let mut left = self.range.last().get() - self.range.start().get();
        let mut is_over = false;
        core::iter::from_fn(move || {
            let first = self.frames.get(next).filter(|_| !is_over)?;
            let start = first.wrapping_add(offset);
            // The remaining bytes are counted without the last one, because a range of all
            // addresses has 2^64 bytes.
            let mut bytes = self.page_bytes - offset;
            next += 1;
            while bytes <= left && self.frames.get(next) == Some(&start.wrapping_add(bytes)) {
                bytes += self.page_bytes;
                next += 1;
            }
            is_over = bytes > left;
            let bytes = if is_over { left + 1 } else { bytes };
            left = left.wrapping_sub(bytes);
            offset = 0;
            Some((start, bytes))
        })
    }
}

impl<L: Locks> Vm<L> {
    /// The number of pinned frames.
    pub fn pinned(&self) -> u64 {
        self.pages.with(Site::Look, |lists| lists.pins.each().count() as u64)
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Brings the pages that overlap `range` into memory and pins them, for a device that reads them
    /// ([`Kind::Load`]) or stores to them ([`Kind::Store`]).
    ///
    /// Pages with pins are not evicted and not moved to other frames. Each pin counts: a page stays
    /// until all its pins are ended. The frames stay allocated even if the space unmaps the pages
    /// or ends.
    ///
    /// # Errors
    ///
    /// Fails where an access of this kind would fail. Also fails with [`Error::Given`] for frames
    /// that were given to a region, with [`Error::PinLimit`] for a page that cannot count another
    /// pin, and with [`Error::NoMemory`]. After an error no page of the range has a new pin.
    pub fn pin(&mut self, space: HatSpace, range: VirtRange, kind: Kind) -> Result<Pin, Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let pages = self.vm.pages_of(range);
        let count = pages.end - pages.start;
        if count > self.pages_of_memory() {
            return Err(self.out_of_memory());
        }
        let page_bytes = self.vm.base.bytes();
        let mut pin = Pin { range, kind, frames: Vec::new(), page_bytes };
        // There is at most one page per frame, and frames have 32-bit numbers.
        pin.frames.try_reserve_exact(count as usize)?;
        let done = self.within(space, |kernel, at| {
            for page in pages {
                let frame = kernel.pin_page(at, page, kind)?;
                pin.frames.push(kernel.address(frame));
            }
            Ok(())
        });
        match done {
            Ok(()) => Ok(pin),
            Err(error) => {
                self.unpin_frames(&pin.frames, false);
                Err(error)
            }
        }
    }

    fn pin_page(&mut self, at: &mut Within<'_>, page: u64, kind: Kind) -> Result<FrameId, Error> {
        self.with_room(|kernel| {
            let frame = kernel.reach(at, page, kind, Reach::Pin)?;
            kernel.add_pin(frame)?;
            at.known.has_pins = true;
            Ok(frame)
        })
    }

    /// Pins the page in `frame`. The caller must ensure that the page stays there during the call.
    pub(crate) fn add_pin(&mut self, frame: FrameId) -> Result<(), Error> {
        let at = self.address(frame);
        self.lists(|lists, memory| {
            if memory.table().get(frame).wired == u16::MAX {
                return Err(Error::PinLimit(at));
            }
            lists.pins.add(frame)?;
            lists.wire(memory, frame);
            Ok(())
        })
    }

    /// Ends a pin. If the device has stored to the pages, pages of files become dirty.
    pub fn unpin(&mut self, pin: Pin) {
        self.site = Site::Call;
        self.work.calls += 1;
        self.unpin_frames(&pin.frames, pin.kind == Kind::Store);
    }

    fn unpin_frames(&mut self, frames: &[PhysAddr], stored: bool) {
        for frame in frames {
            let frame = self.memory.frame_at(*frame);
            self.remove_pin(frame, stored);
        }
    }

    /// Removes a pin of the page in `frame`. Frees the frame if the page no longer exists and no other
    /// pin is left.
    pub(crate) fn remove_pin(&mut self, frame: FrameId, stored: bool) {
        let is_free = self.lists(|lists, memory| {
            let is_last = lists.pins.remove(frame);
            let pfdat = memory.pfdat_mut(frame);
            if Owner::of(pfdat.identity).is_none() {
                memory.unwire(frame);
                lists.wired -= 1;
                return is_last;
            }
            if stored && pfdat.flags & FILE != 0 {
                pfdat.flags |= DIRTY;
            }
            lists.unwire(memory, frame);
            false
        });
        if is_free {
            self.free_frame(frame);
        }
    }

    /// Copies the pinned pages of a space's own, for the child of a fork. Returns the copies, by
    /// ascending page. After an error nothing has changed.
    pub(crate) fn copy_pinned(&mut self, at: &mut Within<'_>) -> Result<Vec<(u64, AnonId)>, Error> {
        let mut copies = Vec::new();
        if !at.known.has_pins {
            return Ok(copies);
        }
        let mut pinned: Vec<(u64, FrameId)> = Vec::new();
        for (page, anon) in at.known.anons.each() {
            if let PageLocation::Resident(frame) = self.anon(anon).place
                && self.lists(|lists, _| lists.pins.has(frame))
            {
                pinned.try_reserve(1)?;
                pinned.push((page, frame));
            }
        }
        copies.try_reserve_exact(pinned.len())?;
        for (page, from) in pinned {
            match self.copy_one(at, page, from) {
                Ok(anon) => copies.push((page, anon)),
                Err(error) => {
                    self.release(copies.into_iter());
                    return Err(error);
                }
            }
        }
        Ok(copies)
    }

    fn copy_one(&mut self, at: &mut Within<'_>, page: u64, from: FrameId) -> Result<AnonId, Error> {
        self.with_room(|kernel| {
            // The child gets translations of the whole block, and must lose only the translation of
            // this page.
            kernel.cut_large(at, &(page..page + 1))?;
            let frame = kernel.take_frame(None)?;
            let (source, target) = (kernel.address(from), kernel.address(frame));
            kernel.platform.copy(source, target, kernel.vm.base.bytes());
            kernel.work.copied += 1 << kernel.memory.order(kernel.vm.base);
            kernel.own_anon(frame)
        })
    }
}

#[cfg(test)]
mod tests {
    use addr::VirtAddr;

    use super::*;

    fn parts(start: u64, bytes: u64, frames: &[u64]) -> Vec<(u64, u64)> {
        let pin = Pin {
            range: VirtRange::new(VirtAddr::new(start), bytes).unwrap(),
            kind: Kind::Load,
            frames: frames.iter().map(|frame| PhysAddr::new(*frame)).collect(),
            page_bytes: 0x1000,
        };
        pin.parts().map(|(at, bytes)| (at.get(), bytes)).collect()
    }

    #[test]
    fn a_device_gets_the_parts_of_memory_in_order() {
        assert_eq!(parts(0x1000, 0x1000, &[0x5000]), [(0x5000, 0x1000)]);
        assert_eq!(parts(0x1010, 0x20, &[0x5000]), [(0x5010, 0x20)]);
        assert_eq!(parts(0x1ff0, 0x20, &[0x5000, 0x6000]), [(0x5ff0, 0x20)]);
        assert_eq!(parts(0x1ff0, 0x20, &[0x5000, 0x9000]), [(0x5ff0, 0x10), (0x9000, 0x10)]);
        let three = parts(0x1800, 0x2000, &[0x5000, 0x2000, 0x3000]);
        assert_eq!(three, [(0x5800, 0x800), (0x2000, 0x1800)]);
    }
}
