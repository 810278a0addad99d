//! Swap: places on a disk for pages that have no file.

use alloc::vec::Vec;

/// A page's place in swap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// All places, free and in use. The one that was freed last is used next; but pages that leave side by
/// side get places side by side, as long as there are some that were never used.
#[derive(Debug)]
pub(crate) struct Swap {
    slots: u32,
    /// Those from here on were never used.
    fresh: u32,
    freed: Vec<Slot>,
}

impl Swap {
    /// Room for `slots` pages.
    pub(crate) fn new(slots: u32) -> Swap {
        Swap { slots, fresh: 0, freed: Vec::new() }
    }

    /// A place, if there is one; `in_row`: behind the one that was taken last, if that can be.
    pub(crate) fn take(&mut self, in_row: bool) -> Option<Slot> {
        if self.room() == 0 {
            return None;
        }
        let is_fresh = in_row && self.fresh < self.slots;
        let freed = if is_fresh { None } else { self.freed.pop() };
        Some(freed.unwrap_or_else(|| {
            self.fresh += 1;
            Slot(self.fresh - 1)
        }))
    }

    /// What was there is needed no more.
    pub(crate) fn free(&mut self, slot: Slot) {
        self.freed.push(slot);
    }

    /// There is room for `slots` pages from here on, at least as many as are in use.
    pub(crate) fn set_slots(&mut self, slots: u32) {
        self.slots = slots;
    }

    /// Places in use.
    pub(crate) fn used(&self) -> u64 {
        u64::from(self.fresh) - self.freed.len() as u64
    }

    /// Places that are free.
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.slots) - self.used()
    }
}
