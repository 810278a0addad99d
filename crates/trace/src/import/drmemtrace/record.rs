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

/// The bytes of a record.
pub(crate) const RECORD_BYTES: usize = 12;

/// The supported versions of the format. Version 1 has the records of version 2, except the markers
/// for version, file type and cache lines; only the header shows the version.
pub(crate) const VERSIONS: std::ops::RangeInclusive<u64> = 1..=7;

/// The types of records.
pub(crate) mod kind {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const PREFETCH_FIRST: u16 = 2;
    pub(crate) const PREFETCH_LAST: u16 = 9;
    pub(crate) const INSTR: u16 = 10;
    pub(crate) const BRANCH_FIRST: u16 = 11;
    pub(crate) const BRANCH_LAST: u16 = 16;
    /// `size` more instructions follow the last one directly; their lengths are the bytes of
    /// `addr`.
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
    /// A further iteration of a string instruction, without a fetch.
    pub(crate) const INSTR_NO_FETCH: u16 = 29;
    /// An instruction that is fetched only if it differs from the one before.
    pub(crate) const INSTR_MAYBE_FETCH: u16 = 30;
    pub(crate) const INSTR_SYSENTER: u16 = 31;
    pub(crate) const TYPED_PREFETCH_FIRST: u16 = 32;
    pub(crate) const TYPED_PREFETCH_LAST: u16 = 46;
    pub(crate) const ENCODING: u16 = 47;
    pub(crate) const TAKEN_JUMP: u16 = 48;
    pub(crate) const UNTAKEN_JUMP: u16 = 49;

    /// The types, as a bit mask, that can become rows.
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

/// The types of markers; a marker's value is the record's `addr`.
pub(crate) mod marker {
    /// Microseconds since 1601: a segment of the thread's execution begins.
    pub(crate) const TIMESTAMP: u16 = 2;
    pub(crate) const CPU_ID: u16 = 3;
    pub(crate) const FUNC_ID: u16 = 4;
    pub(crate) const FUNC_ARG: u16 = 6;
    pub(crate) const FUNC_RETVAL: u16 = 7;
    pub(crate) const FILETYPE: u16 = 9;
    pub(crate) const CACHE_LINE_BYTES: u16 = 10;
    pub(crate) const VERSION: u16 = 12;
    pub(crate) const WINDOW_ID: u16 = 14;
    pub(crate) const PHYSICAL_ADDRESS: u16 = 15;
    pub(crate) const PHYSICAL_ADDRESS_NOT_AVAILABLE: u16 = 16;
    pub(crate) const VIRTUAL_ADDRESS: u16 = 17;
    pub(crate) const PAGE_SIZE: u16 = 18;
    pub(crate) const SYSCALL_TRACE_START: u16 = 27;
    pub(crate) const SYSCALL_FAILED: u16 = 30;
    pub(crate) const CONTEXT_SWITCH_START: u16 = 34;
    /// The value of this marker if another process continues.
    pub(crate) const CONTEXT_SWITCH_OF_PROCESS: u64 = 2;
    /// In a trace of a whole system: an exception or an interrupt, before the instruction at this address.
    pub(crate) const HARDWARE_EVENT: u16 = 43;
    /// The value of `CPU_ID` if the processor is unknown.
    pub(crate) const CPU_UNKNOWN: u64 = u64::MAX;
}

/// The first function number that stands for a system call.
pub(crate) const FUNC_ID_SYSCALL: u64 = 1 << 32;

/// The bits of the file type.
pub(crate) mod filetype {
    use crate::Arch;

    pub(crate) const AARCH64: u64 = 0x8;
    pub(crate) const ARM_32: u64 = 0x10;
    pub(crate) const X86_32: u64 = 0x20;
    pub(crate) const X86_64: u64 = 0x40;
    pub(crate) const INSTRUCTIONS_FILTERED: u64 = 0x80;
    pub(crate) const DATA_FILTERED: u64 = 0x100;
    /// The file has the threads of one processor.
    pub(crate) const CORE_SHARDED: u64 = 0x10000;
    /// The file has accesses of the kernel and of all programs.
    pub(crate) const WHOLE_SYSTEM: u64 = 0x40000;

    /// The bit of an instruction set; 0 if the format does not have it.
    pub(crate) fn of(arch: Arch) -> u64 {
        match arch {
            Arch::X86_64 => X86_64,
            Arch::I386 => X86_32,
            Arch::Arm => ARM_32,
            Arch::Aarch64 => AARCH64,
            Arch::Riscv64 | Arch::Unknown => 0,
        }
    }

    /// The instruction set that the bits name, if it is supported.
    pub(crate) fn arch(bits: u64) -> Option<Arch> {
        Some(match bits {
            _ if bits & X86_64 != 0 => Arch::X86_64,
            _ if bits & AARCH64 != 0 => Arch::Aarch64,
            _ if bits & ARM_32 != 0 => Arch::Arm,
            _ if bits & X86_32 != 0 => Arch::I386,
            _ => return None,
        })
    }
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

    /// The bytes of the record.
    pub(crate) fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..2].copy_from_slice(&self.kind.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.size.to_le_bytes());
        bytes[4..].copy_from_slice(&self.addr.to_le_bytes());
        bytes
    }

    /// The record at byte `at` of `bytes`, if it is complete.
    pub(crate) fn at(bytes: &[u8], at: usize) -> Option<Record> {
        bytes.get(at..)?.first_chunk().map(Record::from_bytes)
    }
}

/// Notes for readers of results, from the file type.
pub(crate) fn notes(bits: u64) -> Vec<String> {
    let mut notes = Vec::new();
    for (bit, what) in
        [(filetype::INSTRUCTIONS_FILTERED, "instructions"), (filetype::DATA_FILTERED, "data")]
    {
        if bits & bit != 0 {
            notes.push(format!(
                "the tracer dropped accesses to {what} that hit a small cache: hits are undercounted"
            ));
        }
    }
    notes
}
