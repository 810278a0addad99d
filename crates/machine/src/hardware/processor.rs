//! A processor: its TLBs, the context of the space that runs on it, and what it has counted.

use addr::{Asid, Kind};

use super::tlbs::TlbUnits;
use crate::{Description, count::census::Census};

/// One processor of a machine.
pub(crate) struct Processor {
    pub(crate) hardware: TlbUnits,
    /// The context of the space that runs, as a register holds it.
    pub(crate) asid: Asid,
    pub(crate) counts: ProcessorCounts,
    /// What the operating system's clock said when the counts began.
    pub(crate) cycles_before: u64,
}

/// What a processor did, but for its TLBs.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessorCounts {
    pub(crate) accesses: [u64; Kind::COUNT],
    pub(crate) instructions: u64,
    /// Stores to clean pages: assists of hardware, and traps to a handler.
    pub(crate) dirty_assists: u64,
    pub(crate) modify_traps: u64,
    /// Faults that the operating system answered.
    pub(crate) faults: u64,
    /// Cycles of the kernel's work there, beyond switches and shootdowns.
    pub(crate) work_cycles: u64,
    /// Cycles of waiting for disks.
    pub(crate) io_cycles: u64,
    /// Changes of the space that runs.
    pub(crate) switches: u64,
    pub(crate) shootdowns: Shootdowns,
}

/// Shootdowns as one processor sees them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shootdowns {
    /// Those that it made, and how many other processors it asked.
    pub(crate) made: u64,
    pub(crate) asked: u64,
    /// How often it was asked.
    pub(crate) received: u64,
    /// Entries of its TLBs that went.
    pub(crate) entries: u64,
    /// Cycles of those that it made, and of those that it was asked for.
    pub(crate) sender_cycles: u64,
    pub(crate) receiver_cycles: u64,
}

impl Processor {
    /// Builds what `description` says; an error comes with the key that is wrong.
    pub(crate) fn new(description: &Description) -> Result<Processor, (String, String)> {
        Ok(Processor {
            hardware: TlbUnits::new(description)?,
            asid: Asid(0),
            counts: ProcessorCounts::default(),
            cycles_before: 0,
        })
    }

    /// Begins to count anew; the entries stay.
    pub(crate) fn forget_counts(&mut self, census: &mut Census) {
        self.hardware.forget_counts(census);
        self.counts = ProcessorCounts::default();
    }
}
