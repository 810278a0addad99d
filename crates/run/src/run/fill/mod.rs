//! The contents with which TLBs are filled: the page that a walk has found and, in TLBs whose
//! entries hold several pages, its neighbours.
//!
//! ```text
//!   entry per page      the page
//!   entry per pair      the page and its neighbour             (pair)
//!   entry per block     the pages of the block around it       (block)
//! ```

mod block;
mod pair;

use addr::{Kind, PhysAddr, Rights, VirtAddr, VirtRange};
use description::{Description, Refusal};
use hardware::tlbs::{TlbUnits, Unit};
use mmu::{Evicted, TlbEntry};
use pagetable::Translation;
use ram::hashed::hashed;
use results::count::census::TABLES;
use vm::Hashed;

use super::Run;

/// The contents of TLB entries besides the page that a walk has found.
pub(super) struct Around {
    /// Whether some TLB holds two pages under one tag.
    pub(super) has_pairs: bool,
    /// The number of pages in the largest block that an entry of some TLB covers; 0 if no TLB has
    /// entries of blocks.
    block_pages: usize,
    /// Frame and rights of each page of the block that was refilled last; `None` for pages that are
    /// not known.
    known: Vec<Option<(PhysAddr, Rights)>>,
    /// The frames that pages may have by the hashes of their addresses, if the machine restricts
    /// frames in this way.
    hashed: Option<Hashed>,
}

impl Around {
    /// The state for filling the TLBs in `description`. The error has the key that is wrong.
    pub(super) fn of(description: &Description, hardware: &TlbUnits) -> Result<Around, Refusal> {
        Ok(Around {
            has_pairs: hardware.units.iter().any(|unit| unit.params.paired),
            block_pages: hardware.block_pages(),
            known: Vec::new(),
            hashed: hashed(description)?,
        })
    }

    /// Whether each TLB entry holds one page.
    #[inline]
    pub(super) fn is_nothing(&self) -> bool {
        !self.has_pairs && self.block_pages == 0
    }
}

/// The contents with which a TLB is filled: a translation, and the frame and rights of the other
/// page of its pair if that page is mapped.
pub(super) struct Incoming {
    pub(super) entry: TlbEntry,
    pub(super) other: Option<(PhysAddr, Rights)>,
    /// Whether the other pages of the block are known, for TLBs with entries of blocks.
    pub(super) has_block: bool,
}

impl Incoming {
    /// One page, without neighbours.
    #[inline]
    pub(super) fn alone(entry: TlbEntry) -> Incoming {
        Incoming { entry, other: None, has_block: false }
    }
}

impl Run {
    /// The label of the TLB entry for a page
    /// ([`Layout::label_of_entry`](results::count::labels::Layout::label_of_entry)).
    pub(super) fn label(&self, translation: Translation, region: u32) -> u32 {
        // A slot is larger than any page, so an address and its relocated address are aligned in
        // the same way.
        let start = translation.page.start().wrapping_add(self.view.base.wrapping_neg());
        let mut page = VirtRange::of_page(start.page(translation.page.size()));
        let block_pages = self.around.block_pages;
        if block_pages > 0 {
            let bytes = block_pages as u64 * translation.page.size().bytes();
            let first = VirtAddr::new(start.get() & !(bytes - 1));
            page = VirtRange::new(first, bytes).unwrap_or(page);
        }
        self.layout.label_of_entry(self.who.number, page, region)
    }

    /// The contents with which TLBs are filled after a walk has found the page of `entry`.
    #[inline]
    pub(super) fn as_walked(&mut self, entry: TlbEntry) -> Incoming {
        if self.around.is_nothing() {
            return Incoming::alone(entry);
        }
        let other = self.neighbour(&entry);
        let has_block = self.look_around(&entry);
        Incoming { entry, other, has_block }
    }

    /// The contents with which the first level is filled after the TLB `second` has found `entry`
    /// for `linear`.
    #[inline]
    pub(super) fn as_held(&mut self, second: usize, linear: VirtAddr, entry: TlbEntry) -> Incoming {
        if self.around.is_nothing() {
            return Incoming::alone(entry);
        }
        let has_block = self.copy_block(second, linear);
        Incoming { entry, other: self.neighbour(&entry), has_block }
    }

    /// Fills a TLB of the running processor.
    #[inline(always)]
    pub(super) fn fill(&mut self, index: usize, kind: Kind, incoming: &Incoming, label: u32) {
        let unit = &mut self.processors.here.hardware.units[index];
        if let Some(blocks) = unit.tlb.blocks() {
            return self.fill_block(index, blocks, kind, incoming, label);
        }
        let census = &mut self.seen.census;
        if unit.params.paired {
            return pair::fill(unit, census, kind, incoming, label);
        }
        let Unit { level, tlb, counts, .. } = unit;
        let tag = (incoming.entry.page, incoming.entry.asid);
        let is_first = *level == 1;
        tlb.fill(&incoming.entry, label, kind, &mut |evicted: Evicted| {
            counts.evictions += u64::from((evicted.page, evicted.asid) != tag);
            // If the evicted entry has no hits, there is nothing to add, and the miss has already
            // counted its page size.
            let is_size_known = label != TABLES && evicted.page.size() == tag.0.size();
            if evicted.hits != [0; Kind::COUNT] || !is_size_known {
                census.collect(counts, is_first, &evicted);
            }
        });
    }
}
