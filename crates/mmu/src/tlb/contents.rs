//! The contents and counts of a TLB, for code outside it.

use addr::{Asid, Kind, Page, VirtAddr, VirtRange};

use super::{
    Array, Evicted, Tlb, TlbCounts, TlbEntry, entry::add, flush::SEARCHED_MAX, retire, sizes,
};
use crate::AnyReplacement;

/// The content of a slot, as seen from one space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occupant {
    /// Nothing.
    Nothing,
    /// An entry that is not valid in the space.
    Other,
    /// An entry for this page of the space.
    Page(Page),
}

/// The contents of a TLB in replacement order, from which a caller can compute later evictions.
/// Hits do not change this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Occupants {
    /// The contents of all slots, set after set: for [`crate::Random`] in the order of the slots; for
    /// [`crate::Fifo`] in the order of insertion, with empty slots last.
    pub slots: Vec<Occupant>,
    /// The current seed of the sequence that [`crate::Random`] draws from; 0 for other policies.
    pub sequence: u64,
}

impl Tlb {
    /// The contents as seen from the space `asid`. From them, a caller can compute all later
    /// evictions as long as nothing is flushed. `None` if this is impossible: if the policy learns
    /// from hits, if there are several arrays or entries for several pages, or if an entry is
    /// global.
    pub fn occupants(&self, asid: Asid) -> Option<Occupants> {
        let [Array { sets, .. }] = &self.arrays[..] else { return None };
        if self.paired || self.blocks.is_some() || !self.going.is_empty() {
            return None;
        }
        let policy = self.policy.borrow();
        let (fifo, sequence) = if let AnyReplacement::Fifo(fifo) = policy.only()? {
            (Some(fifo), 0)
        } else if let AnyReplacement::Random(random) = policy.only()? {
            (None, random.rest())
        } else {
            return None;
        };
        let mut found = Vec::with_capacity(self.slots.len());
        for set in 0..sets.sets() {
            let occupied = sets.slots(set).filter(|&slot| !self.slots[slot].is_empty());
            let slots = match fifo {
                Some(fifo) => fifo.in_order(occupied),
                None => sets.slots(set).collect(),
            };
            let all = slots.len();
            for entry in slots.into_iter().map(|slot| &self.slots[slot]) {
                found.push(match entry.is_empty() {
                    true => Occupant::Nothing,
                    false if entry.is_global() => return None,
                    false if entry.asid() == asid => Occupant::Page(entry.page(false)),
                    false => Occupant::Other,
                });
            }
            found.extend(core::iter::repeat_n(Occupant::Nothing, sets.ways() - all));
        }
        Some(Occupants { slots: found, sequence })
    }

    /// Reports the hits of all entries that were hit; the entries stay. It is called at the end of
    /// a run, or before labels change their meaning.
    pub fn drain(&mut self, evicted: &mut impl FnMut(Evicted)) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.is_empty() {
                continue;
            }
            slot.add_hits(self.shortcuts.take(index).hits);
            if slot.hits.iter().any(|&hits| hits != 0) {
                retire(&mut self.retired, slot, self.paired, evicted);
            }
        }
    }

    /// The entry that translates `va` in `asid`, and its label; nothing is counted or changed.
    pub fn peek(&self, va: VirtAddr, asid: Asid) -> Option<(TlbEntry, u32)> {
        let slot = self.search(va, asid)?;
        Some((self.entry_at(slot, va), self.slots[slot].label()))
    }

    /// All entries with their labels, in the order of the slots; an entry for a block is given once
    /// for each of its pages.
    pub fn entries(&self) -> impl Iterator<Item = (TlbEntry, u32)> {
        let there = |slot: &usize| !self.slots[*slot].is_empty();
        (0..self.slots.len()).filter(there).flat_map(move |slot| {
            let (first, bits) = match self.blocks {
                None => (self.slots[slot].page(self.paired), 1),
                Some(_) => (self.slots[slot].page(false), self.slots[slot].bits()),
            };
            let pages = (0..u64::BITS - bits.leading_zeros()).filter(move |at| bits >> at & 1 == 1);
            let start =
                move |at: u32| first.start().wrapping_add(u64::from(at) << first.size().shift());
            pages.map(move |at| (self.entry_at(slot, start(at)), self.slots[slot].label()))
        })
    }

    /// The entries that may translate an address of `range` in `asid`, with their labels. In a
    /// range of few pages, each page is searched for, which takes a time that does not depend on
    /// the number of entries. For a longer range, all entries that serve `asid` are returned.
    pub fn entries_for(&self, range: VirtRange, asid: Asid) -> Vec<(TlbEntry, u32)> {
        let pages = range.pages(self.smallest);
        if pages.clone().nth(SEARCHED_MAX).is_some() {
            return self
                .entries()
                .filter(|(entry, _)| entry.global || entry.asid == asid)
                .collect();
        }
        let each =
            pages.flat_map(|page| sizes(self.live_sizes).map(move |size| (page.start(), size)));
        let found = each.filter_map(|(va, size)| Some((va, self.slot_for(va, size, asid)?)));
        found.map(|(va, slot)| (self.entry_at(slot, va), self.slots[slot].label())).collect()
    }

    /// The entry in `slot`; for a block, the entry of the page at `va`.
    fn entry_at(&self, slot: usize, va: VirtAddr) -> TlbEntry {
        let entry = &self.slots[slot];
        if self.blocks.is_none() {
            return entry.entry(self.paired);
        }
        let hit = self.hit_at(slot, va);
        TlbEntry::single(va.page(hit.size), hit.frame(), entry.asid(), hit.global, hit.rights)
    }

    /// The counts so far.
    pub fn counts(&self) -> TlbCounts {
        let mut counts = TlbCounts { misses: self.misses, ..self.retired };
        for hits in self.slots.iter().map(|slot| slot.hits).chain([self.shortcuts.hits()]) {
            add(&mut counts.hits, hits);
        }
        counts
    }

    /// The number of entries that entries of other pages have replaced so far.
    pub fn counts_of_evictions(&self) -> u64 {
        self.retired.evictions
    }

    /// Resets the counts to zero; the entries stay.
    pub fn forget_counts(&mut self) {
        // Resets the hits that are counted in entries and shortcuts.
        self.drain(&mut |_| {});
        let Tlb {
            space: _,
            is_mixed: _,
            shortcuts: _,
            smallest: _,
            slots: _,
            learns: _,
            policy: _,
            ahead: _,
            going: _,
            paired: _,
            has_small_sets: _,
            is_apart: _,
            tag_shifts: _,
            blocks: _,
            was_used: _,
            misses,
            absent: _,
            arrays: _,
            array_of: _,
            live: _,
            live_sizes: _,
            only: _,
            retired,
        } = self;
        *misses = [0; Kind::COUNT];
        *retired = TlbCounts::default();
    }
}
