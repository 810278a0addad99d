//! A processor: its TLBs, the context of the space that runs on it, and what it has counted.

use addr::{Asid, Kind};
use description::{Description, Refusal};
use mmu::{TraceCache, TraceCacheParams};
use results::count::census::Census;

use super::tlbs::TlbUnits;

/// One processor of a machine.
pub struct Processor {
    pub hardware: TlbUnits,
    /// What fetches are asked of first, if it has one.
    pub trace_cache: Option<TraceCache>,
    /// The context of the space that runs, as a register holds it.
    pub asid: Asid,
    pub counts: ProcessorCounts,
    /// What the operating system's clock said when the counts began.
    pub cycles_before: u64,
}

/// What a processor did, but for its TLBs.
#[derive(Clone, Debug, Default)]
pub struct ProcessorCounts {
    pub accesses: [u64; Kind::COUNT],
    pub instructions: u64,
    /// Stores to clean pages: assists of hardware, and traps to a handler.
    pub dirty_assists: u64,
    pub modify_traps: u64,
    /// Faults that the operating system answered.
    pub faults: u64,
    /// Cycles of the kernel's work there, beyond switches and shootdowns.
    pub work_cycles: u64,
    /// Cycles of waiting for disks.
    pub io_cycles: u64,
    /// Changes of the space that runs.
    pub switches: u64,
    /// Loads of the base register, switches that had the TLBs flushed, and with small spaces loads of
    /// segments and entries copied.
    pub root_loads: u64,
    pub emptying_switches: u64,
    pub segment_loads: u64,
    pub copies: u64,
    /// Cycles of all that.
    pub switch_cycles: u64,
    pub shootdowns: Shootdowns,
}

/// Shootdowns as one processor sees them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shootdowns {
    /// Those that it made, and how many other processors it asked.
    pub made: u64,
    pub asked: u64,
    /// How often it was asked.
    pub received: u64,
    /// Entries of its TLBs that went.
    pub entries: u64,
    /// Cycles of those that it made, and of those that it was asked for.
    pub sender_cycles: u64,
    pub receiver_cycles: u64,
}

impl Processor {
    /// Builds what `description` says; an error comes with the key that is wrong.
    pub fn new(description: &Description) -> Result<Processor, Refusal> {
        Ok(Processor {
            hardware: TlbUnits::new(description)?,
            trace_cache: trace_cache(description)?,
            asid: Asid(0),
            counts: ProcessorCounts::default(),
            cycles_before: 0,
        })
    }

    /// Begins to count anew; the entries stay.
    pub fn forget_counts(&mut self, census: &mut Census) {
        // `cycles_before` says what was counted until now.
        let Processor { hardware, trace_cache, asid: _, counts, cycles_before: _ } = self;
        hardware.forget_counts(census);
        trace_cache.iter_mut().for_each(TraceCache::forget_counts);
        *counts = ProcessorCounts::default();
    }
}

/// The trace cache that `description` has; an error comes with the key that is wrong.
fn trace_cache(description: &Description) -> Result<Option<TraceCache>, Refusal> {
    let Some(described) = &description.trace_cache else { return Ok(None) };
    let params = TraceCacheParams {
        uops: described.uops,
        line_uops: described.line_uops,
        ways: described.ways,
    };
    let key = |key: &str| format!("trace_cache.{key}");
    if !(0.1..=16.0).contains(&described.uops_per_instruction) {
        let what = "write 0.1 to 16 micro-ops per instruction".to_owned();
        return Err(Refusal::new(key("uops_per_instruction"), what));
    }
    if !description.core.fetches {
        let what = "core.fetches = false leaves fetches out, and a trace cache serves only \
                    fetches: leave one of the two out";
        return Err(Refusal::new("trace_cache", what.to_owned()));
    }
    TraceCache::new(params).map(Some).map_err(|error| Refusal::new(key("ways"), error.to_string()))
}
