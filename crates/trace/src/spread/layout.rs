//! The addresses of the mappings of one space after they were spaced apart.
//!
//! ```text
//!   recorded   |libc r--|libc r-x|libc rw-|anon|arena ......|        pieces, by recorded address
//!                  |        |        |        \        \
//!   given      |libc r--|libc r-x|libc rw-|..  |anon|....  |arena ......|
//!              ^ a multiple of the block       ^            ^
//! ```
//!
//! An `mmap` whose address the system chose begins a piece that is relocated. Mappings that replace
//! a part of the piece (`MAP_FIXED`, which loaders of libraries use) are relocated together with
//! the piece. All other mappings keep their addresses.

use std::collections::BTreeMap;

use super::{
    Placement,
    apart::Apart,
    room::{Kind, Room, Span, Want},
    top_down::TopDown,
};
use crate::{Buffer, Call, Event, Origin, Translation};

/// The flags `MAP_FIXED`, `MAP_FIXED_NOREPLACE` and `MAP_32BIT` of `mmap`: the program chooses the
/// address.
const MAP_NAMED: u32 = 0x10 | 0x10_0000 | 0x40;
/// The flags `MAP_PRIVATE` and `MAP_ANONYMOUS`.
const MAP_PRIVATE: u32 = 2;
const MAP_ANONYMOUS: u32 = 0x20;
/// The flag `MREMAP_FIXED` of `mremap`.
const MREMAP_FIXED: u32 = 2;

/// The last address of programs: the upper half of the addresses is the kernel's.
const PROGRAM_LAST: u64 = u64::MAX >> 1;
const PAGE_MASK: u64 = 0xfff;

/// The mapping of a range of recorded addresses up to `last`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) last: u64,
    /// The new address of the mapping's first byte.
    pub(super) to: u64,
    pub(super) of: Of,
}

/// The kind of object that a piece maps, and the offset of the piece in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    kind: Kind,
    offset: u64,
}

impl Of {
    pub(super) const ANYTHING: Of = Of { kind: Kind::Other, offset: 0 };

    fn after(self, bytes: u64) -> Of {
        Of { offset: self.offset.wrapping_add(bytes), ..self }
    }
}

/// A part of a range of recorded addresses; `to` is its new address, if something is mapped there.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: u64,
    last: u64,
    to: Option<u64>,
}

impl Part {
    fn bytes(&self) -> u64 {
        self.last.wrapping_sub(self.first).wrapping_add(1)
    }
}

/// The error that there is no room for a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full {
    pub(super) addr: u64,
    pub(super) bytes: u64,
}

/// One address space.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    how: Placement,
    /// The number of the space. The next field is the size in bytes of the blocks that each mapping
    /// has for itself.
    number: u64,
    pub(super) block: u64,
    top: u64,
    /// The pieces by recorded address.
    pub(super) pieces: BTreeMap<u64, Piece>,
    /// The occupied new addresses; `None` until the first mapping is relocated.
    pub(super) room: Option<Room>,
    /// The address at which the heap begins, if the heap was relocated. The next field is the
    /// distance by which it was relocated.
    pub(super) heap_from: Option<u64>,
    pub(super) heap_by: u64,
    /// The end of the heap, if it is known.
    program_break: Option<u64>,
    /// Shared-memory segments: recorded address and bytes.
    segments: BTreeMap<u64, u64>,
}

impl Layout {
    /// An empty space with this number, which ends before `top`.
    pub(super) fn new(how: Placement, top: u64, number: u64) -> Layout {
        let (block, room) = match how {
            Placement::Apart(block) => (block, None),
            Placement::Kernel(how) => {
                (PAGE_MASK + 1, Some(Room::Kernel(TopDown::new(how, number))))
            }
        };
        Layout {
            how,
            number,
            block,
            top,
            pieces: BTreeMap::new(),
            room,
            heap_from: None,
            heap_by: 0,
            program_break: None,
            segments: BTreeMap::new(),
        }
    }

    /// Whether every address is as recorded.
    pub(super) fn is_as_recorded(&self) -> bool {
        self.room.is_none()
    }

    /// The first and last address of the recorded range around `addr` that was relocated by one
    /// distance, and this distance. `None` if nothing was mapped at `addr`, and a relocated mapping
    /// now has this address: the new address of `addr` is then ambiguous.
    pub(super) fn around(&self, addr: u64) -> Option<(u64, u64, u64)> {
        if let Some((first, piece)) = self.piece_at(addr) {
            return Some((first, piece.last, piece.to.wrapping_sub(first)));
        }
        let page = (addr & !PAGE_MASK, addr | PAGE_MASK);
        self.is_free(page).then_some((page.0, page.1, 0))
    }

    /// The new address of `addr`.
    pub(super) fn at(&self, addr: u64) -> u64 {
        let found = self.piece_at(addr);
        found.map_or(addr, |(first, piece)| piece.to + (addr - first))
    }

    /// Updates the layout for `event`, and appends the event with new addresses to `out`: one event
    /// for each part of its range that was relocated by a different distance.
    pub(super) fn apply(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Full> {
        match event {
            Event::Mapping { .. } => self.known(event, out)?,
            Event::Mmap { .. } => self.map(event, out)?,
            Event::Mremap { .. } => self.remap(event, out)?,
            Event::Shmat { .. } => self.attach(event, out)?,
            Event::Munmap { addr, bytes, result } => {
                self.parts(event, out);
                if result == 0 {
                    self.carve(addr, bytes);
                }
            }
            Event::Mprotect { .. }
            | Event::Madvise { .. }
            | Event::Mlock { .. }
            | Event::Munlock { .. }
            | Event::Msync { .. }
            | Event::Mbind { .. }
            | Event::PageSize { .. } => self.parts(event, out),
            Event::Brk { result, .. } => {
                if let Some(now) = succeeded(result) {
                    self.set_break(now, out)?;
                }
                out.push(self.moved_break(event));
            }
            Event::ProcessMadvise { pidfd, ranges, ranges_count, advice, result } => {
                let ranges = self.at(ranges);
                out.push(Event::ProcessMadvise { pidfd, ranges, ranges_count, advice, result });
            }
            Event::Shmdt { addr, result } => {
                out.push(Event::Shmdt { addr: self.at(addr), result });
                if let (0, Some(bytes)) = (result, self.segments.remove(&addr)) {
                    self.carve(addr, bytes);
                }
            }
            Event::Site { number, mut stack } => {
                stack.iter_mut().for_each(|addr| *addr = self.at(*addr));
                out.push(Event::Site { number, stack });
            }
            Event::Allocate { addr, bytes, site } => {
                out.push(Event::Allocate { addr: self.at(addr), bytes, site });
            }
            Event::Free { addr } => out.push(Event::Free { addr: self.at(addr) }),
            Event::Flush { addr } => out.push(Event::Flush { addr: self.at(addr) }),
            Event::Interrupt { vector, device, pc, error, addr } => {
                let (pc, addr) = (self.at(pc), addr.map(|addr| self.at(addr)));
                out.push(Event::Interrupt { vector, device, pc, error, addr });
            }
            Event::Clone { flags, stack, result } => {
                out.push(Event::Clone { flags, stack: self.at(stack), result });
            }
            Event::Execve { result, .. } => {
                if result == 0 {
                    // The new program gets new random addresses.
                    let number = self.number.wrapping_add(1 << 32);
                    *self = Layout::new(self.how, self.top, number);
                }
                out.push(event);
            }
            Event::Call(call) => out.push(Event::Call(Box::new(self.call(*call)))),
            Event::Translation(translation) => self.translated(*translation, out),
            Event::Mlockall { .. }
            | Event::Munlockall { .. }
            | Event::Snapshot { .. }
            | Event::Task { .. }
            | Event::Table { .. }
            | Event::Entry { .. }
            | Event::Control { .. }
            | Event::HugePages { .. }
            | Event::Marker { .. }
            | Event::Image { .. }
            | Event::Fork { .. }
            | Event::Exit { .. }
            | Event::ThreadStart { .. }
            | Event::ThreadEnd
            | crate::events!(stream) => out.push(event),
        }
        Ok(())
    }

    /// Splits a call that concerns a range of addresses into one call for each part of the range
    /// that was relocated by a different distance.
    fn parts(&self, mut event: Event, out: &mut Vec<Event>) {
        let Some((addr, bytes)) = event.range_mut().map(|(addr, bytes)| (*addr, *bytes)) else {
            return out.push(event);
        };
        for part in self.now_at(addr, bytes) {
            if let Some((addr, bytes)) = event.range_mut() {
                (*addr, *bytes) = part;
            }
            out.push(event.clone());
        }
    }

    /// Relocates an event that gives the translation of pages, part by part. A page is left out if
    /// it would not be aligned to its size at its new address.
    fn translated(&self, whole: Translation, out: &mut Vec<Event>) {
        let (bytes, mask) = (whole.bytes().unwrap_or_default(), whole.page_bytes - 1);
        let Some(last) = bytes.checked_sub(1).and_then(|more| whole.addr.checked_add(more)) else {
            return;
        };
        for part in self.split(whole.addr, last) {
            let to = part.to.unwrap_or(part.first);
            // Only pages that lie completely in this part are translated.
            let Some(first) = part.first.checked_add(mask).map(|addr| addr & !mask) else {
                continue;
            };
            let pages = part.last.wrapping_add(1).wrapping_sub(first) / whole.page_bytes;
            let addr = to.wrapping_add(first.wrapping_sub(part.first));
            if first > part.last || pages == 0 || addr & mask != 0 {
                continue;
            }
            let paddr = whole.paddr.map(|paddr| paddr.wrapping_add(first - whole.addr));
            let part = Translation { addr, pages, paddr, ..whole.clone() };
            out.push(Event::Translation(Box::new(part)));
        }
    }

    /// A mapping that existed when the recording began.
    fn known(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Full> {
        let Event::Mapping { start, bytes, rights, origin, offset, file } = event else {
            return Ok(());
        };
        if origin == Origin::Heap {
            self.program_break = start.checked_add(bytes);
        }
        // A forked child has the mappings of its parent, which were relocated already.
        for (part, to) in self.map_over(start, bytes, 0)? {
            let offset = offset.map(|offset| offset.wrapping_add(part.first - start));
            let (start, bytes, origin) = (to, part.bytes(), origin.clone());
            out.push(Event::Mapping { start, bytes, rights, origin, offset, file });
        }
        Ok(())
    }

    /// A call of `mmap`.
    fn map(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Full> {
        let Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result } = event else {
            return Ok(());
        };
        let Some(start) = succeeded(result) else {
            let addr = self.at(addr);
            out.push(Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result });
            return Ok(());
        };
        let is_named = flags & MAP_NAMED != 0 || (addr != 0 && addr == start);
        let placed = match is_named {
            true => self.map_over(start, bytes, offset)?,
            false => {
                let kind = match (addr, flags & MAP_ANONYMOUS != 0, flags & MAP_PRIVATE != 0) {
                    (0, true, true) => Kind::Memory,
                    (0, false, _) => Kind::File,
                    _ => Kind::Other,
                };
                self.map_apart(start, bytes, offset, kind)?
            }
        };
        for (part, to) in placed {
            let (path, offset) = (path.clone(), offset.wrapping_add(part.first - start));
            let addr = if addr == start { to } else { addr };
            let (bytes, result) = (part.bytes(), to as i64);
            out.push(Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result });
        }
        Ok(())
    }

    /// A call of `shmat`.
    fn attach(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Full> {
        let Event::Shmat { id, mut addr, flags, bytes, file, mut result } = event else {
            return Ok(());
        };
        if let (Some(start), Some(bytes)) = (succeeded(result), bytes) {
            self.segments.insert(start, bytes);
            let placed = match addr {
                0 => self.map_apart(start, bytes, 0, Kind::Other)?,
                _ => self.map_over(start, bytes, 0)?,
            };
            // A segment is mapped in one piece: over several mappings, it is placed at the first
            // one.
            if let Some(&(_, to)) = placed.first() {
                (addr, result) = (if addr == start { to } else { addr }, to as i64);
            }
        }
        out.push(Event::Shmat { id, addr, flags, bytes, file, result });
        Ok(())
    }

    /// `call` with the new addresses of its buffers. Its raw arguments are unchanged, since it is
    /// unknown which of them are addresses.
    fn call(&self, mut call: Call) -> Call {
        let buffers = call.buffers.iter();
        call.buffers = buffers
            .flat_map(|buffer| self.now_at(buffer.addr, buffer.bytes))
            .map(|(addr, bytes)| Buffer { addr, bytes })
            .collect();
        call
    }

    /// Maps `bytes` bytes at `start`, an address that the system chose, into blocks of their own.
    fn map_apart(
        &mut self,
        start: u64,
        bytes: u64,
        offset: u64,
        kind: Kind,
    ) -> Result<Vec<(Part, u64)>, Full> {
        let Some((first, last)) = pages(start, bytes) else {
            return Ok(as_recorded(start, bytes));
        };
        self.carve(start, bytes);
        let to = self.find((first, last), offset, kind)?;
        self.insert_of(first, last, to, Of { kind, offset });
        let part = Part { first: start, last: start + (bytes - 1), to: None };
        Ok(vec![(part, to + (start - first))])
    }

    /// Maps `bytes` bytes at `start`, an address that the program fixed. Parts over an existing mapping are
    /// mapped at that mapping's new address. Other parts stay at their recorded address, unless another
    /// mapping was relocated there.
    fn map_over(&mut self, start: u64, bytes: u64, offset: u64) -> Result<Vec<(Part, u64)>, Full> {
        let Some((first, last)) = pages(start, bytes) else {
            return Ok(as_recorded(start, bytes));
        };
        let mut placed = Vec::new();
        // Parts that were mapped before keep their new addresses; for other parts an address is
        // searched.
        for part in self.split(first, last) {
            let span = (part.first, part.last);
            let to = match part.to {
                Some(to) => to,
                None if self.is_free(span) => part.first,
                None => self.find(span, offset.wrapping_add(part.first - first), Kind::Other)?,
            };
            if part.to.is_none() {
                self.insert(part.first, part.last, to);
            }
            // The first part begins, and the last one ends, at the address that the program gave.
            let (from, last) = (part.first.max(start), part.last.min(start + (bytes - 1)));
            placed.push((Part { first: from, last, ..part }, to + (from - part.first)));
        }
        Ok(placed)
    }

    /// A new address for `span`, which begins at `offset` in its file.
    pub(super) fn find(&mut self, span: Span, offset: u64, kind: Kind) -> Result<u64, Full> {
        let (block, top, pieces) = (self.block, self.top, &self.pieces);
        let room = self.room.get_or_insert_with(|| {
            let mut room = Apart::new(block, span, top);
            pieces.iter().for_each(|(&first, piece)| room.take((first, piece.last)));
            Room::Apart(room)
        });
        let bytes = (span.1 - span.0).saturating_add(1);
        let found = room.find(Want { bytes, offset, kind }, block);
        found.ok_or(Full { addr: span.0, bytes })
    }

    fn remap(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Full> {
        let Event::Mremap { addr, old_bytes, new_bytes, flags, new_addr, result } = event else {
            return Ok(());
        };
        let known = pages(addr, old_bytes).zip(pages(addr, new_bytes));
        let moved = succeeded(result).and_then(|to| Some((to, pages(to, new_bytes)?)));
        let (Some((to, moved)), Some((old, new))) = (moved, known) else {
            let (addr, new_addr) = (self.at(addr), self.at(new_addr));
            out.push(Event::Mremap { addr, old_bytes, new_bytes, flags, new_addr, result });
            return Ok(());
        };
        let parts = together(self.split(old.0, old.1));
        let bytes = (new.1 - new.0).saturating_add(1);
        if to == addr && bytes <= (old.1 - old.0).saturating_add(1) {
            // The mapping becomes shorter.
            for part in parts.iter().filter(|part| part.first <= new.1) {
                let kept = part.bytes().min((new.1 - part.first).saturating_add(1));
                let addr = part.to.unwrap_or(part.first);
                let result = addr as i64;
                let (old_bytes, new_bytes) = (part.bytes(), kept);
                out.push(Event::Mremap { addr, old_bytes, new_bytes, flags, new_addr: 0, result });
            }
            for part in parts.iter().filter(|part| part.first > new.1) {
                let addr = part.to.unwrap_or(part.first);
                out.push(Event::Munmap { addr, bytes: part.bytes(), result: 0 });
            }
            if new.1 < old.1 {
                self.carve(new.1 + 1, old.1 - new.1);
            }
            return Ok(());
        }
        // Determines the new address: the mapping stays if it can grow in place.
        let stays = match parts[..] {
            [Part { to: now, .. }] if to == addr => {
                let now = now.unwrap_or(addr);
                // The mapping must still have its blocks for itself.
                let last = now.checked_add(bytes - 1).map(|last| last | (self.block - 1));
                let more = last.map(|last| (now.wrapping_add(old.1 - old.0 + 1), last));
                more.filter(|&more| self.is_free(more)).map(|_| now)
            }
            _ => None,
        };
        let named = if flags & MREMAP_FIXED != 0 { self.split(moved.0, moved.1) } else { vec![] };
        if to != addr {
            for part in named.iter().filter_map(|part| Some((part.to?, part.bytes()))) {
                out.push(Event::Munmap { addr: part.0, bytes: part.1, result: 0 });
            }
            self.carve(moved.0, bytes);
        }
        let of = self.piece_at(addr).map_or(Of::ANYTHING, |(at, piece)| piece.of.after(addr - at));
        // The mapping must not be moved to addresses that another mapping still has.
        let place = match (stays, &named[..]) {
            (Some(now), _) => now,
            (None, [Part { to: Some(now), .. }]) => *now,
            (None, [Part { to: None, .. }]) if self.is_free(moved) => moved.0,
            _ => self.find(moved, of.offset, of.kind)?,
        };
        self.carve(old.0, old.1 - old.0 + 1);
        self.carve(moved.0, bytes);
        self.insert_of(moved.0, moved.1, place, of);
        let last = parts.len().saturating_sub(1);
        for (index, part) in parts.iter().enumerate() {
            let (within, old_bytes) = (part.first - old.0, part.bytes());
            let addr = part.to.unwrap_or(part.first);
            let Some(room) = bytes.checked_sub(within).filter(|&room| room > 0) else {
                out.push(Event::Munmap { addr, bytes: old_bytes, result: 0 });
                continue;
            };
            let new_bytes = if index == last { room } else { room.min(old_bytes) };
            let new_addr = place + within;
            let result = new_addr as i64;
            out.push(Event::Mremap { addr, old_bytes, new_bytes, flags, new_addr, result });
        }
        Ok(())
    }

    /// Sets the end of the heap to `now`.
    fn set_break(&mut self, now: u64, out: &mut Vec<Event>) -> Result<(), Full> {
        let up = |at: u64| at.saturating_add(PAGE_MASK) & !PAGE_MASK;
        let Some(before) = self.program_break.replace(now) else {
            if let Some(heap) = self.heap_from {
                self.heap_by = heap.wrapping_sub(up(now));
            }
            return Ok(());
        };
        let [from, to] = [before, now].map(up);
        if to < from {
            // Parts of the heap that were placed elsewhere for lack of room are unmapped too.
            let by = self.heap_by;
            let elsewhere = |part: Part| {
                let left = part.to.filter(|&to| to != part.first.wrapping_add(by));
                Some((left?, part.bytes()))
            };
            for (addr, bytes) in self.split(to, from - 1).into_iter().filter_map(elsewhere) {
                out.push(Event::Munmap { addr, bytes, result: 0 });
            }
            self.carve(to, from - to);
        } else if from < to {
            let free: Vec<Part> = self.split(from, to - 1);
            for part in free.into_iter().filter(|part| part.to.is_none()) {
                let to = part.first.wrapping_add(self.heap_by);
                if !self.is_free((to, to.wrapping_add(part.last - part.first))) {
                    return Err(Full { addr: part.first, bytes: part.bytes() });
                }
                self.insert(part.first, part.last, to);
            }
        }
        Ok(())
    }

    /// The event of a heap that was relocated.
    fn moved_break(&self, event: Event) -> Event {
        let Event::Brk { addr, result } = event else { return event };
        let by = if self.program_break.is_some() { self.heap_by } else { 0 };
        let moved = |at: u64| if at == 0 { 0 } else { at.wrapping_add(by) };
        let result = succeeded(result).map_or(result, |now| moved(now) as i64);
        Event::Brk { addr: moved(addr), result }
    }

    /// The new addresses of the `bytes` bytes from `addr`, in contiguous parts. Unmapped parts are
    /// omitted if a relocated mapping now has their addresses.
    fn now_at(&self, addr: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Some(last) = bytes.checked_sub(1).and_then(|more| addr.checked_add(more)) else {
            return vec![(self.at(addr), bytes)].into_iter();
        };
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut add = |first: u64, bytes: u64| match found.last_mut() {
            Some((start, length)) if *start + *length == first => *length += bytes,
            _ => found.push((first, bytes)),
        };
        for part in self.split(addr, last) {
            match (part.to, &self.room) {
                (Some(to), _) => add(to, part.bytes()),
                (None, None) => add(part.first, part.bytes()),
                (None, Some(room)) => {
                    let free = room.free_in((part.first, part.last));
                    free.into_iter().for_each(|(first, last)| add(first, last - first + 1));
                }
            }
        }
        found.into_iter()
    }

    /// The pieces in a range, and the gaps between them, by ascending address.
    fn split(&self, first: u64, last: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut at = first;
        let from = self.piece_at(first).map_or(first, |(start, _)| start);
        for (&start, piece) in self.pieces.range(from..=last) {
            if start > at {
                parts.push(Part { first: at, last: start - 1, to: None });
                at = start;
            }
            let to = Some(piece.to + (at - start));
            parts.push(Part { first: at, last: piece.last.min(last), to });
            match piece.last.checked_add(1) {
                Some(next) => at = next,
                None => return parts,
            }
        }
        if at <= last {
            parts.push(Part { first: at, last, to: None });
        }
        parts
    }

    pub(super) fn piece_at(&self, addr: u64) -> Option<(u64, Piece)> {
        let (&first, &piece) = self.pieces.range(..=addr).next_back()?;
        (addr <= piece.last).then_some((first, piece))
    }

    pub(super) fn is_free(&self, span: Span) -> bool {
        self.room.as_ref().is_none_or(|room| room.is_free(span))
    }

    pub(super) fn insert(&mut self, first: u64, last: u64, to: u64) {
        self.insert_of(first, last, to, Of::ANYTHING);
    }

    fn insert_of(&mut self, first: u64, last: u64, to: u64, of: Of) {
        self.pieces.insert(first, Piece { last, to, of });
        if let Some(room) = &mut self.room {
            room.take((to, to + (last - first)));
        }
    }

    /// Unmaps the pages of the `bytes` bytes from `start`.
    fn carve(&mut self, start: u64, bytes: u64) {
        let Some((first, last)) = pages(start, bytes) else { return };
        let from = self.piece_at(first).map_or(first, |(start, _)| start);
        let within: Vec<u64> = self.pieces.range(from..=last).map(|(&start, _)| start).collect();
        for start in within {
            let Some(piece) = self.pieces.remove(&start) else { continue };
            let mut left = Vec::new();
            let mut keep = |from: u64, until: u64| {
                let to = piece.to + (from - start);
                let of = piece.of.after(from - start);
                self.pieces.insert(from, Piece { last: until, to, of });
                left.push((to, to + (until - from)));
            };
            if start < first {
                keep(start, first - 1);
            }
            if piece.last > last {
                keep(last + 1, piece.last);
            }
            if let Some(room) = &mut self.room {
                room.release((piece.to, piece.to + (piece.last - start)), &left);
            }
        }
    }
}

/// `parts`, in which parts that are contiguous at their new addresses too are joined. Unmapped
/// parts keep their recorded addresses.
fn together(parts: Vec<Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        let to = part.to.unwrap_or(part.first);
        match joined.last_mut() {
            Some(last) if last.to == to.checked_sub(last.bytes()) => last.last = part.last,
            _ => joined.push(Part { to: Some(to), ..part }),
        }
    }
    joined
}

/// The result for a range that is empty or extends beyond the last address: it stays at its
/// recorded address.
fn as_recorded(start: u64, bytes: u64) -> Vec<(Part, u64)> {
    let last = start.wrapping_add(bytes.wrapping_sub(1));
    vec![(Part { first: start, last, to: None }, start)]
}

/// The address in a call's result, if the call succeeded.
fn succeeded(result: i64) -> Option<u64> {
    u64::try_from(result).ok()
}

/// The first and last address of the pages that contain the `bytes` bytes from `start`, if there
/// are any and all of them are in the program's part of the addresses.
pub(super) fn pages(start: u64, bytes: u64) -> Option<Span> {
    let last = start.checked_add(bytes.checked_sub(1)?)?;
    (last <= PROGRAM_LAST).then_some((start & !PAGE_MASK, last | PAGE_MASK))
}
