//! The slow path: finding room in a thread's ring, and waking the host.

use core::ptr;
use core::sync::atomic::Ordering;

use ring::{
    ChunkState, Contents, Control, EventCode, RING_RECORDS, Record, Ring, SPAN_RECORDS, SPAN_ROOM,
    Session,
};

use crate::vcpu::{Cursor, Phase, advance, cursor, idle, next};
use crate::{events, global, maps, qemu, skip, wait};

/// Appends a record. Called if the fast path cannot append it.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn put_slow(vcpu: u32, record: u64) {
    qemu::settle(vcpu);
    put(vcpu, record);
}

/// Appends an access. Called if the fast path cannot append it.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn access_slow(vcpu: u32, address: u64, tag: u64) {
    access(vcpu, address, tag);
}

/// Makes room for this number of records in one span, and at least for one block that records
/// itself.
#[cold]
pub(crate) fn make_room(vcpu: u32, records: usize) {
    room(vcpu, records);
}

/// The number of records for which the current span has room. If the thread has no ring: the number
/// of records in a span.
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

/// Ends recording if the host does not need more records. This is for threads that fill no span for
/// a long time.
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
        // SAFETY: `room` has made room for one record.
        unsafe {
            at.write(record);
            advance(vcpu, at.add(1));
        }
    }
}

/// Appends an access. Its address may have more than 48 bits.
pub(crate) fn access(vcpu: u32, address: u64, tag: u64) {
    if address <= Record::VALUE_MAX {
        return put(vcpu, Record::access(address, tag as u16).0);
    }
    if let Some(at) = room(vcpu, 2) {
        // SAFETY: `room` has made room for two records.
        unsafe {
            at.write(Record::control(Control::Wide, tag).0);
            at.add(1).write(address);
            advance(vcpu, at.add(2));
        }
    }
}

/// Appends an event with all of its words, or, if the thread is not recorded, nothing.
pub(crate) fn event(vcpu: u32, code: EventCode, parts: &[&[u64]]) {
    let words: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(words < SPAN_RECORDS / 2);
    skip::before_event(vcpu);
    let Some(at) = room(vcpu, words + 1) else { return };
    // SAFETY: `room` has made room for this number of records.
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

/// Ends the thread's segment here. `whole` says whether its last block has run to its end.
pub(crate) fn mark(vcpu: u32, whole: bool) {
    let cursor = cursor(vcpu);
    // SAFETY: only this thread uses the cursor.
    unsafe {
        if (*cursor).phase == Phase::Attached {
            skip::before_event(vcpu);
            let ring = &*(*cursor).ring;
            ring.filtered.store((*cursor).filter.dropped, Ordering::Relaxed);
            publish(ring, position(vcpu), whole);
            // Records that were published are dropped by the host, not by the recorder.
            (*cursor).uncounted = *next(vcpu);
        }
    }
}

/// Asks the host for the contents that the first-level TLBs have after all accesses recorded so
/// far, and waits for the answer. `None` if there is no answer, or the host does not know the
/// contents.
pub(crate) fn ask(vcpu: u32) -> Option<&'static Contents> {
    let contents = &global::process().contents;
    // This must come before the record by which the host sees the request.
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

/// Ends a segment, so that the records before a system call are in another segment than those after
/// it. Waits if the host has too many marks to read.
fn publish(ring: &Ring, position: u64, whole: bool) {
    let session = global::shared().session();
    while !ring.publish(position, whole, wait::now) {
        let goes_on = wait::wait_for_marks(session, ring);
        if !goes_on || global::is_stopped() || is_unwanted(session) {
            break;
        }
    }
}

/// The number of records that the thread has written to its ring. The thread must have a ring.
pub(crate) fn position(vcpu: u32) -> u64 {
    // SAFETY: only this thread uses the cursor; `next` and `span` point into one span.
    unsafe {
        let cursor = cursor(vcpu);
        (*cursor).span_position + (*next(vcpu)).offset_from((*cursor).span) as u64
    }
}

/// Makes room for `count` + 1 contiguous records at the cursor, or for a block if this needs more.
/// Returns the cursor; `None` if the thread is not recorded.
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
    // SAFETY: only this thread uses the cursor, and only this thread uses the chunk that it claims.
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

/// Ends a full span and begins the next one. Returns false if the thread's recording has ended.
unsafe fn next_span(vcpu: u32, cursor: *mut Cursor) -> bool {
    // SAFETY: only this thread uses the cursor; once there is space, the host no longer reads the
    // next span.
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

/// Sets all records of a span to [`Record::NONE`]. If a block ends early, this value remains in the
/// records that the block did not write.
///
/// The cache lines of the span were last in the cache of the core on which the host has read them.
/// If they are written here one after the other, many lines are transferred at a time. Otherwise
/// each line would be transferred at the program's own first store to it, and these stores would
/// wait in the store buffer: as measured, the program would take a quarter longer. `prefetchw` does
/// not help.
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

/// Whether the host needs no more records of this process.
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
