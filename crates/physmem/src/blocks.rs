//! A buddy system that keeps movable and unmovable frames in separate page blocks (Linux's
//! `mm/page_alloc.c`).
//!
//! ```text
//!   page block       | movable      | unmovable    | movable      |      2M each where frames have 4K
//!   free lists         by type and order
//!
//!   an unmovable frame is wanted, and no unmovable block is free:
//!     claim   the largest free block of another type. A whole page block changes its type; of a part,
//!             all its page block does if half of that is free or alike, else nothing is claimed
//!     steal   otherwise the smallest that is large enough, whose page block stays what it is
//! ```
//!
//! A request takes one of the smallest free blocks of its own type that are large enough, as in
//! [`Buddy`](crate::Buddy). Blocks are joined up to the largest order. A larger request is served
//! from adjacent free blocks of that order.
//!
//! Not modelled: inserting a free block at the list's end if its buddy is nearly free as well,
//! per-processor lists of single frames, the reserve of high orders, and zones.

use alloc::vec::Vec;
use core::ops::Range;

use crate::{
    allocator::Allocator,
    capabilities::{BlockCounts, BlockType, Blocks},
    frame::{FrameId, State},
    lists::{FreeLists, part},
    request::{Color, Request},
    table::FrameTable,
};

const ORDERS: usize = 32;

/// A buddy system with page blocks.
pub struct PageBlocks {
    frames: Range<u32>,
    /// log2 of the number of frames of a page block.
    block_order: u32,
    /// log2 of the number of frames of the largest free block.
    order_max: u32,
    types: Vec<BlockType>,
    lists: [FreeLists<ORDERS>; BlockType::ALL.len()],
    claimed: u64,
    stolen: u64,
    boosts: u64,
}

impl PageBlocks {
    /// An allocator over the base frames `frames`, none of them free yet, with page blocks of
    /// `2^block_order` frames and free blocks of up to `2^order_max` frames. All page blocks are
    /// for movable frames, as when a kernel boots.
    pub fn new(frames: Range<u32>, block_order: u32, order_max: u32) -> PageBlocks {
        let count = (frames.end as usize).div_ceil(1 << block_order);
        PageBlocks {
            frames,
            block_order,
            order_max: order_max.clamp(block_order, ORDERS as u32 - 1),
            types: alloc::vec![BlockType::Movable; count],
            lists: [const { FreeLists::new() }; BlockType::ALL.len()],
            claimed: 0,
            stolen: 0,
            boosts: 0,
        }
    }

    fn type_of(&self, frame: FrameId) -> BlockType {
        self.types[(frame.0 >> self.block_order) as usize]
    }

    fn list(&mut self, of: BlockType) -> &mut FreeLists<ORDERS> {
        &mut self.lists[of as usize]
    }

    /// Sets the type of the page blocks in the `2^order` frames from `first`.
    fn set_type(&mut self, first: FrameId, order: u32, to: BlockType) {
        let block = (first.0 >> self.block_order) as usize;
        let count = 1 << order.saturating_sub(self.block_order);
        let end = (block + count).min(self.types.len());
        for of in &mut self.types[block..end] {
            self.claimed += u64::from(*of != to);
            *of = to;
        }
    }

    /// Removes a free block from its list.
    fn remove(&mut self, table: &mut FrameTable, block: FrameId, order: u32) {
        let of = self.type_of(block);
        self.list(of).remove(table, block, order);
    }

    fn push(&mut self, table: &mut FrameTable, block: FrameId, order: u32) {
        let of = self.type_of(block);
        self.list(of).push(table, block, order);
    }

    /// Splits a free block of order `from`, which has been removed from its list, until `first` begins
    /// a block of `order`. Inserts the other parts into their lists.
    fn split_to(
        &mut self,
        table: &mut FrameTable,
        block: FrameId,
        from: u32,
        first: FrameId,
        order: u32,
    ) {
        let mut block = block.0;
        for half in (order..from).rev() {
            let upper = block + (1 << half);
            if first.0 >= upper {
                self.push(table, FrameId(block), half);
                block = upper;
            } else {
                self.push(table, FrameId(upper), half);
            }
        }
    }

    /// Splits the frames for `request` off a free block that is in the list of the type `of`.
    fn cut(
        &mut self,
        table: &mut FrameTable,
        (block, from): (FrameId, u32),
        request: &Request,
    ) -> Option<FrameId> {
        let first = part(block, from, request);
        if !table.reserve(first, request.order) {
            return None;
        }
        self.remove(table, block, from);
        self.split_to(table, block, from, first, request.order);
        Some(first)
    }

    /// The smallest free block of a type that is large enough (`__rmqueue_smallest`).
    fn smallest(
        &self,
        table: &FrameTable,
        of: BlockType,
        request: &Request,
    ) -> Option<(FrameId, u32)> {
        if request.takes_any_color() {
            let lists = &self.lists[of as usize];
            let order = lists.at_least(request.order)?;
            return Some((lists.first(order)?, order));
        }
        let mut orders = request.order..=self.order_max;
        orders.find_map(|order| Some((self.block_in(table, of, order, request)?, order)))
    }

    /// A free block of the given type and order that can serve the request. Linux has no cache colours: a
    /// block with the requested colour is searched for only if no other colour is acceptable.
    fn block_in(
        &self,
        table: &FrameTable,
        of: BlockType,
        order: u32,
        request: &Request,
    ) -> Option<FrameId> {
        let color = request.color.filter(|_| !request.takes_any_color());
        self.lists[of as usize].choose(table, order, color, request.order)
    }

    /// Whether a request for the type `of` may claim a free block of `order` from another type
    /// (`should_try_claim_block`).
    const fn may_claim(&self, of: BlockType, order: u32) -> bool {
        order >= self.block_order / 2 || !matches!(of, BlockType::Movable)
    }

    /// Takes a block of another type and claims its page block for the type `of`
    /// (`__rmqueue_claim`).
    fn claim(
        &mut self,
        table: &mut FrameTable,
        request: &Request,
        of: BlockType,
    ) -> Option<FrameId> {
        for order in (request.order..=self.order_max).rev() {
            if !self.may_claim(of, order) {
                return None;
            }
            let found = of
                .fallbacks()
                .into_iter()
                .find_map(|other| Some((other, self.block_in(table, other, order, request)?)));
            let Some((other, block)) = found else { continue };
            if order >= self.block_order {
                let first = part(block, order, request);
                if !table.reserve(first, request.order) {
                    return None;
                }
                self.remove(table, block, order);
                self.set_type(block, order, of);
                self.split_to(table, block, order, first, request.order);
                return Some(first);
            }
            self.boosts += 1;
            if self.take_over(table, block, other, of) {
                let found = self.smallest(table, of, request)?;
                return self.cut(table, found, request);
            }
        }
        None
    }

    /// Changes the type of the page block of `frame` from one type to another, if half of it is free
    /// or already of a compatible use (`try_to_claim_block`). Returns whether it did.
    fn take_over(
        &mut self,
        table: &mut FrameTable,
        frame: FrameId,
        from: BlockType,
        to: BlockType,
    ) -> bool {
        let first = frame.0 >> self.block_order << self.block_order;
        let end = u64::from(first) + (1 << self.block_order);
        if first < self.frames.start || end > self.frames.end.into() {
            return false;
        }
        let (mut free, mut movable) = (0, 0);
        for number in first..end as u32 {
            match BlockType::of(table.get(FrameId(number)).state()) {
                _ if table.get(FrameId(number)).state() == State::Free => free += 1,
                BlockType::Movable => movable += 1,
                BlockType::Unmovable | BlockType::Reclaimable => {}
            }
        }
        if !table.reserve(FrameId(first), self.block_order) {
            return false;
        }
        let all = 1u32 << self.block_order;
        let alike = match (to, from) {
            (BlockType::Movable, _) => movable,
            // All immovable frames count as compatible, whether reclaimable or not.
            (_, BlockType::Movable) => all - (free + movable),
            (_, _) => 0,
        };
        if free + alike < all / 2 {
            return false;
        }
        let mut number = first;
        while number < end as u32 {
            match table.free_order(FrameId(number)) {
                Some(order) => {
                    self.list(from).remove(table, FrameId(number), order);
                    self.list(to).push(table, FrameId(number), order);
                    number += 1 << order;
                }
                None => number += 1,
            }
        }
        self.set_type(FrameId(first), self.block_order, to);
        true
    }

    /// Takes frames from a block of another type, whose page block keeps its type
    /// (`__rmqueue_steal`).
    fn steal(
        &mut self,
        table: &mut FrameTable,
        request: &Request,
        of: BlockType,
    ) -> Option<FrameId> {
        let found = (request.order..=self.order_max).find_map(|order| {
            let block = |other: BlockType| self.block_in(table, other, order, request);
            Some((of.fallbacks().into_iter().find_map(block)?, order))
        })?;
        let first = self.cut(table, found, request)?;
        self.stolen += 1 << request.order;
        Some(first)
    }

    /// Takes adjacent free blocks of the largest order, for a request that is larger than one
    /// block.
    fn adjacent(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        let order = request.order;
        let step = 1u64.checked_shl(order)?;
        let (start, end) = (u64::from(self.frames.start), u64::from(self.frames.end));
        let fits = |color: Color, block| color.within(block, 0, 0).is_some();
        let takes = |block| {
            request.takes_any_color() || request.color.is_some_and(|color| fits(color, block))
        };
        let mut first = start.next_multiple_of(step);
        while end.checked_sub(first).is_some_and(|left| left >= step) {
            let block = FrameId(first as u32);
            if takes(block) && self.take(table, block, order) {
                return Some(block);
            }
            first += step;
        }
        None
    }

    /// Whether all of the `2^order` frames from `first` belong to this allocator.
    fn has_frames(&self, first: FrameId, order: u32) -> bool {
        let end = 1u64.checked_shl(order).map(|count| u64::from(first.0) + count);
        first.0 >= self.frames.start && end.is_some_and(|end| end <= self.frames.end.into())
    }

    /// The free block that contains the frame `first`.
    fn around(&self, table: &FrameTable, first: FrameId, order: u32) -> Option<(FrameId, u32)> {
        (order..=self.order_max).find_map(|from| {
            let block = FrameId(first.0 >> from << from);
            (self.frames.contains(&block.0) && table.free_order(block) == Some(from))
                .then_some((block, from))
        })
    }
}

impl Allocator for PageBlocks {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        let of = BlockType::of(request.state);
        if request.order > self.order_max {
            return self.adjacent(table, request);
        }
        if let Some(found) = self.smallest(table, of, request) {
            return self.cut(table, found, request);
        }
        let claimed = self.claim(table, request, of);
        claimed.or_else(|| self.steal(table, request, of))
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        if order > self.order_max {
            for part in 0..1u32 << (order - self.order_max) {
                self.free(table, FrameId(first.0 + (part << self.order_max)), self.order_max);
            }
            return;
        }
        let of = self.type_of(first);
        let (mut block, mut order) = (first.0, order);
        while order < self.order_max {
            let buddy = FrameId(block ^ 1 << order);
            if !self.frames.contains(&buddy.0) || table.free_order(buddy) != Some(order) {
                break;
            }
            self.remove(table, buddy, order);
            if order >= self.block_order && self.type_of(buddy) != of {
                // Both halves of a block have one type.
                self.set_type(buddy, order, of);
            }
            block &= !(1 << order);
            order += 1;
        }
        self.list(of).push(table, FrameId(block), order);
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        if order > self.order_max {
            if !self.has_frames(first, order) {
                return false;
            }
            let max = self.order_max;
            let parts = (0..1u32 << (order - max)).map(|part| FrameId(first.0 + (part << max)));
            if !parts.clone().all(|part| table.free_order(part) == Some(max)) {
                return false;
            }
            if !table.reserve(first, order) {
                return false;
            }
            parts.for_each(|part| self.remove(table, part, max));
            return true;
        }
        // A block of this order is free only as part of one free block, since halves are joined.
        let Some((block, from)) = self.around(table, first, order) else { return false };
        if !table.reserve(first, order) {
            return false;
        }
        self.remove(table, block, from);
        self.split_to(table, block, from, first, order);
        true
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.lists.iter().map(|lists| u64::from(lists.count(order))).sum()
    }

    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        self.around(table, first, order).is_some()
    }

    fn blocks(&self) -> Option<&dyn Blocks> {
        Some(self)
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Blocks> {
        Some(self)
    }
}

impl Blocks for PageBlocks {
    fn block_order(&self) -> u32 {
        self.block_order
    }

    fn block_type(&self, frame: FrameId) -> BlockType {
        let of = self.types.get((frame.0 >> self.block_order) as usize);
        of.copied().unwrap_or(BlockType::Unmovable)
    }

    fn is_suitable(&self, order: u32) -> bool {
        let of = BlockType::Movable;
        let own = self.lists[of as usize].at_least(order).is_some();
        own || (order..=self.order_max).any(|order| {
            let has = |other: BlockType| self.lists[other as usize].count(order) > 0;
            self.may_claim(of, order) && of.fallbacks().into_iter().any(has)
        })
    }

    fn take_boosts(&mut self) -> u64 {
        core::mem::take(&mut self.boosts)
    }

    fn counts(&self) -> BlockCounts {
        let mut counts =
            BlockCounts { claimed: self.claimed, stolen: self.stolen, ..BlockCounts::default() };
        let first = (self.frames.start >> self.block_order) as usize;
        self.types[first..].iter().for_each(|&of| counts.blocks[of as usize] += 1);
        counts
    }
}
