//! The translation overhead of each space: the share of its time that is spent on walks, as a processor's
//! performance counters would show it.
//!
//! ```text
//!   instructions x cycles       lookups that missed every TLB x nominal price of a walk
//!                 `------ time ------'
//! ```
//!
//! A walk has the price that the operating system's clock uses, so that caches behind the TLBs do
//! not change decisions of the operating system.

use std::collections::BTreeMap;

use description::{Description, Metric, Refusal};

use super::hooks::Hook;

/// The counts of each space since the last call of [`Overheads::take`].
pub struct Overheads {
    walk_cycles: f64,
    cycles_per_instruction: f64,
    /// Instructions and misses, by the trace's number of the space.
    by_space: BTreeMap<u32, (u64, u64)>,
}

impl Hook for Overheads {
    fn leaves_prices(&self) -> bool {
        true
    }

    /// Keeps the counts, because they are for the operating system, whose state is kept at the end
    /// of the warm-up.
    fn forget_counts(&mut self) {
        let Overheads { walk_cycles: _, cycles_per_instruction: _, by_space: _ } = self;
    }
}

impl Overheads {
    /// `Some` if the manager in `description` needs the overheads. The error has the key that is
    /// wrong.
    pub fn of(description: &Description) -> Result<Option<Overheads>, Refusal> {
        let asked = description.os.hawkeye.as_ref();
        if asked.is_none_or(|asked| asked.metric == Metric::RoundRobin) {
            return Ok(None);
        }
        let Some(costs) = &description.os.costs else {
            let what = "this metric needs the cycles of a walk, os.costs.walk_cycles, and the \
                        machine has no table os.costs: add it, or write \"round-robin\"";
            return Err(Refusal::new("os.hawkeye.metric", what.to_owned()));
        };
        Ok(Some(Overheads {
            walk_cycles: costs.walk_cycles.into(),
            cycles_per_instruction: description.core.cycles_per_instruction.unwrap_or(1.0),
            by_space: BTreeMap::new(),
        }))
    }

    /// Counts `instructions` that ran in a space.
    pub(super) fn ran(&mut self, space: u32, instructions: u64) {
        self.by_space.entry(space).or_default().0 += instructions;
    }

    /// Counts a lookup of a space that missed every TLB.
    pub(super) fn missed(&mut self, space: u32) {
        self.by_space.entry(space).or_default().1 += 1;
    }

    /// The overhead of each space since the last call, in per cent.
    pub(super) fn take(&mut self) -> Vec<(u32, u64)> {
        let share = |(space, (instructions, misses)): (u32, (u64, u64))| {
            let walks = misses as f64 * self.walk_cycles;
            let all = instructions as f64 * self.cycles_per_instruction + walks;
            (space, if all > 0.0 { (100.0 * walks / all) as u64 } else { 0 })
        };
        std::mem::take(&mut self.by_space).into_iter().map(share).collect()
    }
}
