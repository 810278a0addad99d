//! A request to an allocator of frames.

use crate::frame::{FrameId, State};

/// A memory manager's request to an allocator of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// log2 of the number of base frames, which are contiguous and aligned to their number.
    pub order: u32,
    /// The future use of the frames; some allocators keep movable frames separate.
    pub state: State,
    /// The requested node, and whether another node is acceptable.
    pub node: Option<Home>,
    /// The requested cache colour of the first frame. If no such frame is free, a frame of another
    /// colour is allocated, unless `rather` forbids it.
    pub color: Option<Color>,
    /// The requirement that is dropped if the requested node has no frame of the requested colour.
    pub rather: Rather,
    /// The page of an object for which a base frame is requested, if the frame may come from a
    /// reservation.
    pub place: Option<ObjectPage>,
    /// The requested first frame: the request gets exactly these frames or fails. Only allocators
    /// that place regions support it.
    pub near: Option<FrameId>,
}

/// The priority between the requested colour and the requested node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rather {
    /// The node: a frame of another colour on this node is preferred to a frame on another node.
    #[default]
    Near,
    /// The colour: a frame of this colour on another node is preferred to a frame of another
    /// colour.
    Colored,
    /// The colour is required.
    ColoredOnly,
}

/// The NUMA node from which frames should be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// The number of the node.
    pub node: u8,
    /// Whether frames of other nodes are refused.
    pub strict: bool,
}

impl Request {
    /// A request for `2^order` frames without requirements on their place.
    pub const fn new(order: u32, state: State) -> Request {
        let (node, color, place, near) = (None, None, None, None);
        Request { order, state, node, color, rather: Rather::Near, place, near }
    }

    /// Whether frames of another colour are acceptable.
    pub(crate) fn takes_any_color(&self) -> bool {
        self.color.is_none() || self.rather != Rather::ColoredOnly
    }
}

/// A cache colour: frames whose number has the remainder `value` when divided by `of` map to the
/// same sets of a physically indexed cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Color {
    /// The remainder.
    pub value: u32,
    /// The number of colours.
    pub of: u32,
}

impl Color {
    /// The first frame of this colour among the `2^order` frames from `block` that is aligned to
    /// `2^wanted` frames.
    pub(crate) fn within(self, block: FrameId, order: u32, wanted: u32) -> Option<FrameId> {
        let behind = block.0.checked_rem(self.of)?;
        let distance = u64::from((self.value % self.of + self.of - behind) % self.of);
        // Colours repeat after `of` frames, and the alignments of frames of one colour repeat after
        // at most `2^wanted` rounds.
        let rounds = (0..1u64 << wanted).map(|round| distance + round * u64::from(self.of));
        let inside = rounds.take_while(|distance| *distance < 1 << order);
        let mut frames = inside.map(|distance| FrameId(block.0 + distance as u32));
        frames.find(|frame| frame.0.trailing_zeros() >= wanted)
    }
}

/// The page of a memory object for which a frame is requested, and the extent of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectPage {
    /// The memory object.
    pub object: u32,
    /// The number of the base page in the object. Pages that are aligned in virtual memory have
    /// aligned numbers (FreeBSD's `pg_color` serves this purpose), so an object need not begin with
    /// page 0.
    pub index: u64,
    /// The first page of the object. If it is 0, a reservation may begin before the object's first
    /// page.
    pub first: u64,
    /// The page after the last page of the object.
    pub end: u64,
    /// Whether the object may grow, so that a reservation may extend beyond its end.
    pub grows: bool,
    /// The nearest page of the object below `index` that has a frame.
    pub before: Option<Neighbor>,
    /// The nearest page of the object above `index` that has a frame.
    pub after: Option<Neighbor>,
}

/// A page of an object that has a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// The number of the page.
    pub index: u64,
    /// The frame of the page.
    pub frame: FrameId,
}
