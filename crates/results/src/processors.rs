//! What each processor counts, and shootdowns between them.

use serde::Serialize;

use super::{
    ByKind, CacheCounts, MmuCacheCounts, RangeTlbCounts, RestSegCounts, SpecTlbCounts, TlbCounts,
    Walks,
};

/// Shootdowns: changes of a page table after which hardware had to forget translations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShootdownCounts {
    /// Those that were made: the change was in a space of which some processor may have had
    /// translations.
    pub made: u64,
    /// Other processors that were asked for it, by an interrupt each.
    pub asked: u64,
    /// Interrupts that were received.
    pub received: u64,
    /// TLB entries that went, at all levels.
    pub entries: u64,
    /// Cycles of the processors that made them: their own flush, sending, and the wait for the
    /// slowest answer; `None` if the machine has no `[os.costs]`.
    pub sender_cycles: Option<u64>,
    /// Cycles of the processors that were asked; likewise.
    pub receiver_cycles: Option<u64>,
}

/// What one of several processors counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessorCounts {
    /// Its number, from 0.
    pub number: u32,
    /// Accesses that ran on it, by kind.
    pub accesses: ByKind<u64>,
    /// Instructions that ran on it.
    pub instructions: u64,
    /// How often it went from one address space to another.
    pub switches: u64,
    /// Its TLBs.
    pub tlbs: Vec<TlbCounts>,
    /// Its walks.
    pub walks: Walks,
    /// The MMU cache of its walker.
    pub mmu_cache: Option<MmuCacheCounts>,
    /// Its SpecTLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlbCounts>,
    /// Its range TLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_tlb: Option<RangeTlbCounts>,
    /// Its lookups in restrictive segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restseg: Option<RestSegCounts>,
    /// Its data caches; not `l3`, which all share.
    pub caches: Vec<CacheCounts>,
    /// The shootdowns that it made, those that it was asked for, and the entries of its TLBs that
    /// went.
    pub shootdowns: ShootdownCounts,
}
