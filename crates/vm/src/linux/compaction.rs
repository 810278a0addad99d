//! Compaction: pages are moved so that free frames form larger blocks (`mm/compaction.c`).
//!
//! ```text
//!   | m m . | . m . | m K . | . . m | . . . | . m . |        page blocks; m moves, K stays, . is free
//!     ^ -- takes pages that move                 ^ -- takes free frames
//!     ------------------------>   <---------------
//!     they meet: all is compacted that can be        or a block is free that is large enough
//! ```
//!
//! One scanner searches for pages to move, from the beginning of memory upwards. Another scanner
//! searches for free frames, from the end of memory downwards. Both proceed page block by page
//! block. The next run continues where the last one stopped. A page block from which nothing could
//! be moved is skipped until a run has covered all of memory. If a run covers all of memory without
//! making a large block, some following runs are skipped (deferred): twice as many each time, but
//! at most 64.
//!
//! Blocks larger than a page block ([`Kernel::gather`]) are made as in Trident's smart compaction (Ram
//! and others 2021): in the area where most frames are free and none is immovable.

use alloc::vec::Vec;

use hat::locking::{Locks, Mutex, Site};
use physmem::{Allocator, BlockType, FrameId, State};

use crate::{
    frames::Owner,
    host::Host,
    kernel::Kernel,
    reclaim::BATCH,
    thp::{CompactResult, Compacted, Effort},
    vm::Vm,
};

/// Blocks up to this order justify more effort than larger ones (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: u32 = 3;
/// log2 of the largest number of runs that are deferred (`COMPACT_MAX_DEFER_SHIFT`).
const DEFER_SHIFT_MAX: u32 = 6;
/// The number of times that a fault tries compaction in a region with advice for large pages (a
/// quarter of `MAX_COMPACT_RETRIES`).
const TRIES: u32 = 4;

/// The scope of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Only page blocks that are movable.
    Async,
    /// All page blocks that are not skipped.
    SyncLight,
    /// All page blocks that are not skipped, until fragmentation falls to the requested score.
    Proactive,
}

impl<L: Locks> Vm<L> {
    /// Counts of what compaction has done.
    pub fn compacted(&self) -> Compacted {
        self.pages.with(Site::Look, |lists| lists.compaction.compacted)
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Whether a daemon has been woken to compact.
    pub(crate) fn wants_compaction(&self) -> bool {
        self.lists(|lists, _| lists.compaction.wanted.is_some())
    }

    /// The number of free pages wanted in addition to the high mark the next time memory is scarce,
    /// because parts of page blocks were claimed (`boost_watermark`). It is reset.
    pub(crate) fn take_boost(&mut self) -> u64 {
        let Some(thp) = self.vm.thp else { return 0 };
        let (boosts, order) = self.frames(|memory| {
            let Some(blocks) = memory.allocator_mut().0.blocks_mut() else { return (0, 0) };
            (blocks.take_boosts(), blocks.block_order())
        });
        let block = 1u64 << order;
        // No boost is given if a page block is a large part of memory.
        let all = self.frames(|memory| memory.table().frames().len() as u64);
        if boosts == 0 || all < 4 * block {
            return 0;
        }
        let most = self.vm.marks.high() * thp.compacting.watermark_boost_factor / 10_000;
        (boosts * block).min(most.max(block)) >> self.memory.order(self.vm.base)
    }

    /// Tries to get a block of `2^order` base pages for a fault if none is free. Returns whether
    /// another attempt to allocate is worthwhile.
    pub(crate) fn make_block(&mut self, order: u32, effort: Effort) -> bool {
        let again = match effort {
            Effort::None => return false,
            Effort::Wake => {
                self.wake_compaction(order);
                return false;
            }
            Effort::Direct { again } => again,
        };
        if order > self.vm.pmd_order() {
            return self.pages_move(|kernel| kernel.gather(order));
        }
        let order = order + self.memory.order(self.vm.base);
        let done = self.pages_move(|kernel| kernel.compact(order, Mode::Async));
        match done {
            CompactResult::Success => return true,
            CompactResult::Skipped | CompactResult::Deferred if !again => return false,
            CompactResult::Skipped
            | CompactResult::Deferred
            | CompactResult::Complete
            | CompactResult::PartialSkipped => {}
        }
        for _ in 0..if again { TRIES } else { 1 } {
            let gone = match self.free_pages() < self.vm.marks.low() + (2 << order) {
                true => self.pages_move(|kernel| kernel.reclaim(BATCH)),
                false => 0,
            };
            let done = self.pages_move(|kernel| kernel.compact(order, Mode::SyncLight));
            if done == CompactResult::Success {
                return true;
            }
            if gone == 0 && done != CompactResult::PartialSkipped {
                return false;
            }
        }
        false
    }

    /// Compacts for a daemon that wants a block of `2^order` frames and already has the right to
    /// move pages.
    pub(crate) fn compact_here(&mut self, order: u32) {
        if order > self.block_order() {
            self.gather(order - self.memory.order(self.vm.base));
            return;
        }
        self.compact(order, Mode::SyncLight);
    }

    pub(crate) fn wake_compaction(&mut self, order: u32) {
        let order = order + self.memory.order(self.vm.base);
        self.lists(|lists, _| {
            let wanted = &mut lists.compaction.wanted;
            *wanted = (*wanted).max(Some(order));
        });
    }

    /// The work of the compaction daemon after it was woken for a block (`kcompactd_do_work`).
    pub(crate) fn compact_as_woken(&mut self) {
        let Some(order) = self.lists(|lists, _| lists.compaction.wanted.take()) else { return };
        self.lists(|lists, _| lists.compaction.compacted.woken += 1);
        self.pages_move(|kernel| kernel.compact(order, Mode::SyncLight));
    }

    /// The periodic work of the compaction daemon, every half second: compacts if more than a given
    /// share of free memory is in small blocks (`proactive_compact_node`). Does nothing while memory
    /// is scarce.
    pub fn compact_proactively(&mut self) {
        self.site = Site::Page;
        let Some(thp) = self.vm.thp else { return };
        let [_, high] = score_marks(thp.compacting.compaction_proactiveness);
        let is_off = thp.compacting.compaction_proactiveness == 0;
        if is_off || self.free_pages() < self.vm.marks.low() || self.score() <= high {
            return;
        }
        let is_deferred = self.lists(|lists, _| {
            let left = &mut lists.compaction.proactive_deferred;
            *left = left.saturating_sub(1);
            *left > 0
        });
        if is_deferred {
            return;
        }
        let before = self.score();
        self.lists(|lists, _| lists.compaction.compacted.proactive += 1);
        let order = self.block_order();
        self.pages_move(|kernel| kernel.compact(order, Mode::Proactive));
        let is_better = self.score() < before;
        self.lists(|lists, _| {
            lists.compaction.proactive_deferred = if is_better { 0 } else { 1 << DEFER_SHIFT_MAX };
        });
    }

    fn block_order(&self) -> u32 {
        let order = |blocks: &dyn physmem::Blocks| blocks.block_order();
        self.frames(|memory| memory.allocator().blocks().map(order))
            .unwrap_or(self.vm.pmd_order() + self.memory.order(self.vm.base))
    }

    /// The percentage of free memory in blocks smaller than a page block
    /// (`fragmentation_score_zone`).
    fn score(&self) -> u64 {
        let order = self.block_order();
        self.frames(|memory| {
            let free = memory.table().count(State::Free);
            let large: u64 =
                (order..32).map(|order| memory.allocator().free_blocks(order) << order).sum();
            ((free - large) * 100).checked_div(free).unwrap_or(0)
        })
    }

    /// Whether there is a free block of `2^order` frames that a request for movable frames would
    /// get without a steal.
    fn has_block(&self, order: u32) -> bool {
        self.frames(|memory| match memory.allocator().blocks() {
            Some(blocks) => blocks.is_suitable(order),
            None => (order..32).any(|order| memory.allocator().free_blocks(order) > 0),
        })
    }

    /// Whether a run is worthwhile (`compaction_suitable`).
    fn is_suitable(&self, order: u32) -> bool {
        let step = self.memory.order(self.vm.base);
        let mark = match order > COSTLY_ORDER {
            true => self.vm.marks.low(),
            false => self.vm.marks.min(),
        };
        if self.free_pages() << step <= (mark << step) + (2 << order) {
            return false;
        }
        let threshold = self.vm.thp.map_or(0, |thp| thp.compacting.extfrag_threshold);
        let index = self.fragmentation(order);
        order <= COSTLY_ORDER || index.is_none_or(|index| index > threshold.into())
    }

    /// The fragmentation index, in thousandths: near 0 if too little memory is free, near 1000 if free
    /// memory is in small blocks. `None` if a block of this order is free (`__fragmentation_index`).
    fn fragmentation(&self, order: u32) -> Option<u64> {
        self.frames(|memory| {
            let blocks = |order| memory.allocator().free_blocks(order);
            let suitable: u64 = (order..32).map(blocks).sum();
            let all: u64 = (0..32).map(blocks).sum();
            if suitable > 0 {
                return None;
            }
            let free = memory.table().count(State::Free);
            let of_all = (1000 + ((free * 1000) >> order)).checked_div(all)?;
            Some(1000u64.saturating_sub(of_all))
        })
    }

    /// One compaction run for a block of `2^order` frames (`compact_zone_order`).
    fn compact(&mut self, order: u32, mode: Mode) -> CompactResult {
        let result = self.run(order, mode);
        self.lists(|lists, _| {
            let known = &mut lists.compaction;
            known.compacted.results[result as usize] += 1;
            match (result, mode) {
                (CompactResult::Success, Mode::Async | Mode::SyncLight) => {
                    known.considered = 0;
                    known.defer_shift = 0;
                    known.order_failed = known.order_failed.max(order + 1);
                }
                (CompactResult::Complete, Mode::SyncLight) => {
                    known.considered = 0;
                    known.defer_shift = (known.defer_shift + 1).min(DEFER_SHIFT_MAX);
                    known.order_failed = match known.order_failed {
                        0 => order,
                        before => before.min(order),
                    };
                }
                _ => {}
            }
        });
        result
    }

    /// Whether this run is deferred (`compaction_deferred`).
    fn is_deferred(&mut self, order: u32) -> bool {
        self.lists(|lists, _| {
            let known = &mut lists.compaction;
            if known.defer_shift == 0 || order < known.order_failed {
                return false;
            }
            known.considered = (known.considered + 1).min(1 << known.defer_shift);
            known.considered < 1 << known.defer_shift
        })
    }

    fn run(&mut self, order: u32, mode: Mode) -> CompactResult {
        if mode != Mode::Proactive {
            if self.is_deferred(order) {
                return CompactResult::Deferred;
            }
            if !self.is_suitable(order) {
                return CompactResult::Skipped;
            }
            if self.has_block(order) {
                return CompactResult::Success;
            }
        }
        let block_order = self.block_order();
        let frames = self.frames(|memory| memory.table().frames());
        let (first, end) = (frames.start.div_ceil(1 << block_order), frames.end >> block_order);
        let from = self.lists(|lists, _| lists.compaction.from);
        let (mut low, mut high) = from.filter(|(low, high)| low < high).unwrap_or((first, end));
        let is_whole = (low, high) == (first, end);
        if is_whole {
            self.lists(|lists, _| lists.compaction.skipped.clear());
        }
        let mut free: Vec<FrameId> = Vec::new();
        let mut result = None;
        while low < high {
            let block = low;
            low += 1;
            let busy = self.pages_to_move(block, block_order, order, mode);
            if busy.is_empty() {
                continue;
            }
            while free.len() < busy.len() && high > low {
                high -= 1;
                self.take_free(high, block_order, &mut free);
            }
            if free.len() < busy.len() {
                break;
            }
            let targets = free.split_off(free.len() - busy.len());
            let count = busy.len() as u64;
            busy.iter().for_each(|&frame| self.split_folio(frame));
            let moves: Vec<(FrameId, FrameId)> = busy.into_iter().zip(targets).collect();
            self.work.frames_taken += count << self.memory.order(self.vm.base);
            self.migrate(&moves);
            self.lists(|lists, _| lists.compaction.compacted.moved += count);
            let is_done = match mode {
                Mode::Async | Mode::SyncLight => self.has_block(order),
                Mode::Proactive => {
                    let knob = self.vm.thp.map_or(0, |thp| thp.compacting.compaction_proactiveness);
                    self.score() <= score_marks(knob)[0]
                }
            };
            if is_done {
                result = Some(CompactResult::Success);
                break;
            }
        }
        // Frames that were taken and not used are freed again, so that the next run finds them.
        let highest = free.iter().map(|frame| (frame.0 >> block_order) + 1).max();
        let step = self.memory.order(self.vm.base);
        for frame in free {
            self.frames(|memory| memory.try_free(frame, step)).expect("it was taken here");
        }
        let met = result.is_none();
        self.lists(|lists, _| {
            lists.compaction.from =
                (!met).then_some((low, highest.map_or(high, |highest| high.max(highest))));
        });
        result.unwrap_or(match (is_whole, self.has_block(order)) {
            (_, true) => CompactResult::Success,
            (true, false) => CompactResult::Complete,
            (false, false) => CompactResult::PartialSkipped,
        })
    }

    /// The frames of a page block whose pages should be moved (`isolate_migratepages_block`): all that can
    /// move, except those in folios at least as large as the wanted block. If there are none, the page
    /// block is skipped from now on.
    fn pages_to_move(
        &mut self,
        block: u32,
        block_order: u32,
        order: u32,
        mode: Mode,
    ) -> Vec<FrameId> {
        let is_skipped = self.lists(|lists, _| lists.compaction.skipped.contains(&block));
        let first = block << block_order;
        let is_movable = self.frames(|memory| {
            let of = |blocks: &dyn physmem::Blocks| blocks.block_type(FrameId(first));
            memory.allocator().blocks().map(of).is_none_or(|of| of == BlockType::Movable)
        });
        if is_skipped || mode == Mode::Async && !is_movable {
            return Vec::new();
        }
        self.lists(|lists, _| lists.compaction.compacted.blocks += 1);
        self.work.chunks_scanned += 1;
        let step = self.memory.order(self.vm.base);
        let mut found = Vec::new();
        let mut number = first;
        while number < first + (1 << block_order) {
            let frame = FrameId(number);
            let around = self.lists(|lists, _| lists.folios.frames_around(frame));
            if let Some(folio) = around.filter(|folio| folio.len() >= 1 << order.min(block_order)) {
                number = folio.end;
                continue;
            }
            if self.may_move(frame) {
                found.push(frame);
            }
            number += 1 << step;
        }
        self.work.descriptors += 1 << (block_order - step);
        if found.is_empty() {
            self.lists(|lists, _| lists.compaction.skipped.insert(block));
        }
        found
    }

    /// Takes the free frames of a page block (`isolate_freepages_block`), unless the page block is one
    /// free block or is not movable.
    fn take_free(&mut self, block: u32, block_order: u32, free: &mut Vec<FrameId>) {
        let first = FrameId(block << block_order);
        let step = self.memory.order(self.vm.base);
        let before = free.len();
        self.frames(|memory| {
            let of = |blocks: &dyn physmem::Blocks| blocks.block_type(first);
            let is_movable = memory.allocator().blocks().map(of);
            let is_movable = is_movable.is_none_or(|of| of == BlockType::Movable);
            let is_free = memory.allocator().has_block(memory.table(), first, block_order);
            if !is_movable || is_free {
                return;
            }
            let frames = (first.0..first.0 + (1 << block_order)).step_by(1 << step).map(FrameId);
            for frame in frames {
                if memory.table().get(frame).state() == State::Free
                    && memory.take(frame, step, State::InTransit)
                {
                    free.push(frame);
                }
            }
        });
        self.work.descriptors += 1 << (block_order - step);
        if free.len() == before {
            self.lists(|lists, _| lists.compaction.skipped.insert(block));
        }
    }

    /// Frees `2^order` adjacent base pages, more than a page block, in an area where most frames are
    /// free and none is immovable. Returns whether it did.
    pub(crate) fn gather(&mut self, order: u32) -> bool {
        let order = order + self.memory.order(self.vm.base);
        let step = self.memory.order(self.vm.base);
        let frames = self.frames(|memory| memory.table().frames());
        let mut chunks: Vec<(u64, FrameId)> = Vec::new();
        for first in (frames.start.next_multiple_of(1 << order)..frames.end).step_by(1 << order) {
            if frames.end - first < 1 << order {
                break;
            }
            let (mut free, mut stays) = (0, false);
            for frame in (first..first + (1 << order)).step_by(1 << step).map(FrameId) {
                let pfdat = self.pfdat(frame);
                let is_free = pfdat.state() == State::Free;
                free += u64::from(is_free);
                let is_known = pfdat.identity.object == physmem::AGED_OBJECT
                    || Owner::of(pfdat.identity).is_some();
                stays |= !(is_free || pfdat.is_migratable() && is_known);
            }
            self.work.chunks_scanned += 1;
            if !stays {
                chunks.push((free, FrameId(first)));
            }
        }
        chunks.sort_unstable_by_key(|&(free, _)| core::cmp::Reverse(free));
        chunks.into_iter().any(|(_, first)| {
            for frame in (first.0..first.0 + (1 << order)).step_by(1 << step).map(FrameId) {
                self.split_folio(frame);
            }
            let mut moves = u64::MAX;
            self.evacuate(first, order, &mut moves)
        })
    }
}

/// The score at which a proactive run ends, and the score above which one begins
/// (`fragmentation_score_wmark`).
const fn score_marks(proactiveness: u32) -> [u64; 2] {
    let low = 100u32.saturating_sub(proactiveness);
    let low = if low < 5 { 5 } else { low };
    let high = if low + 10 > 100 { 100 } else { low + 10 };
    [low as u64, high as u64]
}
