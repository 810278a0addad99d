//! Frames that hold zeros.

use alloc::collections::BTreeMap;

use physmem::FrameId;

/// Frames of zeros.
#[derive(Default)]
pub(crate) struct Zeros {
    pub(crate) by_area: BTreeMap<u64, FrameId>,
    pub(crate) huge: Option<FrameId>,
    /// log2 of the frames of each, by the first.
    pub(crate) orders: BTreeMap<u32, u32>,
}

impl Zeros {
    /// Whether a frame is one of them.
    pub(crate) fn has(&self, frame: FrameId) -> bool {
        let before = self.orders.range(..=frame.0).next_back();
        before.is_some_and(|(&first, &order)| u64::from(frame.0) < u64::from(first) + (1 << order))
    }
}
