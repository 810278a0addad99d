//! The index: data about each chunk, so that a reader need not read the chunk itself.

use sha2::{Digest, Sha256};

use super::wire::Bytes;
use super::{BODY_BYTES_MAX, Damage};

/// The index entry of one chunk or one PROC frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IndexEntry {
    /// The size of the frame in bytes, including its head.
    pub(crate) bytes: u32,
    /// The CRC of the frame.
    pub(crate) crc: u32,
    /// The number of accesses in the frame.
    pub(crate) accesses: u32,
    /// The number of events in the frame.
    pub(crate) events: u32,
    /// The number of instructions that its rows count.
    pub(crate) instructions: u64,
    /// Further data, in a recording of processes.
    pub(crate) recorded: Option<Recorded>,
}

/// The data of an index entry that only a recording of processes has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recorded {
    /// Whether the entry is of a PROC frame.
    pub(crate) is_process: bool,
    /// The number of the process that the frame belongs to.
    pub(crate) process: u32,
    /// The time of the last stamp before this frame.
    pub(crate) began_ns: u64,
    /// The CRC-32 of the streams that describe the accesses.
    pub(crate) accesses_crc: u32,
    /// The CRC-32 of the parts of the events that do not differ between recordings.
    pub(crate) events_crc: u32,
}

/// The body of an INDX frame; `None` if there are too many chunks for an index.
pub(crate) fn index_body(entries: &[IndexEntry]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    for entry in entries {
        for word in [entry.bytes, entry.crc, entry.accesses, entry.events] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(&entry.instructions.to_le_bytes());
        if let Some(more) = entry.recorded {
            let words = [more.is_process.into(), more.process, more.accesses_crc, more.events_crc];
            for word in words {
                body.extend_from_slice(&word.to_le_bytes());
            }
            body.extend_from_slice(&more.began_ns.to_le_bytes());
        }
        if body.len() > BODY_BYTES_MAX {
            return None;
        }
    }
    Some(body)
}

/// Reads the body of an INDX frame; `recorded` says whether the file is a recording of processes.
pub(crate) fn index_entries(body: &[u8], recorded: bool) -> Result<Vec<IndexEntry>, Damage> {
    let mut bytes = Bytes(body);
    let mut entries = Vec::new();
    while !bytes.0.is_empty() {
        let mut entry = IndexEntry {
            bytes: bytes.u32()?,
            crc: bytes.u32()?,
            accesses: bytes.u32()?,
            events: bytes.u32()?,
            instructions: bytes.u64()?,
            recorded: None,
        };
        if recorded {
            entry.recorded = Some(Recorded {
                is_process: bytes.u32()? != 0,
                process: bytes.u32()?,
                accesses_crc: bytes.u32()?,
                events_crc: bytes.u32()?,
                began_ns: bytes.u64()?,
            });
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// The digest of a trace; `before` is everything before the first chunk.
pub(crate) fn digest(before: &[u8], entries: &[IndexEntry]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(before);
    let mut recorded = Vec::new();
    for entry in entries {
        match &entry.recorded {
            None => {
                hasher.update(entry.bytes.wrapping_sub(super::FRAME_BYTES as u32).to_le_bytes());
                hasher.update(entry.crc.to_le_bytes());
            }
            Some(more) if !more.is_process => recorded.push((more, entry)),
            Some(_) => {}
        }
    }
    // In the file, chunks of several processes are in the order in which they became full.
    recorded.sort_by_key(|(more, _)| more.process);
    for (more, entry) in recorded {
        for word in [more.process, entry.accesses, more.accesses_crc, more.events_crc] {
            hasher.update(word.to_le_bytes());
        }
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
