//! Insertion of entries into a TLB, and the replacements that it causes.
//!
//! ```text
//!   entry --> are all entries of its size, was its tag just looked for in vain, is its set full?
//!               | yes: replace                        | no: fill_any
//!               v                                     v
//!            the policy's victim goes              the entry of the same tag goes, or a slot is
//!                                                  empty, or the policy's victim goes
//! ```
//!
//! If misses are frequent, nearly every insertion is of the first kind. An insertion of this kind
//! does not search for the tag. It does not update the counts of entries per page size either,
//! because they do not change.

use core::ops::Range;

use addr::{Kind, Page, Rights};

use super::{
    Ahead, Array, OnlySize, Tlb,
    entry::{Evicted, Slot, TlbEntry, add},
};
use crate::{BlockParams, TlbCounts};

impl Tlb {
    /// Inserts `entry` with `label`, and reports the entry that was removed for it: an entry with
    /// an equal tag or, if the set is full, the policy's victim. Returns whether the TLB can hold
    /// pages of this size; if it cannot, nothing is changed. `kind` is the access that caused the
    /// insertion; it affects only the speed of later lookups.
    // Inlined whatever its size, because passing an entry in memory would double the cost.
    #[inline(always)]
    pub fn fill(
        &mut self,
        entry: &TlbEntry,
        label: u32,
        kind: Kind,
        evicted: &mut impl FnMut(Evicted),
    ) -> bool {
        match self.only {
            Some(only) if self.is_replaced(only, entry) => {
                self.replace(only, entry, label, kind, evicted);
                true
            }
            _ => self.fill_any(entry, label, kind, evicted),
        }
    }

    /// The implementation of [`Tlb::fill`] without any assumption about the state.
    #[inline(never)]
    fn fill_any(
        &mut self,
        entry: &TlbEntry,
        label: u32,
        kind: Kind,
        evicted: &mut impl FnMut(Evicted),
    ) -> bool {
        let size = entry.page.size();
        let Some(array) = self.array_of[size.shift() as usize] else { return false };
        self.is_mixed |= entry.asid != self.space;
        if entry.frames[0].is_none() && (!self.paired || entry.frames[1].is_none()) {
            return false;
        }
        if let (Some(blocks), true) = (self.blocks(), size == self.smallest) {
            let mut pages = [None; BlockParams::PAGES_MAX as usize];
            let index = entry.page.number() & u64::from(blocks.pages - 1);
            pages[index as usize] = entry.frames[0].map(|frame| (frame, entry.rights[0]));
            let (pages, whose) = (&pages[..blocks.pages as usize], (entry.asid, entry.global));
            return self.fill_block(entry.page, whose, pages, label, kind, evicted);
        }
        let array = array as usize;
        let number = self.number(entry.page.start(), size);
        let set = self.arrays[array].sets.set_of(number);
        let slot = self.make_room(entry, array, set, number, evicted);
        self.absent = None;
        let new = Slot::new(entry, label, self.paired);
        self.slots[slot] = if self.blocks.is_some() { new.of_one_page() } else { new };
        self.filled(slot, (entry.page, entry.rights[0]), (array, set, number), kind);
        true
    }

    /// Completes the insertion into `slot` for an access of `kind` to a page with these rights.
    #[inline(always)]
    pub(super) fn filled(
        &mut self,
        slot: usize,
        (page, rights): (Page, Rights),
        (array, set, number): (usize, usize, u64),
        kind: Kind,
    ) {
        let Array { sets, first } = &mut self.arrays[array];
        sets.occupy(set, slot - *first, number);
        self.policy.get_mut().inserted(slot);
        self.note_live(slot);
        self.retired.fills += 1;
        if !self.shortcuts.are_kept() {
            return;
        }
        if self.live_sizes >> page.size().shift() > 1 {
            self.distrust_shortcuts(page);
        }
        self.link_new((page, rights), kind, slot);
    }

    /// Makes a shortcut to `slot`, if a shortcut is worthwhile. The slot got an entry for an access
    /// of `kind` to a page with these rights.
    #[inline]
    fn link_new(&mut self, (page, rights): (Page, Rights), kind: Kind, slot: usize) {
        let is_worth_it = self.was_used && !self.is_apart && !self.paired;
        if is_worth_it
            && rights.allows(kind)
            && self.slots[slot].serves(self.space)
            && self.shortcuts.are_for(page)
        {
            self.link(page.start(), kind, slot);
        }
    }

    /// Whether the last lookup was for the page of `entry`, which has the size of `only`, and found no
    /// entry with its tag, and its set is full.
    #[inline(always)]
    fn is_replaced(&self, only: OnlySize, entry: &TlbEntry) -> bool {
        let sets = &self.arrays[only.array as usize].sets;
        u32::from(only.shift) == entry.page.size().shift()
            && self.is_absent(entry)
            && sets.is_full(sets.set_of(entry.page.start().get() >> only.shift))
            && entry.frames[0].is_some()
    }

    /// The implementation of [`Tlb::fill_any`] for the case that [`Tlb::is_replaced`] is true: the
    /// policy's victim is replaced, and the number of entries of each size does not change.
    #[inline(always)]
    fn replace(
        &mut self,
        only: OnlySize,
        entry: &TlbEntry,
        label: u32,
        kind: Kind,
        evicted: &mut impl FnMut(Evicted),
    ) {
        let number = entry.page.start().get() >> only.shift;
        let Array { sets, first } = &self.arrays[only.array as usize];
        let (set, first) = (sets.set_of(number), *first);
        let Range { start, end } = sets.slots(set);
        let victim = self.replaced(first + start..first + end);
        let are_kept = self.shortcuts.are_kept();
        if are_kept {
            self.crowd(victim, false);
            if self.shortcuts.lead_to(victim) {
                let forgotten = self.shortcuts.forget(victim);
                self.slots[victim].add_hits(forgotten.hits);
            }
        }
        let slot = &mut self.slots[victim];
        self.was_used = slot.hits != [0; Kind::COUNT];
        if self.was_used {
            retire(&mut self.retired, slot, false, evicted);
        } else {
            evicted(Evicted { hits: [0; Kind::COUNT], ..slot.take_hits(false) });
        }
        *slot = Slot::new(entry, label, false);
        self.absent = None;
        self.arrays[only.array as usize].sets.exchange(set, victim - first, number);
        self.retired.evictions += 1;
        self.retired.fills += 1;
        if are_kept {
            self.crowd(victim, true);
            self.link_new((entry.page, entry.rights[0]), kind, victim);
        }
    }

    /// Chooses the victim among a set's `slots`, which are all in use, and reports to the policy
    /// that the victim's slot immediately gets a new entry.
    #[inline(always)]
    pub(super) fn replaced(&mut self, slots: Range<usize>) -> usize {
        if self.ahead == Ahead::No && self.going.is_empty() {
            return self.policy.get_mut().replaced(slots);
        }
        let victim = self.victim(slots);
        self.policy.get_mut().inserted(victim);
        victim
    }

    /// Empties a slot for `entry`, and removes all entries whose tags a lookup could not
    /// distinguish from the tag of `entry`.
    fn make_room(
        &mut self,
        entry: &TlbEntry,
        array: usize,
        set: usize,
        number: u64,
        evicted: &mut impl FnMut(Evicted),
    ) -> usize {
        if !self.is_absent(entry)
            && let Some(slot) = self.remove_tagged(entry, array, set, number, evicted)
        {
            return slot;
        }
        self.free_slot(array, set, evicted)
    }

    /// An empty slot of a set, which is made by a replacement if necessary.
    pub(super) fn free_slot(
        &mut self,
        array: usize,
        set: usize,
        evicted: &mut impl FnMut(Evicted),
    ) -> usize {
        let Array { sets, first } = &self.arrays[array];
        if let Some(slot) = sets.empty_slot(set) {
            return first + slot;
        }
        let slots = sets.slots(set);
        let slots = first + slots.start..first + slots.end;
        let victim = self.victim(slots);
        self.retire(victim, evicted);
        self.retired.evictions += 1;
        victim
    }

    /// Chooses the victim among a set's `slots`, which are all in use.
    fn victim(&mut self, slots: Range<usize>) -> usize {
        if let Some(going) = self.going_of(&slots) {
            return going;
        }
        match self.ahead {
            Ahead::No => self.policy.get_mut().victim(slots),
            Ahead::Now => {
                self.ahead = Ahead::Before;
                self.policy.get_mut().victim_used(slots, |slot| self.shortcuts.last_used(slot))
            }
            Ahead::Before => {
                self.catch_up();
                self.policy.get_mut().victim(slots)
            }
        }
    }

    /// The first of a set's `slots` that [`Tlb::hits`] marked as the next victim; the mark is
    /// removed.
    #[inline]
    fn going_of(&mut self, slots: &Range<usize>) -> Option<usize> {
        let at = self.going.iter().position(|slot| slots.contains(slot))?;
        self.going.remove(at)
    }

    /// Reports to the policy all hits that the shortcuts have recorded. This is worthwhile if
    /// several misses follow each other without a span between them, because victims can then be
    /// chosen without reading the shortcuts.
    #[cold]
    #[inline(never)]
    fn catch_up(&mut self) {
        for slot in 0..self.slots.len() {
            self.policy.get_mut().touched_at(slot, self.shortcuts.last_used(slot));
        }
        self.ahead = Ahead::No;
    }

    /// Whether the last lookup established that no entry has the tag of `entry`. A global entry could be
    /// found in any space; the lookup in one space is sufficient only if no other space has entries.
    #[inline]
    fn is_absent(&self, entry: &TlbEntry) -> bool {
        self.absent.is_some_and(|(va, asid)| {
            let is_own = !entry.global || !self.is_mixed;
            asid == entry.asid && va.page(entry.page.size()) == entry.page && is_own
        })
    }

    /// Removes the entries that have the tag of `entry`. Returns the first of their slots.
    #[cold]
    #[inline(never)]
    fn remove_tagged(
        &mut self,
        entry: &TlbEntry,
        array: usize,
        set: usize,
        number: u64,
        evicted: &mut impl FnMut(Evicted),
    ) -> Option<usize> {
        let mut first = None;
        while let Some(slot) = self.find_tagged(array, set, entry.page.size(), number, |slot| {
            entry.global || slot.serves(entry.asid)
        }) {
            self.remove(slot, evicted);
            first = first.or(Some(slot));
        }
        first
    }

    /// Reports the hits of the entry in `slot`; the slot is about to be emptied or reused.
    #[inline(always)]
    pub(super) fn retire(&mut self, slot: usize, evicted: &mut impl FnMut(Evicted)) {
        let size = self.slots[slot].size();
        if self.shortcuts.are_kept() {
            self.crowd(slot, false);
            let forgotten = self.shortcuts.forget(slot);
            self.slots[slot].add_hits(forgotten.hits);
        }
        self.was_used = self.slots[slot].hits != [0; Kind::COUNT];
        retire(&mut self.retired, &mut self.slots[slot], self.paired, evicted);
        let live = &mut self.live[size.shift() as usize];
        *live -= 1;
        if *live == 0 {
            self.live_sizes &= !(1 << size.shift());
            self.note_only();
        }
    }

    /// Records that the entry in `slot` was inserted or, if `is_there` is false, removed.
    #[inline]
    pub(super) fn crowd(&mut self, slot: usize, is_there: bool) {
        let slot = &self.slots[slot];
        self.shortcuts.crowd(slot.page(self.paired), slot.bytes(), is_there);
    }

    pub(super) fn note_live(&mut self, slot: usize) {
        let size = self.slots[slot].size();
        self.crowd(slot, true);
        self.live[size.shift() as usize] += 1;
        if self.live_sizes >> size.shift() & 1 == 0 {
            self.live_sizes |= 1 << size.shift();
            self.note_only();
        }
    }

    /// Updates the record of whether all entries are of one size.
    fn note_only(&mut self) {
        let shift = self.live_sizes.trailing_zeros();
        let is_plain = self.live_sizes.is_power_of_two() && !self.paired && self.blocks.is_none();
        let array = if is_plain { self.array_of[shift as usize % 64] } else { None };
        self.only = array.map(|array| OnlySize { shift: shift as u8, array });
    }
}

/// Reports the hits of the entry in `slot` since its last report.
#[inline]
pub(super) fn retire(
    retired: &mut TlbCounts,
    slot: &mut Slot,
    paired: bool,
    evicted: &mut impl FnMut(Evicted),
) {
    let gone = slot.take_hits(paired);
    add(&mut retired.hits, gone.hits);
    evicted(gone);
}
