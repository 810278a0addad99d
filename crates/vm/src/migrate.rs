//! Page migration, and its use by the coalescing daemon (G98 sections 6.4.2 and 6.4.3).
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
//! While a page is in transit, no operation that relies on the places of pages runs, so no
//! operation finds a page in transit. The free frames of a chunk are held while it is evacuated;
//! otherwise pages could move within the chunk.

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, VirtRange};
use hat::{
    HatSpace,
    locking::{Locks, Mutex, Site},
};
use pagetable::{Mapping, Translation};
use physmem::{AGED_OBJECT, Allocator, Coalesced, FrameId, Home, Level, Request, State};

use crate::{
    frames::Owner, host::Host, kernel::Kernel, map::note_used, object::PageLocation,
    platform::Platform, vm::Vm,
};

impl<L: Locks> Vm<L> {
    /// Lets a daemon coalesce free memory ([`Kernel::coalesce`]).
    pub fn set_daemon(&self, daemon: Coalesced) {
        self.daemon.with(Site::Page, |known| *known = Some(daemon));
    }

    /// For each level of the daemon: the level, its number of passes, and the large free pages that
    /// they made. `None` if there is no daemon.
    pub fn daemon_passes(&self) -> Option<Vec<(Level, u64, u64)>> {
        self.daemon.with(Site::Look, |known| Some(known.as_ref()?.passes().collect()))
    }
}

impl<H: Host> Kernel<'_, H> {
    /// One pass of the coalescing daemon, with at most `moves_max` migrations. It covers the chunks
    /// of each size for which the allocator wants more free pages. Returns the number of large free
    /// pages it made.
    pub fn coalesce(&mut self, moves_max: u64) -> u64 {
        self.site = Site::Page;
        self.pages_move(|kernel| kernel.pass(moves_max))
    }

    fn pass(&mut self, moves_max: u64) -> u64 {
        let Some(mut daemon) = self.take_daemon() else { return 0 };
        let level = daemon.next_level();
        let (mut left, mut made, mut missing) = (moves_max, 0, 0_u64);
        for place in 0.. {
            let Some(order) = daemon.orders().nth(place) else { break };
            let wanted = self.wanted(order);
            made += self.make_free(&mut daemon, order, level, wanted, &mut left);
            missing = u64::saturating_add(missing, self.wanted(order));
        }
        daemon.passed(level, made, missing);
        self.vm.set_daemon(daemon);
        made
    }

    /// Takes the daemon out of the manager: only the operation that moves pages may use the daemon.
    fn take_daemon(&self) -> Option<Coalesced> {
        self.vm.daemon.with(self.site, Option::take)
    }

    /// The number of free pages of `2^order` frames that the allocator wants in addition to its
    /// present ones.
    fn wanted(&self, order: u32) -> u64 {
        self.frames(|memory| memory.allocator().wanted(order))
    }

    /// Makes a page of `size` free for a process that waits for it: one strong pass, which ends when the page
    /// is free or `moves_max` base pages have been moved.
    pub(crate) fn coalesce_for(&mut self, size: PageSize, moves_max: u64) {
        let order = self.memory.order(size);
        let mut daemon = self.take_daemon();
        let all = self.frames(|memory| memory.table().frames());
        let mut mine = Coalesced::new(all, &[(order, 0)], 1);
        let mut left = moves_max;
        self.make_free(daemon.as_mut().unwrap_or(&mut mine), order, Level::Strong, 1, &mut left);
        if let Some(daemon) = daemon {
            self.vm.set_daemon(daemon);
        }
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
                self.frames(|memory| memory.allocator().frames_in_use(first, order, enough))
            });
            self.work.chunks_scanned += scanned.chunks;
            let Some((first, in_use)) = scanned.found else { break };
            let freed = in_use == 0 || self.evacuate(first, order, moves_left);
            if !freed {
                continue;
            }
            let (joined, is_whole) = self.frames(|memory| {
                let (allocator, table) = memory.allocator_mut();
                (allocator.join(table, first, order), allocator.has_block(table, first, order))
            });
            self.work.joins += u64::from(joined);
            made += u64::from(joined || (in_use > 0 && is_whole));
        }
        made
    }

    /// Moves all pages out of the `2^order` frames from `first`, if all of them can move. Returns
    /// whether they were moved.
    pub(crate) fn evacuate(&mut self, first: FrameId, order: u32, moves_left: &mut u64) -> bool {
        let step = self.memory.order(self.vm.base);
        let frames = (first.0..first.0 + (1 << order)).step_by(1 << step).map(FrameId);
        let (mut busy, mut free) = (Vec::new(), Vec::new());
        for frame in frames {
            let pfdat = self.pfdat(frame);
            match pfdat.state() {
                State::Free => free.push(frame),
                State::Movable if self.may_move(frame) => busy.push(frame),
                State::Movable
                | State::Reserved
                | State::Kernel
                | State::Table
                | State::InTransit
                | State::Offline
                | State::Reclaimable => return false,
            }
        }
        let elsewhere = self.free_pages().saturating_sub(free.len() as u64 + self.vm.marks.min());
        if busy.len() as u64 > elsewhere.min(*moves_left) {
            return false;
        }
        free.retain(|&frame| self.frames(|memory| memory.take(frame, step, State::InTransit)));
        let mut targets = Vec::new();
        while targets.len() < busy.len() {
            // The targets are on the chunk's own node, if that node has room.
            let node = Some(Home { node: self.pfdat(first).node(), strict: false });
            let request = Request { node, ..Request::new(step, State::Movable) };
            match self.frames(|memory| memory.allocate(&request)) {
                Ok(frame) => targets.push(frame),
                Err(_) => break,
            }
        }
        let done = targets.len() == busy.len();
        if done {
            *moves_left -= busy.len() as u64;
            self.work.frames_taken += (busy.len() as u64) << step;
            let moves: Vec<(FrameId, FrameId)> = busy.into_iter().zip(targets).collect();
            self.migrate(&moves);
        } else {
            targets.into_iter().for_each(|frame| self.give_back(frame, step));
        }
        free.into_iter().for_each(|frame| self.give_back(frame, step));
        done
    }

    fn give_back(&mut self, frame: FrameId, order: u32) {
        let freed = self.frames(|memory| memory.try_free(frame, order));
        freed.expect("the frame was taken here");
    }

    /// Whether the page in a frame can be moved: it belongs to this manager, or is a movable page of
    /// an aged memory, and is not wired.
    pub(crate) fn may_move(&self, frame: FrameId) -> bool {
        let pfdat = self.pfdat(frame);
        let is_known = Owner::of(pfdat.identity).is_some() || pfdat.identity.object == AGED_OBJECT;
        pfdat.is_migratable() && is_known
    }

    /// Moves pages, each from one frame to another, with one flush for all. The target frames are
    /// allocated and have no owner; the frames that the pages leave are freed.
    pub(crate) fn migrate(&mut self, moves: &[(FrameId, FrameId)]) {
        let base = self.vm.base;
        let step = self.memory.order(base);
        for &(from, to) in moves {
            self.frames(|memory| memory.set_state(to, step, State::InTransit));
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
            self.frames(|memory| {
                memory.set_state(to, step, State::Movable);
                memory.try_free(from, step).expect("its page has left it");
            });
        }
        let count = moves.len() as u64;
        self.work.copied += count << step;
        self.work.frames_given += count << step;
        self.work.migrations += count;
        places.sort_unstable();
        let (memory, site) = (self.memory, self.site);
        for (space, Mapping { translation, usage, note }) in mapped {
            let Ok(place) = places.binary_search_by_key(&translation.frame, |&(from, _)| from)
            else {
                continue;
            };
            let (hat, mut below) = self.hat();
            let moved = Translation { frame: places[place].1, ..translation };
            let is_loaded = hat.load(space, moved, 1, &mut below).is_ok()
                && hat.set_usage(space, moved.page.start(), usage).is_ok();
            if !is_loaded {
                // If a table has no room for a translation, a minor fault restores it.
                note_used(memory, site, base, &Mapping { translation: moved, usage, note });
            }
        }
    }

    /// Splits all translations of a frame to base pages.
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

    /// Transfers the descriptor's data of the page in `from` to `to`.
    fn hand_over(&mut self, from: FrameId, to: FrameId) {
        let owner = self.lists(|lists, memory| {
            let before = memory.table().get(from);
            memory.pfdat_mut(to).identity = before.identity;
            let owner = Owner::of(before.identity)?;
            lists.leave(memory.allocator_mut().1, from);
            // The flags that record a page's list are not transferred.
            memory.pfdat_mut(to).flags = before.flags & crate::frames::OWNERS;
            if let Some(groups) = &mut lists.groups {
                groups.moved(from, to);
            }
            lists.enter(memory.allocator_mut().1, to);
            Some(owner)
        });
        let Some(owner) = owner else { return };
        self.work.descriptors += 2;
        let (vm, site, place) = (self.vm, self.site, PageLocation::Resident(to));
        match owner {
            Owner::Anon(anon) => vm.anons.set_place(site, anon, place),
            Owner::Object(id, index) => {
                vm.objects.with(site, id, |object| object.set_place(index, place));
            }
        }
    }
}
