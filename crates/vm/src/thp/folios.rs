//! Folios: frames that were allocated together, and which of them are unmapped.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::ops::Range;

use physmem::{FrameId, Identity, Pfdat};

/// The folios of several base frames.
#[derive(Default)]
pub(crate) struct Folios {
    pub(crate) by_first: BTreeMap<u32, Folio>,
    /// The folios with unmapped frames, in the order in which they got them.
    pub(crate) deferred: VecDeque<u32>,
    /// The number of unmapped frames in folios.
    pub(crate) held: u64,
    /// The number of folios that were split.
    pub(crate) split: u64,
}

pub(crate) struct Folio {
    /// log2 of the number of the folio's frames.
    pub(crate) order: u32,
    /// The unmapped frames of base pages.
    pub(crate) unmapped: Vec<FrameId>,
}

/// What happens to a frame that becomes unmapped.
pub(crate) enum Fate {
    /// The frame becomes free.
    Free,
    /// The frame remains in its folio.
    Held,
    /// All frames of its folio are unmapped and become free: the folio's first frame, and log2 of
    /// its number of frames.
    Whole(FrameId, u32),
}

impl Folios {
    /// The folio that contains `frame`, as the number of its first frame.
    pub(crate) fn of(&self, frame: FrameId) -> Option<u32> {
        let (&first, folio) = self.by_first.range(..=frame.0).next_back()?;
        let end = u64::from(first) + (1 << folio.order);
        (u64::from(frame.0) < end).then_some(first)
    }

    /// The frames of the folio that contains `frame`.
    pub(crate) fn frames_around(&self, frame: FrameId) -> Option<Range<u32>> {
        let first = self.of(frame)?;
        let order = self.by_first.get(&first)?.order;
        Some(first..first + (1 << order))
    }

    /// Records that the `2^step` frames from `frame` are unmapped.
    pub(crate) fn unmapped(&mut self, frame: FrameId, step: u32) -> Fate {
        if self.by_first.is_empty() {
            return Fate::Free;
        }
        let Some(first) = self.of(frame) else { return Fate::Free };
        let Some(folio) = self.by_first.get_mut(&first) else { return Fate::Free };
        folio.unmapped.push(frame);
        self.held += 1;
        let (count, order) = (folio.unmapped.len() as u64, folio.order);
        if count == 1 {
            self.deferred.push_back(first);
        }
        if count < 1 << (order - step) {
            return Fate::Held;
        }
        self.by_first.remove(&first);
        self.held -= count;
        // Those at the ends are found first: a process gives memory back in order.
        if self.deferred.back() == Some(&first) {
            self.deferred.pop_back();
        } else {
            self.deferred.retain(|other| *other != first);
        }
        Fate::Whole(FrameId(first), order)
    }

    /// Removes a folio and returns its unmapped frames, which are now free.
    pub(crate) fn take(&mut self, first: u32) -> Vec<FrameId> {
        let Some(folio) = self.by_first.remove(&first) else { return Vec::new() };
        self.held -= folio.unmapped.len() as u64;
        if !folio.unmapped.is_empty() {
            self.deferred.retain(|other| *other != first);
        }
        folio.unmapped
    }
}

/// Removes the owner from the descriptor of an unmapped frame in a folio.
pub(crate) fn disown(pfdat: &mut Pfdat) {
    pfdat.identity = Identity::default();
    pfdat.flags = 0;
}
