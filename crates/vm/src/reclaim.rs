//! Pages leave memory: who, where to, and when.
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
//! A page that would need a place in swap when there is none stays. A page that comes back from
//! swap gives its place up, so that it is written again when it leaves again; kernels keep the
//! place until the page is stored to.

use alloc::{collections::BTreeMap, vec::Vec};

use addr::{PageSize, PhysAddr};
use hat::Hat;
use pagetable::{Mounted, Usage};
use physmem::{Allocator, FrameId, FrameTable};

use crate::{
    frames::{DIRTY, Owner, REFERENCED},
    object::Place,
    platform::{Below, Platform, Store},
    replacement::Pages,
    settings::Reference,
    vm::Kernel,
};

/// Pages that leave together where a frame is wanted at once: Linux's `SWAP_CLUSTER_MAX`.
pub(crate) const BATCH: u64 = 32;

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// Whether fewer frames are free than the low mark says: [`Kernel::tick`] would free some.
    pub fn wants_memory(&self) -> bool {
        self.free_pages() < self.vm.marks.low
    }

    /// What a daemon does that is woken when memory gets scarce: has pages leave until the high
    /// mark is reached. Says how many left.
    pub fn tick(&mut self) -> u64 {
        if !self.wants_memory() {
            return 0;
        }
        self.reclaim(self.vm.marks.high.saturating_sub(self.free_pages()))
    }

    /// Has up to `wanted` pages leave memory, and says how many did.
    pub(crate) fn reclaim(&mut self, wanted: u64) -> u64 {
        let mut leaving: Vec<(FrameId, Option<Store>)> = Vec::new();
        let mut staying = Vec::new();
        // A frame is seen twice at most: with its bit set, and without.
        for _ in 0..=self.vm.policy.pages() {
            if leaving.len() as u64 == wanted {
                break;
            }
            let Some(frame) = self.victim() else { break };
            let whole = self.whole_page(frame);
            let gone = |part: &FrameId| {
                leaving.iter().any(|(frame, _)| frame == part) || staying.contains(part)
            };
            let whole = if whole.iter().any(gone) { Vec::from([frame]) } else { whole };
            let before = leaving.len();
            for part in whole.clone() {
                if part != frame {
                    let (_, table) = self.memory.allocator_mut();
                    self.vm.policy.leave(table, part);
                }
                match self.place_for(part) {
                    Some(place) => leaving.push((part, place)),
                    None => staying.push(part),
                }
            }
            let went = leaving.len() - before;
            if whole.len() > 1 && went == whole.len() {
                self.vm.work.large_out += 1;
                self.not_idle(frame);
            } else {
                // What stays of a large page goes on in smaller ones.
                for (frame, _) in leaving[before..].iter().copied() {
                    self.not_idle(frame);
                    self.make_base(frame);
                }
            }
        }
        for frame in staying {
            let (_, table) = self.memory.allocator_mut();
            self.vm.policy.enter(table, frame);
        }
        self.unload_pages(&leaving);
        for &(frame, place) in &leaving {
            if let Some(store) = place {
                self.write(self.address(frame), store);
            }
            let owner = Owner::of(self.memory.table().get(frame).identity);
            self.forget_page(frame, place);
            self.free_frame(frame);
            if let Some(Owner::Object(object, _)) = owner {
                self.end_if_unused(object);
            }
        }
        leaving.len() as u64
    }

    /// A page that the policy lets go.
    fn victim(&mut self) -> Option<FrameId> {
        let Kernel { vm, hat, memory, platform } = self;
        let base = vm.base;
        let below = Below { memory: &mut **memory, platform: &mut **platform, work: &mut vm.work };
        let idle = &mut vm.idle;
        vm.policy.victim(&mut Scan { hat, below, base, reference: vm.reference, idle })
    }

    /// The frames of the large page that `frame` is part of, if all of it may leave; else only
    /// `frame` (G98 section 6.9).
    fn whole_page(&self, frame: FrameId) -> Vec<FrameId> {
        let (at, base) = (self.address(frame), self.vm.base);
        // FreeBSD makes a large page small again, and each part goes by itself.
        if self.vm.sizes.len() == 1 || self.vm.reserving.is_some() {
            return Vec::from([frame]);
        }
        let mut largest: Option<(PhysAddr, PageSize)> = None;
        self.hat.each_mapping(at, base, &mut |_, mapping| {
            let (first, size) = (mapping.translation.frame, mapping.translation.page.size());
            if size > base && largest.is_none_or(|(_, known)| known < size) {
                largest = Some((first, size));
            }
        });
        let table = self.memory.table();
        let mapped = largest.and_then(|(first, size)| {
            let first = table.frame_at(first)?;
            Some(first.0..first.0 + (1 << table.order(size)))
        });
        let step = 1 << table.order(base);
        let frames = mapped.or_else(|| self.idle_page(frame)).into_iter();
        let frames: Vec<FrameId> =
            frames.flat_map(|frames| frames.step_by(step).map(FrameId)).collect();
        let may_leave = |frame: &FrameId| {
            let pfdat = table.get(*frame);
            pfdat.wired == 0 && Owner::of(pfdat.identity).is_some()
        };
        match !frames.is_empty() && frames.iter().all(may_leave) {
            true => frames,
            false => Vec::from([frame]),
        }
    }

    /// Where a page must be written before its frame is free, if anywhere; `None` if there is no
    /// room for it.
    fn place_for(&mut self, frame: FrameId) -> Option<Option<Store>> {
        let pfdat = self.memory.table().get(frame);
        match Owner::of(pfdat.identity)? {
            Owner::Anon(_) => Some(Some(Store::Swap(self.vm.swap.take()?))),
            Owner::Object(object, index) => match self.vm.objects.get(object).file {
                Some(key) => Some((pfdat.flags & DIRTY != 0).then_some(Store::File(key, index))),
                None => Some(Some(Store::Swap(self.vm.swap.take()?))),
            },
        }
    }

    fn unload_pages(&mut self, leaving: &[(FrameId, Option<Store>)]) {
        let base = self.vm.base;
        let address = |&(frame, _): &(FrameId, _)| (self.memory.table().address(frame), base);
        let frames: Vec<_> = leaving.iter().map(address).collect();
        let (hat, mut below) = self.hat();
        hat.unload_frames(&frames, &mut |_, _| (), &mut below);
    }

    /// The page is where `place` says, and in memory no more.
    fn forget_page(&mut self, frame: FrameId, place: Option<Store>) {
        let slot = match place {
            Some(Store::Swap(slot)) => Some(slot),
            Some(Store::File(..)) | None => None,
        };
        match (Owner::of(self.memory.table().get(frame).identity), slot) {
            (Some(Owner::Anon(anon)), Some(slot)) => {
                self.vm.anons.set_place(anon, Place::Swapped(slot));
            }
            (Some(Owner::Object(object, index)), Some(slot)) => {
                self.vm.objects.get_mut(object).pages.insert(index, Place::Swapped(slot));
            }
            (Some(Owner::Object(object, index)), None) => {
                self.vm.objects.get_mut(object).pages.remove(&index);
            }
            (Some(Owner::Anon(_)) | None, None) | (None, Some(_)) => {
                unreachable!("a page that leaves has an owner, and an anonymous one a place")
            }
        }
    }
}

/// The pages as a policy sees them.
struct Scan<'a, T: Mounted + ?Sized, A, P> {
    hat: &'a Hat<T>,
    below: Below<'a, A, P>,
    base: PageSize,
    reference: Reference,
    idle: &'a mut BTreeMap<u32, u32>,
}

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Pages for Scan<'_, T, A, P> {
    fn table(&mut self) -> &mut FrameTable {
        self.below.memory.allocator_mut().1
    }

    fn referenced(&mut self, frame: FrameId) -> bool {
        self.below.work.descriptors += 1;
        let at = self.below.memory.table().address(frame);
        let flags = &mut self.below.memory.pfdat_mut(frame).flags;
        let known = *flags & REFERENCED != 0;
        *flags &= !REFERENCED;
        match self.reference {
            Reference::Hardware => {
                let clear = Usage { referenced: true, ..Usage::default() };
                let is_used = self.hat.usage(at, self.base, clear, &mut self.below).referenced;
                if is_used {
                    // A large page is used as a whole: its other frames have no bit of their own.
                    for of in self.large_frames(at) {
                        if of != frame {
                            self.below.memory.pfdat_mut(of).flags |= REFERENCED;
                        }
                    }
                }
                is_used || known
            }
            Reference::ValidBit => {
                if known {
                    if let Some(first) = self.large_frames(at).next() {
                        let order = self.large_frames(at).count().ilog2();
                        self.idle
                            .insert(first.0, order + self.below.memory.table().order(self.base));
                    }
                    self.hat.unload_frames(&[(at, self.base)], &mut |_, _| (), &mut self.below);
                }
                known
            }
        }
    }
}

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Scan<'_, T, A, P> {
    /// The frames of the largest page that maps the base page's frame at `at`, if that is a large one.
    fn large_frames(&self, at: PhysAddr) -> impl Iterator<Item = FrameId> + use<T, A, P> {
        let mut largest: Option<(PhysAddr, PageSize)> = None;
        self.hat.each_mapping(at, self.base, &mut |_, mapping| {
            let (first, size) = (mapping.translation.frame, mapping.translation.page.size());
            if size > self.base && largest.is_none_or(|(_, known)| known < size) {
                largest = Some((first, size));
            }
        });
        let table = self.below.memory.table();
        let step = 1 << table.order(self.base);
        let frames = largest.and_then(|(first, size)| {
            let first = table.frame_at(first)?.0;
            Some((first..first + (1 << table.order(size))).step_by(step).map(FrameId))
        });
        frames.into_iter().flatten()
    }
}
