//! `khugepaged` with orders below the large page's (`mm/khugepaged.c`, as posted for Linux 7.2: "khugepaged:
//! mTHP support", version 18 of May 2026).
//!
//! ```text
//!   block of 2M, not collapsed      | p p p p . . . . | . . . . . . p p |   p: a page is mapped
//!   halves, if the order is allowed: enough of it mapped?
//!     yes --> adjacent frames, base pages        no --> its halves, down to four base pages
//! ```
//!
//! For these blocks, `max_ptes_none` has only two effects. If the setting allows all but one of a
//! large page's base pages to be missing, all but one of the block's base pages may be missing;
//! otherwise no base page of the block may be missing. No page of the block may be in swap or
//! shared.

use core::ops::Range;

use addr::Rights;
use physmem::FrameId;

use crate::{
    error::Stop,
    fault::Needed,
    host::Host,
    kernel::Kernel,
    region::Region,
    thp::{Khugepaged, ScanResult, Thp},
    vm::Within,
    work::How,
};

/// The smallest order of a block that the daemon makes.
const ORDER_MIN: u32 = 2;

impl<H: Host> Kernel<'_, H> {
    /// Collapses parts of the block of `2^order` pages from `start` on, which did not become a
    /// large page, into blocks of the orders in the mask `smaller`.
    pub(super) fn collapse_smaller(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        (start, order): (u64, u32),
        smaller: u32,
        thp: &Thp,
    ) {
        for half in [0, 1] {
            let of = order - 1;
            if of < ORDER_MIN || smaller & ((2 << of) - 1) == 0 {
                return;
            }
            let first = start + (half << of);
            let block = first..first + (1 << of);
            let mut found = ScanResult::ExceedNonePte;
            if smaller & 1 << of != 0 {
                found = self.collapse_part(at, region, &block, of, thp);
            }
            if found != ScanResult::Succeed && found != ScanResult::PmdNone {
                self.collapse_smaller(at, region, (first, of), smaller, thp);
            }
        }
    }

    fn collapse_part(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        block: &Range<u64>,
        order: u32,
        thp: &Thp,
    ) -> ScanResult {
        let all_but_one = (1 << self.vm.pmd_order()) - 1;
        let none = if thp.khugepaged.max_ptes_none == all_but_one { (1 << order) - 1 } else { 0 };
        let limits = Khugepaged {
            max_ptes_none: none,
            max_ptes_swap: 0,
            max_ptes_shared: 0,
            ..thp.khugepaged
        };
        // Pages whose frames are already one folio are left unchanged (`SCAN_PTE_MAPPED_HUGEPAGE`).
        let frames = at.known.anons.get(block.start).map(|anon| self.anon(anon).place);
        if let Some(crate::object::PageLocation::Resident(frame)) = frames {
            let around = self.lists(|lists, _| lists.folios.frames_around(frame));
            if around.is_some_and(|frames| frames.len() as u64 >= block.end - block.start) {
                return ScanResult::Succeed;
            }
        }
        let looked = self.collapse_if(at, region, block, Some(&limits));
        let found = looked.unwrap_or(ScanResult::AllocHugePageFail);
        self.lists(|lists, _| lists.khugepaged.scanned.results[found as usize] += 1);
        found
    }

    /// Loads a collapsed block, whose frames begin with `first`, by base pages.
    pub(super) fn load_side_by_side(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        block: &Range<u64>,
        first: FrameId,
        writable: bool,
    ) -> Result<(), Stop> {
        let rights: Rights = if writable { region.rights } else { region.rights.without_write() };
        for (page, frame) in block.clone().zip(self.frames_of(first, block)) {
            let needed = Needed { frame, rights, is_new: false, left: None };
            self.enter(at, page, &needed, &mut How::Minor)?;
        }
        Ok(())
    }
}
