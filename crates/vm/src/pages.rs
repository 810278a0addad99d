//! The lists that pages leave memory by, and how many pages of which kind are in it.

use alloc::{boxed::Box, collections::BTreeMap};

use core::ops::Range;
use physmem::FrameId;

use crate::{
    replacement::Replacement,
    settings::Resident,
    thp::{Compaction, Folios, Progress, Promoting, Ranged, Zeros},
};

/// What is known of the pages in memory but for what their descriptors say.
pub(crate) struct PageLists {
    pub(crate) policy: Box<dyn Replacement>,
    pub(crate) resident: Resident,
    /// Large pages that were unloaded to see whether they are used: their first frame, and log2 of
    /// their base frames.
    pub(crate) idle: BTreeMap<u32, u32>,
    /// Pages of spaces that are wired.
    pub(crate) wired: u64,
    /// Frames that were taken together, where that matters.
    pub(crate) folios: Folios,
    /// Where `khugepaged` is.
    pub(crate) khugepaged: Progress,
    /// What chooses blocks in its place.
    pub(crate) promoting: Promoting,
    /// Where compaction is.
    pub(crate) compaction: Compaction,
    /// Frames of zeros.
    pub(crate) zeros: Zeros,
    /// What the daemon has done that moves pages side by side.
    pub(crate) ranged: Ranged,
}

impl PageLists {
    pub(crate) fn new(policy: Box<dyn Replacement>) -> PageLists {
        PageLists {
            policy,
            resident: Resident::default(),
            idle: BTreeMap::new(),
            wired: 0,
            folios: Folios::default(),
            khugepaged: Progress::default(),
            promoting: Promoting::default(),
            compaction: Compaction::default(),
            zeros: Zeros::default(),
            ranged: Ranged::default(),
        }
    }

    /// The frames of the idle large page that `frame` is part of.
    pub(crate) fn idle_page(&self, frame: FrameId) -> Option<Range<u32>> {
        let (&first, &order) = self.idle.range(..=frame.0).next_back()?;
        let frames = first..first + (1 << order);
        frames.contains(&frame.0).then_some(frames)
    }
}
