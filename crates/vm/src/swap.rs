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
        if let Some(slot) = self.freed.pop() {
            return Some(slot);
        }
        let slot = Slot(self.fresh);
        (self.fresh < self.slots).then(|| self.fresh += 1).map(|()| slot)
    }

    /// What was there is needed no more.
    pub(crate) fn free(&mut self, slot: Slot) {
        self.freed.push(slot);
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
