//! Large pages as Linux has them: transparent huge pages at faults, blocks of smaller orders
//! ("multi-size THP"), and what becomes of both (`mm/memory.c`, `mm/huge_memory.c`).
//!
//! ```text
//!   fault in anonymous memory: which orders do the knobs allow here?       none: policy-asks-base
//!     |
//!     |  2M: whole block in the region?                   no: region-too-small, unaligned
//!     |      nothing of it there?                         no: other-size-present, in-page-cache,
//!     |      a frame free above the low mark?             no: scarce, no-frame       shared, in-swap
//!     |      --> 512 zeroed base frames, one translation
//!     |  next smaller order, at a store only: the same, by translations of base pages
//!     v
//!   base page
//! ```
//!
//! A block of frames that was taken together is a *folio* ([`folio`]): base frames of it that are
//! unmapped stay with it until it is split. A store to a large page that a fork has shared splits its
//! translation and copies one base page. `khugepaged` makes large pages of base pages later
//! ([`khugepaged`]).

pub(crate) mod folio;
mod khugepaged;

use core::ops::Range;

use addr::{Kind, PageSize};
use hat::locking::{Locks, Scheme};
use pagetable::Mounted;
use physmem::Allocator;

pub(crate) use khugepaged::Progress;
pub use khugepaged::{Collapsed, Khugepaged, ScanResult, Scanned};

use crate::{
    error::{Error, Stop},
    fault::Said,
    kernel::Kernel,
    large::{Presence, outside},
    platform::Platform,
    region::{Backing, Region},
    vm::{Vm, Within},
    work::{How, Why},
};

/// Which orders faults and `khugepaged` may give anonymous memory, as masks: bit n stands for blocks of
/// 2^n base pages. The largest page size is the order of a large translation; smaller orders are
/// frames side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Thp {
    /// Everywhere but where advice forbids it.
    pub always: u32,
    /// Where advice asks for it.
    pub madvise: u32,
    /// The daemon.
    pub khugepaged: Khugepaged,
}

/// What madvise has said of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Advice {
    None,
    Huge,
    NoHuge,
}

impl Thp {
    /// The orders that are allowed in `region`.
    pub(crate) fn orders(&self, region: &Region, base: PageSize) -> u32 {
        if region.backing != Backing::Anonymous {
            return 0;
        }
        match advice(region, base) {
            Advice::None => self.always,
            Advice::Huge => self.always | self.madvise,
            Advice::NoHuge => 0,
        }
    }
}

/// A module that asks for base pages is advice against large ones.
fn advice(region: &Region, base: PageSize) -> Advice {
    match region.module.page_size {
        None => Advice::None,
        Some(size) if size > base => Advice::Huge,
        Some(_) => Advice::NoHuge,
    }
}

impl<L: Locks> Vm<L> {
    /// log2 of the base pages of a large translation; 0 if there is none.
    pub(crate) fn pmd_order(&self) -> u32 {
        let largest = self.sizes.last().map_or(0, |size| size.shift());
        largest - self.base.shift()
    }

    /// The base pages of the aligned block of `2^order` that `page` lies in.
    fn aligned(page: u64, order: u32) -> Range<u64> {
        let first = page >> order << order;
        first..first + (1 << order)
    }
}

impl<T, A, P, L, S> Kernel<'_, T, A, P, L, S>
where
    T: Mounted + ?Sized,
    A: Allocator + Send,
    P: Platform,
    L: Locks,
    S: Scheme<Table = T>,
{
    /// Has the page in memory and loaded, in the largest block that the knobs allow and memory has.
    pub(crate) fn bring_linux(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
        thp: &Thp,
    ) -> Result<How, Error> {
        let (base, pmd) = (self.vm.base, self.vm.pmd_order());
        let region = at.known.regions.at(page).ok_or(Error::NoRegion(self.vm.addr_of(page)))?;
        let (said, mut orders) = (Said::of(region, page), thp.orders(region, base));
        // What knobs forbid now stays large where it is (`do_huge_pmd_wp_page`).
        let held = at.known.has_large.then(|| self.hat.query(at.space, self.vm.addr_of(page)));
        if held.flatten().is_some_and(|held| held.translation.page.size() > base) {
            orders |= 1 << pmd;
        }
        let Some(largest) = orders.checked_ilog2() else {
            return self.resolve(at, (page, &said), kind, (base, Why::PolicyAsksBase));
        };
        let region = region.clone();
        let wanted = PageSize::from_shift((base.shift() + largest) as u8).unwrap_or(base);
        let mut first = None;
        for order in (1..=largest).rev().filter(|order| orders & 1 << order != 0) {
            let pages = Vm::<L>::aligned(page, order);
            let tried = self.pages_stay(|kernel| match order == pmd {
                true => kernel.try_huge(at, &region, &pages, kind, (wanted, first)),
                // A load maps the page of zeros alone (`do_anonymous_page`).
                false if kind != Kind::Store => Ok(Err(Why::PolicyAsksBase)),
                false => kernel.try_folio(at, &region, &pages, page, (wanted, first)),
            })?;
            match tried {
                Ok(how) => return Ok(how),
                Err(why) => first = first.or(Some(why)),
            }
        }
        let decision = (wanted, first.unwrap_or(Why::PolicyAsksBase));
        self.resolve(at, (page, &said), kind, decision)
    }

    /// One large translation of `pages`, or why it cannot be.
    fn try_huge(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        kind: Kind,
        (wanted, first): (PageSize, Option<Why>),
    ) -> Result<Result<How, Why>, Error> {
        if let Err(why) = self.fits(at, region, pages) {
            return Ok(Err(why));
        }
        let mut how = How::Minor;
        let is_empty = at.known.anons.within(pages.clone()).next().is_none();
        let loaded = if is_empty {
            if self.lacks(pages) {
                return Ok(Err(Why::Scarce));
            }
            self.fill(at, region, pages, kind, &mut how)
        } else {
            match self.presence(at.known, region, pages, false) {
                // One that is shared is split, and a base page copied.
                Ok(Presence::Whole(_, false)) if kind == Kind::Store => {
                    return Ok(Err(Why::Shared));
                }
                Ok(Presence::Whole(frame, writable)) => {
                    self.load_whole(at, region, pages, frame, writable, kind, &mut how)
                }
                Ok(Presence::Nothing) => return Ok(Err(Why::InPageCache)),
                Err(why) => return Ok(Err(why)),
            }
        };
        match loaded {
            Ok(loaded) => {
                if loaded {
                    let size = self.vm.size_of(pages);
                    self.decided(region.label, (wanted, first.unwrap_or(Why::Obtained)), size);
                }
                if is_empty {
                    self.enter_folio(at, pages);
                }
                Ok(Ok(how))
            }
            Err(Stop::Full) => Ok(Err(Why::NoFrame)),
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    /// A block of frames side by side for `pages`, of which `page` is needed, by translations of base
    /// pages; or why it cannot be (`alloc_anon_folio`).
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
        if at.known.anons.within(pages.clone()).next().is_some() {
            return Ok(Err(Why::InPageCache));
        }
        if self.lacks(pages) {
            return Ok(Err(Why::Scarce));
        }
        let step = self.memory.order(self.vm.base);
        let order = (pages.end - pages.start).ilog2() + step;
        let request = self.large_request(region, pages);
        let Ok(large) = self.frames(|memory| memory.allocate(&request)) else {
            return Ok(Err(Why::NoFrame));
        };
        self.work.frames_taken += 1 << order;
        let (mut how, mut stopped, mut is_loaded) = (How::Minor, None, false);
        for (each, frame) in pages.clone().zip(self.frames_of(large, pages)) {
            let mut given = Some(frame);
            if stopped.is_none() {
                let said = (each, &Said::of(region, each));
                let came = self.page_for(at, said, Kind::Store, &mut given, &mut how);
                let loaded = came.and_then(|needed| self.enter(at, each, &needed, &mut How::Minor));
                match loaded {
                    Ok(_) => is_loaded |= each == page,
                    Err(stop) => stopped = Some(stop),
                }
            }
            if let Some(frame) = given {
                self.free_frame(frame);
            }
        }
        match stopped {
            Some(Stop::Refused(error)) => return Err(error),
            // The base page that is needed is brought alone.
            Some(Stop::Full) if !is_loaded => return Ok(Err(Why::NoFrame)),
            Some(Stop::Full) => {}
            None => self.enter_folio(at, pages),
        }
        if region.wired {
            for (page, frame) in pages.clone().zip(self.frames_of(large, pages)) {
                if at.known.anons.get(page).is_some() {
                    self.wire_at(at, page, frame);
                }
            }
        }
        let shift = self.vm.base.shift() + (pages.end - pages.start).ilog2();
        let got = PageSize::from_shift(shift as u8).unwrap_or(self.vm.base);
        self.decided(region.label, (wanted, first.unwrap_or(Why::Obtained)), got);
        Ok(Ok(how))
    }

    /// Whether a block would leave less free than the low mark (`__zone_watermark_ok`).
    fn lacks(&self, pages: &Range<u64>) -> bool {
        self.free_pages() < pages.end - pages.start + self.vm.marks.low()
    }
}
