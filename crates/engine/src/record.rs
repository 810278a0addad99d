//! This process's slot in the session, its ring, and its log of blocks.
//!
//! ```text
//!   view   [ chunk                                   | chunk again ]
//!              ^ opened ........ r11 ...... | guard                      moves on by a span at a time
//! ```
//!
//! Blocks do not check for the end of the ring: the page after the current span is a guard page, and the
//! first store to it faults. Then a segment ends, the guard moves on by a span, and the store is repeated.
//! The second view of the chunk lets a block continue beyond the chunk's end.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use ring::{
    BLOCKS_PER_CHUNK, Block, CHUNK_BYTES, Control, Derived, EventCode, LAST_PAGES_WANTED, Process,
    RING_RECORDS, Record, Ring, Session, Slot, TAGS_PER_CHUNK, chunk_offset, event_parts,
    process_offset, ring_offset,
};

use crate::lock::Locked;
use crate::state::{NEXT, RING, State};
use crate::sys::{self, nr};
use crate::table;
use crate::translate::Log;
use crate::translate::bare::rows;

/// The number of records in a span: a sixteenth of the ring.
pub(crate) const SPAN: u64 = RING_RECORDS as u64 / 16;
const GUARD_BYTES: u64 = 4096;
/// The bytes that are inaccessible in a hidden ring, from the page of the next record on: a block that runs, and the
/// first store of the next, are within one page of it ([`SLACK`]). To hide all of the ring would cost as much as a
/// thousand blocks.
const HIDDEN_BYTES: u64 = 2 * GUARD_BYTES;
/// The size of a cache line in bytes.
const LINE_BYTES: usize = 64;
/// The number of records that a block may write beyond the end of a span.
pub(crate) const SLACK: u64 = GUARD_BYTES / 8;
/// Nanoseconds between two checks whether the host is alive.
pub(crate) const PATIENCE_NS: u64 = 100_000_000;
pub(crate) const FUTEX_WAIT: u64 = 0;
pub(crate) const FUTEX_WAKE: u64 = 1;

/// By number of a block: the number of its accesses, and whether it has a fetch.
pub(crate) static SIZES: Locked<Vec<u16>> = Locked::new(Vec::new());
/// See [`SIZES`].
const HAS_FETCH: u16 = 1 << 15;

/// The session, as this process uses it.
pub(crate) struct Recorder {
    pub(crate) base: u64,
    pub(crate) slot: Slot,
    pub(crate) ring: u64,
    pub(crate) view: u64,
    /// The number of records before the first of the view.
    pub(crate) before: u64,
    /// The address of the guard page.
    pub(crate) guard: u64,
    pub(crate) state: State,
    /// Whether recording has ended.
    pub(crate) is_off: bool,
    /// Whether the ring is inaccessible where blocks store next, so that the next store of a block faults.
    pub(crate) is_hidden: bool,
    /// The first address that is inaccessible then.
    pub(crate) hidden_at: u64,
    /// Whether blocks count accesses: the next block's poll faults instead.
    pub(crate) counts: bool,
    /// In a sample: the position up to which records were counted, and the accesses left in the window.
    pub(crate) walked: u64,
    pub(crate) span: u64,
}

impl Recorder {
    pub(crate) fn session(&self) -> &'static Session {
        // SAFETY: the mapping begins with a session and is never unmapped.
        unsafe { &*(self.base as *const Session) }
    }

    /// The path of the library that marks allocations, up to the name of the processor; empty if they are not marked.
    pub(crate) fn libraries(&self) -> &'static [u8] {
        self.session().allocations.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    pub(crate) fn process(&self) -> &'static Process {
        self.process_at(self.slot.index)
    }

    pub(crate) fn process_at(&self, slot: usize) -> &'static Process {
        // SAFETY: the offset is inside the mapping; all fields are atomic.
        unsafe { &*((self.base + process_offset(slot) as u64) as *const Process) }
    }

    pub(crate) fn ring(&self) -> &'static Ring {
        // SAFETY: as above.
        unsafe { &*(self.ring as *const Ring) }
    }

    fn ring_at(&self, chunk: usize) -> &'static Ring {
        // SAFETY: as above.
        unsafe { &*((self.base + ring_offset(chunk) as u64) as *const Ring) }
    }

    pub(crate) fn claim_chunk(&self) -> Option<usize> {
        self.session().claim_chunk(|chunk| self.ring_at(chunk))
    }

    pub(crate) fn announce(&self) {
        self.session().arrivals.fetch_add(1, Ordering::AcqRel);
        self.ring_doorbell();
    }

    pub(crate) fn ring_doorbell(&self) {
        let session = self.session();
        if session.host_sleeps.load(Ordering::Relaxed) != 0
            && session.host_sleeps.swap(0, Ordering::AcqRel) != 0
        {
            session.doorbell.fetch_add(1, Ordering::Release);
            sys::futex(session.doorbell.as_ptr(), FUTEX_WAKE, 1, core::ptr::null());
        }
    }

    /// Waits until `is_done` returns true, for a limited time. Returns false if the host's process
    /// has ended.
    pub(crate) fn wait_until(&self, is_done: impl Fn() -> bool) -> bool {
        let ring = self.ring();
        let space = ring.space.load(Ordering::Acquire);
        ring.writer_sleeps.store(1, Ordering::SeqCst);
        self.ring_doorbell();
        if !is_done() {
            sys::futex(ring.space.as_ptr(), FUTEX_WAIT, space, &[0, PATIENCE_NS]);
        }
        ring.writer_sleeps.store(0, Ordering::Relaxed);
        is_done() || self.host_lives()
    }

    pub(crate) fn host_lives(&self) -> bool {
        const ESRCH: i64 = -3;
        // SAFETY: signal 0 only tests whether the process exists.
        let asked = unsafe { sys::call(nr::KILL, [self.session().host_pid.into(), 0, 0, 0, 0, 0]) };
        asked != ESRCH
    }

    pub(crate) fn protect(&self, page: u64, rights: u64) {
        // SAFETY: the page belongs to the view, which the engine owns.
        unsafe { sys::call(nr::MPROTECT, [page, GUARD_BYTES, rights, 0, 0, 0]) };
    }

    /// Whether the address is in the guard page.
    pub(crate) fn is_guard(&self, address: u64) -> bool {
        address.wrapping_sub(self.guard) < GUARD_BYTES
    }

    /// Whether the address is in the ring.
    pub(crate) fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.view) < 2 * CHUNK_BYTES as u64
    }

    /// Makes the ring inaccessible where blocks store next, until [`Recorder::show`], so that the next store of a
    /// block faults. Translated code runs, or is about to.
    pub(crate) fn hide(&mut self) {
        if self.counts {
            self.is_hidden = true;
            return table::show(self.state, false);
        }
        if !self.is_hidden {
            self.is_hidden = true;
            self.hidden_at = self.state.get(NEXT) & !(GUARD_BYTES - 1);
        }
        // SAFETY: the pages are of the view, which is ours and has one more page behind the guard.
        unsafe { sys::call(nr::MPROTECT, [self.hidden_at, HIDDEN_BYTES, 0, 0, 0, 0]) };
    }

    /// Undoes [`Recorder::hide`].
    pub(crate) fn show(&mut self) {
        if self.counts {
            self.is_hidden = false;
            return table::show(self.state, true);
        }
        let rights = sys::PROT_READ | sys::PROT_WRITE;
        // SAFETY: as above.
        unsafe { sys::call(nr::MPROTECT, [self.hidden_at, HIDDEN_BYTES, rights, 0, 0, 0]) };
        self.protect(self.guard, 0);
        self.is_hidden = false;
    }

    /// The address of the next record.
    pub(crate) fn at(&self) -> u64 {
        self.state.get(RING)
    }

    /// Publishes that all records before `at` are written.
    pub(crate) fn moved(&self, at: u64) {
        self.state.set(RING, at);
        self.state.set(NEXT, at);
    }

    fn position(&self, at: u64) -> u64 {
        self.before + (at - self.view) / 8
    }

    pub(crate) fn is_unwanted(&self) -> bool {
        self.process().stop.load(Ordering::Relaxed) != 0
            || self.session().over.load(Ordering::Relaxed) != 0
    }

    /// Ends recording: blocks write to memory that is not read.
    pub(crate) fn off(&mut self) {
        if self.is_off {
            return;
        }
        self.is_off = true;
        // The word behind the cursor says that it is idle.
        self.state.set(NEXT + 8, 1);
        let rights = sys::PROT_READ | sys::PROT_WRITE;
        let kind = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | sys::MAP_FIXED;
        sys::map(self.view, 2 * CHUNK_BYTES as u64, rights, kind, -1, 0);
        self.guard = self.view + CHUNK_BYTES as u64;
        self.protect(self.guard, 0);
    }

    /// Ends a segment at [`Recorder::at`], and waits for the host if too many marks wait.
    pub(crate) fn mark(&mut self) {
        if self.is_off {
            return;
        }
        let position = self.position(self.at());
        while !self.ring().publish(position, true, sys::now) {
            let goes_on = self.wait_until(|| self.ring().has_room_for_mark());
            if !goes_on || self.is_unwanted() {
                break;
            }
        }
        if self.is_unwanted() {
            self.off();
        }
    }

    /// Moves the guard page on, as the block whose record begins at `at` writes into it. Returns the new
    /// address of that record.
    pub(crate) fn next_span(&mut self, at: u64) -> u64 {
        let bytes = CHUNK_BYTES as u64;
        if self.is_off {
            // The whole record of the block is lost, including the part behind the guard page.
            self.moved(self.view);
            return self.view;
        }
        self.moved(at);
        let position = self.position(at);
        let ring = self.ring();
        let mut published = ring.publish(position, true, sys::now);
        let most = RING_RECORDS as u64 / 4 * 3;
        let has_space = || position + SPAN + 2 * SLACK - ring.tail.load(Ordering::Acquire) <= most;
        let mut goes_on = true;
        while goes_on && !self.is_unwanted() && !(published && has_space()) {
            goes_on = match published {
                true => self.wait_until(has_space),
                false => self.wait_until(|| ring.has_room_for_mark()),
            };
            published = published || ring.publish(position, true, sys::now);
        }
        if !goes_on || self.is_unwanted() {
            self.off();
            self.moved(self.view);
            return self.view;
        }
        if position - ring.tail.load(Ordering::Relaxed) >= RING_RECORDS as u64 / 2 {
            self.ring_doorbell();
        }
        self.protect(self.guard, sys::PROT_READ | sys::PROT_WRITE);
        let step = self.step();
        self.guard += step;
        let mut at = at;
        if at >= self.view + bytes {
            at -= bytes;
            self.guard -= bytes;
            self.before += RING_RECORDS as u64;
        }
        self.protect(self.guard, 0);
        // The lines of the span are in the cache of the reader's processor. They are requested all
        // at once here, and not one by one by the stores of blocks.
        for line in (self.guard - step..self.guard).step_by(LINE_BYTES) {
            // SAFETY: the span belongs to the view and has no records yet.
            unsafe { (line as *mut u64).write_volatile(0) };
        }
        ring.opened.store(position, Ordering::Release);
        self.moved(at);
        at
    }

    /// The number of bytes of the next span. Near the end of a window, spans are shorter.
    fn step(&self) -> u64 {
        (8 * self.span) & !(GUARD_BYTES - 1)
    }

    /// In a sample, where `left` accesses are left in the window: chooses the length of the next spans, and counts from
    /// here on.
    pub(crate) fn begin_walk(&mut self, left: u64) {
        self.walked = self.position(self.at());
        self.shorten(left);
        let near = (self.at() + self.step()).next_multiple_of(GUARD_BYTES) + GUARD_BYTES;
        if near < self.guard && !self.is_off {
            self.protect(self.guard, sys::PROT_READ | sys::PROT_WRITE);
            self.guard = near;
            self.protect(self.guard, 0);
        }
    }

    /// Makes the next spans so short that a window with `left` more accesses does not become much longer.
    pub(crate) fn shorten(&mut self, left: u64) {
        self.span = (left / 2).clamp(GUARD_BYTES / 8, SPAN);
    }

    /// The number of accesses in the records that were written since the last call. The last block
    /// must be complete.
    pub(crate) fn walk(&mut self) -> u64 {
        let end = self.position(self.at());
        let fetch = u64::from(self.session().fetches != 0);
        let word = |position: u64| {
            let at = self.view + 8 * (position % RING_RECORDS as u64);
            // SAFETY: the index is less than the number of words in the view.
            Record(unsafe { (at as *const u64).read() })
        };
        let (mut at, mut accesses) = (self.walked, 0);
        let sizes = SIZES.lock();
        while at < end {
            let record = word(at);
            at += 1;
            match record.as_control() {
                Some(Control::Fixed) => {
                    let (number, count) = record.fixed_parts();
                    let size = sizes.get(number as usize).copied().unwrap_or_default();
                    accesses += match record.made() {
                        Some(made) => made as u64,
                        None => u64::from(size & !HAS_FETCH),
                    };
                    accesses += if size & HAS_FETCH != 0 { fetch } else { 0 };
                    at += count as u64;
                }
                Some(Control::Block) => accesses += fetch,
                Some(Control::Wide) => {
                    accesses += rows(record.value() as u16);
                    at += 1;
                }
                Some(Control::Event) => at += event_parts(record.value()).1 as u64,
                Some(Control::Pad) => at += record.value(),
                Some(_) => {}
                None => accesses += rows(record.tag().0),
            }
        }
        self.walked = end;
        accesses
    }

    /// Makes room for `count` records in one span. Returns the address of the first.
    fn room(&mut self, count: usize) -> *mut u64 {
        while self.at() + 8 * (count as u64 + 1) > self.guard {
            let at = self.next_span(self.at());
            self.moved(at);
        }
        self.at() as *mut u64
    }

    /// Appends records.
    pub(crate) fn put(&mut self, records: &[u64]) {
        let to = self.room(records.len());
        // SAFETY: `room` has reserved this number of words.
        unsafe { core::ptr::copy_nonoverlapping(records.as_ptr(), to, records.len()) };
        self.moved(to as u64 + 8 * records.len() as u64);
    }

    /// Appends an event with its words.
    pub(crate) fn event(&mut self, code: EventCode, parts: &[&[u64]]) {
        let words: usize = parts.iter().map(|part| part.len()).sum();
        let mut to = self.room(words + 1);
        // SAFETY: as above.
        unsafe {
            to.write(ring::event_header(code, words as u16).0);
            to = to.add(1);
            for part in parts {
                core::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
        }
        self.moved(to as u64);
    }

    /// Appends an event that consists of words, the number of bytes of a text, and the text.
    pub(crate) fn text(&mut self, code: EventCode, words: &[u64], text: &[u8]) {
        const TEXT_BYTES_MAX: usize = 6 << 10;
        let text = &text[..text.len().min(TEXT_BYTES_MAX)];
        let mut packed = [0u64; TEXT_BYTES_MAX / 8];
        for (word, bytes) in packed.iter_mut().zip(text.chunks(8)) {
            let mut padded = [0u8; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        let packed = &packed[..text.len().div_ceil(8)];
        self.event(code, &[words, &[text.len() as u64], packed]);
    }

    /// Truncates the block that begins with the record at `at` to the first `made` of its accesses.
    pub(crate) fn cut(&mut self, at: u64, words: u32, told: u32, made: u32) {
        let record = at as *mut u64;
        // SAFETY: the caller says that a block of `words` words begins at `at`; all of them are in the view.
        unsafe {
            for word in 1 + told..words {
                record.add(word as usize).write(Record::NONE);
            }
            record.write(Record(record.read()).left_after(made.min(254) as u8).0);
        }
        self.moved(at + 8 * u64::from(words));
    }

    /// Appends a block whose accesses follow as records with tags. Returns the address of its first
    /// record.
    pub(crate) fn block(&mut self, number: u32, accesses: &[(u64, u16)]) -> u64 {
        let at = self.room(1 + 2 * accesses.len());
        self.put(&[Record::control(Control::Block, number.into()).0]);
        accesses.iter().for_each(|&(address, tag)| self.access(address, tag));
        at as u64
    }

    /// Truncates the block whose record begins at `at` and whose accesses end at `end` before its access to
    /// `address`.
    pub(crate) fn cut_assisted(&mut self, at: u64, end: u64, address: Option<u64>) {
        let accesses = (at + 8..end).step_by(8);
        let faults = |word: &u64| {
            // SAFETY: the words are in the view.
            let record = Record(unsafe { (*word as *const u64).read() });
            let offset = address.map(|address| address.wrapping_sub(record.value()));
            offset.is_some_and(|offset| offset < record.tag().size().into())
        };
        let first = accesses.clone().find(faults);
        self.moved(first.unwrap_or(if at < end { at + 8 } else { end }));
    }

    /// Makes room for this number of contiguous records, in one span.
    pub(crate) fn reserve(&mut self, records: usize) {
        self.room(records);
    }

    /// Appends an access of a block that began with [`Control::Block`].
    pub(crate) fn access(&mut self, address: u64, tag: u16) {
        if address <= Record::VALUE_MAX {
            self.put(&[Record::access(address, tag).0]);
        } else {
            self.put(&[Record::control(Control::Wide, tag.into()).0, address]);
        }
    }

    /// Before the program ends, or executes another one: waits until the host has read its page table, if it is to.
    pub(crate) fn wait_for_pages(&mut self) {
        if self.session().pages == 0 || self.is_off {
            return;
        }
        self.mark();
        let word = &self.process().last_pages;
        word.store(LAST_PAGES_WANTED, Ordering::Release);
        let is_done = || word.load(Ordering::Acquire) != LAST_PAGES_WANTED;
        while !is_done() && !self.is_unwanted() && self.wait_until(is_done) {}
    }

    /// Takes snapshots again, as the program did not end after [`Recorder::wait_for_pages`].
    pub(crate) fn go_on_with_pages(&self) {
        self.process().last_pages.store(0, Ordering::Release);
    }

    /// Ends the recording of the process.
    pub(crate) fn end(&mut self) {
        self.mark();
        self.session().running.fetch_sub(1, Ordering::Release);
    }

    /// Ends the recording, and reports to the host why the engine cannot continue.
    pub(crate) fn refuse(&mut self, pc: u64, why: &str) {
        let session = self.session();
        let bytes = why.as_bytes();
        for (to, &byte) in session.refused.iter().zip(bytes) {
            to.store(byte, Ordering::Relaxed);
        }
        session.refused_at.store(pc, Ordering::Relaxed);
        session.is_refused.store(1, Ordering::Release);
        self.end();
    }

    fn place_in_log(
        &self,
        log: &[AtomicU32],
        at: usize,
        chunk_entries: usize,
    ) -> Option<(usize, usize)> {
        let ring = |chunk| self.ring_at(chunk);
        self.session().place_in_log(log, at, chunk_entries, &self.slot, ring)
    }
}

impl Log for Recorder {
    fn append(&mut self, block: Block, tags: &[u16], derived: &[Option<Derived>]) -> Option<u32> {
        let process = self.process();
        let first = process.tags.load(Ordering::Relaxed);
        let leaves_out = block.recorded < block.accesses;
        let words = derived.iter().filter(|_| leaves_out).flat_map(|derived| match derived {
            Some(derived) => derived.words(),
            None => Derived::NOT,
        });
        let mut end = first;
        for (at, tag) in (first as usize..).zip(tags.iter().copied().chain(words)) {
            let (chunk, index) = self.place_in_log(&process.tag_log, at, TAGS_PER_CHUNK)?;
            let to = (self.base + chunk_offset(chunk) as u64) as *mut u16;
            // SAFETY: the index is inside the chunk, which is this process's.
            unsafe { to.add(index).write(tag) };
            end = at as u32 + 1;
        }
        process.tags.store(end, Ordering::Relaxed);
        let number = process.blocks.load(Ordering::Relaxed);
        let all: u64 = tags.iter().map(|&tag| rows(tag)).sum();
        let has_fetch = if block.instructions > 0 { HAS_FETCH } else { 0 };
        SIZES.lock().push(all as u16 | has_fetch);
        let own = (number - self.slot.blocks_inherited) as usize;
        let (chunk, index) = self.place_in_log(&process.log, own, BLOCKS_PER_CHUNK)?;
        let to = (self.base + chunk_offset(chunk) as u64) as *mut Block;
        // SAFETY: as above.
        unsafe { to.add(index).write(Block { tags: first, ..block }) };
        process.blocks.store(number + 1, Ordering::Release);
        Some(number)
    }
}
