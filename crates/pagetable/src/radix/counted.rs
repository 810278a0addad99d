//! How many entries of a table are in use: by the count in the entry that leads to it, or by a search.
//!
//! ```text
//!   counted      [ table | population ] --> [ . x . . x ]     one number says when the last goes
//!   not          [ table              ] --> [ . x . . x ]     whoever takes one looks for another
//! ```
//!
//! Entries of 32 bits leave no room for a count. The search begins behind the entry that goes, so that
//! pages that go in the order of their addresses cost a look at one neighbor each.

use addr::{Memory, PhysAddr};

use super::{Radix, Table};
use crate::{Entry, Format};

impl<F: Format> Radix<F> {
    /// How many entries are in use of the table that `entry` leads to, if that is counted.
    #[inline(always)]
    pub(super) fn used(&self, entry: u64) -> Option<u64> {
        F::COUNTS.then(|| self.format.population(entry))
    }

    /// The `entry` that leads to a table in which `by` entries more are in use, and which is not empty.
    #[inline(always)]
    pub(super) fn recounted(&self, entry: u64, by: i64) -> Option<u64> {
        if F::COUNTS { self.format.recounted(entry, by) } else { Some(entry) }
    }

    /// The `entry` that leads to `table`, from which `gone` entries have been removed; `None` where
    /// the table is empty now.
    #[inline(always)]
    pub(super) fn less(
        &self,
        table: Table,
        entry: u64,
        gone: u64,
        memory: &impl Memory,
    ) -> Option<u64> {
        if F::COUNTS || gone == 0 {
            return self.recounted(entry, -(gone as i64));
        }
        self.has_other(table.level, table.start, None, memory).then_some(entry)
    }

    /// The `entry` that leads to a `table` of `level` once the entry at `at` is removed; `None` where
    /// the table then is empty.
    #[inline(always)]
    pub(super) fn less_one(
        &self,
        level: u8,
        table: PhysAddr,
        at: PhysAddr,
        entry: u64,
        memory: &impl Memory,
    ) -> Option<u64> {
        if F::COUNTS {
            return self.recounted(entry, -1);
        }
        self.has_other(level, table, Some(at), memory).then_some(entry)
    }

    /// Tells the entry at `at` the population that `entry` has.
    #[inline(always)]
    pub(super) fn write_population(
        &self,
        level: u8,
        at: PhysAddr,
        entry: u64,
        memory: &mut impl Memory,
    ) {
        if F::COUNTS {
            self.format.write_population(level, at, entry, memory);
        }
    }

    /// Whether an entry of `table` is in use besides that at `but`.
    #[cold]
    #[inline(never)]
    fn has_other(
        &self,
        level: u8,
        table: PhysAddr,
        but: Option<PhysAddr>,
        memory: &impl Memory,
    ) -> bool {
        let (bytes, step) = (self.format.table_size(level).bytes(), self.format.entry_bytes(level));
        let step = u64::from(step);
        let from = but.map_or(0, |but| but.get() - table.get() + step);
        (from..bytes).chain(0..from).step_by(step as usize).any(|offset| {
            let at = table.wrapping_add(offset);
            Some(at) != but
                && self.format.decode(self.format.read(level, at, memory), level) != Entry::Empty
        })
    }
}
