//! Pages get larger where a process asks for it (G98 section 6.8).
//!
//! ```text
//!   valid off, flush --> a large frame --> pages of the block migrate into it, others come there
//!                                                    |
//!                          one translation of the new size <--+
//! ```
//!
//! It is what `madvise` asks for: of text above all, whose pages are in the page cache since the program
//! ran the first time. Both pages of a TLB's pair change together, as neither may have another size.

use alloc::vec::Vec;
use core::ops::Range;

use addr::{Kind, PageSize, VirtRange};
use hat::HatSpace;
use pagetable::Mounted;
use physmem::{Allocator, FrameId, Request, State};

use super::Presence;
use crate::{
    error::{Error, Stop},
    object::Place,
    platform::Platform,
    region::{Backing, Region},
    vm::Kernel,
    work::{Decision, How, Why},
};

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// Has the pages of `range` be of the size `to`, as far as that can be, and says how many large
    /// pages there are for it now. Why others are not larger is counted
    /// ([`Vm::upgrades`](crate::Vm::upgrades)).
    pub fn upgrade(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        to: PageSize,
    ) -> Result<u64, Error> {
        self.vm.work.calls += 1;
        let asked = self.vm.pages_of(range);
        if to <= self.vm.base || !self.vm.sizes.contains(&to) {
            return Ok(0);
        }
        let count = to.count_of(self.vm.base);
        let group = count << u32::from(self.vm.paired);
        let (mut first, mut done) = (asked.start & !(group - 1), 0);
        while first < asked.end {
            let blocks = (first..first + group).step_by(count as usize);
            let blocks: Vec<Range<u64>> = blocks
                .map(|first| first..first + count)
                .filter(|block| asked.start <= block.start && block.end <= asked.end)
                .collect();
            done += self.upgrade_pair(space, &blocks, to)?;
            first += group;
        }
        Ok(done)
    }

    /// Upgrades the blocks of one pair, or those of them that were asked for.
    fn upgrade_pair(
        &mut self,
        space: HatSpace,
        blocks: &[Range<u64>],
        to: PageSize,
    ) -> Result<u64, Error> {
        let mut ready = Vec::new();
        for block in blocks {
            let Some(region) = self.vm.space(space)?.regions.at(block.start).cloned() else {
                continue;
            };
            if Kind::ALL.iter().all(|&kind| !region.rights.allows(kind)) {
                continue;
            }
            let held = self.mappings_in(space, block);
            if held.len() == 1 && held[0].translation.page.size() == to {
                continue;
            }
            match self.may_upgrade(space, &region, block) {
                Ok(()) => ready.push((region, block.clone())),
                Err(why) => self.count_upgrade(region.label, to, why),
            }
        }
        if let [(region, block)] = &ready[..]
            && self.vm.paired
        {
            let other = self.mappings_in(space, &self.vm.pair_of(block));
            if other.iter().any(|mapping| mapping.translation.page.size() < to) {
                self.count_upgrade(region.label, to, Why::PairRule);
                return Ok(0);
            }
        }
        let mut done = 0;
        // Neither may be in the other's way while it changes.
        for (_, block) in &ready {
            self.unload(space, block)?;
        }
        for (region, block) in &ready {
            match self.upgrade_block(space, region, block) {
                Ok(()) => {
                    done += 1;
                    self.vm.work.upgrades += 1;
                    self.count_upgrade(region.label, to, Why::Obtained);
                }
                Err(Stop::Full) => self.count_upgrade(region.label, to, Why::NoFrame),
                Err(Stop::Refused(error)) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Counts a large page that was asked for by what became of it.
    pub(crate) fn count_upgrade(&mut self, label: u32, wanted: PageSize, why: Why) {
        let got = if why == Why::Obtained { wanted } else { self.vm.base };
        *self.vm.upgrades.entry(Decision { label, wanted, got, why }).or_insert(0) += 1;
    }

    fn may_upgrade(
        &mut self,
        space: HatSpace,
        region: &Region,
        block: &Range<u64>,
    ) -> Result<(), Why> {
        if block.start < region.pages.start || block.end > region.pages.end {
            return Err(self.outside(space, region, block));
        }
        let resident = self.resident(space, region, block);
        let is_wired = |frame: &FrameId| self.memory.table().get(*frame).wired > 0;
        if resident.iter().flatten().any(is_wired) {
            return Err(Why::Wired);
        }
        Ok(())
    }

    /// Where the base pages of a block are in memory.
    fn resident(
        &self,
        space: HatSpace,
        region: &Region,
        block: &Range<u64>,
    ) -> Vec<Option<FrameId>> {
        let Some(known) = self.vm.spaces.get(&space) else { return Vec::new() };
        let place = |page: u64| match (known.anons.get(page), region.backing) {
            (Some(anon), _) => Some(self.vm.anons.get(anon).place),
            (None, Backing::Anonymous) => None,
            (None, Backing::Private { object, first } | Backing::Shared { object, first }) => {
                let index = first + (page - region.pages.start);
                self.vm.objects.get(object).pages.get(&index).copied()
            }
        };
        let frame = |page| match place(page) {
            Some(Place::Resident(frame)) => Some(frame),
            Some(Place::Swapped(_)) | None => None,
        };
        block.clone().map(frame).collect()
    }

    fn upgrade_block(
        &mut self,
        space: HatSpace,
        region: &Region,
        block: &Range<u64>,
    ) -> Result<(), Stop> {
        let mut how = How::Minor;
        // Frames that are right stay.
        if let Ok(Presence::Whole(frame, writable)) = self.presence(space, region, block, false) {
            self.load_large(space, region, block, frame, writable, &mut how)?;
            return Ok(());
        }
        let order = self.memory.table().order(self.vm.size_of(block));
        if self.free_pages() < block.end - block.start + self.vm.marks.min {
            return Err(Stop::Full);
        }
        let request = Request { node: region.module.home, ..Request::new(order, State::Movable) };
        let large = self.memory.allocate(&request).map_err(|_| Stop::Full)?;
        self.vm.work.frames_taken += 1 << order;
        let resident = self.resident(space, region, block);
        let (mut moves, mut holes) = (Vec::new(), Vec::new());
        for ((page, from), to) in block.clone().zip(resident).zip(self.frames_of(large, block)) {
            match from {
                Some(from) => moves.push((from, to)),
                None => holes.push((page, to)),
            }
        }
        self.migrate(&moves);
        let mut stopped = None;
        for (page, frame) in holes {
            let mut given = Some(frame);
            if stopped.is_none() {
                let kind = Kind::ALL.into_iter().find(|&kind| region.rights.allows(kind));
                let came =
                    self.page_for(space, page, kind.unwrap_or(Kind::Load), &mut given, &mut how);
                stopped = came.err();
            }
            if let Some(left) = given {
                self.free_frame(left);
            }
        }
        if let Some(stop) = stopped {
            return Err(stop);
        }
        self.unload(space, block)?;
        match self.presence(space, region, block, false) {
            Ok(Presence::Whole(frame, writable)) => {
                self.load_large(space, region, block, frame, writable, &mut how)?;
                Ok(())
            }
            Ok(Presence::Nothing) | Err(_) => {
                unreachable!("all pages of the block have just come into its frames")
            }
        }
    }
}
