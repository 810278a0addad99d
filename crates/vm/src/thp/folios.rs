//! Frames that were taken together, and which of them nobody maps.

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
    /// Those with frames that nobody maps, in the order in which that came to be.
    pub(crate) deferred: VecDeque<u32>,
    /// Frames that nobody maps.
    pub(crate) held: u64,
    /// Folios that were split.
    pub(crate) split: u64,
}

pub(crate) struct Folio {
    /// log2 of its frames.
    pub(crate) order: u32,
    /// Frames of base pages that nobody maps.
    pub(crate) unmapped: Vec<FrameId>,
}

/// What becomes of a frame that nobody maps any more.
pub(crate) enum Fate {
    /// It is free.
    Free,
    /// It stays with its folio.
    Held,
    /// With it all of its folio is free: from this frame on, so many as log2.
    Whole(FrameId, u32),
}

impl Folios {
    /// The folio that `frame` is part of, by its first frame.
    pub(crate) fn of(&self, frame: FrameId) -> Option<u32> {
        let (&first, folio) = self.by_first.range(..=frame.0).next_back()?;
        let end = u64::from(first) + (1 << folio.order);
        (u64::from(frame.0) < end).then_some(first)
    }

    /// The frames of the folio that `frame` is part of.
    pub(crate) fn frames_around(&self, frame: FrameId) -> Option<Range<u32>> {
        let first = self.of(frame)?;
        let order = self.by_first.get(&first)?.order;
        Some(first..first + (1 << order))
    }

    /// Nobody maps `frame` any more, which is `2^step` frames.
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

    /// The folio of a frame is one no more: gives its frames that are free now.
    pub(crate) fn take(&mut self, first: u32) -> Vec<FrameId> {
        let Some(folio) = self.by_first.remove(&first) else { return Vec::new() };
        self.held -= folio.unmapped.len() as u64;
        if !folio.unmapped.is_empty() {
            self.deferred.retain(|other| *other != first);
        }
        folio.unmapped
    }
}

/// A frame that is in a folio and that nobody maps has no owner.
pub(crate) fn disown(pfdat: &mut Pfdat) {
    pfdat.identity = Identity::default();
    pfdat.flags = 0;
}
