//! The number of entries in use in a table: it is either counted in the entry that leads to the
//! table, or found by a search of the table.
//!
//! ```text
//!   counted      [ table | population ] --> [ . x . . x ]     one number says when the last goes
//!   not          [ table              ] --> [ . x . . x ]     whoever takes one looks for another
//! ```
//!
//! Entries of 32 bits have no room for a count, and RISC-V requires zeros there. The search begins
//! after the removed entry, so that removing pages by ascending address reads only one additional
//! entry per page.

use core::ops::Range;

use addr::{Memory, PhysAddr};

use super::{Part, Radix, Table};
use crate::Format;

impl<F: Format> Radix<F> {
    /// The number of entries in use in the table that `entry` leads to, if the format counts them.
    #[inline(always)]
    pub(super) fn used(&self, entry: u64) -> Option<u64> {
        F::COUNTS.then(|| self.format.population(entry))
    }

    /// `entry` with `by` added to the number of entries in use in its table, which must not become
    /// empty.
    #[inline(always)]
    pub(super) fn recounted(&self, entry: u64, by: i64) -> Option<u64> {
        if F::COUNTS { self.format.recounted(entry, by) } else { Some(entry) }
    }

    /// The updated `entry` that leads to `table` after `gone` entries of `part` have been removed from the
    /// table; `None` if the table is now empty.
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
            // The part has no more pages, but it may still have an entry that leads to a table.
            // Therefore the whole table is searched.
            but.start = but.end;
        }
        self.has_other(table.level, table.start, but, memory).then_some(entry)
    }

    /// The updated `entry` that leads to a `table` of `level` when the entry at `at` is removed from
    /// the table; `None` if the table would then be empty.
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

    /// Writes the population of `entry` to the entry at `at`, if the format counts.
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

    /// The offsets, in a table of `level`, of the entries for `part`.
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

    /// Whether `table` has an entry in use outside the offsets `but`.
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

    /// Whether `table` has an entry in use at these offsets. Only an entry that is zero is unused.
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
        // Eight entries are tested at a time, because a table with only one remaining page is
        // mostly empty.
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
