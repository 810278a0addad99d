//! A magazine: a stack of free base frames in front of another allocator.
//!
//! ```text
//!   free(5) --> [ 9 3 7 5 ] --> allocate() -> 5      the frame that was freed last
//!                    |  full: the older half
//!                    v
//!               free lists, joined as ever
//! ```
//!
//! A program that frees a page often touches a new page soon afterwards. If the freed frame stays
//! in the magazine until then, it is not joined with its buddy and split off again, and its
//! descriptor is probably still in the processor's cache. The name is by Bonwick and Adams 2001.
//! Linux has a magazine per processor (`pcp`); Lee and Barkley 1989 delay joining in the buddy
//! system itself.
//!
//! Frames in the magazine are free, and no request for a large page fails because of them: they are
//! returned to the free lists when a request cannot be served otherwise. A request gets the frame
//! that was freed last, whatever the frame was used for. A magazine is therefore not suitable in
//! front of an allocator that separates movable frames.

use crate::{allocator::Allocator, frame::FrameId, request::Request, table::FrameTable};

/// The capacity of a magazine, which is that of the smaller magazines of Bonwick and Adams.
const ROUNDS: usize = 64;

/// Another allocator with a magazine of base frames in front.
pub struct Magazine<A> {
    inner: A,
    /// The first `count` elements are free frames; the frame that was freed last is at the end.
    rounds: [FrameId; ROUNDS],
    count: usize,
    /// Whether frames have ever been allocated. Frames that are freed before the first allocation
    /// are the initial frames of memory, and are passed to `inner` directly.
    is_in_use: bool,
}

impl<A: Allocator> Magazine<A> {
    /// `inner` with an empty magazine.
    pub const fn new(inner: A) -> Magazine<A> {
        Magazine { inner, rounds: [FrameId(0); ROUNDS], count: 0, is_in_use: false }
    }

    /// Returns the `count` frames that have been in the magazine longest to the free lists.
    fn give_back(&mut self, table: &mut FrameTable, count: usize) {
        for &frame in &self.rounds[..count] {
            self.inner.free(table, frame, 0);
        }
        self.rounds.copy_within(count..self.count, 0);
        self.count -= count;
    }

    /// The number of frames in the magazine among the `2^order` frames from `first`.
    fn within(&self, first: FrameId, order: u32) -> u64 {
        let mine =
            self.rounds[..self.count].iter().filter(|frame| frame.0 >> order == first.0 >> order);
        mine.count() as u64
    }

    fn is_for_any(&self, table: &FrameTable, request: &Request) -> bool {
        let Request { order, state: _, node, color, rather: _, place, near } = *request;
        let Some(last) = self.rounds[..self.count].last() else { return false };
        order == 0
            && color.is_none()
            && place.is_none()
            && near.is_none()
            && node.is_none_or(|home| home.node == table.get(*last).node())
    }
}

impl<A: Allocator> Allocator for Magazine<A> {
    #[inline]
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        if self.is_for_any(table, request) {
            self.count -= 1;
            return Some(self.rounds[self.count]);
        }
        self.is_in_use = true;
        let found = self.inner.allocate(table, request);
        if found.is_some() || self.count == 0 {
            return found;
        }
        self.give_back(table, self.count);
        self.inner.allocate(table, request)
    }

    #[inline]
    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        if order > 0 || !self.is_in_use {
            return self.inner.free(table, first, order);
        }
        if self.count == ROUNDS {
            self.give_back(table, ROUNDS / 2);
        }
        self.rounds[self.count] = first;
        self.count += 1;
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.is_in_use = true;
        if self.within(first, order) > 0 {
            self.give_back(table, self.count);
        }
        self.inner.take(table, first, order)
    }

    fn free_blocks(&self, order: u32) -> u64 {
        let in_hand = if order == 0 { self.count as u64 } else { 0 };
        self.inner.free_blocks(order) + in_hand
    }

    fn inner(&self) -> Option<&dyn Allocator> {
        Some(&self.inner)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        Some(&mut self.inner)
    }

    fn frames_in_use(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        let in_hand = self.within(first, order);
        self.inner
            .frames_in_use(first, order, enough.saturating_add(in_hand))
            .saturating_sub(in_hand)
    }

    fn join(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        if self.within(first, order) > 0 {
            self.give_back(table, self.count);
        }
        self.inner.join(table, first, order)
    }

    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        (order == 0 && self.within(first, 0) > 0) || self.inner.has_block(table, first, order)
    }
}
