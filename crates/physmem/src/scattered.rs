use alloc::vec::Vec;

use crate::{
    allocator::Allocator,
    frame::{FrameId, State},
    request::Request,
    table::FrameTable,
};

/// The number of frames set aside. With 16, frames for consecutive requests differ in the index
/// bits of a cache of up to sixteen pages per way.
const ASIDE: usize = 16;

/// An allocator that returns the base frames of another allocator in a seeded random order.
///
/// The frame of a page decides which lines of a physically indexed cache the page competes for.
/// With random frames, an experiment can distinguish its result from the effect of one particular
/// layout. Sixteen base frames are set aside, and each request for a base frame gets one of these
/// sixteen at random. Larger blocks are not scattered. Frames set aside count as free.
pub struct Scattered<A> {
    inner: A,
    /// The state of a random generator of Marsaglia's xorshift64 family; never 0.
    random: u64,
    aside: Vec<FrameId>,
}

impl<A: Allocator> Scattered<A> {
    /// Makes `inner` return base frames in an order that depends on `seed`.
    pub fn new(inner: A, seed: u64) -> Scattered<A> {
        let random = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 32) | 1;
        Scattered { inner, random, aside: Vec::with_capacity(ASIDE) }
    }

    /// One of the frames set aside, all equally likely.
    fn pick(&mut self) -> Option<FrameId> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let place = (self.random >> 32).checked_rem(self.aside.len() as u64)?;
        Some(self.aside.swap_remove(place as usize))
    }

    /// Returns all frames set aside to `inner`, since one of them may prevent a larger block from
    /// being joined.
    fn give_back(&mut self, table: &mut FrameTable) {
        for frame in self.aside.drain(..) {
            self.inner.free(table, frame, 0);
        }
    }
}

impl<A: Allocator> Allocator for Scattered<A> {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        if request.order == 0
            && request.node.is_none()
            && request.color.is_none()
            && request.near.is_none()
            // If the allocator has page blocks, only movable frames are scattered, because it keeps
            // immovable frames apart.
            && (request.state == State::Movable || self.inner.blocks().is_none())
        {
            while self.aside.len() < ASIDE {
                let Some(frame) = self.inner.allocate(table, request) else { break };
                self.aside.push(frame);
            }
            return self.pick();
        }
        self.inner.allocate(table, request).or_else(|| {
            self.give_back(table);
            self.inner.allocate(table, request)
        })
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        self.inner.free(table, first, order);
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.give_back(table);
        self.inner.take(table, first, order)
    }

    fn free_blocks(&self, order: u32) -> u64 {
        let aside = if order == 0 { self.aside.len() } else { 0 };
        self.inner.free_blocks(order) + aside as u64
    }

    fn inner(&self) -> Option<&dyn Allocator> {
        Some(&self.inner)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        Some(&mut self.inner)
    }
}
