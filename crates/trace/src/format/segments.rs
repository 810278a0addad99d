//! The segment stream: the thread of each execution.

use super::Damage;
use super::wire::{Bytes, put_varint};

/// Consecutive executions of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// The thread's number in the trace.
    pub(super) thread: u32,
    /// The number of executions.
    pub(super) executions: u32,
    /// The instructions that the first row of the segment counts in addition to its own.
    pub(super) carry: u64,
}

/// Appends `segment`.
pub(super) fn put(out: &mut Vec<u8>, segment: Segment) {
    put_varint(out, u64::from(segment.thread));
    put_varint(out, u64::from(segment.executions));
    put_varint(out, segment.carry);
}

/// Reads `count` segments, which must have `executions` executions in total.
pub(super) fn take_all(
    stream: &[u8],
    count: u32,
    executions: u32,
    segments: &mut Vec<Segment>,
) -> Result<(), Damage> {
    let mut bytes = Bytes(stream);
    let mut left = executions;
    segments.clear();
    for _ in 0..count {
        let thread = bytes.varint_up_to(u64::from(u32::MAX), "thread number")? as u32;
        let executions =
            bytes.varint_up_to(u64::from(left), "number of executions of a segment")? as u32;
        left -= executions;
        segments.push(Segment { thread, executions, carry: bytes.varint()? });
    }
    if left != 0 {
        return Err(Damage(format!("{left} of its block executions belong to no segment")));
    }
    bytes.end("segments")
}
