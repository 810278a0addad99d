//! Ingens' data: which base pages are used, and how fragmented memory is (Kwon and others 2016).
//!
//! ```text
//!   each scan, of a base page:   bit of use, cleared --> 1 0 1 1 0 0 0 0   the last eight scans
//!                                                        used in six or more of them: hot, and
//!                                                        looked at in every fifth scan only
//!   heat of a block = bits of all its base pages --> the hottest block becomes a large page first
//!
//!   free memory that lies in less than a block:   below a share: any block, as soon as a page is there
//!                                                 else: util_threshold
//! ```
//!
//! The history of eight bits and the sampling of hot pages follow the source code (`deferred_mode`
//! 2), which samples hot pages at random; here each scan samples the next part of the hot pages.
//! Two things are assumptions: the number of bits that make a page hot, and that blocks are ordered
//! by heat. A bit that a scan clears still counts as use for eviction, as with idle page tracking.

use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::cmp::Reverse;

use hat::{HatSpace, locking::Site};
use pagetable::Usage;
use physmem::{Allocator, State};

use crate::{
    frames::REFERENCED,
    host::Host,
    kernel::Kernel,
    thp::{Ingens, Promoter, ScanResult, Thp},
};

/// A page is hot if its history has at least this number of set bits.
const HOT: u32 = 6;

impl<H: Host> Kernel<'_, H> {
    /// Reads and clears the accessed bits of base pages in regions that may have large pages, if
    /// use is sampled.
    pub fn age_use(&mut self) {
        self.site = Site::Page;
        let Some(thp) = self.vm.thp else { return };
        let Promoter::Ingens(Ingens { hot_every: Some(hot_every), .. }) = thp.promoter else {
            return;
        };
        let (base, order) = (self.vm.base, self.vm.pmd_order());
        let mut held = Vec::new();
        for (space, region) in self.regions_for(&thp) {
            self.hat.visit(space, self.vm.range_of(&region.pages), &mut |mapping| {
                if mapping.translation.page.size() == base {
                    held.push((space.0, mapping.translation, mapping.usage.referenced));
                }
            });
        }
        let (scan, mut before) = self.lists(|lists, _| {
            let known = &mut lists.promoting.in_use;
            (known.scans, core::mem::take(&mut known.histories))
        });
        let mut histories: BTreeMap<(u32, u64), Vec<u8>> = BTreeMap::new();
        let (mut sampled, mut hot, mut used) = (0, 0, Vec::new());
        for (space, of, is_used) in held {
            if self.holds_zeros(of.frame) {
                continue;
            }
            let page = self.vm.page_of(of.page.start());
            let first = page >> order << order;
            let block = histories.entry((space, first)).or_insert_with(|| {
                before.remove(&(space, first)).unwrap_or_else(|| vec![0; 1 << order])
            });
            let Some(history) = block.get_mut((page - first) as usize) else { continue };
            let is_hot = history.count_ones() >= HOT;
            hot += u64::from(is_hot);
            if is_hot && !(page + scan).is_multiple_of(hot_every) {
                continue;
            }
            sampled += 1;
            *history = *history >> 1 | u8::from(is_used) << 7;
            if is_used {
                used.push(of.frame);
            }
        }
        self.work.table_reads += sampled;
        let clear = Usage { referenced: true, ..Usage::default() };
        for frame in used {
            {
                let (hat, mut below) = self.hat();
                hat.usage(frame, base, clear, &mut below);
            }
            let frame = self.memory.frame_at(frame);
            self.frames(|memory| memory.pfdat_mut(frame).flags |= REFERENCED);
        }
        self.lists(|lists, _| {
            let known = &mut lists.promoting;
            (known.in_use.scans, known.in_use.histories) = (scan + 1, histories);
            known.promoted.samples += 1;
            known.promoted.sampled += sampled;
            known.promoted.hot = hot;
        });
    }

    /// The share of free memory, in thousandths, in blocks smaller than a large page.
    fn unusable(&self) -> u64 {
        let order = self.vm.pmd_order() + self.memory.order(self.vm.base);
        self.frames(|memory| {
            let free = memory.table().count(State::Free);
            let large: u64 =
                (order..32).map(|order| memory.allocator().free_blocks(order) << order).sum();
            ((free - large) * 1000).checked_div(free).unwrap_or(1000)
        })
    }

    /// The number of base pages of a block that must be in memory at present before Ingens makes it
    /// a large page.
    pub(super) fn util_now(&self, ingens: &Ingens) -> u64 {
        let is_low = ingens.aggressive_below > 0 && self.unusable() < ingens.aggressive_below;
        if is_low { 1 } else { ingens.util_threshold }
    }

    /// The current settings, including the number of base pages of a block that must be in memory
    /// at present.
    pub(super) fn thp_now(&self) -> Option<Thp> {
        let thp = self.vm.thp?;
        let Promoter::Ingens(ingens) = thp.promoter else { return Some(thp) };
        if ingens.aggressive_below == 0 {
            return Some(thp);
        }
        let pages = 1 << self.vm.pmd_order();
        let khugepaged = thp.khugepaged.filled(pages, self.util_now(&ingens));
        Some(Thp { khugepaged, ..thp })
    }

    /// Makes large pages of the blocks that were used most, as many as the daemon's budget allows. The
    /// space that has the fewest large pages for its memory comes first. Returns the number of large
    /// pages, and whether it stopped because no frame was free.
    pub(super) fn promote_hottest(&mut self, thp: &Thp) -> (u64, bool) {
        let mut blocks: Vec<((u32, u64), u32)> = self.lists(|lists, _| {
            let known = &lists.promoting.in_use;
            known.histories.keys().map(|block| (*block, known.heat(block))).collect()
        });
        let need = self.needs(blocks.iter().map(|((space, _), _)| *space));
        blocks.sort_by_key(|((space, _), heat)| {
            (Reverse(need.get(space).copied().unwrap_or(0)), Reverse(*heat))
        });
        let (mut left, mut made) = (thp.khugepaged.pages_to_scan, 0);
        for ((space, first), _) in blocks {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(1 << self.vm.pmd_order());
            match self.promote_one(HatSpace(space), first, thp) {
                Some(ScanResult::Succeed) => made += 1,
                Some(ScanResult::AllocHugePageFail) => return (made, true),
                _ => {}
            }
        }
        (made, false)
    }
}
