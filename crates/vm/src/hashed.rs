//! Placement by hash: an anonymous page gets one of the few frames that its address allows, so that hardware
//! needs few bits to identify the frame (Mosaic), or finds it without the page table (Utopia).
//!
//! ```text
//!   page, space --> the frames that it may have: one of them free?   yes   that one
//!                                                                    no    any frame
//! ```
//!
//! If none of these frames is free, the authors of Mosaic evict another page. In this model the
//! page gets another frame, and hardware treats it like a page without placement. Two kinds of
//! pages are also treated in this way: pages that a fork shares, until they are copied, and pages
//! that are moved in their space or in memory. Whether a page is in an allowed frame is determined
//! by a comparison.

use hat::HatSpace;
use physmem::{FrameId, Iceberg, Segment};

/// The frames that pages may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hashed {
    /// The frames of an iceberg hash table over all memory, for base pages.
    Mosaic(Iceberg),
    /// The frames of the page's set in the segment for its size, if there is such a segment.
    Utopia([Option<Segment>; 2]),
}

impl Hashed {
    /// Whether the page number `page`, in units of `2^order` base frames, of `space` may be in `frame`.
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

/// The key of a page for hash functions.
pub(crate) const fn key(space: HatSpace, page: u64) -> u64 {
    page ^ ((space.0 as u64) << 40)
}
