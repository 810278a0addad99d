//! Time, computed from the counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Range;

/// Time: counts multiplied by latencies. Each value is a range; the true value lies within it,
/// however much work overlaps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// Cycles without translation: instructions at their rate, and data-cache misses. The lower
    /// bound assumes that misses overlap as far as the machine allows; the upper bound assumes that
    /// they do not overlap.
    pub program_cycles: Range<u64>,
    /// Cycles of translation: every TLB lookup and every walk. The lower bound assumes that
    /// hardware hides all of these cycles behind other work; the cycles of a software refill
    /// handler cannot be hidden.
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
    /// Share of `cycles` and `io_cycles` in all cycles. The lower bound uses the upper bound of
    /// program and translation, and the upper bound their lower bound.
    pub share: Range<f64>,
}
