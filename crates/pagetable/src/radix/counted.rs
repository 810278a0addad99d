//! How many entries of a table are in use: by the count in the entry that leads to it, or by a search.
//!
//! ```text
//!   counted      [ table | population ] --> [ . x . . x ]     one number says when the last goes
//!   not          [ table              ] --> [ . x . . x ]     whoever takes one looks for another
//! ```
//!
//! Entries of 32 bits leave no room for a count, and RISC-V's must be zero there. The search begins behind what
//! goes, so that pages that go in the order of their addresses cost a look at one neighbor each.

use core::ops::Range;

use addr::{Memory, PhysAddr};

use super::{Part, Radix, Table};
use crate::Format;

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

    /// The `entry` that leads to `table`, from which `gone` entries of `part` have been removed; `None` where
    /// the table is empty now.
    #[inline(always)]
    pub(super) fn less(
        &self,
        table: Table,
        entry: u64,
        gone: u64,
        part: Part,
        memory: &impl Memory,
    ) -> Option<u64> {
        if F::COUNTS || gone == 0 {
            return self.recounted(entry, -(gone as i64));
        }
        let mut but = self.offsets(table.level, part);
        if table.level > 1 {
            // Of pages nothing is left in the part; a table there may still have some.
            but.start = but.end;
        }
        self.has_other(table.level, table.start, but, memory).then_some(entry)
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
        let first = at.get() - table.get();
        let end = first + self.entry_step(level);
        let is_last = end == self.format.table_size(level).bytes();
        let has_next = !is_last && self.format.read(level, table.wrapping_add(end), memory) != 0;
        (has_next || self.has_other(level, table, first..end, memory)).then_some(entry)
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

    /// Where in a table of `level` the entries for `part` lie.
    #[inline]
    pub(super) fn offsets(&self, level: u8, part: Part) -> Range<u64> {
        let offset = |addr| self.format.entry_offset(level, addr);
        offset(part.start)..offset(part.last) + self.entry_step(level)
    }

    /// The bytes of an entry.
    #[inline(always)]
    fn entry_step(&self, level: u8) -> u64 {
        u64::from(self.format.entry_bytes(level))
    }

    /// Whether an entry of `table` is in use besides those at the offsets `but`.
    #[cold]
    #[inline(never)]
    pub(super) fn has_other(
        &self,
        level: u8,
        table: PhysAddr,
        but: Range<u64>,
        memory: &impl Memory,
    ) -> bool {
        let bytes = self.format.table_size(level).bytes();
        self.any_used(level, table, but.end..bytes, memory)
            || self.any_used(level, table, 0..but.start, memory)
    }

    /// Whether an entry of `table` at these offsets is in use. No entry but zero is empty.
    fn any_used(
        &self,
        level: u8,
        table: PhysAddr,
        offsets: Range<u64>,
        memory: &impl Memory,
    ) -> bool {
        let step = self.entry_step(level);
        let read = |offset| self.format.read(level, table.wrapping_add(offset), memory);
        let (mut offset, end) = (offsets.start, offsets.end);
        // Eight at a time: a table in which one page is left is mostly empty.
        while end - offset >= 8 * step {
            if (0..8).fold(0, |bits, n| bits | read(offset + n * step)) != 0 {
                return true;
            }
            offset += 8 * step;
        }
        while offset < end {
            if read(offset) != 0 {
                return true;
            }
            offset += step;
        }
        false
    }
}
