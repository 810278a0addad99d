//! Frames that were taken together, and how they come back (`mm/rmap.c`, `deferred_split_scan`).
//!
//! ```text
//!   folio of 8     | a | b | c | d | e | f | g | h |       all mapped
//!   unmap c, d     | a | b | - | - | e | f | g | h |       partially mapped: queued, nothing is free
//!   memory scarce  | a | b |       | e | f | g | h |       split: c and d are free
//!   or all goes    |                               |       one free block of 8
//! ```
//!
//! So a process that unmaps or discards a part of a large page gives no memory back at once.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::ops::Range;

use hat::locking::{Locks, Mutex, Scheme, Site};
use pagetable::Mounted;
use physmem::{Allocator, FrameId, Identity, Pfdat};

use crate::{
    kernel::Kernel,
    linux::Thp,
    object::Place,
    platform::Platform,
    vm::{Vm, Within},
};

/// The folios of several base frames.
#[derive(Default)]
pub(crate) struct Folios {
    by_first: BTreeMap<u32, Folio>,
    /// Those with frames that nobody maps, in the order in which that came to be.
    deferred: VecDeque<u32>,
    /// Frames that nobody maps.
    held: u64,
    /// Folios that were split.
    split: u64,
}

struct Folio {
    /// log2 of its frames.
    order: u32,
    /// Frames of base pages that nobody maps.
    unmapped: Vec<FrameId>,
}

/// What becomes of a frame that nobody maps any more.
pub(crate) enum Fate {
    /// It is free.
    Free,
    /// It stays with its folio.
    Held,
    /// With it all of its folio is free: from this frame on, so many as log2.
    Whole(FrameId, u32),
}

impl Folios {
    /// The folio that `frame` is part of, by its first frame.
    fn of(&self, frame: FrameId) -> Option<u32> {
        let (&first, folio) = self.by_first.range(..=frame.0).next_back()?;
        let end = u64::from(first) + (1 << folio.order);
        (u64::from(frame.0) < end).then_some(first)
    }

    /// The frames of the folio that `frame` is part of.
    pub(crate) fn frames_around(&self, frame: FrameId) -> Option<Range<u32>> {
        let first = self.of(frame)?;
        let order = self.by_first.get(&first)?.order;
        Some(first..first + (1 << order))
    }

    /// Nobody maps `frame` any more, which is `2^step` frames.
    pub(crate) fn unmapped(&mut self, frame: FrameId, step: u32) -> Fate {
        if self.by_first.is_empty() {
            return Fate::Free;
        }
        let Some(first) = self.of(frame) else { return Fate::Free };
        let Some(folio) = self.by_first.get_mut(&first) else { return Fate::Free };
        folio.unmapped.push(frame);
        self.held += 1;
        let (count, order) = (folio.unmapped.len() as u64, folio.order);
        if count == 1 {
            self.deferred.push_back(first);
        }
        if count < 1 << (order - step) {
            return Fate::Held;
        }
        self.by_first.remove(&first);
        self.held -= count;
        // Those at the ends are found first: a process gives memory back in order.
        if self.deferred.back() == Some(&first) {
            self.deferred.pop_back();
        } else {
            self.deferred.retain(|other| *other != first);
        }
        Fate::Whole(FrameId(first), order)
    }

    /// The folio of a frame is one no more: gives its frames that are free now.
    fn take(&mut self, first: u32) -> Vec<FrameId> {
        let Some(folio) = self.by_first.remove(&first) else { return Vec::new() };
        self.held -= folio.unmapped.len() as u64;
        if !folio.unmapped.is_empty() {
            self.deferred.retain(|other| *other != first);
        }
        folio.unmapped
    }
}

/// A frame that is in a folio and that nobody maps has no owner.
pub(crate) fn disown(pfdat: &mut Pfdat) {
    pfdat.identity = Identity::default();
    pfdat.flags = 0;
}

impl<T, A, P, L, S> Kernel<'_, T, A, P, L, S>
where
    T: Mounted + ?Sized,
    A: Allocator + Send,
    P: Platform,
    L: Locks,
    S: Scheme<Table = T>,
{
    /// The frames of `pages` of the space's own, which were taken together, are a folio.
    pub(crate) fn enter_folio(&mut self, at: &Within<'_>, pages: &Range<u64>) {
        let Some(anon) = at.known.anons.get(pages.start) else { return };
        if let Place::Resident(first) = self.anon(anon).place {
            self.enter_folio_at(first, pages);
        }
    }

    /// The frames of `pages`, which begin with `first` and were taken together, are a folio.
    pub(crate) fn enter_folio_at(&mut self, first: FrameId, pages: &Range<u64>) {
        let order = (pages.end - pages.start).ilog2() + self.memory.order(self.vm.base);
        self.lists(|lists, _| {
            lists.folios.by_first.insert(first.0, Folio { order, unmapped: Vec::new() })
        });
    }

    /// The folio that `frame` is part of, if there is one, is split: each base frame is by itself.
    pub(crate) fn split_folio(&mut self, frame: FrameId) {
        if self.vm.thp.is_none() {
            return;
        }
        let free = self.lists(|lists, _| {
            let first = lists.folios.of(frame)?;
            lists.folios.split += 1;
            Some(lists.folios.take(first))
        });
        self.free_held(free.unwrap_or_default());
    }

    /// Splits folios that hold frames which nobody maps, until so many base frames are free for it,
    /// and says how many are (`deferred_split_scan`).
    pub(crate) fn split_deferred(&mut self, wanted: u64) -> u64 {
        let mut freed = 0;
        while self.vm.thp.is_some() && freed < wanted {
            let Some(first) = self.lists(|lists, _| lists.folios.deferred.front().copied()) else {
                break;
            };
            let free = self.lists(|lists, _| {
                lists.folios.split += 1;
                lists.folios.take(first)
            });
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

impl<L: Locks> Vm<L> {
    /// Base frames that nobody maps and that are not free, as their folios are not split; and how many
    /// folios were.
    pub fn folios(&self) -> (u64, u64) {
        self.pages.with(Site::Look, |lists| (lists.folios.held, lists.folios.split))
    }

    /// The knobs for large pages, if they are Linux's.
    pub fn thp(&self) -> Option<Thp> {
        self.thp
    }
}
