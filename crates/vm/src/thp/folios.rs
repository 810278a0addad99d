//! Folios: frames that were allocated together, and which of them are unmapped.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::ops::Range;

use physmem::{FrameId, Identity, Pfdat};

use super::stats::Stats;

/// The folios of several base frames.
#[derive(Default)]
pub(crate) struct Folios {
    pub(crate) by_first: BTreeMap<u32, Folio>,
    /// The folios with unmapped frames, in the order in which they got their first unmapped frame.
    pub(crate) deferred: VecDeque<u32>,
    /// The number of unmapped frames in folios.
    pub(crate) held: u64,
    /// The number of folios that were split.
    pub(crate) split: u64,
    /// Counts by size.
    pub(crate) stats: Stats,
}

pub(crate) struct Folio {
    /// log2 of the number of the folio's frames.
    pub(crate) order: u32,
    /// The unmapped frames of base pages.
    pub(crate) unmapped: Vec<FrameId>,
    /// Whether the frames belong to a pool, so that the folio is never split.
    pub(crate) reserved: bool,
}

/// The treatment of a frame that becomes unmapped.
pub(crate) enum Fate {
    /// The frame becomes free.
    Free,
    /// The frame remains in its folio.
    Held,
    /// All frames of its folio are unmapped and become free. The elements are the folio's first
    /// frame, log2 of its number of frames, and whether they belong to a pool.
    Whole(FrameId, u32, bool),
}

impl Folios {
    /// Records the frames of a block of a pool.
    pub(crate) fn enter_reserved(&mut self, first: FrameId, order: u32) {
        self.by_first.insert(first.0, Folio { order, unmapped: Vec::new(), reserved: true });
    }

    /// Whether a frame belongs to a folio that is never split.
    pub(crate) fn is_reserved(&self, frame: FrameId) -> bool {
        let folio = self.of(frame).and_then(|first| self.by_first.get(&first));
        folio.is_some_and(|folio| folio.reserved)
    }

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
        let is_reserved = folio.reserved;
        if count == 1 && !folio.reserved {
            self.stats.entry(order).or_default().split_deferred += 1;
            self.deferred.push_back(first);
        }
        if count < 1 << (order - step) {
            return Fate::Held;
        }
        self.by_first.remove(&first);
        self.held -= count;
        // The last element is tested first, because a process usually unmaps memory in order.
        if self.deferred.back() == Some(&first) {
            self.deferred.pop_back();
        } else if !is_reserved {
            self.deferred.retain(|other| *other != first);
        }
        Fate::Whole(FrameId(first), order, is_reserved)
    }

    /// Splits a folio and returns its unmapped frames, which are now free.
    pub(crate) fn split(&mut self, first: u32) -> Vec<FrameId> {
        self.split += 1;
        if let Some(folio) = self.by_first.get(&first) {
            self.stats.entry(folio.order).or_default().split += 1;
        }
        self.take(first)
    }

    /// Removes a folio and returns its unmapped frames, which are now free.
    fn take(&mut self, first: u32) -> Vec<FrameId> {
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
