//! Recognises DynamoRIO's types of files.

use super::record::{RECORD_BYTES, Record, VERSIONS, kind};

/// The bytes of a record in a trace of a 32-bit tracer, which is not supported.
const RECORD_BYTES_32: usize = 8;

/// The type of a file, from its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sniffed {
    /// A final trace of a 64-bit tracer.
    Final,
    /// A final trace of a 32-bit tracer.
    Final32,
    /// A final trace from a machine with the other byte order.
    BigEndian,
    /// A raw trace: it must be converted by DynamoRIO's `raw2trace`, which needs the programs.
    Raw,
    /// Something else.
    Other,
}

impl Sniffed {
    /// Why a file of this type cannot be read, if that is clear.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        match self {
            Sniffed::Final | Sniffed::Other => None,
            Sniffed::Final32 => {
                Some("a trace of a 32-bit DynamoRIO; only traces of 64-bit versions can be read")
            }
            Sniffed::BigEndian => {
                Some("a trace in big-endian byte order; only little-endian traces can be read")
            }
            Sniffed::Raw => Some(
                "a raw trace of DynamoRIO; convert it with raw2trace to a final trace, which can \
                 be read",
            ),
        }
    }

    /// The type of a file with these first bytes.
    pub(crate) fn new(bytes: &[u8]) -> Sniffed {
        let is_header = |record: Record| record.kind == kind::HEADER && record.addr < 256;
        // A 32-bit record has 4 bytes of address; the bytes after it must be a record too.
        let short =
            |at: usize| bytes.get(at..at + 2).map(|kind| u16::from_le_bytes([kind[0], kind[1]]));
        let follows = |at: usize| {
            short(at).is_none_or(|kind| {
                matches!(kind, kind::MARKER | kind::THREAD | kind::PID | kind::FOOTER)
            })
        };
        if Record::at(bytes, 0).is_some_and(is_header) && follows(RECORD_BYTES) {
            return Sniffed::Final;
        }
        if short(0) == Some(kind::HEADER) && bytes.len() >= 10 && follows(RECORD_BYTES_32) {
            return Sniffed::Final32;
        }
        if bytes.len() >= RECORD_BYTES
            && bytes[..2] == kind::HEADER.to_be_bytes()
            && bytes[4..11] == [0; 7]
        {
            return Sniffed::BigEndian;
        }
        // `offline_entry_t`: the three highest bits are 6, extended; the next five 0 or 4, header.
        if let Some(entry) = bytes.first_chunk::<8>().map(|entry| u64::from_le_bytes(*entry))
            && entry >> 61 == 6
            && matches!(entry >> 56 & 31, 0 | 4)
            && VERSIONS.contains(&(entry & 0xff))
        {
            return Sniffed::Raw;
        }
        Sniffed::Other
    }
}
