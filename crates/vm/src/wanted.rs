//! The NUMA node and cache colour requested for frames of base pages.

use physmem::{Color, Home, Rather, Request, State};

/// The requirements of an operation for the frames of base pages that it
/// allocates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) home: Option<Home>,
    pub(crate) color: Option<Color>,
    pub(crate) rather: Rather,
}

impl Wanted {
    /// No requirement, as long as the operation has not set one for a page.
    pub(crate) const ANY: Wanted = Wanted { home: None, color: None, rather: Rather::Near };

    /// A request for a base page of `2^order` frames.
    pub(crate) fn request(self, order: u32) -> Request {
        let Wanted { home: node, color, rather } = self;
        Request { node, color, rather, ..Request::new(order, State::Movable) }
    }
}
