//! Time: a second step over the counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Range;

/// Time: counts times latencies, as ranges that no overlap of work can leave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// Cycles without translation: instructions at their rate, and what misses of the data caches
    /// add; least where they overlap as far as the machine lets them, most where none does.
    pub program_cycles: Range<u64>,
    /// Cycles of translation: every TLB lookup, every walk. Least where hardware hides all of it
    /// behind other work; what a refill handler takes cannot be hidden.
    pub translation_cycles: Range<u64>,
    /// Cycles of translation per access.
    pub cycles_per_access: Range<f64>,
    /// The operating system's time, which is in none of the others; `None` if the machine has no
    /// `[os.costs]`.
    pub kernel: Option<KernelTime>,
    /// Translation's share of the program's cycles and its own: the least of it beside the most of the program, to the
    /// most of it beside the least of the program.
    pub share: Range<f64>,
}

/// What the operating system takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTime {
    /// Cycles of its work, as far as `[os.costs]` has prices.
    pub cycles: u64,
    /// These cycles by kind of work: `faults` (or, of a manager that counts its kinds of work, those kinds),
    /// `switches` to other address spaces, and `shootdowns`.
    pub by_work: BTreeMap<String, u64>,
    /// Cycles of waiting for disks, one transfer after the other.
    pub io_cycles: u64,
    /// The share of both in all cycles: the least beside the most of program and translation, to
    /// the most beside the least.
    pub share: Range<f64>,
}
