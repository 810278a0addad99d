use core::ops::Range;

use crate::{
    allocator::Allocator, buddy::Buddy, frame::FrameId, request::Request, table::FrameTable,
};

/// Two parts of memory: frames that are taken only by their numbers, and frames for all other
/// requests.
///
/// ```text
///   0 ............................ from ............ end
///   |  taken one by one: `take`     |  `allocate`      |
/// ```
///
/// This allocator is used for a memory in which the frame of each page is given (a trace with
/// physical addresses). Page tables need frames too, and must not get a frame that the trace uses
/// later.
pub struct Apart {
    from: u32,
    taken: Buddy,
    given: Buddy,
}

impl Apart {
    /// An allocator over `frames`. The last sixteenth (at least one frame) is for requests that
    /// name no frame.
    pub fn new(frames: Range<u32>) -> Apart {
        let from = Apart::first_given(&frames);
        Apart { from, taken: Buddy::new(frames.start..from), given: Buddy::new(from..frames.end) }
    }

    /// The first of `frames` that is for requests which name no frame.
    pub fn first_given(frames: &Range<u32>) -> u32 {
        frames.end - (frames.len() as u32).div_ceil(16)
    }

    /// The part that contains all of the `2^order` frames from `first`, if there is one.
    fn part(&mut self, first: FrameId, order: u32) -> Option<&mut Buddy> {
        if first.0 >= self.from {
            Some(&mut self.given)
        } else if u64::from(first.0) + (1 << order) <= u64::from(self.from) {
            Some(&mut self.taken)
        } else {
            None
        }
    }
}

impl Allocator for Apart {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        self.given.allocate(table, request)
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        match self.part(first, order) {
            Some(part) => part.free(table, first, order),
            // A block across the border has frames on both sides, so its order is at least 1.
            None => {
                let half = order - 1;
                self.free(table, first, half);
                self.free(table, FrameId(first.0 + (1 << half)), half);
            }
        }
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        if let Some(part) = self.part(first, order) {
            return part.take(table, first, order);
        }
        let (half, upper) = (order - 1, FrameId(first.0 + (1 << (order - 1))));
        let lower_taken = self.take(table, first, half);
        let taken = lower_taken && self.take(table, upper, half);
        if lower_taken && !taken {
            self.free(table, first, half);
        }
        taken
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.taken.free_blocks(order) + self.given.free_blocks(order)
    }
}
