//! Counts of each processor, and shootdowns between processors.

use serde::Serialize;

use super::{
    ByKind, CacheCounts, MmuCacheCounts, RangeTlbCounts, RestSegCounts, SpecTlbCounts, TlbCounts,
    Walks, sum::sums,
};

/// Counts of shootdowns. A shootdown is a change of a page table after which TLBs and MMU caches
/// must be flushed. If the machine defers flushes (`os.flush.deferred`), the processor that makes
/// the shootdown interrupts no other processor. Each other processor makes the flushes that were
/// left to it in its next sweep: after `os.flush.sweep_cycles`, or when it enters another space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShootdownCounts {
    /// Shootdowns made. A change of a space causes a shootdown if some processor may hold
    /// translations of this space.
    pub made: u64,
    /// Interrupts that were sent to other processors for shootdowns.
    pub asked: u64,
    /// Interrupts received.
    pub received: u64,
    /// TLB entries flushed, at all levels.
    pub entries: u64,
    /// Shootdowns made that were broadcast to all processors, which interrupts none; `None` if the machine
    /// has no broadcast flushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<u64>,
    /// Shootdowns made that flushed a whole space because too many pages had changed; `None` if the machine
    /// has no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub widened: Option<u64>,
    /// Shootdowns made that left the flushes of at least one other processor to that processor's
    /// next sweep (`os.flush.deferred`); `None` if the machine defers no flushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<u64>,
    /// Flushes that processors made in their sweeps; `None` if the machine defers no flushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swept: Option<u64>,
    /// Times that all processors swept early, because a page was to be mapped at an address for
    /// which a flush was still left to some processor; `None` if the machine defers no flushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swept_early: Option<u64>,
    /// Cycles of the processors that made shootdowns: their own flush, sending, and the wait for
    /// the slowest answer; `None` if the machine has no `[os.costs]`.
    pub sender_cycles: Option<u64>,
    /// Cycles of the interrupted processors; `None` if the machine has no `[os.costs]`.
    pub receiver_cycles: Option<u64>,
}

sums! {
    ShootdownCounts {
        made, asked, received, entries, broadcast, widened, deferred, swept, swept_early, sender_cycles,
        receiver_cycles;
    }
}

/// Counts of one of several processors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessorCounts {
    /// Number of the processor, from 0.
    pub number: u32,
    /// Accesses that ran on the processor, by kind.
    pub accesses: ByKind<u64>,
    /// Instructions that ran on the processor.
    pub instructions: u64,
    /// Switches of address space on the processor.
    pub switches: u64,
    /// Counts of the processor's TLBs.
    pub tlbs: Vec<TlbCounts>,
    /// Counts of the processor's walks.
    pub walks: Walks,
    /// MMU cache of the processor's walker.
    pub mmu_cache: Option<MmuCacheCounts>,
    /// Counts of the processor's SpecTLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlbCounts>,
    /// Counts of the processor's range TLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_tlb: Option<RangeTlbCounts>,
    /// Counts of the processor's lookups in restrictive segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restseg: Option<RestSegCounts>,
    /// Counts of the processor's data caches, without the shared `l3`.
    pub caches: Vec<CacheCounts>,
    /// Shootdowns that the processor made, interrupts that it received, and entries flushed from its TLBs.
    pub shootdowns: ShootdownCounts,
}
