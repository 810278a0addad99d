//! The stream of stamps. A stamp is a time at which a process had made a given number of its
//! accesses.

use super::Damage;
use super::wire::{Bytes, put_varint};
use crate::Stamp;

/// Appends `stamp`, which follows `last` in the same chunk.
pub(super) fn put(out: &mut Vec<u8>, last: Stamp, stamp: Stamp) {
    put_varint(out, u64::from(stamp.at - last.at));
    put_varint(out, stamp.ns - last.ns);
}

/// Reads the `count` stamps of a chunk with `accesses` accesses; all are after the time `ns`.
pub(super) fn take_all(
    stream: &[u8],
    count: u32,
    accesses: u32,
    ns: u64,
) -> Result<Vec<Stamp>, Damage> {
    let mut bytes = Bytes(stream);
    let mut last = Stamp { at: 0, ns };
    let mut stamps = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let more = bytes
            .varint_up_to(u64::from(accesses - last.at), "number of accesses between stamps")?;
        let later = bytes.varint_up_to(u64::MAX - last.ns, "time between stamps in ns")?;
        last = Stamp { at: last.at + more as u32, ns: last.ns + later };
        stamps.push(last);
    }
    bytes.end("stamps")?;
    Ok(stamps)
}
