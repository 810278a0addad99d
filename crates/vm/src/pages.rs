//! The lists from which pages to evict are chosen, and counts of pages by kind.

use alloc::boxed::Box;

use core::ops::{Range, RangeInclusive};
use physmem::{Allocator, FrameId, FrameTable, Physmem};

use crate::{
    groups::Groups,
    pins::Pins,
    replacement::Replacement,
    runs::Given,
    settings::Resident,
    sorted::SortedMap,
    thp::{Compaction, Folios, Pools, Progress, Promoting, Ranged, Zeros},
};

/// Data about pages in memory, in addition to their descriptors.
pub(crate) struct PageLists {
    pub(crate) policy: Box<dyn Replacement>,
    pub(crate) resident: Resident,
    /// Idle large pages, which are unloaded, so that a fault shows whether they are used. For each
    /// of them, by its first frame, log2 of its number of base frames.
    pub(crate) idle: SortedMap<u32, u32>,
    /// The number of wired pages of all spaces.
    pub(crate) wired: u64,
    /// Frames that were allocated together, if Linux's folios are modelled.
    pub(crate) folios: Folios,
    /// The state of `khugepaged`.
    pub(crate) khugepaged: Progress,
    /// The state of the policy that chooses blocks in place of `khugepaged`.
    pub(crate) promoting: Promoting,
    /// The state of compaction.
    pub(crate) compaction: Compaction,
    /// The frames of zeros.
    pub(crate) zeros: Zeros,
    /// Groups of processes, each with its own lists in place of `policy`; `None` if there are none.
    pub(crate) groups: Option<Box<Groups>>,
    /// Pools of reserved large pages.
    pub(crate) pools: Pools,
    /// Counts of the daemon that moves pages to adjacent frames.
    pub(crate) ranged: Ranged,
    /// Frames that were given to regions, and pinned frames.
    pub(crate) given: Given,
    pub(crate) pins: Pins,
}

impl PageLists {
    pub(crate) fn new(policy: Box<dyn Replacement>) -> PageLists {
        PageLists {
            policy,
            resident: Resident::default(),
            idle: SortedMap::new(),
            wired: 0,
            folios: Folios::default(),
            khugepaged: Progress::default(),
            promoting: Promoting::default(),
            compaction: Compaction::default(),
            zeros: Zeros::default(),
            groups: None,
            pools: Pools::default(),
            ranged: Ranged::default(),
            given: Given::default(),
            pins: Pins::default(),
        }
    }

    /// Wires the page in `frame` once more, so that it is in no list.
    pub(crate) fn wire<A: Allocator>(&mut self, memory: &mut Physmem<A>, frame: FrameId) {
        if memory.table().get(frame).wired == 0 {
            self.leave(memory.allocator_mut().1, frame);
        }
        memory.wire(frame);
        self.wired += 1;
    }

    /// Unwires the page in `frame` once. When the page is no longer wired, it is entered into a
    /// list again.
    pub(crate) fn unwire<A: Allocator>(&mut self, memory: &mut Physmem<A>, frame: FrameId) {
        memory.unwire(frame);
        self.wired -= 1;
        if memory.table().get(frame).wired == 0 {
            self.enter(memory.allocator_mut().1, frame);
        }
    }

    /// Adds the page in `frame` to the list of its replacement policy.
    #[inline]
    pub(crate) fn enter(&mut self, table: &mut FrameTable, frame: FrameId) {
        match &mut self.groups {
            None => self.policy.enter(table, frame),
            Some(groups) => groups.policy_of(frame).enter(table, frame),
        }
    }

    /// Removes the page in `frame` from its list.
    #[inline]
    pub(crate) fn leave(&mut self, table: &mut FrameTable, frame: FrameId) {
        match &mut self.groups {
            None => self.policy.leave(table, frame),
            Some(groups) => groups.policy_of(frame).leave(table, frame),
        }
    }

    /// The number of pages in the lists of a group, or in all lists.
    pub(crate) fn listed(&self, group: Option<u8>) -> u64 {
        match &self.groups {
            None => self.policy.pages(),
            Some(groups) => groups.pages(group),
        }
    }

    /// Records that pages of an object cease to exist. None of them is in memory.
    pub(crate) fn forget(&mut self, object: u32, indices: RangeInclusive<u64>) {
        match &mut self.groups {
            None => self.policy.forget(object, indices),
            Some(groups) => {
                groups.each_policy().for_each(|policy| policy.forget(object, indices.clone()));
            }
        }
    }

    /// The frames of the idle large page that contains `frame`.
    pub(crate) fn idle_page(&self, frame: FrameId) -> Option<Range<u32>> {
        let (first, &order) = self.idle.up_to(&frame.0)?;
        let frames = first..first + (1 << order);
        frames.contains(&frame.0).then_some(frames)
    }
}
