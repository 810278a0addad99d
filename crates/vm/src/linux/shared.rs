//! Large pages of shared memory, made at a process's request (`mm/khugepaged.c`: `collapse_file`;
//! `mm/memory.c`: `do_set_pmd`).
//!
//! ```text
//!   object   | a | b | - | d |     MADV_COLLAPSE, at a place where object and addresses are aligned alike
//!   folio    | a | b | 0 | d |     all its pages in one block of frames, what was missing is zeros
//!      |
//!      +--> the caller: one large translation
//!      +--> other spaces: nothing is loaded any more (`retract_page_tables`); a fault loads it large where
//!           the region has the whole block and no table of base pages is in its place
//! ```
//!
//! If a part of such a large page is unmapped or gets other rights, the large page is not split: it
//! is unloaded, and faults load its pages again (`__split_huge_pmd_locked`). A fault for a page
//! that is in swap or does not exist yet creates a large page only if `shmem_enabled` allows it
//! ([`super::shmem`]).

use core::{ops::Range, sync::atomic::Ordering};

use addr::{Kind, PageSize};
use hat::locking::{Locks, Site};
use physmem::FrameId;

use crate::{
    error::{Error, Stop},
    host::Host,
    kernel::Kernel,
    large::Presence,
    object::{ObjectId, PageLocation},
    region::{Backing, Region},
    thp::{Advice, advice},
    vm::{Vm, Within},
    work::{How, Why},
};

/// The object of a region's shared memory, and the object's page with which the region begins.
/// `None` if the region maps a file, or if object and addresses differ in their alignment for pages
/// of this order.
fn memory_of<L: Locks>(
    vm: &Vm<L>,
    site: Site,
    region: &Region,
    order: u32,
) -> Option<(ObjectId, u64)> {
    let Backing::Shared { object, first } = region.backing else { return None };
    let is_aligned = region.pages.start.wrapping_sub(first) & ((1 << order) - 1) == 0;
    let is_memory = is_aligned && vm.objects.with(site, object, |object| object.file.is_none());
    is_memory.then_some((object, first))
}

impl<H: Host> Kernel<'_, H> {
    /// Whether the region of `page` is of shared memory, whose large pages are unloaded instead of
    /// split.
    pub(crate) fn is_shared_memory(&self, at: &Within<'_>, page: u64) -> bool {
        let is_shared = |region: &Region| matches!(region.backing, Backing::Shared { .. });
        self.vm.thp.is_some() && at.known.regions.at(page).is_some_and(is_shared)
    }

    /// Removes the translation of the large page of `held` from hardware.
    pub(crate) fn drop_large(
        &mut self,
        at: &mut Within<'_>,
        held: &Range<u64>,
    ) -> Result<(), Error> {
        self.work.downgrades += 1;
        let range = self.vm.range_of(held);
        self.unload_used(at, range)
    }

    /// Whether `region` may have a large page around `page`, because the memory that it shares has one
    /// there (`finish_fault`: `folio_test_pmd_mappable`).
    #[inline]
    pub(crate) fn has_large_object(&self, region: &Region, page: u64) -> bool {
        // Most shared memory never has a large page.
        self.vm.has_large_objects.load(Ordering::Relaxed) && self.is_in_folio(region, page)
    }

    fn is_in_folio(&self, region: &Region, page: u64) -> bool {
        let order = self.vm.pmd_order();
        let block = Vm::<H::Locks>::aligned(page, order);
        if block.start < region.pages.start
            || block.end > region.pages.end
            || advice(region, self.vm.base) == Advice::NoHuge
        {
            return false;
        }
        let Some((object, first)) = memory_of(self.vm, self.site, region, order) else {
            return false;
        };
        let index = first + (block.start - region.pages.start);
        match self.object_place_of(object, index) {
            Some(PageLocation::Resident(frame)) => self.is_folio(frame, &block),
            Some(PageLocation::Swapped(_)) | None => false,
        }
    }

    /// Whether the pages of a block are one folio, which begins with `first`.
    pub(super) fn is_folio(&self, first: FrameId, pages: &Range<u64>) -> bool {
        let count = ((pages.end - pages.start) as u32) << self.memory.order(self.vm.base);
        let folio = self.lists(|lists, _| lists.folios.frames_around(first));
        folio == Some(first.0..first.0 + count)
    }

    /// Loads `pages`, which are in `region` and not anonymous, by one large translation, or returns why
    /// that is impossible.
    pub(super) fn try_object(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        (page, kind): (u64, Kind),
        (wanted, first): (PageSize, Option<Why>),
    ) -> Result<Result<How, Why>, Error> {
        let size = self.vm.size_of(pages);
        // Only the entry of the upper table is read, and this read has been counted.
        let before = self.work.table_reads;
        let held = self.mappings_in(at.space, pages);
        self.work.table_reads = before;
        let is_held = held.iter().any(|held| held.translation.page.size() == size);
        let order = (pages.end - pages.start).ilog2();
        if !is_held && (!held.is_empty() || at.known.tables.has(order, pages.start)) {
            return Ok(Err(Why::OtherSizePresent));
        }
        let (frame, writable) = match self.presence(at.known, region, pages, kind == Kind::Store) {
            Ok(Presence::Whole(frame, writable)) => (frame, writable),
            Ok(Presence::Nothing) => {
                let thp = self.vm.thp.unwrap_or_default();
                if self.shmem_orders(region, page, &thp) & 1 << order == 0 {
                    return Ok(Err(Why::missing(region)));
                }
                let mut how = How::Minor;
                return Ok(match self.fill_shared(at, region, pages, kind, &mut how)? {
                    Ok(loaded) => {
                        if loaded {
                            let decision = (wanted, first.unwrap_or(Why::Obtained));
                            self.decided((at.space, page), decision, size, 1);
                        }
                        Ok(how)
                    }
                    Err(why) => Err(why),
                });
            }
            Err(why) => return Ok(Err(why)),
        };
        if !is_held && !self.is_folio(frame, pages) {
            return Ok(Err(Why::missing(region)));
        }
        let mut how = How::Minor;
        match self.load_whole(at, region, pages, frame, writable, kind, &mut how) {
            Ok(loaded) => {
                if loaded {
                    let decision = (wanted, first.unwrap_or(Why::Obtained));
                    self.decided((at.space, page), decision, size, 1);
                }
                Ok(Ok(how))
            }
            Err(Stop::Full) => Ok(Err(Why::NoFrame)),
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    /// Whether a process may request large pages in `region` (`thp_vma_allowable_orders` for
    /// `TVA_FORCED_COLLAPSE`): advice does not forbid them, the region contains a whole block, and it has
    /// been stored to or is of shared memory. Large pages of files are not modelled.
    pub(super) fn may_collapse(&self, region: &Region) -> bool {
        let order = self.vm.pmd_order();
        let has_block = region.pages.start.div_ceil(1 << order) < region.pages.end >> order;
        let is_right = match region.backing {
            Backing::Anonymous => region.has_own,
            Backing::Private { .. } | Backing::Frames { .. } => false,
            Backing::Shared { .. } => memory_of(self.vm, self.site, region, order).is_some(),
        };
        has_block
            && is_right
            && !region.module.pool
            && advice(region, self.vm.base) != Advice::NoHuge
    }

    /// The number of pages of a block of shared memory that are in memory or in swap.
    pub(super) fn shared_pages(&self, region: &Region, block: &Range<u64>) -> u64 {
        let Backing::Shared { object, first } = region.backing else { return 0 };
        let index = first + (block.start - region.pages.start);
        let pages = index..index + (block.end - block.start);
        self.vm.objects.with(self.site, object, |object| object.pages.range(pages).count() as u64)
    }
}
