//! Which space has which slot, and which space loses its slot.

use alloc::{collections::BTreeMap, vec::Vec};

use super::Schedule;
use crate::HatSpace;

/// The number of switches per slot between two halvings of the counts.
const SWITCHES_A_SLOT: u64 = 64;

/// The slots of all spaces, or of one group.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    schedule: Schedule,
    owners: Vec<Option<HatSpace>>,
    /// For each space, with or without a slot, the time of the last switch to it and the number of
    /// recent switches to it.
    used: BTreeMap<HatSpace, Used>,
    switches: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    last: u64,
    often: u64,
}

impl Slots {
    pub(super) fn new(schedule: Schedule, slots: u16) -> Slots {
        let owners = alloc::vec![None; usize::from(slots)];
        Slots { schedule, owners, used: BTreeMap::new(), switches: 0 }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<HatSpace> {
        self.owners[usize::from(slot)]
    }

    pub(super) fn is_free(&self, slot: u16) -> bool {
        self.owner(slot).is_none()
    }

    pub(super) fn put(&mut self, slot: u16, space: HatSpace) {
        self.owners[usize::from(slot)] = Some(space);
    }

    pub(super) fn free(&mut self, slot: u16) {
        self.owners[usize::from(slot)] = None;
    }

    /// Records a switch to `space`.
    pub(super) fn entered(&mut self, space: HatSpace) {
        self.switches += 1;
        let used = self.used.entry(space).or_default();
        used.last = self.switches;
        used.often += 1;
        if self.switches.is_multiple_of(SWITCHES_A_SLOT * self.owners.len() as u64) {
            self.used.values_mut().for_each(|used| used.often /= 2);
            self.used.retain(|_, used| used.often > 0);
        }
    }

    /// A slot for `space`: a free slot, or the slot of a space for which `stays` is false.
    pub(super) fn choose(&self, space: HatSpace, stays: impl Fn(HatSpace) -> bool) -> Option<u16> {
        if let Some(free) = self.owners.iter().position(Option::is_none) {
            return Some(free as u16);
        }
        let used = |of: HatSpace| self.used.get(&of).copied().unwrap_or_default();
        let taken = self.owners.iter().enumerate();
        let taken = taken.filter_map(|(slot, owner)| Some((slot as u16, (*owner)?)));
        let leaving = taken.filter(|(_, owner)| !stays(*owner));
        match self.schedule {
            Schedule::FirstCome => None,
            Schedule::Lru => {
                leaving.min_by_key(|(_, owner)| used(*owner).last).map(|(slot, _)| slot)
            }
            Schedule::Frequent => {
                let (slot, owner) = leaving.min_by_key(|(_, owner)| used(*owner).often)?;
                (used(space).often >= 2 * used(owner).often.max(1)).then_some(slot)
            }
        }
    }
}
