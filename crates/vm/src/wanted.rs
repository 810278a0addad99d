//! From which node of memory, and of which cache colour, frames of base pages should be.

use physmem::{Color, Home, Rather, Request, State};

/// What is wanted of the frames of base pages that an operation takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) home: Option<Home>,
    pub(crate) color: Option<Color>,
    pub(crate) rather: Rather,
}

impl Wanted {
    /// Of a kernel that has not been told of a page yet.
    pub(crate) const ANY: Wanted = Wanted { home: None, color: None, rather: Rather::Near };

    /// A request for a base page of `2^order` frames.
    pub(crate) fn request(self, order: u32) -> Request {
        let Wanted { home: node, color, rather } = self;
        Request { node, color, rather, ..Request::new(order, State::Movable) }
    }
}
