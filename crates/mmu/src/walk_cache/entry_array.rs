//! Page-table entries tagged by their physical address: the array of page-table caches.
//!
//! ```text
//!   tag: address of the entry / 8  |  data: the table that it leads to
//! ```

use addr::Asid;
use pagetable::{Leads, Node, Reference};

use super::{Held, WalkArray, WalkCacheParams};
use crate::{AnyReplacement, FromTable, GeometryError, SetArray};

/// One array of a page-table cache.
#[derive(Clone, Debug)]
pub(super) struct EntryArray {
    sets: SetArray,
    slots: Box<[Option<(u64, Node)>]>,
    policy: AnyReplacement,
    entry_shift: u8,
    /// For each level: the slot in which an entry was last found or inserted. Consecutive walks often
    /// need the same entries of the upper levels.
    latest: [u32; LEVELS],
}

/// The number of elements of `latest`: a power of two. Higher levels share elements.
const LEVELS: usize = 8;

impl EntryArray {
    pub(super) fn new(
        array: WalkArray,
        params: &WalkCacheParams,
    ) -> Result<EntryArray, (WalkArray, GeometryError)> {
        let sets = SetArray::new(array.entries.into(), array.ways).map_err(|e| (array, e))?;
        let ways_of_sets = core::iter::repeat_n(sets.ways(), sets.sets());
        Ok(EntryArray {
            slots: vec![None; sets.entries()].into_boxed_slice(),
            policy: AnyReplacement::new(params.replacement, ways_of_sets, params.seed),
            sets,
            entry_shift: params.tree.entry_shift,
            latest: [0; LEVELS],
        })
    }

    /// Looks for the entry that `reference` reads. If it is absent and leads to a table, it is
    /// inserted.
    #[inline]
    pub(super) fn read(&mut self, asid: Asid, reference: &Reference) -> Held {
        let key = reference.addr.get() >> self.entry_shift;
        let latest = &mut self.latest[usize::from(reference.level) % LEVELS];
        let set = self.sets.set_of(key);
        let holds = |slot: usize| self.slots[slot].is_some_and(|held| held.0 == key);
        let found = match *latest as usize {
            slot if holds(slot) => Some(slot),
            _ => self.sets.find(set, key, holds),
        };
        if let Some(slot) = found {
            *latest = slot as u32;
            self.policy.touched(slot);
            return match self.slots[slot] {
                Some((_, node)) if !leads_to(reference, node) => Held::Stale(node),
                _ => Held::Here,
            };
        }
        if let Some(node) = reference.next() {
            let slot = match self.sets.empty_slot(set) {
                Some(slot) => slot,
                None => self.policy.victim(self.sets.slots(set)),
            };
            *latest = slot as u32;
            self.slots[slot] = Some((key, node));
            self.sets.occupy(set, slot, key);
            let from = FromTable { level: reference.level, host: asid == Asid::HOST };
            self.policy.inserted_at(slot, from);
        }
        Held::Absent
    }

    /// Removes all entries: their tags do not say for which virtual addresses they are used.
    pub(super) fn clear(&mut self) {
        self.sets.clear();
        for (slot, held) in self.slots.iter_mut().enumerate() {
            if held.take().is_some() {
                self.policy.removed(slot);
            }
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = Node> {
        self.slots.iter().flatten().map(|(_, node)| *node)
    }
}

/// Whether the entry that `reference` has read leads to `node`, for the walk's address or, if its
/// guard does not match, for other addresses.
#[inline]
fn leads_to(reference: &Reference, node: Node) -> bool {
    match reference.leads {
        Leads::To(other) | Leads::Elsewhere(other) => other == node,
        Leads::Nowhere => false,
    }
}
