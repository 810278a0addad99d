//! The segments stream: who executed.

use super::Damage;
use super::wire::{Bytes, put_varint};

/// Executions of one thread in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// The thread's number in the trace.
    pub(super) thread: u32,
    /// How many.
    pub(super) executions: u32,
    /// Instructions that its first row counts besides its own.
    pub(super) carry: u64,
}

/// Appends `segment`.
pub(super) fn put(out: &mut Vec<u8>, segment: Segment) {
    put_varint(out, u64::from(segment.thread));
    put_varint(out, u64::from(segment.executions));
    put_varint(out, segment.carry);
}

/// Reads the `count` segments, which must hold `executions` in all.
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
        let thread = bytes.varint_up_to(u64::from(u32::MAX), "as a thread")? as u32;
        let executions = bytes.varint_up_to(u64::from(left), "executions of a segment")? as u32;
        left -= executions;
        segments.push(Segment { thread, executions, carry: bytes.varint()? });
    }
    if left != 0 {
        return Err(Damage(format!("{left} of its executions belong to no segment")));
    }
    bytes.end("segments")
}
