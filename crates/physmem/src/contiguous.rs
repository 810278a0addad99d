//! Contiguity-aware placement (Alverti and others 2020, "CA paging"): a request can name the frames
//! that it gets, and each new region gets a place in physical memory.
//!
//! ```text
//!   free runs of the largest blocks   | ======== |   | ===== |        | ============ |
//!                                                       ^ rover
//!   a region of 6 blocks begins:                                        here: next fit
//!   its pages, one by one             each at the region's offset, as long as that is free
//! ```
//!
//! The caller keeps the offset of each region between pages and frames ([`Request::near`]). This
//! module records where the next region may begin.

use core::iter;

use crate::{
    allocator::Allocator, capabilities::Places, frame::FrameId, request::Request, table::FrameTable,
};

/// An allocator that adds frames at requested places to another allocator.
pub struct Contiguous<A> {
    inner: A,
    /// log2 of the number of frames per block. Runs of free memory consist of whole blocks.
    order: u32,
    rover: u32,
}

impl<A: Allocator> Contiguous<A> {
    /// Adds placement to `inner`, with runs of free blocks of `2^order` frames.
    pub const fn new(inner: A, order: u32) -> Contiguous<A> {
        Contiguous { inner, order, rover: 0 }
    }
}

impl<A: Allocator> Places for Contiguous<A> {
    fn place(&mut self, table: &FrameTable, frames: u64) -> Option<FrameId> {
        let step = 1u32 << self.order;
        let first = table.frames().start.next_multiple_of(step);
        let end = table.frames().end >> self.order << self.order;
        let wanted = u32::try_from(frames).unwrap_or(u32::MAX).checked_next_multiple_of(step)?;
        // The search starts at the rover and continues with the frames before it.
        let rover = self.rover.clamp(first, end.max(first));
        let mut largest: Option<(u32, u32)> = None;
        let mut found = None;
        for (from, to) in [(rover, end), (first, rover)] {
            let mut run: Option<(u32, u32)> = None;
            for block in (from..to).step_by(step as usize).chain(iter::once(to)) {
                if block < to && self.inner.has_block(table, FrameId(block), self.order) {
                    run = Some((run.map_or(block, |(start, _)| start), block + step));
                    continue;
                }
                let Some((start, end)) = run.take() else { continue };
                if largest.is_none_or(|(first, last)| end - start > last - first) {
                    largest = Some((start, end));
                }
                if found.is_none() && end - start >= wanted {
                    found = Some((start, end));
                }
            }
        }
        let (start, end) = found.or(largest)?;
        self.rover = end.min(start.saturating_add(wanted));
        Some(FrameId(start))
    }
}

impl<A: Allocator> Allocator for Contiguous<A> {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        if let Some(near) = request.near {
            let frames = table.frames();
            let end = u64::from(near.0) + (1 << request.order);
            let is_here = near.0 >= frames.start && end <= frames.end.into();
            let is_aligned = near.0.trailing_zeros() >= request.order;
            let takes = is_here && is_aligned && self.take(table, near, request.order);
            return takes.then_some(near);
        }
        self.inner.allocate(table, request)
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        self.inner.free(table, first, order);
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.inner.take(table, first, order)
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.inner.free_blocks(order)
    }

    fn largest_free(&self) -> Option<u32> {
        self.inner.largest_free()
    }

    fn inner(&self) -> Option<&dyn Allocator> {
        Some(&self.inner)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        Some(&mut self.inner)
    }

    fn places(&mut self) -> Option<&mut dyn Places> {
        Some(self)
    }
}
