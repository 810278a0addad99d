//! What the kernel's work costs.

use serde::{Deserialize, Serialize};

/// Cycles of what the operating system does. All of them are known, or none.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Of a processor that asks others to flush: until the interrupts are on their way.
    pub shootdown_send_cycles: u32,
    /// Of each processor that is asked: into its handler and back, and the answer.
    pub shootdown_receive_cycles: u32,
    /// Of flushing one page ...
    pub flush_page_cycles: u32,
    /// ... and of flushing all of a space, which is done instead where it takes less.
    pub flush_space_cycles: u32,
    /// On the operating system's clock: a walk, whatever the caches hold ...
    pub walk_cycles: u32,
    /// ... the answer to a fault ...
    pub fault_cycles: u32,
    /// ... and going over to another address space.
    pub switch_cycles: u32,
    /// Where the numbers come from.
    pub source: String,
}

impl Costs {
    /// Cycles that one processor takes to flush so many pages.
    pub(crate) fn flush_cycles(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.flush_page_cycles.into()).min(self.flush_space_cycles.into())
    }
}
