//! TLBs whose entries describe a block of pages.

use addr::{Kind, PhysAddr, Rights, VirtAddr};
use hardware::{processor::Processor, tlbs::Unit};
use mmu::{BlockKind, BlockParams, Evicted, TlbEntry};
use results::count::census::Census;
use vm::Hashed;

use super::{Around, Incoming};
use crate::run::{Run, dirty::without_dirt};

impl Around {
    /// The frames and rights of the pages in the block of `entry`, taken from the known pages
    /// around the page of `entry`.
    fn part(&self, blocks: BlockParams, entry: &TlbEntry) -> &[Option<(PhysAddr, Rights)>] {
        let pages = blocks.pages as usize;
        let at = entry.page.number() as usize & (self.known.len().max(1) - 1);
        self.known.get(at / pages * pages..(at / pages + 1) * pages).unwrap_or(&[])
    }
}

impl Run {
    /// Collects the pages that a refill can enter besides the missing page, if the refill reads all
    /// page-table entries of a block. These are pages that the TLB entry could hold. If hardware
    /// sets accessed bits, their accessed bits must be set. Returns whether some TLB has entries
    /// for blocks.
    #[cold]
    pub(super) fn look_around(&mut self, entry: &TlbEntry) -> bool {
        let pages = self.around.block_pages;
        if pages == 0 {
            return false;
        }
        let mut around = std::mem::take(&mut self.around.known);
        let size = entry.page.size();
        let first = entry.page.start().get() & !(pages as u64 * size.bytes() - 1);
        around.clear();
        around.extend((0..pages as u64).map(|at| {
            let va = VirtAddr::new(first + at * size.bytes());
            if va == entry.page.start() {
                return entry.frames[0].map(|frame| (frame, entry.rights[0]));
            }
            let known = self.stack.guest.mapping(self.who.space, va)?;
            if self.constants.marks && !known.usage.referenced {
                return None;
            }
            let page = self.stack.query(self.who.space, va)?;
            let mut rights = page.rights;
            if self.constants.tracks_dirty {
                rights = without_dirt(&self.stack.guest, self.who, va, rights);
            }
            (page.page.size() == size && page.global == entry.global)
                .then_some((page.frame, rights))
        }));
        self.around.known = around;
        true
    }

    /// Collects the pages of the block around `linear` that the TLB `second` holds. Returns whether
    /// some TLB has entries for blocks.
    #[cold]
    pub(super) fn copy_block(&mut self, second: usize, linear: VirtAddr) -> bool {
        let Run { processors, around, .. } = self;
        if around.block_pages == 0 {
            return false;
        }
        let Processor { hardware, asid, .. } = &processors.here;
        let Around { block_pages, known, .. } = around;
        hardware.units[second].tlb.block_around(linear, *asid, *block_pages, known);
        true
    }

    /// Fills a TLB that has entries for blocks.
    #[inline(never)]
    pub(super) fn fill_block(
        &mut self,
        index: usize,
        blocks: BlockParams,
        kind: Kind,
        incoming: &Incoming,
        label: u32,
    ) {
        if blocks.kind == BlockKind::Mosaic {
            return self.fill_mosaic(index, blocks, kind, incoming, label);
        }
        let Run { processors, seen, around, .. } = self;
        let unit = &mut processors.here.hardware.units[index];
        let known = if incoming.has_block { around.part(blocks, &incoming.entry) } else { &[] };
        fill(unit, &mut seen.census, kind, &incoming.entry, known, label);
    }

    /// Fills a TLB whose entries hold pages with frames that the hashes of their addresses allow (Mosaic). A
    /// page in another frame gets an entry of its own.
    #[cold]
    fn fill_mosaic(
        &mut self,
        index: usize,
        blocks: BlockParams,
        kind: Kind,
        incoming: &Incoming,
        label: u32,
    ) {
        let entry = &incoming.entry;
        let known = if incoming.has_block { self.around.part(blocks, entry) } else { &[] };
        let (page, mut pages) = (entry.page, known.to_vec());
        let own = page.number() as usize & (blocks.pages as usize - 1);
        let first = page.start().get() - own as u64 * page.size().bytes();
        let is_alone = |frame| !self.is_hashed(page.start(), frame);
        let is_alone = entry.frames[0].is_some_and(is_alone);
        for (at, known) in pages.iter_mut().enumerate().filter(|(at, _)| *at != own) {
            let va = VirtAddr::new(first + at as u64 * page.size().bytes());
            *known = known.filter(|(frame, _)| !is_alone && self.is_hashed(va, *frame));
        }
        let Run { processors, seen, .. } = self;
        let unit = &mut processors.here.hardware.units[index];
        fill(unit, &mut seen.census, kind, entry, &pages, label);
    }

    /// Whether the smallest page at `addr` is in a frame that Mosaic's hashes allow.
    fn is_hashed(&self, addr: VirtAddr, frame: PhysAddr) -> bool {
        let Some(hashed @ Hashed::Mosaic(_)) = &self.around.hashed else { return false };
        let Some(space) = self.stack.guest.hat_space(self.who.number) else { return false };
        let page = addr.get() >> self.constants.granules.0.shift();
        hashed.may_have(space, page, 0, self.stack.guest.frame_at(frame))
    }
}

/// Fills a TLB that has entries for blocks. If no other page of the block is known, only the
/// missing page is filled in.
fn fill(
    unit: &mut Unit,
    census: &mut Census,
    kind: Kind,
    entry: &TlbEntry,
    pages: &[Option<(PhysAddr, Rights)>],
    label: u32,
) {
    let Unit { level, tlb, counts, .. } = unit;
    let is_first = *level == 1;
    let before = tlb.counts_of_evictions();
    let gone = &mut |evicted: Evicted| census.collect(counts, is_first, &evicted);
    if pages.is_empty() {
        tlb.fill(entry, label, kind, gone);
    } else {
        tlb.fill_block(entry.page, (entry.asid, entry.global), pages, label, kind, gone);
    }
    counts.evictions += tlb.counts_of_evictions() - before;
}
