//! Frames of zeros.

use alloc::collections::BTreeMap;

use physmem::FrameId;

/// The frames of zeros.
#[derive(Default)]
pub(crate) struct Zeros {
    pub(crate) by_area: BTreeMap<u64, FrameId>,
    pub(crate) huge: Option<FrameId>,
    /// For each frame of zeros, by its first base frame, log2 of its number of base frames.
    pub(crate) orders: BTreeMap<u32, u32>,
}

impl Zeros {
    /// Whether a frame is a frame of zeros.
    pub(crate) fn has(&self, frame: FrameId) -> bool {
        let before = self.orders.range(..=frame.0).next_back();
        before.is_some_and(|(&first, &order)| u64::from(frame.0) < u64::from(first) + (1 << order))
    }
}
