//! Large blocks of shared memory at faults, as `shmem_enabled` allows (`mm/shmem.c`).
//!
//! ```text
//!   fault in shared memory, nothing of the block is in memory, region and memory are aligned alike
//!     |    2M: 512 zeroed frames, one page of 2M
//!     |    smaller: adjacent frames, base pages
//!     v
//!   base page
//! ```
//!
//! A process that maps the memory later finds the block, and maps it large where its region allows
//! ([`super::shared`]).

use core::{ops::Range, sync::atomic::Ordering};

use addr::{Kind, PageSize};

use crate::{
    error::{Error, Stop},
    fault::RegionPage,
    host::Host,
    kernel::Kernel,
    object::PageLocation,
    region::{Backing, Region},
    thp::{Advice, Thp, advice},
    vm::Within,
    work::{How, Why},
};

impl<H: Host> Kernel<'_, H> {
    /// The orders that settings allow for the page of shared memory at `page` of `region`; none if
    /// the region is not of shared memory, or if its alignment differs from the alignment of its
    /// memory.
    pub(super) fn shmem_orders(&self, region: &Region, page: u64, thp: &Thp) -> u32 {
        let Backing::Shared { object, first } = region.backing else { return 0 };
        let advice = advice(region, self.vm.base);
        if !thp.shmem.is_any() || advice == Advice::NoHuge || region.module.pool {
            return 0;
        }
        let (is_file, pages) =
            self.vm.objects.with(self.site, object, |object| (object.file.is_some(), object.end));
        if is_file {
            return 0;
        }
        let apart = region.pages.start.wrapping_sub(first);
        // In blocks of higher orders than that of the distance, pages have different positions in
        // the memory and in the addresses.
        let alike = if apart == 0 { u32::MAX } else { (2 << apart.trailing_zeros().min(30)) - 1 };
        let index = first + (page - region.pages.start);
        thp.shmem.orders(index, pages, advice == Advice::Huge) & alike
    }

    /// Brings in the block `pages` of shared memory, which has no page in memory yet, as one page.
    /// Returns why that is impossible.
    pub(super) fn fill_shared(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        kind: Kind,
        how: &mut How,
    ) -> Result<Result<bool, Why>, Error> {
        if self.lacks(pages) {
            return Ok(Err(Why::Scarce));
        }
        match self.fill(at, region, pages, kind, how) {
            Ok(loaded) => {
                self.enter_shared_folio(region, pages);
                Ok(Ok(loaded))
            }
            Err(Stop::Full) => Ok(Err(Why::NoFrame)),
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    /// Brings in the block `pages` of shared memory in adjacent frames and loads its base pages, or returns
    /// why that is impossible.
    pub(super) fn try_shared_folio(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        (page, kind): (u64, Kind),
        (wanted, first): (PageSize, Option<Why>),
    ) -> Result<Result<How, Why>, Error> {
        if pages.start < region.pages.start || pages.end > region.pages.end {
            return Ok(Err(crate::large::outside(at.known, region, pages)));
        }
        if self.shared_pages(region, pages) > 0 || !self.mappings_in(at.space, pages).is_empty() {
            return Ok(Err(Why::missing(region)));
        }
        if self.lacks(pages) {
            return Ok(Err(Why::Scarce));
        }
        let Some(large) = self.block_frames(at, region, pages) else {
            return Ok(Err(Why::NoFrame));
        };
        self.prezeroed = false;
        let (mut how, mut stopped, mut is_loaded) = (How::Minor, None, false);
        for (each, frame) in pages.clone().zip(self.frames_of(large, pages)) {
            let mut given = Some(frame);
            if stopped.is_none() {
                let kind = if each == page { kind } else { Kind::Load };
                let said = RegionPage::of_kernel(region, each);
                let came = self.page_for(at, (each, &said), kind, &mut given, &mut how);
                match came.and_then(|mut needed| {
                    needed.rights =
                        addr::Rights::from_bits(needed.rights.bits() & region.rights.bits());
                    self.enter(at, each, &needed, &mut How::Minor)
                }) {
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
            // Only the base page that is needed is loaded.
            Some(Stop::Full) if !is_loaded => return Ok(Err(Why::NoFrame)),
            Some(Stop::Full) => {}
            None => self.enter_shared_folio(region, pages),
        }
        let shift = self.vm.base.shift() + (pages.end - pages.start).ilog2();
        let got = PageSize::from_shift(shift as u8).unwrap_or(self.vm.base);
        self.decided((at.space, page), (wanted, first.unwrap_or(Why::Obtained)), got, 1);
        Ok(Ok(how))
    }

    fn enter_shared_folio(&mut self, region: &Region, pages: &Range<u64>) {
        let Backing::Shared { object, first } = region.backing else { return };
        let index = first + (pages.start - region.pages.start);
        if let Some(PageLocation::Resident(frame)) = self.object_place_of(object, index) {
            self.enter_folio_at(frame, pages);
            self.vm.has_large_objects.store(true, Ordering::Relaxed);
        }
    }
}
