//! Placement by hash: an anonymous page gets one of the few frames that its address allows, so that hardware
//! needs few bits to say which one (Mosaic), or finds it without the page table (Utopia).
//!
//! ```text
//!   page, space --> the frames that it may have: one of them free?   yes   that one
//!                                                                    no    any frame
//! ```
//!
//! Where none is free the authors of Mosaic have another page leave memory. Here the page lies elsewhere,
//! and hardware treats it as any other. So it does with what a fork shares, until it is copied, and with
//! what is moved in its space or in memory: whether a page lies where it may is found by looking.

use hat::HatSpace;
use physmem::{FrameId, Iceberg, Segment};

/// Which frames pages may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hashed {
    /// Those of an iceberg hash table over all memory, of base pages.
    Mosaic(Iceberg),
    /// Those of its set in the segment for its size, if there is one.
    Utopia([Option<Segment>; 2]),
}

impl Hashed {
    /// Whether `frame` is one that the page with the number `page`, of `2^order` base frames, may have in
    /// `space`.
    pub fn may_have(&self, space: HatSpace, page: u64, order: u32, frame: FrameId) -> bool {
        match self {
            Hashed::Mosaic(iceberg) => {
                order == 0 && iceberg.number(key(space, page), frame).is_some()
            }
            Hashed::Utopia(_) => {
                self.segment(order).is_some_and(|segment| segment.may_have(page, frame))
            }
        }
    }

    /// The segment for pages of `2^order` base frames.
    pub fn segment(&self, order: u32) -> Option<Segment> {
        match self {
            Hashed::Mosaic(_) => None,
            Hashed::Utopia(all) => all.iter().flatten().copied().find(|of| of.order == order),
        }
    }
}

/// What a page is called by hash functions.
pub(crate) const fn key(space: HatSpace, page: u64) -> u64 {
    page ^ ((space.0 as u64) << 40)
}
