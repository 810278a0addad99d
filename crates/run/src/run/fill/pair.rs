//! TLBs that hold a pair of pages under one tag, and the other page of a pair.

use addr::{Kind, PhysAddr, Rights, VirtAddr};
use hardware::tlbs::Unit;
use mmu::{Evicted, TlbEntry};
use results::count::census::Census;

use super::Incoming;
use crate::run::{Run, dirty::without_dirt};

impl Incoming {
    /// The TLB entry that holds both pages.
    fn both(&self) -> TlbEntry {
        let mut entry = self.entry;
        let odd = (entry.page.number() & 1) as usize;
        entry.frames[odd] = self.entry.frames[0];
        entry.frames[1 - odd] = self.other.map(|(frame, _)| frame);
        entry.rights[1 - odd] = self.other.map_or(Rights::NONE, |(_, rights)| rights);
        entry
    }
}

impl Run {
    /// Frame and rights of the other page of the pair; `None` if no TLB holds pairs or the page is
    /// not mapped.
    #[cold]
    pub(super) fn neighbour(&self, entry: &TlbEntry) -> Option<(PhysAddr, Rights)> {
        if !self.around.has_pairs {
            return None;
        }
        let page = entry.page;
        let neighbour = VirtAddr::new(page.start().get() ^ page.size().bytes());
        let other = self.stack.query(self.who.space, neighbour)?;
        let mut rights = other.rights;
        if self.constants.tracks_dirty {
            rights = without_dirt(&self.stack.guest, self.who, neighbour, rights);
        }
        (other.page.size() == page.size()).then_some((other.frame, rights))
    }
}

/// Fills a TLB that holds pairs.
#[inline(never)]
pub(super) fn fill(
    unit: &mut Unit,
    census: &mut Census,
    kind: Kind,
    incoming: &Incoming,
    label: u32,
) {
    let Unit { level, tlb, counts, .. } = unit;
    // If the TLB has an entry for this pair already, the entry is replaced, and no other entry is
    // evicted.
    let entry = incoming.both();
    let even = VirtAddr::new(entry.page.start().get() & !entry.page.size().bytes());
    let tag = (even.page(entry.page.size()), entry.asid);
    let is_first = *level == 1;
    tlb.fill(&entry, label, kind, &mut |evicted: Evicted| {
        counts.evictions += u64::from((evicted.page, evicted.asid) != tag);
        census.collect(counts, is_first, &evicted);
    });
}
