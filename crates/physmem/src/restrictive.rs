//! Restrictive segments: parts of memory in which a page's address determines the few frames that it
//! may have (Kanellopoulos and others 2023, "Utopia").
//!
//! ```text
//!   memory   | flexible segment: any page anywhere | restrictive segment                    |
//!                                                  | set 0: 8 ways | set 1: 8 ways | set 2 ..
//!   page number modulo sets ------------------------------------------^
//! ```
//!
//! A caller that needs a frame in the set of its page requests the frame by number
//! ([`Request::near`]). All other requests are served by the flexible segment. When the flexible
//! segment is full, frames of the restrictive segments are used, but only after a page has been
//! placed in these segments. Therefore memory that was in use before the run takes no frame of
//! them.

use crate::{
    allocator::Allocator, buddy::Buddy, frame::FrameId, request::Request, table::FrameTable,
};

/// Frames in sets, for pages of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The first frame of the segment.
    pub first: FrameId,
    /// The number of sets.
    pub sets: u32,
    /// The number of pages per set.
    pub ways: u32,
    /// log2 of the number of frames of a page.
    pub order: u32,
}

impl Segment {
    /// The frame after the last frame of the segment.
    pub const fn end(&self) -> u32 {
        self.first.0 + ((self.sets * self.ways) << self.order)
    }

    /// The set for the page number `page`, in units of the segment's page size.
    pub const fn set_of(&self, page: u64) -> u32 {
        (page % self.sets as u64) as u32
    }

    /// The first frame of each of a set's places, one per way.
    pub fn places(&self, set: u32) -> impl Iterator<Item = FrameId> + use<> {
        let (first, order) = (self.first.0 + ((set * self.ways) << self.order), self.order);
        (0..self.ways).map(move |way| FrameId(first + (way << order)))
    }

    /// Whether `frame` is the first frame of a place that the page `page` may have.
    pub fn may_have(&self, page: u64, frame: FrameId) -> bool {
        self.places(self.set_of(page)).any(|place| place == frame)
    }
}

/// An allocator with restrictive segments, which are adjacent, at the end of its frames.
pub struct Restrictive<A> {
    flexible: A,
    /// The first frame of the first segment.
    from: u32,
    restrictive: Buddy,
    /// Whether a page has been placed in a segment.
    is_used: bool,
}

impl<A: Allocator> Restrictive<A> {
    /// An allocator whose frames from `from` to `end` are those of the segments; the frames of
    /// `flexible` end at `from`.
    pub fn new(flexible: A, from: FrameId, end: FrameId) -> Restrictive<A> {
        let restrictive = Buddy::new(from.0..end.0);
        Restrictive { flexible, from: from.0, restrictive, is_used: false }
    }

    /// `Some(true)` if all of the `2^order` frames from `first` are in segments, `Some(false)` if
    /// none of them is, and `None` if only some of them are.
    fn is_restrictive(&self, first: FrameId, order: u32) -> Option<bool> {
        match (first.0 >= self.from, u64::from(first.0) + (1 << order) > self.from.into()) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        }
    }
}

impl<A: Allocator> Allocator for Restrictive<A> {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        let Some(near) = request.near else {
            let given = self.flexible.allocate(table, request);
            let lends = given.is_none() && self.is_used;
            return if lends { self.restrictive.allocate(table, request) } else { given };
        };
        let taken = match self.is_restrictive(near, request.order) {
            Some(true) => {
                self.is_used = true;
                self.restrictive.take(table, near, request.order)
            }
            Some(false) => self.flexible.take(table, near, request.order),
            None => false,
        };
        taken.then_some(near)
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        match self.is_restrictive(first, order) {
            Some(true) => self.restrictive.free(table, first, order),
            Some(false) => self.flexible.free(table, first, order),
            // A block across the border has frames on both sides, so its order is at least 1.
            None => {
                let half = order - 1;
                self.free(table, first, half);
                self.free(table, FrameId(first.0 + (1 << half)), half);
            }
        }
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.is_restrictive(first, order) == Some(false) && self.flexible.take(table, first, order)
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.flexible.free_blocks(order) + self.restrictive.free_blocks(order)
    }

    fn inner(&self) -> Option<&dyn Allocator> {
        Some(&self.flexible)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        Some(&mut self.flexible)
    }

    fn frames_in_use(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        match self.is_restrictive(first, order) {
            Some(false) => self.flexible.frames_in_use(first, order, enough),
            Some(true) | None => enough,
        }
    }

    fn join(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.is_restrictive(first, order) == Some(false) && self.flexible.join(table, first, order)
    }

    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        self.is_restrictive(first, order) == Some(false)
            && self.flexible.has_block(table, first, order)
    }
}
