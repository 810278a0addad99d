//! Page eviction: which pages are evicted, where they are written, and when.
//!
//! ```text
//!   victims, by the policy      one shootdown for all of them
//!        |                               |
//!        +-- anonymous, or memory that is shared --> a place in swap, written
//!        +-- a file's page, dirty -----------------> written to the file
//!        +-- a file's page, clean -----------------> nothing to write
//!                                        |
//!                                        +--> frames are free
//! ```
//!
//! If a page needs a place in swap and no place is free, the page stays in memory. If this is so
//! for all pages, no page is examined. When a page is read from swap, its place is freed, so the
//! page is written again at its next eviction; kernels keep the place until the page is stored to.
//!
//! Pages are evicted only while no operation relies on the places of pages; all other operations
//! wait.

use core::{iter::StepBy, ops::Range, sync::atomic::Ordering};

use addr::{PageSize, PhysAddr};
use hat::{
    Hat,
    locking::{Mutex, Scheme, Site},
};
use pagetable::{Mounted, Usage};
use physmem::{FrameId, FrameTable};
use smallvec::SmallVec;

use crate::{
    below::Below,
    frames::{DIRTY, Owner, REFERENCED},
    host::Host,
    kernel::Kernel,
    object::PageLocation,
    pages::PageLists,
    platform::Store,
    replacement::Pages,
    settings::Reference,
    sorted::SortedMap,
};

/// The number of pages that are evicted together if no memory is left for a longer list.
const FEW: usize = 16;

/// The number of pages evicted together if a frame is needed immediately: Linux's
/// `SWAP_CLUSTER_MAX`.
pub(crate) const BATCH: u64 = 32;

impl<H: Host> Kernel<'_, H> {
    /// Whether fewer frames are free than the low mark, so that [`Kernel::tick`] would free some. If the last
    /// attempt found no page that could be evicted, the result is false until more frames are
    /// taken.
    pub fn wants_memory(&self) -> bool {
        let has_daemons = self.vm.thp.is_some();
        self.is_short() || has_daemons && (self.wants_compaction() || self.wants_promotion())
    }

    fn is_short(&self) -> bool {
        let (free, in_vain) = (self.free_pages(), self.vm.in_vain.load(Ordering::Relaxed) as u64);
        if free > in_vain {
            // Frames have been freed in the meantime, so the comparison now starts from this
            // number.
            self.vm.in_vain.store(free as usize, Ordering::Relaxed);
        }
        free < self.vm.marks.low() && free < in_vain
    }

    /// Does the work of a daemon that is woken when memory becomes scarce: evicts pages until the
    /// high mark is reached. Returns the number of pages evicted.
    pub fn tick(&mut self) -> u64 {
        self.site = Site::Page;
        let mut gone = 0;
        if self.free_pages() < self.vm.marks.low() {
            let wanted = self.vm.marks.high().saturating_sub(self.free_pages());
            let wanted = wanted + self.take_boost();
            self.shrink_underused();
            gone = self.pages_move(|kernel| kernel.reclaim(wanted));
            let free = if gone == 0 { self.free_pages() as usize } else { usize::MAX };
            self.vm.in_vain.store(free, Ordering::Relaxed);
        }
        if self.vm.thp.is_some() {
            self.compact_as_woken();
            self.promote_filled();
        }
        gone
    }

    /// Evicts up to `wanted` pages. Returns the number of evicted pages.
    pub(crate) fn reclaim(&mut self, wanted: u64) -> u64 {
        self.reclaim_from(wanted, None)
    }

    /// Evicts up to `wanted` pages of `group`, or of any group. Returns the number of evicted
    /// pages.
    pub(crate) fn reclaim_from(&mut self, wanted: u64, group: Option<u8>) -> u64 {
        let split = self.split_deferred(wanted);
        let wanted = wanted.saturating_sub(split);
        if self.none_can_leave() {
            return split;
        }
        let mut leaving = SmallVec::<[(FrameId, Option<Store>); FEW]>::new();
        let mut staying = SmallVec::<[FrameId; FEW]>::new();
        // `staying` and `looked_at` are used if there can be large pages. All of memory may have to
        // stay, and every part of a large page would otherwise be examined again.
        let mut looked_at = SortedMap::new();
        // A frame is examined at most twice: with its referenced bit set, and without.
        for _ in 0..=self.lists(|lists, _| lists.listed(group)) {
            // A large page that is evicted as a whole can free more frames than requested.
            // Without memory for a longer list, fewer pages are evicted.
            if leaving.len() as u64 >= wanted || leaving.try_reserve(1).is_err() {
                break;
            }
            if staying.try_reserve(1).is_err() {
                self.enter_again(staying.drain(..));
            }
            let Some(frame) = self.victim(group) else { break };
            let mut whole = self.whole_page(frame);
            let is_known = whole.clone().any(|part| looked_at.get(&part).is_some());
            let room = leaving.try_reserve(whole.len()).and(staying.try_reserve(whole.len()));
            if whole.len() > 1 && (is_known || room.is_err()) {
                whole = only(frame);
            }
            if self.vm.sizes.len() > 1
                && !whole.clone().all(|part| looked_at.insert(part, ()).is_ok())
            {
                // The frame cannot be recorded as examined, so it could be examined again as a part
                // of a large page.
                self.enter_again([frame].into_iter());
                break;
            }
            let before = leaving.len();
            for part in whole.clone().map(FrameId) {
                if part != frame {
                    self.lists(|lists, memory| {
                        lists.leave(memory.allocator_mut().1, part);
                    });
                }
                match self.place_for(part, whole.len() > 1) {
                    Some(place) => leaving.push((part, place)),
                    None => staying.push(part),
                }
            }
            let went = leaving.len() - before;
            if whole.len() > 1 && went == whole.len() {
                self.work.large_out += 1;
                self.stats(whole.len().ilog2(), |of| of.swpout += 1);
                self.not_idle(frame);
            } else {
                // The rest of a large page stays in memory as smaller pages.
                if whole.len() > 1 && went > 0 {
                    self.stats(whole.len().ilog2(), |of| of.swpout_fallback += 1);
                }
                for &(frame, _) in &leaving[before..] {
                    self.not_idle(frame);
                    self.split_folio(frame);
                    self.make_base(frame);
                }
            }
        }
        self.enter_again(staying.drain(..));
        self.unload_frames(leaving.iter().map(|&(frame, _)| frame));
        let mut failed = 0;
        for &(frame, place) in &leaving {
            if let Some(store) = place
                && self.write(self.address(frame), store).is_err()
            {
                self.keep(frame, store);
                failed += 1;
                continue;
            }
            let owner = Owner::of(self.pfdat(frame).identity);
            self.forget_page(owner, place);
            self.free_frame(frame);
            if let Some(Owner::Object(object, _)) = owner {
                self.end_if_unused(object);
            }
        }
        split + leaving.len() as u64 - failed
    }

    /// Puts frames that the policy has chosen for eviction, but that stay in memory, back into the
    /// policy's lists.
    fn enter_again(&self, frames: impl Iterator<Item = FrameId>) {
        for frame in frames {
            self.lists(|lists, memory| lists.enter(memory.allocator_mut().1, frame));
        }
    }

    /// Keeps a page in memory that could not be written to `store`. It stays dirty.
    fn keep(&mut self, frame: FrameId, store: Store) {
        if let Store::Swap(slot) = store {
            let group = self.vm.swap.with(self.site, |swap| swap.free(slot));
            self.left_swap(group, false);
        }
        self.lists(|lists, memory| lists.enter(memory.allocator_mut().1, frame));
    }

    /// Whether every page in memory needs a place in swap and no place is free. In that case no
    /// page is examined, as Linux scans no anonymous pages without swap (`get_scan_count`).
    fn none_can_leave(&self) -> bool {
        let files = self.lists(|lists, _| lists.resident.file);
        files == 0 && self.vm.swap.with(self.site, |swap| swap.room()) == 0
    }

    /// A page that the policy chooses for eviction.
    fn victim(&mut self, group: Option<u8>) -> Option<FrameId> {
        let (vm, reference, base) = (self.vm, self.vm.reference, self.vm.base);
        let (hat, below) = self.hat();
        vm.pages.with(below.site, |lists| {
            let PageLists { policy, groups, idle, .. } = lists;
            let policy: &mut dyn crate::replacement::Replacement = match groups {
                None => policy.as_mut(),
                Some(groups) => groups.policy_for(group),
            };
            policy.victim(&mut Scan { hat, below, base, reference, idle })
        })
    }

    /// The frames of the large page that contains `frame`, if all of it may be evicted; otherwise
    /// only `frame` (G98 section 6.9).
    fn whole_page(&self, frame: FrameId) -> StepBy<Range<u32>> {
        let (at, base) = (self.address(frame), self.vm.base);
        // FreeBSD splits a large page and evicts each part separately.
        if self.vm.sizes.len() == 1 || self.vm.reserving.is_some() {
            return only(frame);
        }
        let mapped = largest_page(self.hat, at, base).map(|(first, size)| {
            let first = self.memory.frame_at(first).0;
            first..first + (1 << self.memory.order(size))
        });
        let step = 1 << self.memory.order(base);
        let idle = || self.lists(|lists, _| lists.idle_page(frame));
        let may_leave = |frame: u32| {
            let pfdat = self.pfdat(FrameId(frame));
            pfdat.wired == 0 && Owner::of(pfdat.identity).is_some()
        };
        let frames = mapped.or_else(idle).map(|frames| frames.step_by(step));
        let frames = frames.filter(|frames| frames.clone().all(may_leave));
        frames.unwrap_or_else(|| only(frame))
    }

    /// The place to which a page must be written before its frame can be freed (`Some(None)` if it
    /// need not be written); `None` if there is no place for the page. `in_row` is true if the page
    /// is evicted together with its neighbours.
    fn place_for(&mut self, frame: FrameId, in_row: bool) -> Option<Option<Store>> {
        let pfdat = self.pfdat(frame);
        let file = match Owner::of(pfdat.identity)? {
            Owner::Anon(_) => None,
            Owner::Object(id, index) => {
                let file = self.vm.objects.with(self.site, id, |object| object.file);
                file.map(|key| Store::File(key, index))
            }
        };
        match file {
            Some(store) => Some((pfdat.flags & DIRTY != 0).then_some(store)),
            None => {
                let group = match self.vm.has_groups {
                    true => self.lists(|lists, _| lists.groups.as_ref().map(|of| of.of(frame))),
                    false => None,
                };
                let of = group.unwrap_or(0);
                let slot = self.vm.swap.with(self.site, |swap| swap.take(in_row, of))?;
                let takes = |lists: &mut PageLists| {
                    lists.groups.as_mut().is_none_or(|groups| groups.takes_swap(of))
                };
                if group.is_some() && !self.lists(|lists, _| takes(lists)) {
                    self.vm.swap.with(self.site, |swap| swap.free(slot));
                    return None;
                }
                Some(Some(Store::Swap(slot)))
            }
        }
    }

    /// Removes all translations to these frames, with a single shootdown if there is memory for a
    /// list of them.
    pub(crate) fn unload_frames(&mut self, frames: impl ExactSizeIterator<Item = FrameId>) {
        let (base, memory) = (self.vm.base, self.memory);
        let mut frames = frames.map(|frame| (memory.address(frame), base));
        let mut some = SmallVec::<[(PhysAddr, PageSize); FEW]>::new();
        let _ = some.try_reserve(frames.len());
        let (hat, mut below) = self.hat();
        loop {
            some.extend(frames.by_ref().take(some.capacity()));
            hat.unload_frames(&some, &mut |_, _| (), &mut below);
            if frames.len() == 0 {
                return;
            }
            some.clear();
        }
    }

    /// Records that a page is no longer in memory, and is now at `place`.
    fn forget_page(&mut self, owner: Option<Owner>, place: Option<Store>) {
        let slot = match place {
            Some(Store::Swap(slot)) => Some(slot),
            Some(Store::File(..)) | None => None,
        };
        let (vm, site) = (self.vm, self.site);
        match (owner, slot) {
            (Some(Owner::Anon(anon)), Some(slot)) => {
                vm.anons.set_place(site, anon, PageLocation::Swapped(slot));
            }
            (Some(Owner::Object(id, index)), Some(slot)) => {
                let place = PageLocation::Swapped(slot);
                vm.objects.with(site, id, |object| object.set_place(index, place));
            }
            (Some(Owner::Object(id, index)), None) => {
                vm.objects.with(site, id, |object| object.pages.remove(&index));
            }
            (Some(Owner::Anon(_)) | None, None) | (None, Some(_)) => {
                unreachable!("an evicted page has an owner, and an anonymous one a place")
            }
        }
    }
}

/// The range that contains only this frame.
fn only(FrameId(frame): FrameId) -> StepBy<Range<u32>> {
    (frame..frame + 1).step_by(1)
}

/// The largest page that maps the base frame at `at`, if it is larger than a base page: its first
/// frame and its size.
fn largest_page<T: Mounted + ?Sized, S: Scheme<Table = T>>(
    hat: &Hat<T, S>,
    at: PhysAddr,
    base: PageSize,
) -> Option<(PhysAddr, PageSize)> {
    let mut largest: Option<(PhysAddr, PageSize)> = None;
    hat.each_mapping(at, base, &mut |_, mapping| {
        let (first, size) = (mapping.translation.frame, mapping.translation.page.size());
        if size > base && largest.is_none_or(|(_, known)| known < size) {
            largest = Some((first, size));
        }
    });
    largest
}

/// The pages, behind the interface that a replacement policy needs.
struct Scan<'a, H: Host> {
    hat: &'a Hat<H::Table, H::Scheme>,
    below: Below<'a, H>,
    base: PageSize,
    reference: Reference,
    idle: &'a mut SortedMap<u32, u32>,
}

impl<H: Host> Pages for Scan<'_, H> {
    fn with_table(&mut self, f: &mut dyn FnMut(&mut FrameTable)) {
        self.below.memory.with(self.below.site, |memory| f(memory.allocator_mut().1));
    }

    fn referenced(&mut self, frame: FrameId) -> bool {
        self.below.work.descriptors += 1;
        let memory = self.below.memory;
        let (at, site) = (memory.address(frame), self.below.site);
        let known = memory.with(site, |memory| {
            let flags = &mut memory.pfdat_mut(frame).flags;
            let known = *flags & REFERENCED != 0;
            *flags &= !REFERENCED;
            known
        });
        match self.reference {
            Reference::Hardware => {
                let clear = Usage { referenced: true, ..Usage::default() };
                let is_used = self.hat.usage(at, self.base, clear, &mut self.below).referenced;
                if is_used {
                    // A large page has a single accessed bit, so its other frames count as used
                    // too.
                    let others = self.large_frames(at).filter(|of| *of != frame);
                    memory.with(site, |memory| {
                        others.for_each(|of| memory.pfdat_mut(of).flags |= REFERENCED);
                    });
                }
                is_used || known
            }
            Reference::ValidBit => {
                if known {
                    if let Some(first) = self.large_frames(at).next() {
                        let order = self.large_frames(at).count().ilog2();
                        // If no memory is left for the record, the page is later evicted in parts.
                        let _ = self.idle.insert(first.0, order + memory.order(self.base));
                    }
                    self.hat.unload_frames(&[(at, self.base)], &mut |_, _| (), &mut self.below);
                }
                known
            }
        }
    }
}

impl<H: Host> Scan<'_, H> {
    /// The frames of the largest page that maps the base frame at `at`, if it is larger than a base
    /// page.
    fn large_frames(&self, at: PhysAddr) -> impl Iterator<Item = FrameId> + use<H> {
        let memory = self.below.memory;
        let step = 1 << memory.order(self.base);
        let frames = largest_page(self.hat, at, self.base).map(|(first, size)| {
            let first = memory.frame_at(first).0;
            (first..first + (1 << memory.order(size))).step_by(step).map(FrameId)
        });
        frames.into_iter().flatten()
    }
}
