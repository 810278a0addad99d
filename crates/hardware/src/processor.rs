//! A processor: its TLBs, the context of the space that it runs, and its counts.

use addr::{Asid, Kind};
use description::{Description, Refusal};
use mmu::{TraceCache, TraceCacheParams};
use results::count::census::Census;

use super::tlbs::TlbUnits;

/// One processor of a machine.
pub struct Processor {
    pub hardware: TlbUnits,
    /// The processor's trace cache, if there is one, which serves fetches before the TLB.
    pub trace_cache: Option<TraceCache>,
    /// The context of the running space, as in the processor's register.
    pub asid: Asid,
    pub counts: ProcessorCounts,
    /// The value of the operating system's clock when counting began.
    pub cycles_before: u64,
}

/// Counts of a processor, except those of its TLBs.
#[derive(Clone, Debug, Default)]
pub struct ProcessorCounts {
    pub accesses: [u64; Kind::COUNT],
    pub instructions: u64,
    /// Stores to clean pages for which a hardware assist set the dirty bit; the next field counts
    /// stores to clean pages that trapped to a software handler.
    pub dirty_assists: u64,
    pub modify_traps: u64,
    /// Faults that the operating system handled.
    pub faults: u64,
    /// Cycles of the kernel's work on this processor, except switches and shootdowns.
    pub work_cycles: u64,
    /// Cycles of waiting for disks.
    pub io_cycles: u64,
    /// Switches to another space.
    pub switches: u64,
    /// Loads of the root register. The next fields count switches that flushed the TLBs and, with
    /// small spaces, loads of segments and copied entries.
    pub root_loads: u64,
    pub emptying_switches: u64,
    pub segment_loads: u64,
    pub copies: u64,
    /// Cycles of all switches, with their flushes, segment loads and copies.
    pub switch_cycles: u64,
    pub shootdowns: Shootdowns,
}

/// Counts of shootdowns, from the view of one processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shootdowns {
    /// Shootdowns that the processor started; the next field has the number of other processors
    /// that it interrupted.
    pub made: u64,
    pub asked: u64,
    /// Shootdowns for which the processor was interrupted.
    pub received: u64,
    /// Entries of the processor's TLBs flushed by shootdowns.
    pub entries: u64,
    /// Three counts of shootdowns that the processor started: this one counts the shootdowns that
    /// were broadcast. The next field counts the shootdowns that flushed a whole space because many
    /// pages had changed. The field after it counts the shootdowns that left the flushes of other
    /// processors to a sweep.
    pub broadcast: u64,
    pub widened: u64,
    pub deferred: u64,
    /// Flushes that the processor made in sweeps; the next field has the flushes that were made
    /// before their sweep was due.
    pub swept: u64,
    pub swept_early: u64,
    /// Cycles of the shootdowns that the processor started; the next field has the cycles of the
    /// shootdowns for which it was interrupted.
    pub sender_cycles: u64,
    pub receiver_cycles: u64,
}

impl Processor {
    /// A processor as in `description`. The error has the key that is wrong.
    pub fn new(description: &Description) -> Result<Processor, Refusal> {
        Ok(Processor {
            hardware: TlbUnits::new(description)?,
            trace_cache: trace_cache(description)?,
            asid: Asid(0),
            counts: ProcessorCounts::default(),
            cycles_before: 0,
        })
    }

    /// Resets the counts to zero; the entries stay.
    pub fn forget_counts(&mut self, census: &mut Census) {
        // `cycles_before` stays: it has the cycles that were counted until now.
        let Processor { hardware, trace_cache, asid: _, counts, cycles_before: _ } = self;
        hardware.forget_counts(census);
        trace_cache.iter_mut().for_each(TraceCache::forget_counts);
        *counts = ProcessorCounts::default();
    }
}

/// The trace cache in `description`. The error has the key that is wrong.
fn trace_cache(description: &Description) -> Result<Option<TraceCache>, Refusal> {
    let Some(described) = &description.trace_cache else { return Ok(None) };
    let params = TraceCacheParams {
        uops: described.uops,
        line_uops: described.line_uops,
        ways: described.ways,
    };
    let key = |key: &str| format!("trace_cache.{key}");
    if !(0.1..=16.0).contains(&described.uops_per_instruction) {
        let what =
            "the number of micro-ops per instruction is out of range: write 0.1 to 16".to_owned();
        return Err(Refusal::new(key("uops_per_instruction"), what));
    }
    if !description.core.fetches {
        let what = "a trace cache serves only fetches, but core.fetches = false leaves fetches \
                    out: \
                    remove [trace_cache], or set core.fetches = true";
        return Err(Refusal::new("trace_cache", what.to_owned()));
    }
    TraceCache::new(params).map(Some).map_err(|error| Refusal::new(key("ways"), error.to_string()))
}
