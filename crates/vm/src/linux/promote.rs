//! Ingens (Kwon and others 2016) and HawkEye (Panwar and others 2019): policies that choose the blocks
//! that become large pages, in place of `khugepaged`'s cyclic scan.
//!
//! ```text
//!   ingens    fault fills 460 of 512 base pages of a block --> a queue
//!             daemon, at once: blocks of the space that has fewest large pages for its memory first
//!             (what it knows of use: `ingens`)
//!
//!   hawkeye   bits of use are cleared; a second later: how many of a block's pages were used?
//!             coverage = 0.6 of what it was + 0.4 of that --> bins by log2
//!             daemon: the highest bin first, one block per space in turn; or before that the space
//!             which translation costs most
//!             free blocks are filled with zeros ahead; where memory is scarce, base pages of zeros in
//!             large pages are given back
//! ```
//!
//! The parameters are those of the sources: ut-osa/ingens fb1f78e5, apanwariisc/HawkEye d9594ec.
//! The cost of translation for each space is supplied from outside, like the one that HawkEye's
//! `promotion_metric` 0 reads from performance counters. Without this cost, all spaces are equal
//! (metric 2). Traces do not have the contents of memory: the share of base pages that contain
//! zeros is a parameter.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::{cmp::Reverse, ops::Range};

use addr::VirtRange;
use hat::{
    HatSpace,
    locking::{Locks, Mutex, Site},
};
use pagetable::Usage;
use physmem::{Allocator, FrameId, State};

use crate::{
    host::Host,
    kernel::Kernel,
    object::PageLocation,
    platform::Platform,
    region::Region,
    thp::{BINS, Ingens, Promoted, Promoter, ScanResult, Thp},
    vm::{Vm, Within},
};

/// First pages of blocks, by the number of their space.
type BySpace = BTreeMap<u32, VecDeque<u64>>;
/// The number of failures that end a round.
const FAILURES_MAX: u32 = 100;

impl<L: Locks> Vm<L> {
    /// Counts of what Ingens' and HawkEye's daemons have done.
    pub fn promoted(&self) -> Promoted {
        self.pages.with(Site::Look, |lists| lists.promoting.promoted)
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Records that a fault has brought in `page`, and queues its block if the block is now full
    /// enough.
    pub(crate) fn note_filled(&mut self, at: &Within<'_>, page: u64, thp: &Thp) {
        let Promoter::Ingens(ingens) = thp.promoter else { return };
        let block = Vm::<H::Locks>::aligned(page, self.vm.pmd_order());
        if at.known.anons.count(block.clone()) < self.util_now(&ingens) {
            return;
        }
        let key = (at.space.0, block.start);
        self.lists(|lists, _| {
            let known = &mut lists.promoting;
            if known.known.insert(key) {
                known.filled.push_back(key);
                known.promoted.filled += 1;
            }
        });
    }

    /// Whether blocks are queued that have become full enough.
    pub(crate) fn wants_promotion(&self) -> bool {
        self.lists(|lists, _| !lists.promoting.filled.is_empty())
    }

    /// Makes large pages of the queued blocks. The space that has the fewest large pages for its memory
    /// comes first; within a space, the block that was used most, or that was queued first.
    pub(crate) fn promote_filled(&mut self) {
        if !self.wants_promotion() {
            return;
        }
        let Some(thp) = self.thp_now() else { return };
        let mut queue: Vec<((u32, u64), u32)> = self.lists(|lists, _| {
            let known = &mut lists.promoting;
            known.known.clear();
            let filled: Vec<_> = known.filled.drain(..).collect();
            filled.into_iter().map(|block| (block, known.in_use.heat(&block))).collect()
        });
        let need = self.needs(queue.iter().map(|((space, _), _)| *space));
        // The sort is stable: blocks with equal use stay in the order in which they were filled.
        queue.sort_by_key(|((space, _), heat)| {
            (Reverse(need.get(space).copied().unwrap_or(0)), Reverse(*heat))
        });
        for ((space, first), _) in queue {
            let found = self.promote_one(HatSpace(space), first, &thp);
            if found == Some(ScanResult::AllocHugePageFail) {
                break;
            }
        }
    }

    /// The value of [`need`](Kernel::need) for each space, if there are several spaces.
    pub(super) fn needs(&mut self, spaces: impl Iterator<Item = u32>) -> BTreeMap<u32, u64> {
        let spaces: BTreeSet<u32> = spaces.collect();
        if spaces.len() < 2 {
            return BTreeMap::new();
        }
        spaces.into_iter().map(|space| (space, self.need(HatSpace(space)).unwrap_or(0))).collect()
    }

    /// A space's memory per large page that it has, in per cent of 2M.
    fn need(&mut self, space: HatSpace) -> Option<u64> {
        let order = self.vm.pmd_order();
        let all = self.within(space, |kernel, at| Ok(kernel.anon_pages(at))).ok()?;
        let mut large = 0;
        let base = self.vm.base;
        self.hat.visit(space, VirtRange::ALL, &mut |mapping| {
            large += u64::from(mapping.translation.page.size() > base);
        });
        Some(((all * 100) >> order) / large.max(1))
    }

    fn anon_pages(&self, at: &Within<'_>) -> u64 {
        at.known.anons.count(0..u64::MAX)
    }

    /// Makes a large page of one block, within the daemon's limits.
    pub(super) fn promote_one(
        &mut self,
        space: HatSpace,
        first: u64,
        thp: &Thp,
    ) -> Option<ScanResult> {
        let order = self.vm.pmd_order();
        let block = first..first + (1 << order);
        let limits = thp.khugepaged;
        let found = self.within(space, |kernel, at| {
            let Some(region) = at.known.regions.at(first).cloned() else { return Ok(None) };
            if thp.orders(&region, kernel.vm.base) & 1 << order == 0 {
                return Ok(None);
            }
            let found = kernel
                .pages_move(|kernel| kernel.collapse_if(at, &region, &block, Some(&limits)))?;
            kernel.count_scan((space, first), found);
            Ok(Some(found))
        });
        found.ok().flatten()
    }

    /// Clears the accessed bits of all base pages in regions that may have large pages.
    pub fn begin_sample(&mut self) {
        self.site = Site::Page;
        let Some(thp) = self.vm.thp else { return };
        for (space, region) in self.regions_for(&thp) {
            let mut frames = Vec::new();
            let base = self.vm.base;
            self.hat.visit(space, self.vm.range_of(&region.pages), &mut |mapping| {
                if mapping.translation.page.size() == base && mapping.usage.referenced {
                    frames.push(mapping.translation.frame);
                }
            });
            let clear = Usage { referenced: true, ..Usage::default() };
            for frame in frames {
                if self.holds_zeros(frame) {
                    continue;
                }
                let (hat, mut below) = self.hat();
                hat.usage(frame, base, clear, &mut below);
            }
        }
    }

    /// Reads the accessed bits and counts, for each block, the base pages that were used since the
    /// bits were cleared.
    pub fn end_sample(&mut self) {
        self.site = Site::Page;
        let Some(thp) = self.vm.thp else { return };
        let order = self.vm.pmd_order();
        let before = self.lists(|lists, _| core::mem::take(&mut lists.promoting.coverage));
        let mut coverage = BTreeMap::new();
        let mut bins = [0; BINS];
        for (space, region) in self.regions_for(&thp) {
            let mut used: BTreeMap<u64, u32> = BTreeMap::new();
            let (base, mut held) = (self.vm.base, Vec::new());
            self.hat.visit(space, self.vm.range_of(&region.pages), &mut |mapping| {
                held.push((mapping.translation, mapping.usage.referenced));
            });
            self.work.table_reads += held.len() as u64;
            for (of, is_used) in held {
                if of.page.size() == base && !self.holds_zeros(of.frame) {
                    let block = self.vm.page_of(of.page.start()) >> order << order;
                    *used.entry(block).or_insert(0) += u32::from(is_used);
                }
            }
            for (first, used) in used {
                let was = before.get(&(space.0, first)).copied().unwrap_or(0);
                let now = (was * 6 + 16 * used * 4) / 10;
                coverage.insert((space.0, first), now);
                bins[bin(now)] += 1;
            }
        }
        self.lists(|lists, _| {
            lists.promoting.coverage = coverage;
            lists.promoting.promoted.samples += 1;
            lists.promoting.promoted.bins = bins;
        });
    }

    /// The regions that may have large pages, by space.
    pub(super) fn regions_for(&mut self, thp: &Thp) -> Vec<(HatSpace, Region)> {
        let (base, order) = (self.vm.base, self.vm.pmd_order());
        let mut found = Vec::new();
        for (number, slot) in self.vm.spaces.all() {
            slot.with(Site::Page, |known| {
                let regions = known.iter().flat_map(|known| known.regions.all());
                let allowed = regions.filter(|region| thp.orders(region, base) & 1 << order != 0);
                found.extend(allowed.map(|region| (HatSpace(number), region.clone())));
            });
        }
        found
    }

    /// Sets the cost of translation for each space, in per cent of the space's time. Spaces that are not
    /// listed have no cost.
    pub fn set_overheads(&mut self, overheads: impl IntoIterator<Item = (HatSpace, u64)>) {
        self.site = Site::Page;
        let overheads = overheads.into_iter().map(|(space, share)| (space.0, share)).collect();
        self.lists(|lists, _| lists.promoting.overheads = overheads);
    }

    /// Makes large pages of the blocks that are used most, as many as the daemon's budget allows.
    /// Spaces with the highest translation cost come first. In each space, blocks are taken from
    /// the highest bin downwards, one block per space in turn. Returns the number of large pages
    /// made, and whether it stopped because no frame was free.
    pub(crate) fn promote_covered(&mut self, thp: &Thp) -> (u64, bool) {
        let coverage = self.lists(|lists, _| lists.promoting.coverage.clone());
        let overheads = self.lists(|lists, _| lists.promoting.overheads.clone());
        let mut by_bin: BTreeMap<Reverse<(u64, usize)>, BySpace> = BTreeMap::new();
        for (&(space, first), &covered) in &coverage {
            let overhead = overheads.get(&space).copied().unwrap_or(0);
            let of_bin = by_bin.entry(Reverse((overhead, bin(covered)))).or_default();
            of_bin.entry(space).or_default().push_back(first);
        }
        let (mut left, mut failures, mut made) = (thp.khugepaged.pages_to_scan, 0, 0);
        for mut of_bin in by_bin.into_values() {
            while !of_bin.is_empty() {
                for (space, blocks) in &mut of_bin {
                    let Some(first) = blocks.pop_front() else { continue };
                    let found = self.promote_one(HatSpace(*space), first, thp);
                    let is_made = found == Some(ScanResult::Succeed);
                    made += u64::from(is_made);
                    failures += u32::from(!is_made);
                    self.lists(|lists, _| match is_made {
                        true => _ = lists.promoting.coverage.remove(&(*space, first)),
                        // The block is moved to the lowest bin.
                        false => _ = lists.promoting.coverage.insert((*space, first), 0),
                    });
                    left = left.saturating_sub(1 << self.vm.pmd_order());
                    if found == Some(ScanResult::AllocHugePageFail) {
                        return (made, true);
                    }
                    if left == 0 || failures >= FAILURES_MAX {
                        return (made, false);
                    }
                }
                of_bin.retain(|_, blocks| !blocks.is_empty());
            }
        }
        (made, false)
    }

    /// Fills up to `blocks_max` free blocks of a large page's size with zeros.
    pub fn prezero(&mut self, blocks_max: u64) {
        self.site = Site::Page;
        let order = self.vm.pmd_order() + self.memory.order(self.vm.base);
        let frames = self.frames(|memory| memory.table().frames());
        let mut left = blocks_max;
        for first in (frames.start.next_multiple_of(1 << order)..frames.end).step_by(1 << order) {
            if left == 0 {
                return;
            }
            let first = FrameId(first);
            let is_wanted = frames.end - first.0 >= 1 << order
                && self.frames(|memory| {
                    memory.table().get(first).state() == State::Free
                        && !memory.is_zeroed(first)
                        && memory.allocator().has_block(memory.table(), first, order)
                });
            if !is_wanted {
                continue;
            }
            let step = self.memory.order(self.vm.base);
            for frame in (first.0..first.0 + (1 << order)).step_by(1 << step) {
                self.platform.zero(self.address(FrameId(frame)), self.vm.base.bytes());
            }
            if self.frames(|memory| memory.set_zeroed(first, order)).is_err() {
                // No memory is left to record that the block is zeroed.
                return;
            }
            self.work.zeroed_ahead += 1 << order;
            self.lists(|lists, _| lists.promoting.promoted.prezeroed += 1);
            left -= 1;
        }
    }

    /// If fewer than `below` thousandths of all frames are free, frees base pages that contain zeros in
    /// large pages, until `until` thousandths are free. Of each large page, `zero_permille` thousandths
    /// of the base pages contain zeros.
    pub fn recover(&mut self, below: u64, until: u64, zero_permille: u64) {
        self.site = Site::Page;
        let all = self.frames(|memory| memory.table().frames().len() as u64);
        let all = all >> self.memory.order(self.vm.base);
        if self.free_pages() * 1000 >= all * below || zero_permille == 0 {
            return;
        }
        let Some(thp) = self.vm.thp else { return };
        let base = self.vm.base;
        for (space, region) in self.regions_for(&thp) {
            let mut large = Vec::new();
            self.hat.visit(space, self.vm.range_of(&region.pages), &mut |mapping| {
                if mapping.translation.page.size() > base {
                    large.push((mapping.translation.page, mapping.translation.frame));
                }
            });
            for (page, frame) in large {
                if self.free_pages() * 1000 >= all * until {
                    return;
                }
                if self.holds_zeros(frame) {
                    continue;
                }
                let pages = self.vm.pages_of(VirtRange::of_page(page));
                let _ = self.within(space, |kernel, at| {
                    kernel.pages_move(|kernel| kernel.give_zeros_back(at, &pages, zero_permille));
                    Ok(())
                });
            }
        }
    }

    /// Splits large pages in which too many base pages contain zeros, and frees these base pages,
    /// until the high mark of free memory is reached (`deferred_split_scan`, `thp_underused`).
    /// Which pages contain zeros is an assumption, since the model has no contents of pages. Only
    /// the daemon that evicts pages calls this, because a fault that evicts pages holds the lock of
    /// its space.
    pub(crate) fn shrink_underused(&mut self) {
        let Some(thp) = self.vm.thp.filter(|thp| thp.zero_permille > 0) else { return };
        let (order, base) = (self.vm.pmd_order(), self.vm.base);
        let zeros = thp.zero_permille * (1 << order) / 1000;
        let limit = thp.khugepaged.max_ptes_none;
        if limit + 1 >= 1 << order || zeros <= limit {
            return;
        }
        for (space, region) in self.regions_for(&thp) {
            let mut large = Vec::new();
            self.hat.visit(space, self.vm.range_of(&region.pages), &mut |mapping| {
                let size = mapping.translation.page.size();
                if size.shift() == base.shift() + order {
                    large.push((mapping.translation.page, mapping.translation.frame));
                }
            });
            for (page, frame) in large {
                if self.free_pages() >= self.vm.marks.high() {
                    return;
                }
                if self.holds_zeros(frame) {
                    continue;
                }
                let pages = self.vm.pages_of(VirtRange::of_page(page));
                let _ = self.within(space, |kernel, at| {
                    let permille = thp.zero_permille;
                    kernel.pages_move(|kernel| kernel.give_zeros_back(at, &pages, permille));
                    kernel.stats(order, |of| of.underused_split += 1);
                    Ok(())
                });
            }
        }
    }

    /// Frees `permille` thousandths of the base pages of a large page, which contain zeros.
    fn give_zeros_back(&mut self, at: &mut Within<'_>, pages: &Range<u64>, permille: u64) {
        let frames = pages.clone().filter_map(|page| Some(self.anon(at.known.anons.get(page)?)));
        let mut frames = frames.map(|anon| (anon.place, anon.refs));
        let is_own = frames.all(|(place, refs)| {
            matches!(place, PageLocation::Resident(frame) if refs == 1 && self.pfdat(frame).wired == 0)
        });
        let first = at.known.anons.get(pages.start).map(|anon| self.anon(anon).place);
        let (true, Some(PageLocation::Resident(first))) = (is_own, first) else { return };
        for page in pages.clone() {
            // A hash selects the pages that count as pages of zeros, so that they are spread
            // evenly.
            let is_zero = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 1000 < permille;
            let part = page..page + 1;
            if !is_zero || self.cut_large(at, &part).is_err() || self.unload(at, &part).is_err() {
                continue;
            }
            self.drop_anons(at, part);
            self.lists(|lists, _| lists.promoting.promoted.recovered += 1);
        }
        self.split_folio(first);
    }

    /// Performs a round of Ingens or HawkEye in place of `khugepaged`'s round, if one of them is
    /// chosen. Returns the number of large pages made, and whether no frame was free.
    pub(crate) fn promote_instead(&mut self, thp: &Thp) -> Option<(u64, bool)> {
        match thp.promoter {
            Promoter::Ingens(Ingens { hot_every: Some(_), .. }) => Some(self.promote_hottest(thp)),
            Promoter::Khugepaged | Promoter::Ingens(_) => None,
            Promoter::HawkEye => Some(self.promote_covered(thp)),
        }
    }
}

/// The bin of a coverage given in sixteenths of a base page: its log2, rounded up.
const fn bin(coverage: u32) -> usize {
    match coverage.div_ceil(16) {
        0 | 1 => 0,
        pages => (u32::BITS - (pages - 1).leading_zeros()) as usize,
    }
}
