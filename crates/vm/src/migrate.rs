//! Page migration, and what the coalescing daemon does with it (G98 sections 6.4.2 and 6.4.3).
//!
//! ```text
//!   chunk A  | free | free | free | A4 |        chunk B  | B1, free | ...
//!
//!   may A4 move? not the kernel's, not wired
//!   valid bits of its translations off, flush; B1 is in transit      one flush for a set of pages
//!   identity, place in its list, anon or object:  A4 --> B1
//!   copy; B1 is ready; its translations lead to B1
//!                                                  A is free as a whole: one large page
//! ```
//!
//! Nothing runs while a page is in transit here, so that nobody has to wait for it. The free frames
//! of a chunk are held while it is evacuated, else pages could move from the chunk into itself.

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, VirtRange};
use hat::HatSpace;
use pagetable::{Mapping, Mounted, Translation};
use physmem::{AGED_OBJECT, Allocator, Coalesced, FrameId, Level, Request, State};

use crate::{
    frames::Owner,
    object::Place,
    platform::Platform,
    vm::{Kernel, Vm},
};

impl Vm {
    /// Has a daemon coalesce free memory from here on ([`Kernel::coalesce`]).
    pub fn set_daemon(&mut self, daemon: Coalesced) {
        self.daemon = Some(daemon);
    }

    /// The daemon, if there is one.
    pub fn daemon(&self) -> Option<&Coalesced> {
        self.daemon.as_ref()
    }
}

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// One pass of the coalescing daemon over the chunks of each size of which the allocator wants more,
    /// with at most so many migrations. Says how many large free pages it has made.
    pub fn coalesce(&mut self, moves_max: u64) -> u64 {
        let Some(mut daemon) = self.vm.daemon.take() else { return 0 };
        let level = daemon.next_level();
        let (mut left, mut made, mut missing) = (moves_max, 0, 0_u64);
        for order in daemon.orders() {
            let wanted = self.memory.allocator().wanted(order);
            made += self.make_free(&mut daemon, order, level, wanted, &mut left);
            missing = u64::saturating_add(missing, self.memory.allocator().wanted(order));
        }
        daemon.passed(level, made, missing);
        self.vm.daemon = Some(daemon);
        made
    }

    /// The same for a process that waits for a page of `size`: strong, until one is free or so many
    /// base pages have been moved.
    pub(crate) fn coalesce_for(&mut self, size: PageSize, moves_max: u64) {
        let order = self.memory.table().order(size);
        let mut daemon = self.vm.daemon.take();
        let mut mine = Coalesced::new(self.memory.table().frames(), &[(order, 0)], 1);
        let mut left = moves_max;
        self.make_free(daemon.as_mut().unwrap_or(&mut mine), order, Level::Strong, 1, &mut left);
        self.vm.daemon = daemon;
    }

    /// Makes up to `wanted` free pages of `2^order` frames.
    fn make_free(
        &mut self,
        daemon: &mut Coalesced,
        order: u32,
        level: Level,
        wanted: u64,
        moves_left: &mut u64,
    ) -> u64 {
        let mut made = 0;
        let mut chunks = daemon.chunks(order);
        while made < wanted && chunks > 0 {
            let scanned = daemon.scan(order, level, &mut chunks, *moves_left, |first, enough| {
                self.memory.allocator().frames_in_use(first, order, enough)
            });
            self.vm.work.chunks_scanned += scanned.chunks;
            let Some((first, in_use)) = scanned.found else { break };
            let freed = in_use == 0 || self.evacuate(first, order, moves_left);
            let (allocator, table) = self.memory.allocator_mut();
            if freed && allocator.join(table, first, order) {
                self.vm.work.joins += 1;
                made += 1;
            } else if freed && in_use > 0 && allocator.has_block(table, first, order) {
                made += 1;
            }
        }
        made
    }

    /// Moves all pages out of the `2^order` frames from `first`, if all can move. Says whether they did.
    fn evacuate(&mut self, first: FrameId, order: u32, moves_left: &mut u64) -> bool {
        let step = self.memory.table().order(self.vm.base);
        let frames = (first.0..first.0 + (1 << order)).step_by(1 << step).map(FrameId);
        let (mut busy, mut free) = (Vec::new(), Vec::new());
        for frame in frames {
            let pfdat = self.memory.table().get(frame);
            match pfdat.state() {
                State::Free => free.push(frame),
                State::Movable if self.may_move(frame) => busy.push(frame),
                State::Movable
                | State::Reserved
                | State::Kernel
                | State::Table
                | State::InTransit
                | State::Offline => return false,
            }
        }
        let elsewhere = self.free_pages().saturating_sub(free.len() as u64 + self.vm.marks.min);
        if busy.len() as u64 > elsewhere.min(*moves_left) {
            return false;
        }
        free.retain(|&frame| self.memory.take(frame, step, State::InTransit));
        let mut targets = Vec::new();
        while targets.len() < busy.len() {
            match self.memory.allocate(&Request::new(step, State::Movable)) {
                Ok(frame) => targets.push(frame),
                Err(_) => break,
            }
        }
        let done = targets.len() == busy.len();
        if done {
            *moves_left -= busy.len() as u64;
            self.vm.work.frames_taken += (busy.len() as u64) << step;
            let moves: Vec<(FrameId, FrameId)> = busy.into_iter().zip(targets).collect();
            self.migrate(&moves);
        } else {
            targets.into_iter().for_each(|frame| self.give_back(frame, step));
        }
        free.into_iter().for_each(|frame| self.give_back(frame, step));
        done
    }

    fn give_back(&mut self, frame: FrameId, order: u32) {
        self.memory.try_free(frame, order).expect("the frame was taken here");
    }

    /// Whether a frame's page can move: it is some page's of this manager, or a movable one of an aged
    /// memory, and nothing holds it.
    fn may_move(&self, frame: FrameId) -> bool {
        let pfdat = self.memory.table().get(frame);
        let is_known = Owner::of(pfdat.identity).is_some() || pfdat.identity.object == AGED_OBJECT;
        pfdat.is_migratable() && is_known
    }

    /// Moves pages from one frame to another each, with one flush for all. The targets are taken and
    /// nobody's; the frames that the pages leave are free then.
    pub(crate) fn migrate(&mut self, moves: &[(FrameId, FrameId)]) {
        let base = self.vm.base;
        let step = self.memory.table().order(base);
        for &(from, to) in moves {
            self.memory.set_state(to, step, State::InTransit);
            self.not_idle(from);
            self.make_base(from);
        }
        let frames: Vec<_> = moves.iter().map(|&(from, _)| (self.address(from), base)).collect();
        let mut mapped: Vec<(HatSpace, Mapping)> = Vec::new();
        let (hat, mut below) = self.hat();
        hat.unload_frames(&frames, &mut |space, mapping| mapped.push((space, mapping)), &mut below);
        let mut places: Vec<(PhysAddr, PhysAddr)> = Vec::with_capacity(moves.len());
        for &(from, to) in moves {
            let (at, target) = (self.address(from), self.address(to));
            self.platform.copy(at, target, base.bytes());
            places.push((at, target));
            self.hand_over(from, to);
            self.memory.set_state(to, step, State::Movable);
            self.memory.try_free(from, step).expect("its page has left it");
        }
        let count = moves.len() as u64;
        self.vm.work.copied += count << step;
        self.vm.work.frames_given += count << step;
        self.vm.work.migrations += count;
        places.sort_unstable();
        for (space, Mapping { translation, .. }) in mapped {
            let Ok(place) = places.binary_search_by_key(&translation.frame, |&(from, _)| from)
            else {
                continue;
            };
            let (hat, mut below) = self.hat();
            // One that finds no room in a table comes back by a minor fault.
            let moved = Translation { frame: places[place].1, ..translation };
            let _ = hat.load(space, moved, 1, &mut below);
        }
    }

    /// No translation of a frame is larger than the base page after this.
    pub(crate) fn make_base(&mut self, frame: FrameId) {
        let (at, base) = (self.address(frame), self.vm.base);
        while self.vm.sizes.len() > 1 {
            let mut larger = None;
            self.hat.each_mapping(at, base, &mut |space, mapping| {
                if mapping.translation.page.size() > base {
                    larger = Some((space, mapping.translation));
                }
            });
            let Some((space, Translation { page, frame: first, .. })) = larger else { return };
            let into = (at.get() - first.get()) >> base.shift();
            let held = self.vm.pages_of(VirtRange::of_page(page));
            let part = held.start + into..held.start + into + 1;
            if self.downgrade(space, &held, &part).is_err() {
                return;
            }
        }
    }

    /// What was known of the page in `from` is known of it in `to`.
    fn hand_over(&mut self, from: FrameId, to: FrameId) {
        let before = self.memory.table().get(from);
        let pfdat = self.memory.pfdat_mut(to);
        pfdat.identity = before.identity;
        let Some(owner) = Owner::of(before.identity) else { return };
        let (_, table) = self.memory.allocator_mut();
        self.vm.policy.leave(table, from);
        // Which list a page is in does not move with it.
        self.memory.pfdat_mut(to).flags = before.flags & crate::frames::OWNERS;
        let (_, table) = self.memory.allocator_mut();
        self.vm.policy.enter(table, to);
        self.vm.work.descriptors += 2;
        match owner {
            Owner::Anon(anon) => self.vm.anons.set_place(anon, Place::Resident(to)),
            Owner::Object(object, index) => {
                self.vm.objects.get_mut(object).pages.insert(index, Place::Resident(to));
            }
        }
    }
}
