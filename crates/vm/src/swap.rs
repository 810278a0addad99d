//! Swap: places on a disk for pages that have no file.

use alloc::vec::Vec;

/// A page's place in swap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// All places, free and in use. The one that was freed last is used next.
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

    /// A place, if there is one.
    pub(crate) fn take(&mut self) -> Option<Slot> {
        if self.room() == 0 {
            return None;
        }
        Some(self.freed.pop().unwrap_or_else(|| {
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
