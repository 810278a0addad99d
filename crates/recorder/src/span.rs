//! The slow path: finding room in a thread's ring, and waking the host.

use core::ptr;
use core::sync::atomic::Ordering;

use ring::{
    ChunkState, Contents, Control, EventCode, RING_RECORDS, Record, Ring, SPAN_RECORDS, SPAN_ROOM,
    Session,
};

use crate::vcpu::{Cursor, Phase, advance, cursor, idle, next};
use crate::{events, global, maps, qemu, skip, wait};

/// Appends a record if the fast path could not.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn put_slow(vcpu: u32, record: u64) {
    qemu::settle(vcpu);
    put(vcpu, record);
}

/// Appends an access if the fast path could not.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn access_slow(vcpu: u32, address: u64, tag: u64) {
    access(vcpu, address, tag);
}

/// Makes room for this number of records in one span, and for a block that records itself.
#[cold]
pub(crate) fn make_room(vcpu: u32, records: usize) {
    room(vcpu, records);
}

/// The number of records that are left in the current span; a whole span's without a ring.
pub(crate) fn left(vcpu: u32) -> usize {
    let cursor = cursor(vcpu);
    // SAFETY: only this thread uses the cursor; its pointers stay inside one span.
    unsafe {
        if (*cursor).phase != Phase::Attached {
            return SPAN_RECORDS;
        }
        SPAN_RECORDS - (*next(vcpu)).offset_from((*cursor).span) as usize
    }
}

/// Ends recording if the host does not need more; for threads that fill no span for a long time.
pub(crate) fn heed(vcpu: u32) {
    if is_unwanted(global::shared().session()) {
        global::stop(vcpu);
        // SAFETY: the caller is the thread of `vcpu`.
        unsafe { off(vcpu) };
    }
}

/// Appends a record.
pub(crate) fn put(vcpu: u32, record: u64) {
    if let Some(at) = room(vcpu, 1) {
        // SAFETY: `room` gave one record.
        unsafe {
            at.write(record);
            advance(vcpu, at.add(1));
        }
    }
}

/// Appends an access with an address of any length.
pub(crate) fn access(vcpu: u32, address: u64, tag: u64) {
    if address <= Record::VALUE_MAX {
        return put(vcpu, Record::access(address, tag as u16).0);
    }
    if let Some(at) = room(vcpu, 2) {
        // SAFETY: `room` gave two records.
        unsafe {
            at.write(Record::control(Control::Wide, tag).0);
            at.add(1).write(address);
            advance(vcpu, at.add(2));
        }
    }
}

/// Appends an event with its words; completely or not at all.
pub(crate) fn event(vcpu: u32, code: EventCode, parts: &[&[u64]]) {
    let words: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(words < SPAN_RECORDS / 2);
    skip::before_event(vcpu);
    let Some(at) = room(vcpu, words + 1) else { return };
    // SAFETY: `room` gave this many records.
    unsafe {
        at.write(ring::event_header(code, words as u16).0);
        let mut to = at.add(1);
        for part in parts {
            ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            to = to.add(part.len());
        }
        advance(vcpu, to);
        (*cursor(vcpu)).uncounted = to;
    }
}

/// Ends the thread's segment here; `whole` if its last block has run to its end.
pub(crate) fn mark(vcpu: u32, whole: bool) {
    let cursor = cursor(vcpu);
    // SAFETY: only this thread uses the cursor.
    unsafe {
        if (*cursor).phase == Phase::Attached {
            skip::before_event(vcpu);
            let ring = &*(*cursor).ring;
            ring.filtered.store((*cursor).filter.dropped, Ordering::Relaxed);
            publish(ring, position(vcpu), whole);
            // What is published is the host's to drop.
            (*cursor).uncounted = *next(vcpu);
        }
    }
}

/// Asks the host for the contents of the first-level TLBs after everything recorded so far, and waits for the
/// answer; `None` if there is none or the contents are unknown.
pub(crate) fn ask(vcpu: u32) -> Option<&'static Contents> {
    let contents = &global::process().contents;
    // Before the host can see that it is asked.
    contents.ask();
    put(vcpu, Record::control(Control::Ask, 0).0);
    mark(vcpu, true);
    let cursor = cursor(vcpu);
    let session = global::shared().session();
    loop {
        if let Some(is_known) = contents.answered() {
            return Some(contents).filter(|_| is_known);
        }
        // SAFETY: only this thread uses the cursor; a ring lives as long as the session.
        let ring = unsafe {
            let is_attached = (*cursor).phase == Phase::Attached;
            is_attached.then(|| &*(*cursor).ring)?
        };
        let goes_on = wait::wait_for_contents(session, ring, contents);
        if !goes_on {
            global::stop(vcpu);
        }
        if global::is_stopped() || is_unwanted(session) {
            // SAFETY: the caller is the thread of `vcpu`.
            unsafe { off(vcpu) };
            return None;
        }
    }
}

/// Ends a segment, and waits for the host if too many marks wait, so that records before a call are
/// separate from those after it.
fn publish(ring: &Ring, position: u64, whole: bool) {
    let session = global::shared().session();
    while !ring.publish(position, whole, wait::now) {
        let goes_on = wait::wait_for_marks(session, ring);
        if !goes_on || global::is_stopped() || is_unwanted(session) {
            break;
        }
    }
}

/// The number of records in the ring so far, for a thread that has one.
pub(crate) fn position(vcpu: u32) -> u64 {
    // SAFETY: only this thread uses the cursor; `next` and `span` point into one span.
    unsafe {
        let cursor = cursor(vcpu);
        (*cursor).span_position + (*next(vcpu)).offset_from((*cursor).span) as u64
    }
}

/// Room for `count` contiguous records at the cursor and one more, or for a block; `None` if the
/// thread does not record.
fn room(vcpu: u32, count: usize) -> Option<*mut u64> {
    let cursor = cursor(vcpu);
    // SAFETY: only this thread uses the cursor; its pointers stay inside one span.
    unsafe {
        if (*cursor).phase == Phase::Fresh {
            attach(vcpu, cursor);
        }
        if (*cursor).phase == Phase::Off {
            idle(vcpu);
            return None;
        }
        let used = (*next(vcpu)).offset_from((*cursor).span) as usize;
        if used + (count + 1).max(SPAN_ROOM) > SPAN_RECORDS {
            if used < SPAN_RECORDS {
                let rest = (SPAN_RECORDS - used - 1) as u64;
                (*next(vcpu)).write(Record::control(Control::Pad, rest).0);
                advance(vcpu, (*cursor).span.add(SPAN_RECORDS));
            }
            if !next_span(vcpu, cursor) {
                return None;
            }
        }
        Some(*next(vcpu))
    }
}

/// Gives a thread its ring, unless it is not to be recorded.
unsafe fn attach(vcpu: u32, to: *mut Cursor) {
    // SAFETY: only this thread uses the cursor, and nobody else the chunk that it claims.
    unsafe {
        if global::is_stopped() || is_over(global::shared().session()) {
            return off(vcpu);
        }
        let shared = global::shared();
        let Some(chunk) = shared.claim_chunk() else { return off(vcpu) };
        let slot = global::slot();
        let thread = global::process().threads.fetch_add(1, Ordering::Relaxed);
        let ring = shared.ring(chunk);
        ring.reset(slot.index as u32, slot.generation, thread, vcpu);
        let records = shared.records(chunk);
        clear(records);
        (*to).phase = Phase::Attached;
        (*to).ring = ring;
        (*to).records = records;
        (*to).span = records;
        (*to).span_position = 0;
        (*to).uncounted = records;
        *next(vcpu) = records;
        ring.state.store(ChunkState::Attached as u32, Ordering::Release);
        wait::announce(shared.session());
        if qemu::is_machine() {
            return;
        }
        if thread == 0 {
            maps::tell(vcpu);
        }
        events::thread_start(vcpu);
    }
}

/// Ends a full span and finds the next one; false if the thread's recording has ended.
unsafe fn next_span(vcpu: u32, cursor: *mut Cursor) -> bool {
    // SAFETY: only this thread uses the cursor; the next span is the host's no more once
    // there is space.
    unsafe {
        if skip::at_span_end(vcpu) {
            return true;
        }
        let session = global::shared().session();
        let ring = &*(*cursor).ring;
        let position = (*cursor).span_position + SPAN_RECORDS as u64;
        ring.filtered.store((*cursor).filter.dropped, Ordering::Relaxed);
        let mut published = ring.publish(position, false, wait::now);
        loop {
            if is_unwanted(session) {
                global::stop(vcpu);
            }
            if global::is_stopped() {
                off(vcpu);
                return false;
            }
            if wait::has_space(ring, position) {
                break;
            }
            if !wait::wait_for_space(session, ring, position) {
                global::stop(vcpu);
            }
            if !published {
                published = ring.publish(position, false, wait::now);
            }
        }
        if position - ring.tail.load(Ordering::Relaxed) >= RING_RECORDS as u64 / 2 {
            wait::ring_doorbell(session);
        }
        let span = (*cursor).records.add((position % RING_RECORDS as u64) as usize);
        clear(span);
        ring.opened.store(position, Ordering::Release);
        (*cursor).span = span;
        (*cursor).span_position = position;
        (*cursor).uncounted = span;
        *next(vcpu) = span;
        true
    }
}

/// Sets all records of a span to [`Record::NONE`], which a block leaves in place if it ends early.
///
/// The cache lines of the span come from the core on which the host has read them. Written one
/// after the other, many lines are transferred at a time. If each were transferred at the program's
/// own first store to it, these stores would wait in the store buffer: measured, that costs a
/// quarter more of the program's time. `prefetchw` does not help.
unsafe fn clear(span: *mut u64) {
    // SAFETY: the span is this thread's.
    unsafe { ptr::write_bytes(span, Record::NONE as u8, SPAN_RECORDS) };
}

/// Called when the thread ends: the host takes over its records.
pub(crate) fn close(vcpu: u32) {
    let cursor = cursor(vcpu);
    // SAFETY: only this thread uses the cursor.
    unsafe {
        if (*cursor).phase != Phase::Attached {
            return off(vcpu);
        }
        let ring = &*(*cursor).ring;
        let session = global::shared().session();
        ring.filtered.store((*cursor).filter.dropped, Ordering::Relaxed);
        publish(ring, position(vcpu), true);
        off(vcpu);
        ring.state.store(ChunkState::Closed as u32, Ordering::Release);
        wait::announce(session);
    }
}

/// Whether the host does not need more of this process.
fn is_unwanted(session: &Session) -> bool {
    global::process().stop.load(Ordering::Relaxed) != 0 || is_over(session)
}

/// Whether the host has stopped reading.
fn is_over(session: &Session) -> bool {
    session.over.load(Ordering::Relaxed) != 0
}

/// Ends the recording of the thread.
unsafe fn off(vcpu: u32) {
    // SAFETY: only this thread uses the cursor.
    unsafe {
        (*cursor(vcpu)).phase = Phase::Off;
        idle(vcpu);
    }
}
