//! Charges to groups of processes, and evictions where a group has reached a limit ([`crate::groups`]).

use alloc::vec::Vec;

use hat::{
    HatSpace,
    locking::{Mutex, Site},
};

use crate::{
    error::Error,
    groups::{Group, GroupCounts},
    host::Host,
    kernel::Kernel,
    reclaim::BATCH,
    vm::Vm,
};

impl<L: hat::locking::Locks> Vm<L> {
    /// The counts of each group; the first element is for spaces that are in no group. Empty if
    /// there are no groups.
    pub fn groups(&self) -> Vec<GroupCounts> {
        self.pages.with(Site::Look, |lists| {
            let groups = lists.groups.iter().flat_map(|groups| &groups.all);
            groups.map(|group| group.counts).collect()
        })
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Puts a space into the group with this number, from 1. Pages that the space already has stay
    /// charged to its previous group.
    pub fn set_group(&mut self, space: HatSpace, group: u8) -> Result<(), Error> {
        self.site = Site::Call;
        let groups = self.lists(|lists, _| lists.groups.as_ref().map_or(0, |of| of.all.len()));
        self.within(space, |_, at| {
            at.known.group = if usize::from(group) < groups { group } else { 0 };
            Ok(())
        })
    }

    /// Records that a page is no longer in swap. `group` was charged for its place there.
    pub(crate) fn left_swap(&self, group: u8, is_read: bool) {
        if self.vm.has_groups {
            self.lists(|lists, _| {
                if let Some(groups) = &mut lists.groups {
                    groups.left_swap(group, is_read);
                }
            });
        }
    }

    /// Whether the limit of the current group leaves room for `pages` more pages. If not, the event
    /// is counted.
    pub(crate) fn fits_limit(&mut self, pages: u64) -> bool {
        if !self.vm.has_groups || self.exempt {
            return true;
        }
        let group = self.group;
        self.lists(|lists, _| {
            let Some(groups) = &mut lists.groups else { return true };
            let fits = groups.has_room(group, pages);
            if !fits {
                groups.counts(group).max += 1;
            }
            fits
        })
    }

    /// Evicts pages of the current group, which has reached its limit. If no page can be evicted, an OOM event
    /// is counted, and the next page is charged nevertheless.
    pub(crate) fn make_room_in_group(&mut self) {
        self.over_limit = false;
        let group = self.group;
        let gone = self.pages_move(|kernel| kernel.reclaim_from(BATCH, Some(group)));
        self.lists(|lists, _| {
            let Some(groups) = &mut lists.groups else { return };
            groups.counts(group).pgsteal += gone;
            groups.counts(group).oom += u64::from(gone == 0);
        });
        self.exempt = gone == 0;
    }

    /// Evicts pages of the current group while it is over `memory.high` (`mem_cgroup_handle_over_high`).
    pub(crate) fn keep_below_high(&mut self) {
        let group = self.group;
        self.exempt = false;
        let over = |kernel: &Self| {
            kernel.lists(|lists, _| {
                let groups = lists.groups.as_ref()?;
                let Group { limits, counts, .. } = &groups.all[usize::from(group)];
                Some(counts.current.saturating_sub(limits.high)).filter(|&over| over > 0)
            })
        };
        if over(self).is_none() {
            return;
        }
        self.lists(|lists, _| lists.groups.as_mut().map(|of| of.counts(group).high += 1));
        while let Some(over) = over(self) {
            let gone = self.pages_move(|kernel| kernel.reclaim_from(over.max(BATCH), Some(group)));
            self.lists(|lists, _| lists.groups.as_mut().map(|of| of.counts(group).pgsteal += gone));
            if gone == 0 {
                return;
            }
        }
    }
}
