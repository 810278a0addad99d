//! Time, computed from the counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Range;

/// Time: counts times latencies. Each value is a range whose bounds hold however much work
/// overlaps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// Cycles without translation: instructions at their rate, and data-cache misses. In the lower
    /// bound misses overlap as far as the machine allows, in the upper bound not at all.
    pub program_cycles: Range<u64>,
    /// Cycles of translation: every TLB lookup and every walk. In the lower bound hardware hides
    /// all of it behind other work; a software refill handler cannot be hidden.
    pub translation_cycles: Range<u64>,
    /// Cycles of translation per access.
    pub cycles_per_access: Range<f64>,
    /// The operating system's time, which is part of no other field; `None` if the machine has no
    /// `[os.costs]`.
    pub kernel: Option<KernelTime>,
    /// Translation's share of the cycles of program and translation. The lower bound combines the
    /// lower bound of translation with the upper bound of the program, and the upper bound the
    /// reverse.
    pub share: Range<f64>,
}

/// The operating system's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTime {
    /// Cycles of the kernel's work, as far as `[os.costs]` has prices for it.
    pub cycles: u64,
    /// Cycles of the kernel's work by kind of work: `faults` (or the kinds of work of a manager that counts
    /// them), `switches` between address spaces, and `shootdowns`.
    pub by_work: BTreeMap<String, u64>,
    /// Cycles of waiting for disks, one transfer after the other.
    pub io_cycles: u64,
    /// Share of `cycles` and `io_cycles` in all cycles. The lower bound uses the upper bound of the
    /// time of program and translation, and the upper bound uses the lower bound of this time.
    pub share: Range<f64>,
}
