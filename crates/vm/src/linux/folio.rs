//! Folios: frames that were allocated together, and how they are freed (`mm/rmap.c`,
//! `deferred_split_scan`).
//!
//! ```text
//!   folio of 8     | a | b | c | d | e | f | g | h |       all mapped
//!   unmap c, d     | a | b | - | - | e | f | g | h |       partially mapped: queued, nothing is free
//!   memory scarce  | a | b |       | e | f | g | h |       split: c and d are free
//!   or all goes    |                               |       one free block of 8
//! ```
//!
//! Frames of a folio become free only together, or when the folio is split. A process that unmaps
//! or discards a part of a large page therefore does not free memory immediately.

use alloc::vec::Vec;
use core::ops::Range;

use addr::PageSize;
use hat::locking::{Locks, Mutex, Site};
use physmem::{Allocator, FrameId};

use crate::{
    frames::Owner,
    host::Host,
    kernel::Kernel,
    object::PageLocation,
    physical::Physical,
    thp::{Folio, SizeStats, Thp},
    vm::{Vm, Within},
};

impl<H: Host> Kernel<'_, H> {
    /// Records the frames of `pages`, which the space owns and which were allocated together, as a
    /// folio.
    pub(crate) fn enter_folio(&mut self, at: &Within<'_>, pages: &Range<u64>) {
        let Some(anon) = at.known.anons.get(pages.start) else { return };
        if let PageLocation::Resident(first) = self.anon(anon).place {
            self.enter_folio_at(first, pages);
        }
    }

    /// Records the frames of `pages`, which begin with `first` and were allocated together, as a
    /// folio.
    pub(crate) fn enter_folio_at(&mut self, first: FrameId, pages: &Range<u64>) {
        let order = (pages.end - pages.start).ilog2() + self.memory.order(self.vm.base);
        self.lists(|lists, _| {
            lists
                .folios
                .by_first
                .insert(first.0, Folio { order, unmapped: Vec::new(), reserved: false })
        });
    }

    /// Splits the folio that contains `frame`, if there is one, into separate base frames.
    pub(crate) fn split_folio(&mut self, frame: FrameId) {
        if self.vm.thp.is_none() {
            return;
        }
        let free = self.lists(|lists, _| {
            let first = lists.folios.of(frame).filter(|_| !lists.folios.is_reserved(frame))?;
            Some(lists.folios.split(first))
        });
        self.free_held(free.unwrap_or_default());
    }

    /// Splits folios that hold unmapped frames until `wanted` base frames have been freed. Returns
    /// the number of freed base frames (`deferred_split_scan`).
    pub(crate) fn split_deferred(&mut self, wanted: u64) -> u64 {
        let mut freed = 0;
        while self.vm.thp.is_some() && freed < wanted {
            let Some(first) = self.lists(|lists, _| lists.folios.deferred.front().copied()) else {
                break;
            };
            let free = self.lists(|lists, _| lists.folios.split(first));
            freed += free.len() as u64;
            self.free_held(free);
        }
        freed
    }

    fn free_held(&mut self, frames: Vec<FrameId>) {
        let order = self.memory.order(self.vm.base);
        self.work.frames_given += (frames.len() as u64) << order;
        self.frames(|memory| {
            for frame in frames {
                memory.try_free(frame, order).expect("a frame that is held is its folio's");
            }
        });
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Changes the counts of blocks of `2^order` base pages.
    pub(crate) fn stats(&mut self, order: u32, count: impl FnOnce(&mut SizeStats)) {
        let order = order + self.memory.order(self.vm.base);
        self.lists(|lists, _| count(lists.folios.stats.entry(order).or_default()));
    }
}

impl<L: Locks> Vm<L> {
    /// Counts of large blocks by size.
    pub fn stats_by_size<A: Allocator + Send>(
        &self,
        memory: &Physical<A, L>,
    ) -> Vec<(PageSize, SizeStats)> {
        let step = memory.order(self.base);
        let (mut stats, folios) = self.pages.with(Site::Look, |lists| {
            let owner =
                |frame| memory.with(Site::Look, |memory| memory.table().get(frame).identity);
            let folios: Vec<(u32, bool, bool)> = lists
                .folios
                .by_first
                .iter()
                .filter(|(_, folio)| !folio.reserved)
                .map(|(&first, folio)| {
                    let frames = (first..first + (1 << folio.order)).step_by(1 << step);
                    let owners = frames.map(|frame| owner(FrameId(frame)));
                    let is_anon = owners
                        .filter_map(Owner::of)
                        .next()
                        .is_some_and(|owner| matches!(owner, Owner::Anon(_)));
                    (folio.order, is_anon, !folio.unmapped.is_empty())
                })
                .collect();
            (lists.folios.stats.clone(), folios)
        });
        for (order, _, is_partial) in folios.into_iter().filter(|(_, is_anon, _)| *is_anon) {
            let of = stats.entry(order).or_default();
            of.nr_anon += 1;
            of.nr_anon_partially_mapped += u64::from(is_partial);
        }
        let shift = self.base.shift();
        let named = |(order, of): (u32, SizeStats)| {
            Some((PageSize::from_shift((shift + order - step) as u8)?, of))
        };
        stats.into_iter().filter_map(named).collect()
    }

    /// The number of base frames that are unmapped but not free, because their folios are not split;
    /// and the number of folios split so far.
    pub fn folios(&self) -> (u64, u64) {
        self.pages.with(Site::Look, |lists| (lists.folios.held, lists.folios.split))
    }

    /// The settings for large pages, if they are Linux's.
    pub fn thp(&self) -> Option<Thp> {
        self.thp
    }
}
