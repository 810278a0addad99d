//! Performs the requests of a trace's events by calls of the memory manager.

use addr::{Rights, VirtAddr, VirtRange};
use hat::HatSpace;
use os::{
    Platform,
    events::{Backing, Brought, Ends, Request, request},
};
use ram::Failure;
use trace::Event;
use vm::{Module, Region, Source, Wired};

use super::{Base, Board, UNEXPLAINED};
use crate::place::{Kind, Mapped};

/// The unit of a mapping's offset in its file on Linux.
const FILE_PAGE_BYTES: u64 = 4096;
/// A flag of Linux's mmap.
const MAP_STACK: u32 = 0x20000;

impl Base {
    /// Does what `event` requests in the space that the trace calls `number`.
    pub(super) fn apply(
        &mut self,
        number: u32,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let space = self.space(number, platform)?;
        let Some(request) = request(event) else { return Ok(()) };
        let ask = Ask { space, number, platform };
        match request {
            Request::Known { start, bytes, rights, backing, name } => {
                self.known(ask, (start, bytes), rights, backing, name)
            }
            Request::Map { start, bytes, rights, backing, name } => {
                let source = self.source(backing, start);
                let kind = kind(backing, rights, Kind::Mmap);
                self.map(ask, (start, bytes), rights, source, (name, kind))
            }
            Request::Attach { start, bytes, segment, file } => {
                let key = self.files.segment(file, segment);
                let source = Source::File { key, first: 0, shared: true };
                let rights = Rights::READ | Rights::WRITE;
                self.map(ask, (start, bytes), rights, source, ("shared memory", Kind::Mmap))
            }
            Request::Unmap { start, bytes } => {
                let Some(range) = range(start, bytes) else { return Ok(()) };
                self.with(ask.platform, |kernel| kernel.unmap(space, range))
            }
            Request::Discard { start, bytes, ends } => {
                let Some(range) = self.dealt_with(space, (start, bytes), ends) else {
                    return Ok(());
                };
                self.with(ask.platform, |kernel| kernel.discard(space, range))
            }
            Request::Protect { start, bytes, rights, ends } => {
                let Some(range) = self.dealt_with(space, (start, bytes), ends) else {
                    return Ok(());
                };
                self.with(ask.platform, |kernel| kernel.protect(space, range, rights))
            }
            Request::Move { from, from_bytes, to, to_bytes } => {
                self.relocate(ask, range(from, from_bytes), range(to, to_bytes))
            }
            Request::Wish { start, bytes, large } => {
                let Some(range) = range(start, bytes) else { return Ok(()) };
                // Advice against large pages is a request for base pages only if the manager makes
                // large pages without a request.
                let against = self.vm.thp().map(|_| self.vm.base());
                let page_size = if large { Some(self.advised()) } else { against };
                let module = Module { page_size, ..self.module };
                self.attach(number, space, range, module, ask.platform)
            }
            Request::Upgrade { start, bytes, came } => {
                let Some(range) = range(start, bytes) else { return Ok(()) };
                self.upgrade(number, space, range, came, ask.platform)
            }
            Request::Populate { start, bytes, kind } => {
                let Some(range) = range(start, bytes) else { return Ok(()) };
                self.with(ask.platform, |kernel| kernel.prefault(space, range, kind))
            }
            Request::Break { now } => self.set_break(ask, now),
            Request::Lock { start, bytes, on_fault, ends } => {
                let Some(range) = self.dealt_with(space, (start, bytes), ends) else {
                    return Ok(());
                };
                self.with(ask.platform, |kernel| match (on_fault, ends) {
                    (true, _) => kernel.lock_on_fault(space, range),
                    (false, Ends::Behind) => kernel.lock(space, range),
                    (false, Ends::AtHole | Ends::AtLocked) => kernel.lock_later(space, range),
                })
            }
            Request::Unlock { start, bytes, ends } => {
                let Some(range) = self.dealt_with(space, (start, bytes), ends) else {
                    return Ok(());
                };
                self.with(ask.platform, |kernel| kernel.unlock(space, range))
            }
            Request::LockAll { present, future, on_fault } => {
                let how = if on_fault { Wired::OnFault } else { Wired::Now };
                let [present, future] =
                    [present, future].map(|asked| if asked { how } else { Wired::No });
                self.with(ask.platform, |kernel| kernel.lock_all(space, present, future))
            }
            Request::UnlockAll => self.with(ask.platform, |kernel| kernel.unlock_all(space)),
            Request::Fork { child, shares_space } => self.fork(ask, child, shares_space),
            Request::Replace | Request::Exit => self.empty(ask),
            Request::Transfer { file, offset, bytes, write } => {
                let Some(key) = self.files.key(Some(file), None) else { return Ok(()) };
                // Nothing is copied, because the model keeps no contents of frames.
                let each = &mut |_: &mut Board, _, _| ();
                self.with(ask.platform, |kernel| {
                    kernel.transfer_file(key, offset, bytes, write, each)
                })
            }
        }
    }

    /// Moves pages.
    fn relocate(
        &mut self,
        ask: Ask<'_>,
        from: Option<VirtRange>,
        to: Option<VirtRange>,
    ) -> Result<(), Failure> {
        let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
        let space = ask.space;
        let unexplained = self.files.label(UNEXPLAINED);
        let is_told = |region: &Region| region.label != unexplained;
        if from.start() != to.start() && !self.vm.any_region(space, from, is_told) {
            // No event describes the moved mapping, so it is unknown which of its pages are holes.
            // Therefore everything in the new range is unmapped first.
            self.with(ask.platform, |kernel| kernel.unmap(space, to))?;
        }
        let (to, bytes) = (to.start(), to.bytes());
        self.with(ask.platform, |kernel| kernel.move_pages(space, from, to, bytes))
    }

    /// Unmaps everything in a space. Its page table stays, since the space may be used again.
    fn empty(&mut self, ask: Ask<'_>) -> Result<(), Failure> {
        let access = ask.platform.access();
        self.look_at_end(access, ask.platform.ram());
        self.inherited.remove(&ask.number);
        if let Some(heaps) = &mut self.heaps {
            heaps.forget(ask.number);
        }
        self.with(ask.platform, |kernel| kernel.exec(ask.space))
    }

    /// The part of a call's range that the call handled before it stopped as `ends` says. If this
    /// machine has neither the hole nor the locked mapping, the call failed for another reason. Its
    /// effect is then unknown, so it is treated as if it had done nothing.
    fn dealt_with(
        &self,
        space: HatSpace,
        (start, bytes): (u64, u64),
        ends: Ends,
    ) -> Option<VirtRange> {
        let range = range(start, bytes)?;
        let begun = match ends {
            Ends::Behind => return Some(range),
            Ends::AtHole => self.vm.before_hole(space, range),
            Ends::AtLocked => self.vm.before_wired(space, range),
        };
        begun.filter(|begun| begun.last() < range.last())
    }

    /// Excludes large pages from threads' stacks, as Linux has done for `MAP_STACK` since 6.7.
    pub(super) fn stack_of_a_thread(
        &mut self,
        number: u32,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Event::Mmap { bytes, flags, result, .. } = *event else { return Ok(()) };
        let range = range(result as u64, bytes).filter(|_| result >= 0);
        let (true, Some(range)) = (flags & MAP_STACK != 0 && self.keeps_stacks, range) else {
            return Ok(());
        };
        let space = self.space(number, platform)?;
        let module = Module { page_size: Some(self.vm.base()), ..Module::default() };
        self.attach(number, space, range, module, platform)
    }

    /// If a mapping requests it, loads all of its pages into memory, with the page sizes that
    /// faults would choose.
    pub(super) fn brought(
        &mut self,
        number: u32,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Event::Mmap { bytes, flags, result, .. } = *event else { return Ok(()) };
        let brought = Brought::by(flags);
        let range = range(result as u64, bytes).filter(|_| result >= 0 && brought != Brought::No);
        let Some(range) = range else { return Ok(()) };
        let space = self.space(number, platform)?;
        self.with(platform, |kernel| match brought {
            Brought::No => Ok(()),
            Brought::Populated => kernel.prefault(space, range, None),
            // The call succeeds even if memory runs out (`mm_populate`).
            Brought::Locked => {
                kernel.lock_mapping(space, range)?;
                kernel.prefault(space, range, None)
            }
        })
    }

    /// Adds a mapping that existed when the trace began, or when the trace first reported the
    /// space.
    fn known(
        &mut self,
        ask: Ask<'_>,
        (start, bytes): (u64, u64),
        rights: Rights,
        backing: Backing<'_>,
        name: &str,
    ) -> Result<(), Failure> {
        // A forked child already has its parent's mappings. In other spaces, mappings that are
        // smaller than a base page can share one page, which then belongs to the last of them.
        let inherits = self.inherited.contains(&ask.number);
        if inherits && self.vm.rights(ask.space, VirtAddr::new(start)).is_some() {
            return Ok(());
        }
        let source = self.source(backing, start);
        let memory = match name {
            "stack" => Kind::Stack,
            "heap" => Kind::Heap,
            "bss" => Kind::Bss,
            _ => Kind::Other,
        };
        let kind = kind(backing, rights, memory);
        self.map(ask, (start, bytes), rights, source, (name, kind))
    }

    fn set_break(&mut self, ask: Ask<'_>, now: u64) -> Result<(), Failure> {
        let Ask { space, number, platform } = ask;
        let regions = platform.layout().regions(number);
        let before = regions.and_then(|regions| regions.program_break()).unwrap_or(now);
        let (before, now) = match &mut self.heaps {
            Some(heaps) => {
                let (from, to) = heaps.ends(number, before, now);
                let more = range(now.max(from), to.saturating_sub(now.max(from)));
                // The heap cannot grow beyond the next region above it.
                let is_blocked = more.is_some_and(|more| self.vm.any_region(space, more, |_| true));
                (from, if is_blocked { heaps.ends_at(number, now) } else { to })
            }
            None => (before, now),
        };
        let (before, now) = (VirtAddr::new(before), VirtAddr::new(now));
        let label = self.files.label("heap");
        self.with(platform, |kernel| kernel.set_break(space, before, now, label))?;
        let up = |addr: VirtAddr| addr.get().next_multiple_of(self.vm.base().bytes());
        let (before, now) = (up(before), up(now));
        let grown = now.checked_sub(before).and_then(|bytes| range(before, bytes));
        let Some(range) = grown else { return Ok(()) };
        let mapped = Mapped { range, kind: Kind::Heap, name: "heap" };
        self.place(number, space, &mapped, platform)?;
        self.heap_grown(number, space, range, platform)?;
        self.populate(space, range, platform)
    }

    /// Handles a fork. A child that shares its parent's space gets no space of its own. A child
    /// that is not in the trace takes no frames.
    fn fork(&mut self, ask: Ask<'_>, child: i64, shares_space: bool) -> Result<(), Failure> {
        if shares_space || !self.forked.remove(&child) {
            return Ok(());
        }
        let child = self.with(ask.platform, |kernel| {
            let child = kernel.create()?;
            kernel.fork(ask.space, child)?;
            Ok(child)
        })?;
        self.decisions.forked.insert(child, ask.number);
        self.children.push_back(child);
        Ok(())
    }

    fn map(
        &mut self,
        ask: Ask<'_>,
        (start, bytes): (u64, u64),
        rights: Rights,
        source: Source,
        (name, kind): (&str, Kind),
    ) -> Result<(), Failure> {
        let Ask { space, number, platform } = ask;
        let Some(range) = range(start, bytes) else { return Ok(()) };
        let label = self.files.label(name);
        self.with(platform, |kernel| kernel.map(space, range, rights, source, label))?;
        self.place(number, space, &Mapped { range, kind, name }, platform)?;
        self.populate(space, range, platform)
    }

    /// Allocates all frames of a new mapping immediately, if the machine uses eager paging.
    fn populate(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        if self.eager {
            self.with(platform, |kernel| kernel.populate(space, range))?;
        }
        Ok(())
    }

    /// The backing of a mapping from `start` on.
    fn source(&mut self, backing: Backing<'_>, start: u64) -> Source {
        match backing {
            Backing::Anonymous => Source::Anonymous,
            Backing::SharedMemory => Source::SharedMemory,
            Backing::File { file, path, offset, shared } => {
                // If the offset is not known, pages of a file are distinguished by their addresses.
                let first = self.first(offset.unwrap_or(start) / FILE_PAGE_BYTES);
                let key = self.files.key(file, path);
                key.map_or(Source::Anonymous, |key| Source::File { key, first, shared })
            }
        }
    }

    /// The number of the base page of a file that contains its 4-KiB page `file_page`.
    fn first(&self, file_page: u64) -> u64 {
        file_page * FILE_PAGE_BYTES / self.vm.base().bytes()
    }
}

/// The kind of a mapping for place rules; `memory` is its kind if no file backs it.
fn kind(backing: Backing<'_>, rights: Rights, memory: Kind) -> Kind {
    match backing {
        Backing::Anonymous | Backing::SharedMemory => memory,
        Backing::File { .. } if rights.contains(Rights::WRITE) => Kind::Data,
        Backing::File { .. } => Kind::Text,
    }
}

/// The space of an event, and the platform for handling it.
struct Ask<'a> {
    space: HatSpace,
    /// The number of the space in the trace.
    number: u32,
    platform: &'a mut dyn Platform,
}

fn range(start: u64, bytes: u64) -> Option<VirtRange> {
    VirtRange::new(VirtAddr::new(start), bytes).ok()
}
