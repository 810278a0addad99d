//! The index: what is known of every chunk without reading it.

use sha2::{Digest, Sha256};

use super::wire::Bytes;
use super::{BODY_BYTES_MAX, Damage};

const ENTRY_BYTES: usize = 24;

/// What the index says of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Bytes of its frame, head and body.
    pub(crate) bytes: u32,
    /// The CRC of its frame.
    pub(crate) crc: u32,
    /// Accesses in it.
    pub(crate) accesses: u32,
    /// Events in it.
    pub(crate) events: u32,
    /// Instructions that its rows count.
    pub(crate) instructions: u64,
}

/// The body of an INDX frame, or `None` if there are too many chunks for one.
pub(crate) fn index_body(entries: &[Entry]) -> Option<Vec<u8>> {
    let bytes = entries.len().checked_mul(ENTRY_BYTES).filter(|&bytes| bytes <= BODY_BYTES_MAX)?;
    let mut body = Vec::with_capacity(bytes);
    for entry in entries {
        for word in [entry.bytes, entry.crc, entry.accesses, entry.events] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(&entry.instructions.to_le_bytes());
    }
    Some(body)
}

/// Reads the body of an INDX frame.
pub(crate) fn index_entries(body: &[u8]) -> Result<Vec<Entry>, Damage> {
    let mut bytes = Bytes(body);
    let mut entries = Vec::with_capacity(body.len() / ENTRY_BYTES);
    while !bytes.0.is_empty() {
        entries.push(Entry {
            bytes: bytes.u32()?,
            crc: bytes.u32()?,
            accesses: bytes.u32()?,
            events: bytes.u32()?,
            instructions: bytes.u64()?,
        });
    }
    Ok(entries)
}

/// The digest of a trace: `before` is all that comes before its first chunk.
pub(crate) fn digest(before: &[u8], entries: &[Entry]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(before);
    for entry in entries {
        hasher.update(entry.bytes.wrapping_sub(super::FRAME_BYTES as u32).to_le_bytes());
        hasher.update(entry.crc.to_le_bytes());
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
