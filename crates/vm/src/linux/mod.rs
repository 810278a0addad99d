//! Large pages as in Linux: transparent huge pages at faults, blocks of smaller orders ("multi-size
//! THP"), and how both change later (`mm/memory.c`, `mm/huge_memory.c`).
//!
//! ```text
//!   fault in anonymous memory: which orders do the knobs allow here?       none: policy-asks-base
//!     |
//!     |  2M: whole block in the region?                   no: region-too-small, unaligned
//!     |      nothing of it there?                         no: other-size-present, shared, in-swap,
//!     |      nor a table of base pages?                       base-pages-present, table-kept ([`tables`])
//!     |      a load?  --> the large page of zeros
//!     |      a frame free above the low mark?             no: scarce, no-frame, or [`compaction`] first
//!     |      --> 512 zeroed base frames, one translation
//!     |  next smaller order, at a store only: the same, by translations of base pages
//!     v
//!   base page
//! ```
//!
//! A block of frames that was allocated together is a *folio* ([`folio`]): base frames of it that are
//! unmapped remain in the folio until it is split. A store to a large page that a fork has shared splits its
//! translation and copies one base page. `khugepaged` later makes large pages of base pages ([`khugepaged`]),
//! and of shared memory if a process requests it ([`shared`]); Ingens and HawkEye choose other blocks
//! ([`promote`]). Mappings of reserved large pages have pools of their own ([`reserved`]). The allocator, [`placing`] and [`ranger`] determine the frames of pages. Pages of 1G, where
//! they are allowed, are tried before those of 2M, as in Trident (Ram and others 2021). The settings and the
//! state of the daemons are in [`crate::thp`].

pub(crate) mod compaction;
pub(crate) mod folio;
mod ingens;
mod khugepaged;
mod placing;
pub(crate) mod promote;
mod ranger;
mod reserved;
pub(crate) mod shared;
mod shmem;
mod smaller;
pub(crate) mod tables;
pub(crate) mod zero;

use core::ops::Range;

use addr::{Kind, PageSize};
use hat::locking::Locks;

use crate::{
    eager::Filled,
    error::{Error, Stop},
    fault::RegionPage,
    host::Host,
    kernel::Kernel,
    large::{Presence, outside},
    region::{Backing, Region},
    thp::{Effort, Thp, advice},
    vm::{Vm, Within},
    work::{How, Why},
};

impl<L: Locks> Vm<L> {
    /// log2 of the number of base pages of the smaller large page (2M); 0 if there is none.
    pub(crate) fn pmd_order(&self) -> u32 {
        self.sizes.get(1).map_or(0, |size| size.shift() - self.base.shift())
    }

    /// log2 of the number of base pages of each large page size, the largest first.
    pub(crate) fn page_orders(&self) -> impl Iterator<Item = u32> {
        self.sizes[1..].iter().rev().map(|size| size.shift() - self.base.shift())
    }

    /// The base pages of the aligned block of `2^order` pages that contains `page`.
    pub(crate) fn aligned(page: u64, order: u32) -> Range<u64> {
        let first = page >> order << order;
        first..first + (1 << order)
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Brings the page into memory and loads it, in the largest block that the settings allow and
    /// for which memory is available.
    pub(crate) fn bring_linux(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
        thp: &Thp,
    ) -> Result<How, Error> {
        let base = self.vm.base;
        let region = at.known.regions.at(page).ok_or(Error::NoRegion(self.vm.addr_of(page)))?;
        if region.module.pool {
            return self.bring_reserved(at, page, kind);
        }
        let said = RegionPage::of(region, page);
        let mut orders = if thp.faults { thp.orders(region, base) } else { 0 };
        // A large page that the knobs no longer allow stays large (`do_huge_pmd_wp_page`).
        let held = at.known.has_large.then(|| self.hat.query(at.space, self.vm.addr_of(page)));
        if let Some(held) = held.flatten() {
            orders |= 1 << (held.translation.page.size().shift() - base.shift());
        }
        if thp.faults && thp.shmem.is_any() {
            orders |= self.shmem_orders(region, page, thp);
        }
        orders &= !1;
        if orders == 0 && self.has_large_object(region, page) {
            orders |= 1 << self.vm.pmd_order();
        }
        let Some(largest) = orders.checked_ilog2() else {
            let how = self.resolve(at, (page, &said), kind, (base, Why::PolicyAsksBase))?;
            self.note_filled(at, page, thp);
            return Ok(how);
        };
        let region = region.clone();
        let effort = thp.defrag.effort(advice(&region, base));
        let wanted = PageSize::from_shift((base.shift() + largest) as u8).unwrap_or(base);
        let mut first = None;
        for order in (1..=largest).rev().filter(|order| orders & 1 << order != 0) {
            let pages = Vm::<H::Locks>::aligned(page, order);
            let is_page = self.vm.page_orders().any(|of| of == order);
            let mut attempt = |kernel: &mut Self| {
                kernel.pages_stay(|kernel| match is_page {
                    true => kernel.try_huge(at, &region, &pages, (page, kind), (wanted, first)),
                    false if region.backing != Backing::Anonymous => {
                        kernel.try_shared_folio(at, &region, &pages, (page, kind), (wanted, first))
                    }
                    // A load maps only the page of zeros, not a block (`do_anonymous_page`).
                    false if kind != Kind::Store => Ok(Err(Why::PolicyAsksBase)),
                    false => kernel.try_folio(at, &region, &pages, page, (wanted, first)),
                })
            };
            let mut tried = attempt(self)?;
            if matches!(tried, Err(Why::NoFrame | Why::Scarce))
                && effort != Effort::None
                && self.make_block(order, effort)
            {
                tried = attempt(self)?;
            }
            let is_anon = region.backing == Backing::Anonymous;
            match tried {
                Ok(How::Zero) if is_anon => self.stats(order, |of| of.anon_fault_alloc += 1),
                Ok(How::Zero) => self.stats(order, |of| of.shmem_alloc += 1),
                Err(Why::NoFrame | Why::Scarce) if is_anon => {
                    self.stats(order, |of| of.anon_fault_fallback += 1);
                }
                Err(Why::NoFrame | Why::Scarce) => self.stats(order, |of| of.shmem_fallback += 1),
                Ok(_) | Err(_) => {}
            }
            match tried {
                Ok(how) => return Ok(how),
                Err(why) => first = first.or(Some(why)),
            }
        }
        let decision = (wanted, first.unwrap_or(Why::PolicyAsksBase));
        let how = self.resolve(at, (page, &said), kind, decision)?;
        self.note_filled(at, page, thp);
        Ok(how)
    }

    /// Loads `pages` by one large translation, or returns why that is impossible.
    fn try_huge(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        (page, kind): (u64, Kind),
        (wanted, first): (PageSize, Option<Why>),
    ) -> Result<Result<How, Why>, Error> {
        // The entry of the upper table shows whether any page is mapped below it; no entry below it
        // is read (`pmd_none`).
        self.work.table_reads += 1;
        // A block that does not fit into the region is refused for this reason first, not because
        // of pages in it.
        if pages.start < region.pages.start || pages.end > region.pages.end {
            return Ok(Err(outside(at.known, region, pages)));
        }
        if region.backing != Backing::Anonymous {
            return self.try_object(at, region, pages, (page, kind), (wanted, first));
        }
        let there = at.known.anons.count(pages.clone());
        let held =
            if at.known.has_large { self.hat.query(at.space, self.vm.addr_of(page)) } else { None };
        let is_held =
            held.is_some_and(|held| held.translation.page.size() == self.vm.size_of(pages));
        if there > 0 && there < pages.end - pages.start && !is_held {
            return Ok(Err(Why::BasePages));
        }
        let order = (pages.end - pages.start).ilog2();
        if !is_held && at.known.tables.has(order, pages.start) {
            return Ok(Err(if there == 0 { Why::TableKept } else { Why::BasePages }));
        }
        let is_empty = there == 0;
        // If there is no anon, only pages of zeros can be mapped there.
        if !is_empty || self.vm.zero_frames() > 0 || self.vm.paired {
            let before = self.work.table_reads;
            let fits = self.fits(at, region, pages);
            self.work.table_reads = before;
            if let Err(why) = fits {
                return Ok(Err(why));
            }
        }
        let mut how = How::Minor;
        let zeros = is_empty && self.wants_zeros(kind);
        let zeros = zeros && pages.end - pages.start == 1 << self.vm.pmd_order();
        let loaded = if zeros && self.vm.thp.is_some_and(|thp| thp.use_zero_page) {
            how = How::ZeroPage;
            self.load_huge_zero(at, region, pages)
        } else if is_empty {
            if self.lacks(pages) {
                return Ok(Err(Why::Scarce));
            }
            self.fill(at, region, pages, kind, &mut how)
        } else {
            match self.presence(at.known, region, pages, false) {
                // A store to a shared large page splits it and copies one base page.
                Ok(Presence::Whole(_, false)) if kind == Kind::Store => {
                    return Ok(Err(Why::Shared));
                }
                Ok(Presence::Whole(frame, writable)) => {
                    self.load_whole(at, region, pages, frame, writable, kind, &mut how)
                }
                Ok(Presence::Nothing) => return Ok(Err(Why::BasePages)),
                Err(why) => return Ok(Err(why)),
            }
        };
        match loaded {
            Ok(loaded) => {
                if loaded {
                    let size = self.vm.size_of(pages);
                    let decision = (wanted, first.unwrap_or(Why::Obtained));
                    self.decided((at.space, page), decision, size, 1);
                }
                if is_empty && how != How::ZeroPage {
                    self.enter_folio(at, pages);
                }
                Ok(Ok(how))
            }
            Err(Stop::Full) => Ok(Err(Why::NoFrame)),
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    /// Loads a block of adjacent frames for `pages` by translations of base pages, or returns why
    /// that is impossible (`alloc_anon_folio`). Of `pages`, only `page` must be loaded.
    fn try_folio(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        page: u64,
        (wanted, first): (PageSize, Option<Why>),
    ) -> Result<Result<How, Why>, Error> {
        if pages.start < region.pages.start || pages.end > region.pages.end {
            return Ok(Err(outside(at.known, region, pages)));
        }
        // The page of zeros counts as a present page (`pte_range_none`).
        let is_empty = at.known.anons.count(pages.clone()) == 0;
        if !is_empty || !self.mappings_in(at.space, pages).is_empty() {
            return Ok(Err(Why::BasePages));
        }
        if self.lacks(pages) {
            return Ok(Err(Why::Scarce));
        }
        let Some(large) = self.block_frames(at, region, pages) else {
            return Ok(Err(Why::NoFrame));
        };
        let Filled { how, pages: loaded, stopped } = self.side_by_side(at, region, pages, large);
        let is_loaded = page - pages.start < loaded;
        match stopped {
            Some(Stop::Refused(error)) => return Err(error),
            // Only the base page that is needed is loaded.
            Some(Stop::Full) if !is_loaded => return Ok(Err(Why::NoFrame)),
            Some(Stop::Full) => {}
            None => self.enter_folio(at, pages),
        }
        if region.wired.stays() {
            for (page, frame) in pages.clone().zip(self.frames_of(large, pages)) {
                if at.known.anons.get(page).is_some() {
                    self.wire_at(at, page, frame);
                }
            }
        }
        let shift = self.vm.base.shift() + (pages.end - pages.start).ilog2();
        let got = PageSize::from_shift(shift as u8).unwrap_or(self.vm.base);
        self.decided((at.space, page), (wanted, first.unwrap_or(Why::Obtained)), got, 1);
        Ok(Ok(how))
    }

    /// Whether a block would leave fewer frames free than the low mark (`__zone_watermark_ok`).
    pub(super) fn lacks(&mut self, pages: &Range<u64>) -> bool {
        self.free_pages() < pages.end - pages.start + self.vm.marks.low()
            || self.vm.has_groups && !self.fits_limit(pages.end - pages.start)
    }
}
