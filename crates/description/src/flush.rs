//! How TLBs are flushed after a page table has changed: `[os.flush]`.

use serde::{Deserialize, Serialize};

use super::is_false;

/// How TLBs are flushed after a page table has changed. Without this table, each processor that may have
/// a changed page in its TLBs is interrupted and flushes it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flushes {
    /// The largest number of pages that are flushed one by one. If the addresses from the first to
    /// the last changed page have more pages, counted in the size of the smallest changed page, the
    /// whole space is flushed. In Linux on x86 the number is 33 (`tlb_single_page_flush_ceiling`).
    /// Absent: only the changed pages are flushed, however many they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u64>,
    /// How the other processors are made to flush.
    pub by: FlushBy,
    /// With `invlpgb`: the flushes of a space are broadcast once at least this many processors have
    /// run the space. The number is 4 in Linux.
    #[serde(skip_serializing_if = "is_four")]
    pub broadcast_from: u32,
    /// The number of pages that one broadcast instruction flushes.
    #[serde(skip_serializing_if = "is_one")]
    pub broadcast_pages: u64,
    /// Whether flushes are deferred when pages are unmapped or discarded (LATR): no processor is
    /// interrupted, and each other processor flushes at its next sweep.
    #[serde(skip_serializing_if = "is_false")]
    pub deferred: bool,
    /// With `deferred`: cycles of the operating system's clock between two sweeps of a processor.
    #[serde(skip_serializing_if = "is_a_millisecond")]
    pub sweep_cycles: u64,
    /// With `deferred`: the largest number of a processor's flushes that can wait for the sweeps of
    /// others at the same time. For further flushes the processor interrupts the others.
    #[serde(skip_serializing_if = "is_64")]
    pub states: usize,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for Flushes {
    fn default() -> Flushes {
        Flushes {
            ceiling: None,
            by: FlushBy::Interrupts,
            broadcast_from: 4,
            broadcast_pages: 1,
            deferred: false,
            sweep_cycles: 4_000_000,
            states: 64,
            source: String::new(),
        }
    }
}

/// How other processors are notified to flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FlushBy {
    /// Each processor that may hold one of the pages is interrupted and flushes.
    #[default]
    Interrupts,
    /// The instruction INVLPGB of AMD flushes on all processors, for spaces that run on several
    /// processors; other spaces are flushed by interrupts.
    Invlpgb,
    /// The instruction TLBI of Arm flushes on all processors.
    Tlbi,
}

fn is_four(count: &u32) -> bool {
    *count == 4
}

fn is_one(pages: &u64) -> bool {
    *pages == 1
}

fn is_64(states: &usize) -> bool {
    *states == 64
}

fn is_a_millisecond(cycles: &u64) -> bool {
    *cycles == 4_000_000
}
