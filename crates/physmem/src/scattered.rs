use alloc::vec::Vec;

use crate::{
    allocator::Allocator,
    frame::{FrameId, State},
    request::Request,
    table::FrameTable,
};

/// Frames set aside. Neighbours in the order of requests then differ in the bits by which a
/// cache of up to sixteen pages per way is indexed.
const ASIDE: usize = 16;

/// Another allocator, whose base frames are given out in a seeded order.
///
/// Which frame a page gets decides which lines of a physically indexed cache it shares. So that
/// an experiment can tell its result from the luck of one layout, sixteen base frames are set
/// aside, and each request for one takes one of these at random. Larger blocks are not
/// scattered. Frames set aside count as free.
pub struct Scattered<A> {
    inner: A,
    /// The state of a generator of Marsaglia's xorshift64 family, never 0.
    random: u64,
    aside: Vec<FrameId>,
}

impl<A: Allocator> Scattered<A> {
    /// `inner` with base frames in an order that `seed` decides.
    pub fn new(inner: A, seed: u64) -> Scattered<A> {
        let random = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 32) | 1;
        Scattered { inner, random, aside: Vec::with_capacity(ASIDE) }
    }

    /// One of the frames set aside, any of them as likely as another.
    fn pick(&mut self) -> Option<FrameId> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let place = (self.random >> 32).checked_rem(self.aside.len() as u64)?;
        Some(self.aside.swap_remove(place as usize))
    }

    /// Gives all frames set aside back, since one of them may keep a larger block apart.
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
            // Frames that stay are kept apart from those that move.
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
