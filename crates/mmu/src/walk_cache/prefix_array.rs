//! Tables tagged by the prefix of the virtual addresses for which they are valid: the array of
//! translation caches.
//!
//! ```text
//!   tag: ASID, va >> shift, shift  |  data: the table      the longest prefix that fits wins
//! ```
//!
//! Prefixes can have any length, which suits guarded tables as well as trees whose levels have
//! fixed prefixes. In a guarded table, a node on the path of every address has an empty prefix (a
//! shift of 64). Only lengths that occur in the array are searched for.

use addr::{Asid, VirtAddr, VirtRange};
use pagetable::Node;

use super::{WalkArray, WalkCacheParams};
use crate::{AnyReplacement, FromTable, GeometryError, SetArray};

/// One array of a translation cache.
#[derive(Clone, Debug)]
pub(super) struct PrefixArray {
    sets: SetArray,
    slots: Box<[Option<Prefixed>]>,
    policy: AnyReplacement,
    /// For each shift, the number of entries with this shift.
    live: Box<[u32; SHIFTS]>,
    /// A bit mask of the shifts that occur.
    live_shifts: u128,
}

/// The number of shifts, which are 0 to 64.
const SHIFTS: usize = 65;

/// A table, and the addresses for which it is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prefixed {
    prefix: u64,
    asid: Asid,
    node: Node,
}

impl PrefixArray {
    pub(super) fn new(
        array: WalkArray,
        params: &WalkCacheParams,
    ) -> Result<PrefixArray, (WalkArray, GeometryError)> {
        let sets = SetArray::new(array.entries.into(), array.ways).map_err(|e| (array, e))?;
        let ways_of_sets = core::iter::repeat_n(sets.ways(), sets.sets());
        Ok(PrefixArray {
            slots: vec![None; sets.entries()].into_boxed_slice(),
            policy: AnyReplacement::new(params.replacement, ways_of_sets, params.seed),
            sets,
            live: Box::new([0; SHIFTS]),
            live_shifts: 0,
        })
    }

    /// The table with the longest prefix of `va`, which then counts as used.
    #[inline]
    pub(super) fn longest(&mut self, va: VirtAddr, asid: Asid) -> Option<Node> {
        let mut shifts = self.live_shifts;
        while shifts != 0 {
            let shift = shifts.trailing_zeros() as u8;
            if let Some(slot) = self.find(va, asid, shift) {
                self.policy.touched(slot);
                return self.slots[slot].map(|held| held.node);
            }
            shifts &= shifts - 1;
        }
        None
    }

    /// Inserts `node`, which was read from a table of `level` on the path to `va`. The array does
    /// not hold this node yet.
    #[inline]
    pub(super) fn insert(&mut self, va: VirtAddr, asid: Asid, node: Node, level: u8) {
        debug_assert_eq!(self.find(va, asid, node.shift), None, "it would be here twice");
        let prefix = node.prefix(va);
        let set = self.sets.set_of(prefix);
        let slot = match self.sets.empty_slot(set) {
            Some(slot) => slot,
            None => self.policy.victim(self.sets.slots(set)),
        };
        let new = Prefixed { prefix, asid, node };
        if let Some(old) = self.slots[slot].replace(new) {
            self.count_out(old.node.shift);
        }
        self.live[usize::from(node.shift)] += 1;
        self.live_shifts |= 1 << node.shift;
        self.sets.occupy(set, slot, prefix);
        self.policy.inserted_at(slot, FromTable { level, host: asid == Asid::HOST });
    }

    /// Removes the tables that are valid for an address of `range` in `asid`.
    pub(super) fn flush_range(&mut self, range: VirtRange, asid: Asid) {
        let (first, last) = (range.start(), range.last());
        self.flush_where(|held| {
            let prefixes = held.node.prefix(first)..=held.node.prefix(last);
            held.asid == asid && prefixes.contains(&held.prefix)
        });
    }

    /// Removes the tables that are valid in `asid`.
    pub(super) fn flush_asid(&mut self, asid: Asid) {
        self.flush_where(|held| held.asid == asid);
    }

    /// Removes all entries except those that are valid for a host.
    pub(super) fn clear(&mut self) {
        self.flush_where(|held| held.asid != Asid::HOST);
    }

    /// Removes the pages that overlap `range` in `asid`; tables stay.
    pub(super) fn flush_pages(&mut self, range: VirtRange, asid: Asid) {
        let (first, last) = (range.start(), range.last());
        self.flush_where(|held| {
            let prefixes = held.node.prefix(first)..=held.node.prefix(last);
            held.node.level == 0 && held.asid == asid && prefixes.contains(&held.prefix)
        });
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = Node> {
        self.slots.iter().flatten().map(|held| held.node)
    }

    #[inline]
    fn find(&self, va: VirtAddr, asid: Asid, shift: u8) -> Option<usize> {
        let prefix = va.get().checked_shr(shift.into()).unwrap_or(0);
        self.sets.find(self.sets.set_of(prefix), prefix, |slot| {
            self.slots[slot].is_some_and(|held| {
                held.prefix == prefix && held.node.shift == shift && held.asid == asid
            })
        })
    }

    fn flush_where(&mut self, goes: impl Fn(&Prefixed) -> bool) {
        for slot in 0..self.slots.len() {
            if let Some(held) = self.slots[slot].filter(&goes) {
                self.slots[slot] = None;
                self.sets.vacate(slot);
                self.policy.removed(slot);
                self.count_out(held.node.shift);
            }
        }
    }

    #[inline]
    fn count_out(&mut self, shift: u8) {
        let live = &mut self.live[usize::from(shift)];
        *live -= 1;
        if *live == 0 {
            self.live_shifts &= !(1 << shift);
        }
    }
}
