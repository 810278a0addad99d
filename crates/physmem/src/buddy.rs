//! The binary buddy system (Knowlton 1965).
//!
//! ```text
//!   order 2   |               free                |
//!   allocate one base frame:
//!   order 1   |                 |      free       |     the rest of each split stays free,
//!   order 0   |  out   |  free  |                       one buddy per order
//!   free it: its buddy is free, so both become one of order 1, whose buddy is free, ...
//! ```
//!
//! A block of order k is 2^k base frames and aligned to its size; its buddy is the other half of
//! the block of order k+1 that contains both. A request gets one of the smallest blocks that are
//! large enough. If there are several, it gets the block that was inserted last. Free blocks are
//! linked through their descriptors, so that the time of every operation is proportional to the
//! number of orders.

use core::ops::Range;

use crate::{
    allocator::Allocator,
    frame::FrameId,
    lists::{FreeLists, part},
    request::Request,
    table::FrameTable,
};

/// The number of orders: the largest block is half of the frames that 32 bits can number.
const ORDERS: usize = 32;

/// The order of the largest block: 2^31 base frames, 8 TiB of 4 KiB.
const MAX_ORDER: u32 = ORDERS as u32 - 1;

/// The binary buddy system.
pub struct Buddy {
    frames: Range<u32>,
    lists: FreeLists<ORDERS>,
}

impl Buddy {
    /// A buddy system over the base frames `frames`, none of them free yet.
    pub const fn new(frames: Range<u32>) -> Buddy {
        Buddy { frames, lists: FreeLists::new() }
    }

    /// Of the smallest free blocks with at least `2^order` frames, the block that was inserted
    /// last.
    fn smallest(&self, order: u32) -> Option<(FrameId, u32)> {
        let order = self.lists.at_least(order)?;
        Some((self.lists.first(order)?, order))
    }

    /// Splits a free block of order `from`, which has been removed from its list, until `first`
    /// begins a block of `order`. Inserts the other parts into their lists.
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
                self.lists.push(table, FrameId(block), half);
                block = upper;
            } else {
                self.lists.push(table, FrameId(upper), half);
            }
        }
    }
}

impl Allocator for Buddy {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        let (block, from) = match request.color {
            None => self.smallest(request.order)?,
            color => {
                let mut orders = request.order..=MAX_ORDER;
                let find =
                    |order| Some((self.lists.choose(table, order, color, request.order)?, order));
                let any = || self.smallest(request.order).filter(|_| request.takes_any_color());
                orders.find_map(find).or_else(any)?
            }
        };
        let first = part(block, from, request);
        if !table.reserve(first, request.order) {
            return None;
        }
        self.lists.remove(table, block, from);
        self.split_to(table, block, from, first, request.order);
        Some(first)
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        let (mut block, mut order) = (first.0, order);
        while order < MAX_ORDER {
            let buddy = FrameId(block ^ 1 << order);
            if !self.frames.contains(&buddy.0) || table.free_order(buddy) != Some(order) {
                break;
            }
            self.lists.remove(table, buddy, order);
            block &= !(1 << order);
            order += 1;
        }
        self.lists.push(table, FrameId(block), order);
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        // A block of this order is free only as part of one free block, since halves are joined.
        for from in order..=MAX_ORDER {
            let block = FrameId(first.0 >> from << from);
            if !self.frames.contains(&block.0) {
                return false;
            }
            if table.free_order(block) == Some(from) {
                if !table.reserve(first, order) {
                    return false;
                }
                self.lists.remove(table, block, from);
                self.split_to(table, block, from, first, order);
                return true;
            }
        }
        false
    }

    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        let mut around = (order..=MAX_ORDER).map(|from| (FrameId(first.0 >> from << from), from));
        around.any(|(block, from)| {
            self.frames.contains(&block.0) && table.free_order(block) == Some(from)
        })
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.lists.count(order).into()
    }
}
