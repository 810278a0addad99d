//! Swap: places on a disk for pages that have no file.

use alloc::vec::Vec;

/// A place in swap for one page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// All places, free and in use. The place that was freed last is used next, except that pages
/// evicted together get adjacent places, as long as there are places that were never used.
#[derive(Debug)]
pub(crate) struct Swap {
    slots: u32,
    /// The first place that was never used.
    fresh: u32,
    freed: Vec<Slot>,
    /// The group that was charged for each place. Places beyond the end of the list were charged to
    /// group 0.
    groups: Vec<u8>,
}

impl Swap {
    /// Swap with room for `slots` pages.
    pub(crate) fn new(slots: u32) -> Swap {
        Swap { slots, fresh: 0, freed: Vec::new(), groups: Vec::new() }
    }

    /// Allocates a place, if one is free. If `in_row` is true, it is the place after the last
    /// allocated one, if possible. `group` is charged for the place.
    pub(crate) fn take(&mut self, in_row: bool, group: u8) -> Option<Slot> {
        if self.room() == 0 {
            return None;
        }
        // There is room for all places in use, so that no place is lost when it is freed.
        let all = self.fresh as usize + 1;
        self.freed.try_reserve(all - self.freed.len()).ok()?;
        if group > 0 || !self.groups.is_empty() {
            self.groups.try_reserve(all.saturating_sub(self.groups.len())).ok()?;
        }
        let is_fresh = in_row && self.fresh < self.slots;
        let freed = if is_fresh { None } else { self.freed.pop() };
        let slot = freed.unwrap_or_else(|| {
            self.fresh += 1;
            Slot(self.fresh - 1)
        });
        let place = slot.0 as usize;
        if group > 0 || place < self.groups.len() {
            self.groups.resize(self.groups.len().max(place + 1), 0);
            self.groups[place] = group;
        }
        Some(slot)
    }

    /// Frees a place. Returns the group that was charged for it.
    pub(crate) fn free(&mut self, slot: Slot) -> u8 {
        self.freed.push(slot);
        self.groups.get(slot.0 as usize).copied().unwrap_or(0)
    }

    /// Sets the number of places, which is at least the number in use.
    pub(crate) fn set_slots(&mut self, slots: u32) {
        self.slots = slots;
    }

    /// The number of places in use.
    pub(crate) fn used(&self) -> u64 {
        u64::from(self.fresh) - self.freed.len() as u64
    }

    /// The number of free places.
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.slots) - self.used()
    }
}
