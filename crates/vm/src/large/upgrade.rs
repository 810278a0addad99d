//! Pages are made larger when a process requests it (G98 section 6.8).
//!
//! ```text
//!   valid off, flush --> a large frame --> pages of the block migrate into it, others come there
//!                                                    |
//!                          one translation of the new size <--+
//! ```
//!
//! This module implements requests by `madvise`, mainly for text, whose pages have been in the page
//! cache since the program first ran. Both pages of a TLB pair change together, since they must
//! have the same size.

use alloc::vec::Vec;
use core::ops::Range;

use addr::{Kind, PageSize, VirtRange};
use hat::{HatSpace, locking::Site};
use pagetable::Mapping;
use physmem::FrameId;

use super::{Presence, outside};
use crate::{
    error::{Error, Stop},
    fault::RegionPage,
    host::Host,
    kernel::Kernel,
    object::PageLocation,
    platform::{Decided, Platform},
    region::{Backing, Region},
    vm::{AddressSpace, Within},
    work::{Decision, How, Why},
};

/// The requester of larger pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// A process that requested the upgrade.
    Caller,
    /// The kernel, because the pages miss often in the TLB.
    Misses,
}

impl<H: Host> Kernel<'_, H> {
    /// Makes the pages in `range` pages of the size `to`, as far as possible. Returns the number of
    /// large pages that are there afterwards. The reasons for pages that were not made larger are
    /// counted ([`Vm::upgrades`](crate::Vm::upgrades)).
    pub fn upgrade(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        to: PageSize,
    ) -> Result<u64, Error> {
        self.upgrade_for(space, range, to, For::Caller)
    }

    /// Makes pages of the size `to` in `range` because they miss often in the TLB; no process has
    /// requested this. Does nothing if memory would be scarce afterwards. Returns the number of
    /// large pages that are there afterwards.
    pub fn promote_range(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        to: PageSize,
    ) -> Result<u64, Error> {
        self.upgrade_for(space, range, to, For::Misses)
    }

    fn upgrade_for(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        to: PageSize,
        whom: For,
    ) -> Result<u64, Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let asked = self.vm.pages_of(range);
        self.within(space, |kernel, at| {
            kernel.pages_move(|kernel| kernel.upgrade_pages(at, asked, to, whom))
        })
    }

    fn upgrade_pages(
        &mut self,
        at: &mut Within<'_>,
        asked: Range<u64>,
        to: PageSize,
        whom: For,
    ) -> Result<u64, Error> {
        if to <= self.vm.base || !self.vm.sizes.contains(&to) {
            return Ok(0);
        }
        let count = to.count_of(self.vm.base);
        let group = count << u32::from(self.vm.paired);
        let (mut first, mut done) = (asked.start & !(group - 1), 0);
        // Only mapped parts of the requested range are examined.
        while let Some(region) = at.known.regions.from(first) {
            first = first.max(region.pages.start & !(group - 1));
            if first >= asked.end {
                break;
            }
            let is_reserved = Kind::ALL.iter().all(|&kind| !region.rights.allows(kind));
            let end = region.pages.end & !(group - 1);
            if is_reserved && region.pages.start <= first && first < end {
                first = end;
                continue;
            }
            let blocks = (first..first + group).step_by(count as usize);
            let blocks: Vec<Range<u64>> = blocks
                .map(|first| first..first + count)
                .filter(|block| asked.start <= block.start && block.end <= asked.end)
                .collect();
            done += self.upgrade_pair(at, &blocks, to, whom)?;
            first += group;
        }
        Ok(done)
    }

    /// Upgrades the two blocks of a pair, or only the requested one.
    fn upgrade_pair(
        &mut self,
        at: &mut Within<'_>,
        blocks: &[Range<u64>],
        to: PageSize,
        whom: For,
    ) -> Result<u64, Error> {
        let (space, mut ready) = (at.space, Vec::new());
        for block in blocks {
            let Some(region) = at.known.regions.at(block.start).cloned() else {
                continue;
            };
            let is_reserved = Kind::ALL.iter().all(|&kind| !region.rights.allows(kind));
            if is_reserved || region.backing.is_given() {
                continue;
            }
            let held = self.mappings_in(space, block);
            // A page that has this size or a larger one stays unchanged.
            if held.len() == 1 && held[0].translation.page.size() >= to {
                continue;
            }
            let may = match self.may_upgrade(at.known, &region, block) {
                Ok(()) if whom == For::Misses && self.is_scarce(to) => Err(Why::Scarce),
                may => may,
            };
            match may {
                Ok(()) => ready.push((region, block.clone())),
                Err(why) => self.count_upgrade((space, block.start), to, why),
            }
        }
        if let [(_, block)] = &ready[..]
            && self.has_smaller_pair(space, block)
        {
            self.count_upgrade((space, block.start), to, Why::PairRule);
            return Ok(0);
        }
        let mut done = 0;
        // Both blocks are unloaded first, because during the change the two pages of the pair must
        // not have different sizes.
        for (_, block) in &ready {
            self.unload(at, block)?;
        }
        for (region, block) in &ready {
            let place = (space, block.start);
            match self.upgrade_block(at, region, block) {
                Ok(Ok(())) => {
                    done += 1;
                    self.work.upgrades += 1;
                    self.count_upgrade(place, to, Why::Obtained);
                }
                Ok(Err(why)) => self.count_upgrade(place, to, why),
                Err(Stop::Full) => self.count_upgrade(place, to, Why::NoFrame),
                Err(Stop::Refused(error)) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Whether the other page of the pair is loaded at a smaller size, if pages come in pairs.
    /// Migration can cause different sizes within a pair, because a page that it splits may also be
    /// mapped in other spaces.
    pub(crate) fn has_smaller_pair(&mut self, space: HatSpace, block: &Range<u64>) -> bool {
        let size = self.vm.size_of(block);
        let smaller = |mapping: &Mapping| mapping.translation.page.size() < size;
        self.vm.paired && self.mappings_in(space, &self.vm.pair_of(block)).iter().any(smaller)
    }

    /// Counts a requested large page, whose first base page is `page`, by the outcome.
    pub(crate) fn count_upgrade(
        &mut self,
        (space, page): (HatSpace, u64),
        wanted: PageSize,
        why: Why,
    ) {
        let got = if why == Why::Obtained { wanted } else { self.vm.base };
        let decision = Decision { wanted, got, why };
        self.platform.decided(space, self.vm.addr_of(page), decision, Decided::Asked);
        self.vm.add_counts(|counts| *counts.upgrades.entry(decision).or_insert(0) += 1);
    }

    fn may_upgrade(
        &self,
        known: &AddressSpace,
        region: &Region,
        block: &Range<u64>,
    ) -> Result<(), Why> {
        if block.start < region.pages.start || block.end > region.pages.end {
            return Err(outside(known, region, block));
        }
        let resident = self.resident(known, region, block);
        let is_wired = |frame: &FrameId| self.pfdat(*frame).wired > 0;
        if resident.iter().flatten().any(is_wired) {
            return Err(Why::Wired);
        }
        Ok(())
    }

    /// For each base page of a block: its frame if the page is in memory.
    fn resident(
        &self,
        known: &AddressSpace,
        region: &Region,
        block: &Range<u64>,
    ) -> Vec<Option<FrameId>> {
        let place = |page: u64| match (known.anons.get(page), region.backing) {
            (Some(anon), _) => Some(self.anon(anon).place),
            (None, Backing::Anonymous | Backing::Frames { .. }) => None,
            (None, Backing::Private { object, first } | Backing::Shared { object, first }) => {
                let index = first + (page - region.pages.start);
                self.object_place_of(object, index)
            }
        };
        let frame = |page| match place(page) {
            Some(PageLocation::Resident(frame)) => Some(frame),
            Some(PageLocation::Swapped(_)) | None => None,
        };
        block.clone().map(frame).collect()
    }

    fn upgrade_block(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        block: &Range<u64>,
    ) -> Result<Result<(), Why>, Stop> {
        let mut how = How::Minor;
        // Pages that are already in the right frames keep them.
        if let Ok(Presence::Whole(frame, writable)) = self.presence(at.known, region, block, false)
        {
            self.load_large(at, region, block, frame, writable, &mut how)?;
            return Ok(Ok(()));
        }
        if self.free_pages() < block.end - block.start + self.vm.marks.min() {
            return Err(Stop::Full);
        }
        let request = self.large_request(region, block);
        let large = self.frames(|memory| memory.allocate(&request)).map_err(|_| Stop::Full)?;
        self.work.frames_taken += 1 << request.order;
        let resident = self.resident(at.known, region, block);
        let (mut moves, mut holes) = (Vec::new(), Vec::new());
        for ((page, from), to) in block.clone().zip(resident).zip(self.frames_of(large, block)) {
            match from {
                Some(from) => moves.push((from, to)),
                None => holes.push((page, to)),
            }
        }
        self.migrate(&moves);
        let (mut stopped, mut left) = (None, Vec::new());
        for (page, frame) in holes {
            let mut given = Some(frame);
            if stopped.is_none() {
                let said = RegionPage::of_kernel(region, page);
                match self.page_for(at, (page, &said), Kind::Load, &mut given, &mut how) {
                    Ok(needed) => left.extend(needed.left),
                    Err(stop) => stopped = Some(stop),
                }
            }
            if let Some(frame) = given {
                self.free_frame(frame);
            }
        }
        left.into_iter().for_each(|anon| self.leave(anon, false));
        if let Some(stop) = stopped {
            return Err(stop);
        }
        self.unload(at, block)?;
        if self.has_smaller_pair(at.space, block) {
            return Ok(Err(Why::PairRule));
        }
        match self.presence(at.known, region, block, false) {
            Ok(Presence::Whole(frame, writable)) => {
                self.load_large(at, region, block, frame, writable, &mut how)?;
                Ok(Ok(()))
            }
            // If pages are missing, those in memory stay base pages.
            Ok(Presence::Nothing) => Ok(Err(Why::missing(region))),
            Err(why) => Ok(Err(why)),
        }
    }
}
