//! Collapsing base pages that are in memory into large pages (`mm/khugepaged.c`).
//!
//! ```text
//!   every so often: the next blocks of 2M, round and round all spaces
//!     |   pages by what they are:   none   in swap   shared   in memory      which was used?
//!     |                more than max_ptes_none, _swap, _shared? no large page
//!     v
//!   a free frame of 2M -- no --> the daemon sleeps longer
//!     |
//!   translations off, flush --> copied, read from swap, zeroed --> one large translation
//! ```
//!
//! A page shared by a fork is copied; a page with one user is moved, and a page that was locked in memory stays
//! locked. Unlike Linux, this daemon skips a block of anonymous memory if a shared page of it is in swap, and a block
//! of shared memory if another space has locked a page of it. Where pages of 1G are allowed, a block of 1G is scanned
//! before the blocks of 2M in it, with limits that are 512 times as large.

use alloc::vec::Vec;
use core::{ops::Range, sync::atomic::Ordering};

use addr::{Kind, Rights, VirtRange};
use hat::{
    HatSpace,
    locking::{Locks, Mutex, Site},
};
use physmem::FrameId;

use crate::{
    error::{Error, Stop},
    fault::RegionPage,
    frames::REFERENCED,
    host::Host,
    kernel::Kernel,
    large::Presence,
    object::PageLocation,
    region::{Backing, Region},
    settings::Reference,
    thp::{Collapsed, Khugepaged, Refused, ScanResult, Scanned},
    vm::{Vm, Within},
    work::How,
};

impl<H: Host> Kernel<'_, H> {
    /// One pass of the daemon.
    pub fn khugepaged(&mut self) -> Collapsed {
        self.site = Site::Page;
        let mut done = Collapsed::default();
        let Some(thp) = self.thp_now() else { return done };
        if let Some((made, starved)) = self.promote_instead(&thp) {
            self.lists(|lists, _| lists.khugepaged.scanned.passes += 1);
            return Collapsed { made, starved };
        }
        let (space, page) = self.lists(|lists, _| {
            lists.khugepaged.scanned.passes += 1;
            lists.khugepaged.next
        });
        let is_there = |slot: &<H::Locks as Locks>::Mutex<_>| {
            slot.with(Site::Page, |known| Option::is_some(known))
        };
        let all = self.vm.spaces.all().filter(|(_, slot)| is_there(slot));
        let mut spaces: Vec<u32> = all.map(|(number, _)| number).collect();
        // A pass is cyclic: from the space where the last pass stopped to the space before it.
        let before = spaces.partition_point(|&number| number < space);
        spaces.rotate_left(before);
        let mut left = thp.khugepaged.pages_to_scan;
        for number in spaces {
            let from = if number == space { page } else { 0 };
            let stopped = self.within(HatSpace(number), |kernel, at| {
                Ok(kernel.pages_move(|kernel| kernel.scan_space(at, from, &mut left, &mut done)))
            });
            if let Ok(Some(next)) = stopped {
                self.lists(|lists, _| lists.khugepaged.next = (number, next));
                return done;
            }
        }
        self.lists(|lists, _| lists.khugepaged.next = (0, 0));
        done
    }

    /// Scans the blocks of a space from page `from` on. If the pass ends before the space does,
    /// returns the page at which the next one continues.
    fn scan_space(
        &mut self,
        at: &mut Within<'_>,
        from: u64,
        left: &mut u64,
        done: &mut Collapsed,
    ) -> Option<u64> {
        let thp = self.thp_now()?;
        let (base, order) = (self.vm.base, self.vm.pmd_order());
        let behind = |region: &&Region| region.pages.end > from;
        let regions: Vec<Region> = at.known.regions.all().filter(behind).cloned().collect();
        for region in regions {
            let shared = self.shmem_orders(&region, region.pages.start, &thp);
            let allowed = thp.orders(&region, base) | shared & 1 << order;
            let looked_at = |of: &u32| *of >= order && allowed & 1 << of != 0;
            let orders: Vec<u32> = self.vm.page_orders().filter(looked_at).collect();
            let least = orders.last().copied().unwrap_or(order);
            let mut blocks = whole_blocks(&region.pages, least);
            let has_smaller = thp.collapses_smaller && allowed & !1 != 0;
            if orders.is_empty() && !has_smaller || blocks.is_empty() {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    return Some(region.pages.end);
                }
                continue;
            }
            blocks.start = blocks.start.max(from.div_ceil(1 << least));
            for first in blocks {
                let start = first << least;
                let mut found = ScanResult::PmdNone;
                // Of the blocks that begin here, the largest is scanned first.
                for &of in &orders {
                    let block = start..start + (1 << of);
                    if start.trailing_zeros() < of || block.end > region.pages.end {
                        continue;
                    }
                    let limits = thp.khugepaged.of_blocks(of - order);
                    let looked = self.collapse_if(at, &region, &block, Some(&limits));
                    found = looked.unwrap_or(ScanResult::AllocHugePageFail);
                    self.count_scan((at.space, start), found);
                }
                if thp.collapses_smaller && least == order && !found.ends_block() {
                    let smaller = allowed & ((1 << order) - 1);
                    self.collapse_smaller(at, &region, (start, order), smaller, &thp);
                }
                done.made += u64::from(least == order && found == ScanResult::Succeed);
                *left = left.saturating_sub(1 << order);
                let end = start + (1 << least);
                if least == order && found == ScanResult::AllocHugePageFail {
                    done.starved = true;
                    return Some(end);
                }
                if *left == 0 {
                    return Some(end);
                }
            }
        }
        None
    }

    /// Makes the blocks of `range` large pages, regardless of the settings (`MADV_COLLAPSE`), and returns
    /// how many were made. Like the kernel's call, it ends at the first region that may have no large page,
    /// and at the first block that has nothing in memory or for which no frame is free (`madvise_collapse`).
    ///
    /// If the kernel of a recording refused the call although no rule here refuses it, the kernel
    /// had another reason. In this case nothing is done if that kernel may not support the call, or
    /// if the call was for a single block.
    pub fn collapse(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        refused: Refused,
    ) -> Result<u64, Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let (asked, order) = (self.vm.pages_of(range), self.vm.pmd_order());
        if order == 0 {
            return Ok(0);
        }
        let needs_reason = match refused {
            Refused::No => false,
            Refused::Known => whole_blocks(&asked, order).count() == 1,
            Refused::Unknown => true,
        };
        self.within(space, |kernel, at| {
            kernel.pages_move(|kernel| {
                if needs_reason {
                    let before = kernel.work;
                    let look = |kernel: &mut Self, at: &mut Within<'_>, region: &Region, block| {
                        Ok(kernel.scan(at, region, &block, None))
                    };
                    let refused = kernel.each_block(at, &asked, look)?;
                    kernel.work = before;
                    if !refused {
                        return Ok(0);
                    }
                }
                let mut made = 0;
                kernel.each_block(at, &asked, |kernel, at, region, block| {
                    let found = kernel.collapse_if(at, region, &block, None)?;
                    kernel.count_scan((space, block.start), found);
                    made += u64::from(found == ScanResult::Succeed);
                    Ok(found)
                })?;
                Ok(made)
            })
        })
    }

    /// Calls `each` for every block that a request for large pages in `asked` scans, up to the block that
    /// ends the call. Returns whether the call fails with `EINVAL` (`madvise_collapse_errno`).
    fn each_block(
        &mut self,
        at: &mut Within<'_>,
        asked: &Range<u64>,
        mut each: impl FnMut(
            &mut Self,
            &mut Within<'_>,
            &Region,
            Range<u64>,
        ) -> Result<ScanResult, Error>,
    ) -> Result<bool, Error> {
        let (order, mut is_invalid) = (self.vm.pmd_order(), false);
        let mut regions: Vec<Region> = at.known.regions.within(asked).cloned().collect();
        regions.reverse();
        for region in regions {
            if !self.may_collapse(&region) {
                return Ok(true);
            }
            let part = region.pages.start.max(asked.start)..region.pages.end.min(asked.end);
            let Range { start: mut first, end } = whole_blocks(&part, order);
            while first < end {
                let next = self.next_table(at, &region, first << order);
                let next = next.map_or(end, |page| first.max(page >> order)).min(end);
                is_invalid |= next > first;
                first = next;
                if first == end {
                    break;
                }
                let block = first << order..(first + 1) << order;
                first += 1;
                let found = each(self, at, &region, block)?;
                is_invalid |= found == ScanResult::PmdNone;
                if !found.goes_on() {
                    return Ok(is_invalid);
                }
            }
        }
        Ok(is_invalid)
    }

    /// The first page, from `page` on, whose upper page table exists, as derived from the pages that are
    /// mapped. Blocks before it are skipped (`SCAN_PMD_NULL`), however large the region is. Shared memory
    /// needs no table.
    fn next_table(&self, at: &Within<'_>, region: &Region, page: u64) -> Option<u64> {
        if region.backing != Backing::Anonymous {
            return Some(page);
        }
        // Earlier pages that are mapped by the same table count too.
        let order = 2 * self.vm.pmd_order();
        let around = Vm::<H::Locks>::aligned(page, order).start;
        let anon = at.known.anons.within(around..u64::MAX).next().map(|(page, _)| page);
        let table = at.known.tables.next(self.vm.pmd_order(), around);
        let found = anon.into_iter().chain(table).min()?;
        Some(page.max(Vm::<H::Locks>::aligned(found, order).start))
    }

    pub(crate) fn count_scan(&mut self, place: (HatSpace, u64), found: ScanResult) {
        self.lists(|lists, _| lists.khugepaged.scanned.results[found as usize] += 1);
        if let (Some(why), Some(&size)) = (found.why(), self.vm.sizes.last()) {
            self.count_upgrade(place, size, why);
        }
    }

    /// Makes a large page of `block` if its pages allow it within `limits`.
    pub(crate) fn collapse_if(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        block: &Range<u64>,
        limits: Option<&Khugepaged>,
    ) -> Result<ScanResult, Error> {
        let order = (block.end - block.start).ilog2();
        let found = self.scan(at, region, block, limits);
        if found != ScanResult::Succeed {
            return Ok(found);
        }
        match self.collapse_block(at, region, block) {
            Ok(()) => {
                self.work.upgrades += 1;
                self.stats(order, |of| of.collapse_alloc += 1);
                Ok(ScanResult::Succeed)
            }
            Err(Stop::Full) => {
                self.stats(order, |of| of.collapse_alloc_failed += 1);
                Ok(ScanResult::AllocHugePageFail)
            }
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    /// Whether `block` may become one large page (`hpage_collapse_scan_pmd`).
    fn scan(
        &mut self,
        at: &Within<'_>,
        region: &Region,
        block: &Range<u64>,
        limits: Option<&Khugepaged>,
    ) -> ScanResult {
        let is_inside = region.pages.start <= block.start && block.end <= region.pages.end;
        let has_any = match region.backing {
            Backing::Anonymous | Backing::Private { .. } | Backing::Frames { .. } => {
                at.known.anons.within(block.clone()).next().is_some()
                    || at.known.tables.has((block.end - block.start).ilog2(), block.start)
            }
            // If the object has no page in the block, there is nothing to collapse
            // (`collapse_file`: `SCAN_TRUNCATED`).
            Backing::Shared { .. } => self.shared_pages(region, block) > 0,
        };
        // For a process that requests a collapse, a block that has only pages of zeros is enough.
        let has_zeros = limits.is_none() && region.backing == Backing::Anonymous;
        if !is_inside || !has_any && !has_zeros {
            return ScanResult::PmdNone;
        }
        let held = self.mappings_in(at.space, block);
        if !has_any && held.is_empty() {
            return ScanResult::PmdNone;
        }
        if held.first().is_some_and(|held| held.translation.page.size() >= self.vm.size_of(block)) {
            return ScanResult::PmdMapped;
        }
        // The tables for the block are read completely.
        self.work.table_reads += (block.end - block.start).saturating_sub(held.len() as u64);
        let mut held = held.iter().peekable();
        let (mut none, mut swapped, mut shared, mut referenced) = (0, 0, 0, 0);
        let over = |count: u64, limit: fn(&Khugepaged) -> u64| {
            limits.is_some_and(|limits| count > limit(limits))
        };
        for page in block.clone() {
            let addr = self.vm.addr_of(page);
            let mapping = held.next_if(|held| held.translation.page.start() <= addr);
            let Some((place, users)) = self.place_in(at, region, page) else {
                none += 1;
                if over(none, |limits| limits.max_ptes_none) {
                    return ScanResult::ExceedNonePte;
                }
                continue;
            };
            let is_shared = users > 1;
            match place {
                PageLocation::Swapped(_) => {
                    swapped += 1;
                    if is_shared {
                        return ScanResult::ExceedSharedPte;
                    }
                    if over(swapped, |limits| limits.max_ptes_swap) {
                        return ScanResult::ExceedSwapPte;
                    }
                }
                PageLocation::Resident(frame) => {
                    shared += u64::from(is_shared);
                    if over(shared, |limits| limits.max_ptes_shared) {
                        return ScanResult::ExceedSharedPte;
                    }
                    let pfdat = self.pfdat(frame);
                    // Shared pages are copied, not moved, so that wiring does not matter for them.
                    let own = u32::from(at.known.wired.contains_key(&page));
                    if users == 1 && u32::from(pfdat.wired) > own {
                        return ScanResult::PageCount;
                    }
                    let is_young = mapping.is_some_and(|mapping| {
                        self.vm.reference == Reference::ValidBit || mapping.usage.referenced
                    });
                    referenced += u64::from(is_young || pfdat.flags & REFERENCED != 0);
                }
            }
        }
        let enough = if swapped > 0 { (block.end - block.start) / 2 } else { 1 };
        if limits.is_some() && referenced < enough {
            return ScanResult::LackReferencedPage;
        }
        ScanResult::Succeed
    }

    /// The place of a page that a collapse finds, and the number of spaces that use the page as
    /// their own.
    fn place_in(&self, at: &Within<'_>, region: &Region, page: u64) -> Option<(PageLocation, u32)> {
        match (at.known.anons.get(page), region.backing) {
            (Some(anon), _) => {
                let anon = self.anon(anon);
                Some((anon.place, anon.refs))
            }
            (None, Backing::Shared { object, first }) => {
                let index = first + (page - region.pages.start);
                Some((self.object_place_of(object, index)?, 1))
            }
            (None, Backing::Anonymous | Backing::Private { .. } | Backing::Frames { .. }) => None,
        }
    }

    /// Brings all pages of `block` into one large frame and loads it. Pages that the space has wired are
    /// wired in the new frame.
    fn collapse_block(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        block: &Range<u64>,
    ) -> Result<(), Stop> {
        self.unwire_pages(at, block.clone());
        let done = self.bring_together(at, region, block);
        if region.wired.stays() {
            self.wire_present(at, block);
        }
        done
    }

    /// Brings all pages of `block`, none of which the space has wired, into one large frame and loads
    /// it (`collapse_huge_page`, `collapse_file`).
    fn bring_together(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        block: &Range<u64>,
    ) -> Result<(), Stop> {
        let is_shared = matches!(region.backing, Backing::Shared { .. });
        // Another space has already collapsed the block.
        if is_shared
            && let Ok(Presence::Whole(frame, _)) = self.presence(at.known, region, block, false)
            && self.is_folio(frame, block)
        {
            self.unload(at, block)?;
            return self.load_collapsed(at, region, block);
        }
        if self.lacks(block) {
            return Err(Stop::Full);
        }
        let mut large = self.block_frames(at, region, block);
        if large.is_none() && self.vm.thp.is_some_and(|thp| thp.khugepaged.defrag) {
            let order = (block.end - block.start).ilog2() + self.memory.order(self.vm.base);
            self.compact_here(order);
            large = self.block_frames(at, region, block);
        }
        let large = large.ok_or(Stop::Full)?;
        self.prezeroed = false;
        self.unload(at, block)?;
        let (mut moves, mut comes) = (Vec::new(), Vec::new());
        for (page, to) in block.clone().zip(self.frames_of(large, block)) {
            match self.place_in(at, region, page) {
                Some((PageLocation::Resident(from), 1)) => moves.push((from, to)),
                Some((PageLocation::Resident(_), _)) => comes.push((page, to, Kind::Store)),
                Some((PageLocation::Swapped(_), _)) | None => comes.push((page, to, Kind::Load)),
            }
        }
        moves.iter().for_each(|&(from, _)| self.split_folio(from));
        if is_shared {
            let frames: Vec<FrameId> = moves.iter().map(|&(from, _)| from).collect();
            self.unload_frames(frames.iter().copied());
        }
        self.migrate(&moves);
        let (mut how, mut stopped, mut left) = (How::Minor, None, Vec::new());
        for (page, frame, kind) in comes {
            let mut given = Some(frame);
            if stopped.is_none() {
                let said = RegionPage::of_kernel(region, page);
                match self.page_for(at, (page, &said), kind, &mut given, &mut how) {
                    Ok(needed) => left.extend(needed.left),
                    Err(stop) => stopped = Some(stop),
                }
            }
            if let Some(frame) = given {
                self.free_frame(frame);
            }
        }
        left.into_iter().for_each(|anon| self.leave(anon, true));
        match stopped {
            Some(stop) => Err(stop),
            None => self.load_collapsed(at, region, block),
        }
    }

    /// Loads a block whose pages have been brought into the frames of a large page. Hardware has no
    /// translation in it.
    fn load_collapsed(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        block: &Range<u64>,
    ) -> Result<(), Stop> {
        let presence = self.presence(at.known, region, block, false);
        let Ok(Presence::Whole(frame, writable)) = presence else {
            // The pages that are in memory stay base pages.
            return Err(Stop::Full);
        };
        self.enter_folio_at(frame, block);
        if matches!(region.backing, Backing::Shared { .. }) {
            self.vm.has_large_objects.store(true, Ordering::Relaxed);
        }
        if region.rights == Rights::NONE {
            // The large page is loaded when its region allows accesses again.
            let order = (block.end - block.start).ilog2();
            at.known.tables.forget(self.vm.page_orders().filter(|of| *of <= order), block);
            return Ok(());
        }
        if self.vm.page_orders().all(|of| block.end - block.start != 1 << of) {
            return self.load_side_by_side(at, region, block, frame, writable);
        }
        self.load_large(at, region, block, frame, writable, &mut How::Minor)?;
        Ok(())
    }
}

impl<L: Locks> Vm<L> {
    /// Counts of what the daemon has done.
    pub fn scanned(&self) -> Scanned {
        self.pages.with(Site::Look, |lists| lists.khugepaged.scanned)
    }
}

/// The numbers of the blocks of `2^order` pages that are completely in `pages`.
fn whole_blocks(pages: &Range<u64>, order: u32) -> Range<u64> {
    pages.start.div_ceil(1 << order)..pages.end >> order
}
