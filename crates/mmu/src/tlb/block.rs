//! Entries for an aligned block of several adjacent pages of one size, under one tag.
//!
//! ```text
//!   block of 4 pages     | 0 | 1 | 2 | 3 |
//!   their frames           a   b   c   -          tag: block     data
//!
//!   complete-subblock                              | tag | a  b  c  - |   a frame and rights each
//!   partial-subblock     lie as in a block?        | tag | frame | 1110 | of the block
//!   coalesced            b = a + 1, c = b + 1?     | tag | frame | 1110 | of page 0
//!   whole                all four, and aligned?    | tag | frame |        else 4 entries
//!   mosaic               where hashes allow?       | tag | 5  81 40 -- |   a number of 7 bits each
//! ```
//!
//! Sub-block TLBs are modelled after Talluri and Hill (1994). *Coalesced* is CoLT's set-associative
//! TLB (Pham and others 2012), in which an entry is for a run of pages in adjacent frames at any
//! position. *Whole* is modelled after AMD's processors since Zen, in which an entry can be for
//! four pages of 4K in an aligned 16K. *Mosaic* (Gosakan and others 2023) stores for each page its
//! number among the few frames that its address allows; the caller that fills the entry determines
//! which pages have such frames.
//!
//! This module decides which pages of a block are inserted together with the missing page, from the
//! page table's translations of all pages of the block. Pages in one entry have equal rights,
//! except in a complete sub-block. The set is selected by the block's number, so that all pages of
//! a block are in one set. Pages larger than the TLB's smallest page size have ordinary entries.

use addr::{Asid, Kind, Page, PhysAddr, Rights, VirtAddr};

use super::{Evicted, Tlb, TlbEntry, entry::Slot};

/// The blocks for which a TLB has entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockParams {
    /// The number of pages of the TLB's smallest size in a block: a power of two.
    pub pages: u32,
    /// The pages of a block that an entry can represent.
    pub kind: BlockKind,
    /// Whether the other pages of a block are inserted together with the missing page. Otherwise a
    /// page of a sub-block is inserted only when an access to that page misses.
    pub prefetch: bool,
}

/// The pages of a block that an entry can represent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// A frame and rights for each page.
    CompleteSubblock,
    /// One aligned block of frames for all pages: each page has the frame at its own position in
    /// the block.
    PartialSubblock,
    /// One frame for a run of pages in adjacent frames.
    Coalesced,
    /// One frame for all pages, which must all be mapped, in an aligned block of frames.
    Whole,
    /// A compressed frame number for each page whose frame is one of those that its address allows.
    Mosaic,
}

impl BlockKind {
    /// All kinds of blocks.
    pub const ALL: [BlockKind; 5] = [
        BlockKind::CompleteSubblock,
        BlockKind::PartialSubblock,
        BlockKind::Coalesced,
        BlockKind::Whole,
        BlockKind::Mosaic,
    ];

    /// The name in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            BlockKind::CompleteSubblock => "complete-subblock",
            BlockKind::PartialSubblock => "partial-subblock",
            BlockKind::Coalesced => "coalesced",
            BlockKind::Whole => "whole",
            BlockKind::Mosaic => "mosaic",
        }
    }

    /// Whether an entry has a frame for each page, so that the pages can be anywhere.
    const fn has_frames(self) -> bool {
        match self {
            BlockKind::CompleteSubblock | BlockKind::Mosaic => true,
            BlockKind::PartialSubblock | BlockKind::Coalesced | BlockKind::Whole => false,
        }
    }
}

impl BlockParams {
    /// The largest number of pages per block.
    pub const PAGES_MAX: u32 = 64;

    /// log2 of the number of pages.
    pub(super) const fn shift(self) -> u32 {
        self.pages.trailing_zeros()
    }
}

/// The data of a TLB with entries for blocks.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pub(super) params: BlockParams,
    /// The frame and rights by slot and page, if entries have a frame for each page.
    own: Box<[(PhysAddr, Rights)]>,
}

impl Blocks {
    pub(super) fn new(params: BlockParams, slots: usize) -> Blocks {
        let pages = if params.kind.has_frames() { slots * params.pages as usize } else { 0 };
        Blocks { params, own: vec![(PhysAddr::new(0), Rights::NONE); pages].into_boxed_slice() }
    }

    /// Frame and rights of page number `index` of the block in `slot`, if entries have a frame for
    /// each page.
    #[inline]
    pub(super) fn own(&self, slot: usize, index: usize) -> Option<(PhysAddr, Rights)> {
        self.own.get(slot * self.params.pages as usize + index).copied()
    }

    fn set_own(&mut self, slot: usize, index: usize, page: (PhysAddr, Rights)) {
        self.own[slot * self.params.pages as usize + index] = page;
    }

    /// A bit mask of the pages of a block that are inserted together with page number `index`.
    /// `pages` must have a translation for this page. `bytes` is the page size.
    fn taken(&self, pages: &[Option<(PhysAddr, Rights)>], index: usize, bytes: u64) -> u64 {
        let all = |is_in: &dyn Fn(usize) -> bool| {
            (0..pages.len()).filter(|&at| is_in(at)).fold(0, |bits, at| bits | 1u64 << at)
        };
        let Some((frame, rights)) = pages[index].filter(|_| self.params.prefetch) else {
            return 1 << index;
        };
        let first = frame.get().wrapping_sub(index as u64 * bytes);
        let follows = |at: usize| {
            let place = PhysAddr::new(first.wrapping_add(at as u64 * bytes));
            pages[at] == Some((place, rights))
        };
        let is_aligned = first & (pages.len() as u64 * bytes - 1) == 0;
        match self.params.kind {
            BlockKind::CompleteSubblock => all(&|at| pages[at].is_some()),
            BlockKind::Mosaic => all(&|at| pages[at].is_some_and(|(_, of)| of == rights)),
            BlockKind::PartialSubblock if is_aligned => all(&follows),
            BlockKind::Whole if is_aligned && (0..pages.len()).all(follows) => all(&follows),
            BlockKind::PartialSubblock | BlockKind::Whole => 1 << index,
            BlockKind::Coalesced => {
                let before = (0..index).rev().take_while(|&at| follows(at)).count();
                let after = (index + 1..pages.len()).take_while(|&at| follows(at)).count();
                all(&|at| (index - before..=index + after).contains(&at))
            }
        }
    }
}

impl Tlb {
    /// The blocks for which the TLB has entries, if any.
    pub fn blocks(&self) -> Option<BlockParams> {
        self.blocks.as_ref().map(|blocks| blocks.params)
    }

    /// Like [`Tlb::fill`], but for a block. For each page of the block around `page`, `pages` has
    /// the frame and the rights from the page table, or `None` if the page is not mapped. The
    /// element of `page` itself must not be `None`.
    pub fn fill_block(
        &mut self,
        page: Page,
        (asid, global): (Asid, bool),
        pages: &[Option<(PhysAddr, Rights)>],
        label: u32,
        kind: Kind,
        evicted: &mut impl FnMut(Evicted),
    ) -> bool {
        let size = page.size();
        let Some(array) = self.array_of[size.shift() as usize] else { return false };
        let index = (page.number() & (pages.len() as u64 - 1)) as usize;
        let (Some(blocks), Some((frame, rights))) = (&self.blocks, pages[index]) else {
            return false;
        };
        if size != self.smallest || pages.len() != blocks.params.pages as usize {
            let entry = TlbEntry::single(page, frame, asid, global, rights);
            return self.fill(&entry, label, kind, evicted);
        }
        let has_frames = blocks.params.kind.has_frames();
        let mut bits = blocks.taken(pages, index, size.bytes());
        let first = PhysAddr::new(frame.get().wrapping_sub(index as u64 * size.bytes()));
        let number = self.number(page.start(), size);
        let array = array as usize;
        let set = self.arrays[array].sets.set_of(number);
        // Which present entries of the block are merged with the new entry.
        let kind_of_block = blocks.params.kind;
        let joins = |slot: &Slot| {
            slot.asid() == asid
                && slot.is_global() == global
                && match kind_of_block {
                    BlockKind::CompleteSubblock => true,
                    BlockKind::PartialSubblock => {
                        slot.is_block_at(first) && slot.has_rights(rights)
                    }
                    BlockKind::Coalesced | BlockKind::Whole | BlockKind::Mosaic => false,
                }
        };
        let mut kept = [None; BlockParams::PAGES_MAX as usize];
        let mut slot = None;
        while let Some(other) = self.find_tagged(array, set, size, number, |slot| {
            (global || slot.serves(asid)) && (joins(slot) || slot.bits() & bits != 0)
        }) {
            let gone = &self.slots[other];
            if joins(gone) {
                let more = gone.bits() & !bits;
                for at in (0..pages.len()).filter(|at| more >> at & 1 == 1) {
                    kept[at] = self.blocks.as_ref().and_then(|blocks| blocks.own(other, at));
                }
                bits |= more;
            }
            self.remove(other, evicted);
            slot = slot.or(Some(other));
        }
        let slot = slot.unwrap_or_else(|| self.free_slot(array, set, evicted));
        self.absent = None;
        let whose = (asid, global);
        self.slots[slot] =
            Slot::block((page, pages.len() as u64), (first, bits), whose, rights, label);
        if let Some(blocks) = self.blocks.as_mut().filter(|_| has_frames) {
            for (at, own) in pages.iter().enumerate() {
                if let Some(own) = kept[at].or(*own) {
                    blocks.set_own(slot, at, own);
                }
            }
        }
        self.retired.block_fills += 1;
        self.retired.block_pages += u64::from(bits.count_ones());
        self.filled(slot, (page, rights), (array, set, number), kind);
        true
    }

    /// Finds the entry that covers `va`, and returns its translations for the pages of the aligned
    /// group of `pages` pages around `va`.
    pub fn block_around(
        &self,
        va: VirtAddr,
        asid: Asid,
        pages: usize,
        into: &mut Vec<Option<(PhysAddr, Rights)>>,
    ) {
        into.clear();
        let Some(slot) = self.search(va, asid) else { return };
        let size = self.slots[slot].size();
        let first = va.get() & !(pages as u64 * size.bytes() - 1);
        into.extend((0..pages as u64).map(|at| {
            let page = VirtAddr::new(first + at * size.bytes());
            let there = self.slots[slot].covers(page) && self.slots[slot].has(page);
            there.then(|| {
                let hit = self.hit_at(slot, page);
                (hit.phys, hit.rights)
            })
        }));
    }
}
