//! What a memory manager asks an allocator of frames for.

use crate::frame::{FrameId, State};

/// What a memory manager asks an allocator for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// log2 of how many base frames: contiguous, and aligned to their number.
    pub order: u32,
    /// What they will be used for; some allocators keep movable and other frames apart.
    pub state: State,
    /// The node that they should come from, and whether another node will do.
    pub node: Option<Home>,
    /// The cache colour that the first of them should have. It is a wish: frames of another
    /// colour are given rather than none.
    pub color: Option<Color>,
    /// What gives way where the wished node has no frame of that colour.
    pub rather: Rather,
    /// The page of an object that a base frame is for, if the frame may come from a reservation.
    pub place: Option<ObjectPage>,
    /// The first of the frames that are wished: these or none. Allocators that place regions heed it.
    pub near: Option<FrameId>,
}

/// What matters most of frames that have a wished colour and a wished node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rather {
    /// The node: a frame of another colour there, before one of another node.
    #[default]
    Near,
    /// The colour: a frame of it from another node, before one of another colour.
    Colored,
    /// The colour, and nothing else will do.
    ColoredOnly,
}

/// A NUMA node that frames should come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// Its number.
    pub node: u8,
    /// Whether frames of another node are refused.
    pub strict: bool,
}

impl Request {
    /// A request for `2^order` frames from anywhere.
    pub const fn new(order: u32, state: State) -> Request {
        let (node, color, place, near) = (None, None, None, None);
        Request { order, state, node, color, rather: Rather::Near, place, near }
    }

    /// Whether frames of another colour will do.
    pub(crate) fn takes_any_color(&self) -> bool {
        self.color.is_none() || self.rather != Rather::ColoredOnly
    }
}

/// A cache colour: frames whose number leaves the remainder `value` when it is divided by `of`
/// fall into the same sets of a physically indexed cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Color {
    /// The remainder.
    pub value: u32,
    /// How many colours there are.
    pub of: u32,
}

impl Color {
    /// The first frame of this colour among the `2^order` from `block` that is aligned to `2^wanted`.
    pub(crate) fn within(self, block: FrameId, order: u32, wanted: u32) -> Option<FrameId> {
        let behind = block.0.checked_rem(self.of)?;
        let distance = u64::from((self.value % self.of + self.of - behind) % self.of);
        // Colours come round after `of` frames, and alignments of a colour after at most `2^wanted` rounds.
        let rounds = (0..1u64 << wanted).map(|round| distance + round * u64::from(self.of));
        let inside = rounds.take_while(|distance| *distance < 1 << order);
        let mut frames = inside.map(|distance| FrameId(block.0 + distance as u32));
        frames.find(|frame| frame.0.trailing_zeros() >= wanted)
    }
}

/// The page of a memory object that a frame is for, and how far the object reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectPage {
    /// The memory object.
    pub object: u32,
    /// The base page of it, numbered so that pages which are aligned in virtual memory have
    /// aligned numbers (what FreeBSD's `pg_color` is for): an object need not begin with 0.
    pub index: u64,
    /// Its first page. One that a reservation may reach before begins with 0.
    pub first: u64,
    /// The page behind its last one.
    pub end: u64,
    /// Whether a reservation may reach beyond the object's end, which the object may grow to.
    pub grows: bool,
    /// The nearest page of the object below `index` that has a frame.
    pub before: Option<Neighbor>,
    /// The nearest one above.
    pub after: Option<Neighbor>,
}

/// A page of an object that has a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// Which page.
    pub index: u64,
    /// Its frame.
    pub frame: FrameId,
}
