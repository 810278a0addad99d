//! `--skip`: drops whole spans before recording begins.
//!
//! ```text
//!   | counted and dropped | counted and dropped | ... | less than two spans to go: kept |
//!                                                      the host drops the rest exactly
//! ```
//!
//! While a thread skips accesses, it fills the same span again and again and never publishes an
//! access. Events are still reported, since the program's regions would otherwise be unknown.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::Ordering;

use ring::{BLOCKS_PER_CHUNK, Control, Origin, Record, SPAN_RECORDS};

use crate::vcpu::{Phase, advance, cursor, next};
use crate::{derived, global};

/// Whether the recorder must still skip accesses. The accesses of the last two spans or less are
/// left for the host to drop.
///
/// If a program was started by another program's `execve`, the host drops all of its skipped
/// accesses: the host knows how many accesses were made before the `execve`.
pub(crate) fn is_on() -> bool {
    let skip = global::shared().session().skip_accesses;
    skip != 0
        && global::process().origin.load(Ordering::Relaxed) != Origin::Executed as u32
        && global::process().skipped_accesses.load(Ordering::Relaxed) + 2 * SPAN_RECORDS as u64
            <= skip
}

/// Called when a span is full. If its accesses are skipped, empties it and returns true: the same
/// span is filled again.
pub(crate) unsafe fn at_span_end(vcpu: u32) -> bool {
    if !is_on() {
        return false;
    }
    // SAFETY: the caller's thread owns the cursor.
    unsafe {
        drop_uncounted(vcpu);
        let used = (*next(vcpu)).offset_from((*cursor(vcpu)).span) as usize;
        if used > SPAN_RECORDS / 2 {
            // Events fill most of the span. The host must read them before there is room again.
            if used < SPAN_RECORDS {
                let rest = (SPAN_RECORDS - used - 1) as u64;
                (*next(vcpu)).write(Record::control(Control::Pad, rest).0);
            }
            return false;
        }
    }
    true
}

/// Called before an event or a mark. If accesses are being skipped, drops those made so far and
/// counts them.
pub(crate) fn before_event(vcpu: u32) {
    // SAFETY: the caller's thread owns the cursor.
    unsafe {
        if (*cursor(vcpu)).phase == Phase::Attached && is_on() {
            drop_uncounted(vcpu);
        }
    }
}

/// Counts and drops the accesses from `uncounted` on, and moves the cursor back to `uncounted`.
///
/// The last block is kept, with the accesses that it has made so far. It may make more accesses,
/// and the host could not attribute these without the block's record. The host drops the accesses
/// of this block together with the other accesses that it drops.
unsafe fn drop_uncounted(vcpu: u32) {
    // SAFETY: the records lie in the present span and are this thread's.
    unsafe {
        let length = (*next(vcpu)).offset_from((*cursor(vcpu)).uncounted) as usize;
        let records = core::slice::from_raw_parts_mut((*cursor(vcpu)).uncounted, length);
        let last = last_block(records);
        let kept = last.len();
        let (accesses, instructions) = count(&records[..last.start]);
        records.copy_within(last, 0);
        records[kept..].fill(Record::NONE);
        let process = global::process();
        process.skipped_accesses.fetch_add(accesses, Ordering::Relaxed);
        process.skipped_instructions.fetch_add(instructions, Ordering::Relaxed);
        advance(vcpu, (*cursor(vcpu)).uncounted.add(kept));
    }
}

/// The records of the last block, without padding after them.
pub(crate) fn last_block(records: &[u64]) -> Range<usize> {
    let mut last = None;
    let mut at = 0;
    while let Some(&word) = records.get(at) {
        match Record(word).as_control() {
            Some(Control::Block | Control::Context) => last = Some(at),
            Some(Control::Fixed) => {
                last = Some(at);
                at += Record(word).fixed_parts().1;
            }
            Some(Control::Wide | Control::Hits) => at += 1,
            // Padding fills the span to its end.
            Some(Control::Pad) => break,
            _ => {}
        }
        at += 1;
    }
    let end = at.min(records.len());
    last.unwrap_or(end)..end
}

/// The number of accesses and the number of instructions in `records`. The records contain no
/// events.
fn count(records: &[u64]) -> (u64, u64) {
    let shared = global::shared();
    let fetches = u64::from(shared.session().fetches);
    let (mut accesses, mut instructions) = (0, 0);
    let mut at = 0;
    while let Some(&word) = records.get(at) {
        let record = Record(word);
        at += 1;
        match record.as_control() {
            None if record.is_control() => {}
            None => accesses += 1,
            Some(Control::Wide) => {
                accesses += 1;
                at += 1;
            }
            Some(Control::Block) => {
                accesses += fetches;
                instructions += block_instructions(record.value());
            }
            Some(Control::Fixed) => {
                let (number, count) = record.fixed_parts();
                let addresses = records.get(at..at + count).unwrap_or_default();
                accesses += fetches + derived::accesses(record, addresses) as u64;
                instructions += block_instructions(number.into());
                at += count;
            }
            Some(Control::Context) => instructions += block_instructions(record.value()),
            Some(Control::Advance) => instructions += record.value(),
            // These records are written only if hits are counted. Hits are not counted while
            // accesses are skipped.
            Some(Control::Passed | Control::Ask) => {}
            Some(Control::Hits) => at += 1,
            Some(Control::Pad) => at += record.value() as usize,
            Some(Control::Event) => {}
        }
    }
    (accesses, instructions)
}

/// The number of instructions of the block with this number; 0 for a block that the parent process
/// translated.
fn block_instructions(number: u64) -> u64 {
    let slot = global::slot();
    let Some(number) = number.checked_sub(u64::from(slot.blocks_inherited)) else { return 0 };
    let number = number as usize;
    let Some(chunk) = global::process().log.get(number / BLOCKS_PER_CHUNK) else { return 0 };
    let chunk = chunk.load(Ordering::Acquire) as usize;
    // SAFETY: the block has run, so its descriptor was written.
    let block = unsafe { ptr::read(global::shared().blocks(chunk).add(number % BLOCKS_PER_CHUNK)) };
    u64::from(block.instructions)
}
