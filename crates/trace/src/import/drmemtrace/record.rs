//! The records of DynamoRIO's final traces: 12 bytes each, packed, little-endian.
//!
//! ```text
//!   0     2     4                    12
//!   +-----+-----+---------------------+
//!   | type| size|        addr         |    a load: bytes and address; a marker: which and value
//!   +-----+-----+---------------------+
//! ```
//!
//! Source: DynamoRIO, `clients/drcachesim/common/trace_entry.h`, `trace_type_t`,
//! `trace_marker_type_t`, `offline_file_type_t` and `trace_entry_t`, for 64-bit traces.

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 12;
/// Bytes of a record in a trace of a 32-bit tracer, which is not read.
pub(crate) const RECORD_BYTES_32: usize = 8;

/// The versions of the format that are understood.
pub(crate) const VERSIONS: std::ops::RangeInclusive<u64> = 2..=7;

/// What a record is.
pub(crate) mod kind {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const PREFETCH_FIRST: u16 = 2;
    pub(crate) const PREFETCH_LAST: u16 = 9;
    pub(crate) const INSTR: u16 = 10;
    pub(crate) const BRANCH_FIRST: u16 = 11;
    pub(crate) const BRANCH_LAST: u16 = 16;
    /// `size` more instructions follow the last; their lengths are the bytes of `addr`.
    pub(crate) const INSTR_BUNDLE: u16 = 17;
    pub(crate) const FLUSH_FIRST: u16 = 18;
    pub(crate) const FLUSH_LAST: u16 = 21;
    pub(crate) const THREAD: u16 = 22;
    pub(crate) const THREAD_EXIT: u16 = 23;
    pub(crate) const PID: u16 = 24;
    pub(crate) const HEADER: u16 = 25;
    pub(crate) const FOOTER: u16 = 26;
    pub(crate) const HARDWARE_PREFETCH: u16 = 27;
    pub(crate) const MARKER: u16 = 28;
    /// A further iteration of a string instruction.
    pub(crate) const INSTR_NO_FETCH: u16 = 29;
    /// Fetched only if it is not the instruction before once more.
    pub(crate) const INSTR_MAYBE_FETCH: u16 = 30;
    pub(crate) const INSTR_SYSENTER: u16 = 31;
    pub(crate) const TYPED_PREFETCH_FIRST: u16 = 32;
    pub(crate) const TYPED_PREFETCH_LAST: u16 = 46;
    pub(crate) const ENCODING: u16 = 47;
    pub(crate) const TAKEN_JUMP: u16 = 48;
    pub(crate) const UNTAKEN_JUMP: u16 = 49;

    /// The types, as bits, that can become rows.
    const ROWS: u64 = 1 << READ
        | 1 << WRITE
        | ((1 << (BRANCH_LAST + 1)) - (1 << INSTR))
        | 1 << INSTR_BUNDLE
        | 1 << INSTR_MAYBE_FETCH
        | 1 << INSTR_SYSENTER
        | 1 << TAKEN_JUMP
        | 1 << UNTAKEN_JUMP;

    /// Whether a record of `kind` can become a row.
    #[inline]
    pub(crate) fn is_row(kind: u16) -> bool {
        kind < 64 && ROWS >> kind & 1 == 1
    }
}

/// What a marker says; its value is the record's `addr`.
pub(crate) mod marker {
    /// Microseconds since 1601: a new piece of the thread's execution begins.
    pub(crate) const TIMESTAMP: u16 = 2;
    pub(crate) const CPU_ID: u16 = 3;
    pub(crate) const FUNC_ID: u16 = 4;
    pub(crate) const FUNC_ARG: u16 = 6;
    pub(crate) const FUNC_RETVAL: u16 = 7;
    pub(crate) const FILETYPE: u16 = 9;
    pub(crate) const VERSION: u16 = 12;
    pub(crate) const WINDOW_ID: u16 = 14;
    pub(crate) const PHYSICAL_ADDRESS: u16 = 15;
    pub(crate) const PHYSICAL_ADDRESS_NOT_AVAILABLE: u16 = 16;
    pub(crate) const VIRTUAL_ADDRESS: u16 = 17;
    pub(crate) const PAGE_SIZE: u16 = 18;
    pub(crate) const CHUNK_FOOTER: u16 = 21;
    pub(crate) const RECORD_ORDINAL: u16 = 22;
    pub(crate) const SYSCALL_TRACE_START: u16 = 27;
    pub(crate) const SYSCALL_FAILED: u16 = 30;
    pub(crate) const CONTEXT_SWITCH_START: u16 = 34;
}

/// Function numbers from here on are system calls.
pub(crate) const FUNC_ID_SYSCALL: u64 = 1 << 32;

/// The bits of the file type.
pub(crate) mod filetype {
    pub(crate) const AARCH64: u64 = 0x8;
    pub(crate) const X86_32: u64 = 0x20;
    pub(crate) const X86_64: u64 = 0x40;
    pub(crate) const INSTRUCTIONS_FILTERED: u64 = 0x80;
    pub(crate) const DATA_FILTERED: u64 = 0x100;
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) kind: u16,
    pub(crate) size: u16,
    pub(crate) addr: u64,
}

impl Record {
    /// The record in `bytes`.
    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Record {
        let [k0, k1, s0, s1, addr @ ..] = *bytes;
        Record {
            kind: u16::from_le_bytes([k0, k1]),
            size: u16::from_le_bytes([s0, s1]),
            addr: u64::from_le_bytes(addr),
        }
    }

    /// The record at byte `at` of `bytes`, if all of it is there.
    pub(crate) fn at(bytes: &[u8], at: usize) -> Option<Record> {
        bytes.get(at..)?.first_chunk().map(Record::from_bytes)
    }
}

/// What the first bytes of a file say about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sniffed {
    /// A final trace of a 64-bit tracer.
    Final,
    /// One of a 32-bit tracer.
    Final32,
    /// One written on a machine of the other byte order.
    BigEndian,
    /// A raw trace: it needs DynamoRIO's `raw2trace` and the programs.
    Raw,
    /// Something else.
    Other,
}

impl Sniffed {
    /// Looks at the first bytes of a file.
    pub(crate) fn new(bytes: &[u8]) -> Sniffed {
        let is_header = |record: Record| record.kind == kind::HEADER && record.addr < 256;
        // The 32-bit record has 4 bytes of address; what follows it is then a record as well.
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
