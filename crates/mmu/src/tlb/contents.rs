//! What a TLB holds and has counted, for whoever looks at it from outside.

use addr::{Asid, Kind, VirtAddr};

use super::{Evicted, Tlb, TlbCounts, TlbEntry, entry::add, retire};

impl Tlb {
    /// Hands out the hits of the entries that have some, and keeps the entries: at the end of a
    /// run, or before labels change their meaning.
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

    /// What translates `va` in `asid`, and its label, without counting or touching anything.
    pub fn peek(&self, va: VirtAddr, asid: Asid) -> Option<(TlbEntry, u32)> {
        let slot = self.search(va, asid)?;
        Some((self.entry_at(slot, va), self.slots[slot].label()))
    }

    /// All entries with their labels, in the order of the slots; of a block one for each page.
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

    /// The entry in `slot`; of a block the page at `va`.
    fn entry_at(&self, slot: usize, va: VirtAddr) -> TlbEntry {
        let entry = &self.slots[slot];
        if self.blocks.is_none() {
            return entry.entry(self.paired);
        }
        let hit = self.hit_at(slot, va);
        TlbEntry::single(va.page(hit.size), hit.frame(), entry.asid(), hit.global, hit.rights)
    }

    /// What has been counted so far.
    pub fn counts(&self) -> TlbCounts {
        let mut counts = TlbCounts { misses: self.misses, ..self.retired };
        for hits in self.slots.iter().map(|slot| slot.hits).chain([self.shortcuts.hits()]) {
            add(&mut counts.hits, hits);
        }
        counts
    }

    /// Entries that made room for another page's, so far.
    pub fn counts_of_evictions(&self) -> u64 {
        self.retired.evictions
    }

    /// Begins to count anew; the entries stay.
    pub fn forget_counts(&mut self) {
        self.drain(&mut |_| {});
        self.misses = [0; Kind::COUNT];
        self.retired = TlbCounts::default();
    }
}
