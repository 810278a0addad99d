//! Groups of processes with limits of memory and swap: Linux's memory cgroups (`mm/memcontrol.c`,
//! `mm/swap_cgroup.c`).
//!
//! ```text
//!   page comes in for a space --> charged to the group of the space, whoever uses it later
//!     |   over max:   pages of the group leave first; none can: an OOM event, and it is charged all the same
//!     |   over high:  pages of the group leave before the fault returns
//!     v
//!   lists of pages by group --> each group's own order of eviction; when all of memory is scarce, the group
//!                               with most pages gives the next
//! ```
//!
//! Spaces that are in no group are in group 0, which has no limits. Page tables are not charged.

use alloc::{boxed::Box, vec, vec::Vec};

use physmem::FrameId;

use crate::replacement::Replacement;

/// The limits of a group, in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The largest number of pages in memory (`memory.max`).
    pub max: u64,
    /// The number of pages in memory above which pages are evicted at each fault (`memory.high`).
    pub high: u64,
    /// The largest number of pages in swap (`memory.swap.max`).
    pub swap_max: u64,
}

impl Limits {
    /// No limit.
    pub const NONE: Limits = Limits { max: u64::MAX, high: u64::MAX, swap_max: u64::MAX };
}

/// A group's use of memory in base pages, and its events. If the kernel has a counter for a field,
/// the field has the kernel's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupCounts {
    /// Pages in memory (`memory.current`).
    pub current: u64,
    /// The largest number of pages in memory so far (`memory.peak`).
    pub peak: u64,
    /// Pages in swap (`memory.swap.current`).
    pub swap_current: u64,
    /// The number of times that the group was over `memory.high`.
    pub high: u64,
    /// The number of times that the group would have been over `memory.max`.
    pub max: u64,
    /// The number of times that the group would have exceeded its maximum and none of its pages
    /// could be evicted.
    pub oom: u64,
    /// Pages evicted because of the group's limits.
    pub pgsteal: u64,
    /// Pages read from swap.
    pub pswpin: u64,
    /// Pages written to swap.
    pub pswpout: u64,
}

/// The groups.
pub(crate) struct Groups {
    /// The group of the page in each frame.
    of_frame: Vec<u8>,
    pub(crate) all: Vec<Group>,
}

pub(crate) struct Group {
    pub(crate) limits: Limits,
    policy: Box<dyn Replacement>,
    pub(crate) counts: GroupCounts,
}

impl Groups {
    pub(crate) fn new(
        limits: &[Limits],
        frames: usize,
        policy: impl Fn() -> Box<dyn Replacement>,
    ) -> Groups {
        let group = |limits: &Limits| Group {
            limits: *limits,
            policy: policy(),
            counts: GroupCounts::default(),
        };
        let all = [Limits::NONE].iter().chain(limits).map(group).collect();
        Groups { of_frame: vec![0; frames], all }
    }

    fn set(&mut self, frame: FrameId, group: u8) {
        let place = frame.0 as usize;
        if place >= self.of_frame.len() {
            self.of_frame.resize(place + 1, 0);
        }
        self.of_frame[place] = group;
    }

    /// The lists with the page in `frame`.
    pub(crate) fn policy_of(&mut self, frame: FrameId) -> &mut dyn Replacement {
        let group = self.of(frame);
        self.all[usize::from(group)].policy.as_mut()
    }

    /// The lists of `group` or, if it is `None`, of the group with the most pages.
    pub(crate) fn policy_for(&mut self, group: Option<u8>) -> &mut dyn Replacement {
        let group = group.map_or_else(
            || {
                let most = self.all.iter().enumerate().max_by_key(|(_, of)| of.policy.pages());
                most.map_or(0, |(group, _)| group)
            },
            usize::from,
        );
        self.all[group].policy.as_mut()
    }

    pub(crate) fn each_policy(&mut self) -> impl Iterator<Item = &mut Box<dyn Replacement>> {
        self.all.iter_mut().map(|group| &mut group.policy)
    }

    pub(crate) fn pages(&self, group: Option<u8>) -> u64 {
        match group {
            Some(group) => self.all[usize::from(group)].policy.pages(),
            None => self.all.iter().map(|group| group.policy.pages()).sum(),
        }
    }

    pub(crate) fn counts(&mut self, group: u8) -> &mut GroupCounts {
        &mut self.all[usize::from(group)].counts
    }

    pub(crate) fn charge(&mut self, frame: FrameId, group: u8) {
        self.set(frame, group);
        let counts = self.counts(group);
        counts.current += 1;
        counts.peak = counts.peak.max(counts.current);
    }

    pub(crate) fn uncharge(&mut self, frame: FrameId) {
        let group = self.of(frame);
        self.counts(group).current -= 1;
    }

    /// Records that the page in `from` is in `to` now.
    pub(crate) fn moved(&mut self, from: FrameId, to: FrameId) {
        self.set(to, self.of(from));
    }

    pub(crate) fn of(&self, frame: FrameId) -> u8 {
        self.of_frame.get(frame.0 as usize).copied().unwrap_or(0)
    }

    /// Whether a page of `group` may be written to swap. If so, the page is counted as one in swap.
    pub(crate) fn takes_swap(&mut self, group: u8) -> bool {
        let Group { limits, counts, .. } = &mut self.all[usize::from(group)];
        let may = counts.swap_current < limits.swap_max;
        if may {
            counts.swap_current += 1;
            counts.pswpout += 1;
        }
        may
    }

    /// Records that a page of `group` is no longer in swap. `is_read` is true if the reason is that
    /// it was read.
    pub(crate) fn left_swap(&mut self, group: u8, is_read: bool) {
        let counts = self.counts(group);
        counts.swap_current -= 1;
        counts.pswpin += u64::from(is_read);
    }

    /// Whether `group` may get `pages` more pages.
    pub(crate) fn has_room(&self, group: u8, pages: u64) -> bool {
        let Group { limits, counts, .. } = &self.all[usize::from(group)];
        counts.current.saturating_add(pages) <= limits.max
    }
}
