//! Flushes of a TLB: of a page, of a range, of a space, or of all entries.

use addr::{Asid, PageSize, VirtAddr, VirtRange};

use super::{Evicted, Tlb, entry::Slot, sizes};

/// For a range of at most this many of the smallest pages, each page is searched for; for a longer
/// range, all slots are examined.
pub(super) const SEARCHED_MAX: usize = 8;

impl Tlb {
    /// Removes the entries that translate `va` in `asid`, whatever their page size, including
    /// global entries and both pages of a pair. Returns their number.
    pub fn flush_page(
        &mut self,
        va: VirtAddr,
        asid: Asid,
        evicted: &mut impl FnMut(Evicted),
    ) -> u64 {
        let mut flushed = 0;
        for size in sizes(self.live_sizes) {
            while let Some(slot) = self.slot_for(va, size, asid) {
                self.flush_slot(slot, evicted);
                flushed += 1;
            }
        }
        flushed
    }

    /// The slot of an entry of pages of `size` that translates `va` in `asid`; for a pair, the slot
    /// may translate only the other page of the pair.
    pub(super) fn slot_for(&self, va: VirtAddr, size: PageSize, asid: Asid) -> Option<usize> {
        let number = self.number(va, size);
        let array = usize::from(self.array_of[size.shift() as usize]?);
        let set = self.arrays[array].sets.set_of(number);
        let serves = |slot: &Slot| slot.serves(asid) && (self.blocks.is_none() || slot.has(va));
        self.find_tagged(array, set, size, number, serves)
    }

    /// Removes the entries that translate any address of `range` in `asid`, as [`Tlb::flush_page`]
    /// does. Returns their number.
    pub fn flush_range(
        &mut self,
        range: VirtRange,
        asid: Asid,
        evicted: &mut impl FnMut(Evicted),
    ) -> u64 {
        let pages = range.pages(self.smallest);
        if pages.clone().nth(SEARCHED_MAX).is_none() {
            return pages.map(|page| self.flush_page(page.start(), asid, evicted)).sum();
        }
        let (paired, has_bits) = (self.paired, self.blocks.is_some());
        let is_in = |slot: &Slot| match has_bits {
            true => slot.translates_some_of(range),
            false => slot.touches(range, paired),
        };
        self.flush_where(|slot| slot.serves(asid) && is_in(slot), evicted)
    }

    /// Removes every entry of `asid` that is not global. Returns their number.
    pub fn flush_asid(&mut self, asid: Asid, evicted: &mut impl FnMut(Evicted)) -> u64 {
        self.flush_where(|slot| !slot.is_global() && slot.asid() == asid, evicted)
    }

    /// Removes every entry that is not global. Returns their number.
    pub fn flush_non_global(&mut self, evicted: &mut impl FnMut(Evicted)) -> u64 {
        self.flush_where(|slot| !slot.is_global(), evicted)
    }

    /// Removes every entry. Returns their number.
    pub fn flush_all(&mut self, evicted: &mut impl FnMut(Evicted)) -> u64 {
        self.flush_where(|_| true, evicted)
    }

    fn flush_where(
        &mut self,
        mut goes: impl FnMut(&Slot) -> bool,
        evicted: &mut impl FnMut(Evicted),
    ) -> u64 {
        let mut flushed = 0;
        for slot in 0..self.slots.len() {
            if !self.slots[slot].is_empty() && goes(&self.slots[slot]) {
                self.flush_slot(slot, evicted);
                flushed += 1;
            }
        }
        flushed
    }

    fn flush_slot(&mut self, slot: usize, evicted: &mut impl FnMut(Evicted)) {
        self.remove(slot, evicted);
        self.retired.flushed += 1;
    }
}
